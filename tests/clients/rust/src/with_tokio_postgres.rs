//! tokio-postgres: the extended protocol in binary, pipelined, portals, COPY.

use std::error::Error;
use std::fmt::Debug;
use std::pin::pin;
use std::time::{Duration, Instant};

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use futures::{SinkExt, TryStreamExt};
use pgvector::Vector;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio_postgres::types::{FromSql, FromSqlOwned, ToSql, Type};
use tokio_postgres::{Client, Config, NoTls};
use uuid::Uuid;

use crate::{
    LARGE, LARGE_COUNT, LARGE_SUM, LONG, Outcome, bounded, environment, equal, password, peak_memory, plain, report, soon, version,
};

const CLIENT: &str = "tokio-postgres";

pub async fn run() {
    println!("{CLIENT} | version | {}", version(CLIENT));
    report(CLIENT, "connect", connects()).await;
    report(CLIENT, "password", passwords()).await;
    types().await;
    report(CLIENT, "type vector", vectors()).await;
    report(CLIENT, "parameters", parameters()).await;
    report(CLIENT, "types of a statement", described()).await;
    report(CLIENT, "pipelined queries", pipelined()).await;
    report(CLIENT, "batch insert", batch()).await;
    report(CLIENT, "large result, row stream", large()).await;
    report(CLIENT, "large result, portal", large_portal()).await;
    report(CLIENT, "errors", errors()).await;
    report(CLIENT, "cancel", cancels()).await;
    report(CLIENT, "transactions", transactions()).await;
    report(CLIENT, "savepoints", savepoints()).await;
    report(CLIENT, "copy", copies()).await;
}

fn config() -> Config {
    let mut config = Config::new();
    config.host(environment("PGHOST")).port(environment("PGPORT").parse().expect("PGPORT is a number"));
    config.user(environment("PGUSER")).dbname(environment("PGDATABASE"));
    config
}

async fn connect_with(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

async fn connect() -> Result<Client, tokio_postgres::Error> {
    connect_with(&config()).await
}

fn code(error: &tokio_postgres::Error) -> String {
    error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned())
}

async fn code_of(client: &Client, statement: &str) -> String {
    match client.query(statement, &[]).await {
        Ok(_) => "no error".to_owned(),
        Err(error) => code(&error),
    }
}

async fn connects() -> Outcome {
    let client = connect().await?;
    let row = client.query_one("SELECT 1::bigint AS one, NULL::text AS two", &[]).await?;
    equal(&(row.try_get::<_, i64>("one")?, row.try_get::<_, Option<String>>("two")?), &(1, None))
}

async fn passwords() -> Outcome {
    let mut config = config();
    let client = connect_with(config.user("clients").password(password())).await?;
    let row = client.query_one("SELECT current_user::text", &[]).await?;
    equal(&row.try_get::<_, String>(0)?, &"clients".to_owned())?;
    let refused = connect_with(config.password("wrong")).await;
    equal(&refused.err().map(|error| code(&error)), &Some("28P01".to_owned()))
}

async fn types() {
    let day = NaiveDate::from_ymd_opt(2024, 2, 29).expect("a leap year");
    let local: NaiveDateTime = day.and_hms_micro_opt(1, 2, 3, 456).expect("a time of day");
    let instant: DateTime<Utc> = local.and_utc();
    let document: Value = json!({"a": [1, null, "{x}"]});
    let number = Decimal::from_i128_with_scale(-123_456_789, 4);
    let key = Uuid::from_u128(7);
    round_trip("smallint", -5_i16).await;
    round_trip("integer", i32::MAX).await;
    round_trip("bigint", i64::MIN).await;
    round_trip("real", 0.5_f32).await;
    round_trip("double precision", 0.1_f64).await;
    round_trip("boolean", true).await;
    round_trip("numeric(20, 4)", number).await;
    round_trip("text", "grüß \\ 'x'".to_owned()).await;
    round_trip("varchar(10)", "ten".to_owned()).await;
    round_trip("char(3)", "abc".to_owned()).await;
    round_trip("json", document.clone()).await;
    round_trip("jsonb", document.clone()).await;
    round_trip("uuid", key).await;
    round_trip("bytea", vec![0_u8, 255, 39]).await;
    round_trip("date", day).await;
    round_trip("timestamp", local).await;
    round_trip("timestamptz", instant).await;
    round_trip("smallint[]", vec![Some(1_i16), None]).await;
    round_trip("integer[]", vec![Some(1_i32), None]).await;
    round_trip("bigint[]", vec![Some(1_i64), None]).await;
    round_trip("double precision[]", vec![Some(0.5_f64), None]).await;
    round_trip("boolean[]", vec![Some(true), None]).await;
    round_trip("numeric(20, 4)[]", vec![Some(number), None]).await;
    round_trip("text[]", vec![Some("a,b".to_owned()), None, Some(String::new())]).await;
    round_trip("uuid[]", vec![Some(key), None]).await;
    round_trip("date[]", vec![Some(day), None]).await;
    round_trip("timestamptz[]", vec![Some(instant), None]).await;
    round_trip("varchar(10)[]", vec![Some("a,b".to_owned()), None]).await;
    round_trip("char(3)[]", vec![Some("abc".to_owned()), None]).await;
    round_trip("json[]", vec![Some(document.clone()), None]).await;
    round_trip("jsonb[]", vec![Some(document), None]).await;
}

async fn round_trip<T>(type_name: &str, value: T)
where
    T: ToSql + FromSqlOwned + PartialEq + Debug + Sync,
{
    report(CLIENT, &format!("type {type_name}"), stored(type_name, value)).await;
}

async fn stored<T>(type_name: &str, value: T) -> Outcome
where
    T: ToSql + FromSqlOwned + PartialEq + Debug + Sync,
{
    let client = connect().await?;
    let table = format!("tokio_postgres_{}", plain(type_name));
    client.batch_execute(&format!("CREATE TABLE {table} (id bigint, v {type_name})")).await?;
    let insert = client.prepare(&format!("INSERT INTO {table} VALUES ($1, $2)")).await?;
    client.execute(&insert, &[&1_i64, &value]).await?;
    client.execute(&insert, &[&2_i64, &None::<T>]).await?;
    let select = client.prepare(&format!("SELECT v FROM {table} ORDER BY id")).await?;
    let rows = client.query(&select, &[]).await?;
    let found = rows.iter().map(|row| row.try_get::<_, Option<T>>(0)).collect::<Result<Vec<_>, _>>()?;
    equal(&found, &vec![Some(value), None])
}

async fn vectors() -> Outcome {
    let client = connect().await?;
    client.batch_execute("CREATE TABLE tokio_postgres_vectors (id bigint, v vector(3))").await?;
    let vector = Vector::from(vec![1.0, 2.5, -3.0]);
    client.execute("INSERT INTO tokio_postgres_vectors VALUES (1, $1), (2, $2)", &[&vector, &None::<Vector>]).await?;
    let row = client.query_one("SELECT v, v <-> $1 FROM tokio_postgres_vectors ORDER BY v <-> $1 LIMIT 1", &[&vector]).await?;
    equal(&(row.try_get::<_, Vector>(0)?, row.try_get::<_, f64>(1)?), &(vector, 0.0))
}

async fn parameters() -> Outcome {
    let client = connect().await?;
    client.batch_execute("CREATE TABLE tokio_postgres_parameters (id bigint, name text, score double precision)").await?;
    let insert = "INSERT INTO tokio_postgres_parameters VALUES ($1, $2, $3)";
    client.execute(insert, &[&1_i64, &"it's", &None::<f64>]).await?;
    let select = "SELECT name FROM tokio_postgres_parameters WHERE id = ANY($1) AND name LIKE $2 AND score IS NULL LIMIT $3";
    let rows = client.query(select, &[&vec![1_i64, 2], &"it%", &5_i64]).await?;
    equal(&rows.len(), &1)?;
    let row = client.query_one("SELECT $1, $2::text", &[&"untyped", &None::<String>]).await?;
    equal(&(row.try_get::<_, String>(0)?, row.try_get::<_, Option<String>>(1)?), &("untyped".to_owned(), None))
}

async fn described() -> Outcome {
    let client = connect().await?;
    let columns = "a uuid, b jsonb, c numeric(8, 2), d varchar(7), e timestamptz, f bigint[]";
    client.batch_execute(&format!("CREATE TABLE tokio_postgres_described ({columns})")).await?;
    let insert = client.prepare("INSERT INTO tokio_postgres_described VALUES ($1, $2, $3, $4, $5, $6)").await?;
    let expected = [Type::UUID, Type::JSONB, Type::NUMERIC, Type::VARCHAR, Type::TIMESTAMPTZ, Type::INT8_ARRAY];
    equal(&insert.params().to_vec(), &expected.to_vec())?;
    equal(&insert.columns().len(), &0)?;
    let select = client.prepare("SELECT * FROM tokio_postgres_described WHERE a = $1 AND f = $2").await?;
    equal(&select.params().to_vec(), &vec![Type::UUID, Type::INT8_ARRAY])?;
    equal(&select.columns().iter().map(|column| column.type_().clone()).collect::<Vec<_>>(), &expected.to_vec())
}

/// Queries go out before the answers to those before them came.
async fn pipelined() -> Outcome {
    let client = connect().await?;
    let statement = client.prepare("SELECT $1::bigint * 2").await?;
    let numbers: Vec<i64> = (0..200).collect();
    let queries = numbers.iter().map(|number| {
        let (client, statement) = (&client, &statement);
        async move { client.query_one(statement, &[number]).await?.try_get::<_, i64>(0) }
    });
    let found = futures::future::try_join_all(queries).await?;
    equal(&found, &numbers.iter().map(|number| number * 2).collect::<Vec<_>>())
}

async fn batch() -> Outcome {
    let client = connect().await?;
    client.batch_execute("CREATE TABLE tokio_postgres_batch (id bigint PRIMARY KEY, name text)").await?;
    let ids: Vec<i64> = (0..1000).collect();
    let names: Vec<Option<String>> = ids.iter().map(|id| (id % 3 != 0).then(|| format!("name {id}"))).collect();
    let insert = "INSERT INTO tokio_postgres_batch SELECT * FROM unnest($1::bigint[], $2::text[])";
    equal(&client.execute(insert, &[&ids, &names]).await?, &1000)?;
    let row = client.query_one("SELECT count(*), count(name) FROM tokio_postgres_batch", &[]).await?;
    equal(&(row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?), &(1000, 666))
}

async fn large() -> Outcome {
    let client = connect().await?;
    let before = peak_memory();
    let mut rows = pin!(client.query_raw(LARGE, Vec::<i64>::new()).await?);
    let (mut count, mut sum) = (0, 0);
    while let Some(row) = rows.try_next().await? {
        count += 1;
        sum += i64::from(row.try_get::<_, Number>(0)?);
    }
    equal(&(count, sum), &(LARGE_COUNT, LARGE_SUM))?;
    bounded(before)
}

async fn large_portal() -> Outcome {
    let mut client = connect().await?;
    let before = peak_memory();
    let transaction = client.transaction().await?;
    let portal = transaction.bind(LARGE, &[]).await?;
    let (mut count, mut sum) = (0, 0);
    loop {
        let rows = transaction.query_portal(&portal, 10_000).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            count += 1;
            sum += i64::from(row.try_get::<_, Number>(0)?);
        }
    }
    transaction.commit().await?;
    equal(&(count, sum), &(LARGE_COUNT, LARGE_SUM))?;
    bounded(before)
}

/// An integer of either width: a series of small numbers is one of `integer` in PostgreSQL.
struct Number(i64);

impl From<Number> for i64 {
    fn from(number: Number) -> Self {
        number.0
    }
}

impl<'a> FromSql<'a> for Number {
    fn from_sql(type_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        if *type_ == Type::INT4 { i32::from_sql(type_, raw).map(|number| Self(number.into())) } else { i64::from_sql(type_, raw).map(Self) }
    }

    fn accepts(type_: &Type) -> bool {
        [Type::INT4, Type::INT8].contains(type_)
    }
}

async fn errors() -> Outcome {
    let client = connect().await?;
    client.batch_execute("CREATE TABLE tokio_postgres_errors (id bigint PRIMARY KEY)").await?;
    client.batch_execute("INSERT INTO tokio_postgres_errors VALUES (1)").await?;
    for (sqlstate, statement) in [
        ("23505", "INSERT INTO tokio_postgres_errors VALUES (1)"),
        ("42P01", "SELECT * FROM no_such_table"),
        ("22P02", "SELECT 'x'::bigint"),
        ("42601", "SELEC 1"),
    ] {
        equal(&code_of(&client, statement).await, &sqlstate.to_owned())?;
    }
    equal(&code_of(&client, "SELECT 1").await, &"no error".to_owned())
}

async fn cancels() -> Outcome {
    let client = connect().await?;
    let token = client.cancel_token();
    let started = Instant::now();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        token.cancel_query(NoTls).await
    };
    let (found, asked) = futures::future::join(code_of(&client, LONG), stop).await;
    asked?;
    equal(&found, &"57014".to_owned())?;
    soon(started)?;
    equal(&code_of(&client, "SELECT 1").await, &"no error".to_owned())
}

async fn transactions() -> Outcome {
    let mut client = connect().await?;
    client.batch_execute("CREATE TABLE tokio_postgres_transactions (id bigint)").await?;
    let transaction = client.transaction().await?;
    transaction.execute("INSERT INTO tokio_postgres_transactions VALUES ($1)", &[&1_i64]).await?;
    transaction.commit().await?;
    let transaction = client.transaction().await?;
    equal(&code_of(transaction.client(), "SELECT * FROM no_such_table").await, &"42P01".to_owned())?;
    equal(&code_of(transaction.client(), "SELECT 1").await, &"25P02".to_owned())?;
    transaction.rollback().await?;
    let row = client.query_one("SELECT count(*) FROM tokio_postgres_transactions", &[]).await?;
    equal(&row.try_get::<_, i64>(0)?, &1)
}

async fn savepoints() -> Outcome {
    let mut client = connect().await?;
    let mut outer = client.transaction().await?;
    let inner = outer.transaction().await?;
    equal(&code_of(inner.client(), "SELECT * FROM no_such_table").await, &"42P01".to_owned())?;
    inner.rollback().await?;
    equal(&code_of(outer.client(), "SELECT 1").await, &"no error".to_owned())?;
    outer.commit().await?;
    Ok(())
}

async fn copies() -> Outcome {
    let client = connect().await?;
    client.batch_execute("CREATE TABLE tokio_postgres_copy (id bigint, name text)").await?;
    let mut sink = pin!(client.copy_in::<str, &'static [u8]>("COPY tokio_postgres_copy FROM STDIN").await?);
    sink.send(&b"1\tone\n2\t\\N\n"[..]).await?;
    equal(&sink.as_mut().finish().await?, &2)?;
    let mut pieces = pin!(client.copy_out("COPY (SELECT * FROM tokio_postgres_copy ORDER BY id) TO STDOUT").await?);
    let mut text = Vec::new();
    while let Some(piece) = pieces.try_next().await? {
        text.extend_from_slice(&piece);
    }
    equal(&text, &b"1\tone\n2\t\\N\n".to_vec())
}
