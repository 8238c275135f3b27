//! sqlx: prepared statements in binary, types by name that it looks up in `pg_type`.

use std::fmt::Debug;
use std::time::Instant;

use chrono::NaiveDate;
use futures::TryStreamExt;
use pgvector::Vector;
use rust_decimal::Decimal;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Decode, Encode, PgConnection, Postgres, Row, Type};
use uuid::Uuid;

use crate::{
    LARGE, LARGE_COUNT, LARGE_SUM, LONG, Outcome, bounded, environment, equal, password, peak_memory, plain, report, soon, version,
};

const CLIENT: &str = "sqlx";

pub async fn run() {
    println!("{CLIENT} | version | {}", version(CLIENT));
    report(CLIENT, "connect", connects()).await;
    report(CLIENT, "password", passwords()).await;
    types().await;
    report(CLIENT, "type vector", vectors()).await;
    report(CLIENT, "parameters", parameters()).await;
    report(CLIENT, "batch insert", batch()).await;
    report(CLIENT, "large result", large()).await;
    report(CLIENT, "errors", errors()).await;
    report(CLIENT, "statement_timeout", timeouts()).await;
    report(CLIENT, "transactions", transactions()).await;
    report(CLIENT, "copy", copies()).await;
    report(CLIENT, "pool", pools()).await;
}

fn options() -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .host(&environment("PGHOST"))
        .port(environment("PGPORT").parse().expect("PGPORT is a number"))
        .username(&environment("PGUSER"))
        .database(&environment("PGDATABASE"))
}

async fn connect() -> sqlx::Result<PgConnection> {
    PgConnection::connect_with(&options()).await
}

fn code(error: &sqlx::Error) -> String {
    let found = error.as_database_error().and_then(|error| error.code());
    found.map_or_else(|| error.to_string(), std::borrow::Cow::into_owned)
}

async fn execute(connection: &mut PgConnection, statement: &str) -> sqlx::Result<u64> {
    let done = sqlx::query::<Postgres>(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(done.rows_affected())
}

async fn code_of(connection: &mut PgConnection, statement: &str) -> String {
    match execute(connection, statement).await {
        Ok(_) => "no error".to_owned(),
        Err(error) => code(&error),
    }
}

async fn count(connection: &mut PgConnection, table: &str) -> sqlx::Result<i64> {
    let row = sqlx::query::<Postgres>(AssertSqlSafe(format!("SELECT count(*) FROM {table}"))).fetch_one(connection).await?;
    row.try_get(0)
}

async fn connects() -> Outcome {
    let mut connection = connect().await?;
    let row = sqlx::query::<Postgres>("SELECT 1::bigint AS one, NULL::text AS two").fetch_one(&mut connection).await?;
    equal(&(row.try_get::<i64, _>("one")?, row.try_get::<Option<String>, _>("two")?), &(1, None))?;
    connection.ping().await?;
    connection.close().await?;
    Ok(())
}

async fn passwords() -> Outcome {
    let right = options().username("clients").password(&password());
    let mut connection = PgConnection::connect_with(&right).await?;
    let row = sqlx::query::<Postgres>("SELECT current_user::text").fetch_one(&mut connection).await?;
    equal(&row.try_get::<String, _>(0)?, &"clients".to_owned())?;
    let refused = PgConnection::connect_with(&right.password("wrong")).await;
    equal(&refused.err().map(|error| code(&error)), &Some("28P01".to_owned()))
}

async fn types() {
    let day = NaiveDate::from_ymd_opt(2024, 2, 29).expect("a leap year");
    let local = day.and_hms_micro_opt(1, 2, 3, 456).expect("a time of day");
    let key = Uuid::from_u128(7);
    let number = Decimal::from_i128_with_scale(-123_456_789, 4);
    round_trip("smallint", -5_i16).await;
    round_trip("integer", i32::MAX).await;
    round_trip("bigint", i64::MIN).await;
    round_trip("real", 0.5_f32).await;
    round_trip("double precision", 0.1_f64).await;
    round_trip("boolean", true).await;
    round_trip("numeric(20, 4)", number).await;
    round_trip("text", "grüß \\ 'x'".to_owned()).await;
    round_trip("varchar(10)", "ten".to_owned()).await;
    round_trip("json", sqlx::types::Json(json!({"a": [1, null, "{x}"]}))).await;
    round_trip("jsonb", json!({"a": [1, null, "{x}"]})).await;
    round_trip("uuid", key).await;
    round_trip("bytea", vec![0_u8, 255, 39]).await;
    round_trip("date", day).await;
    round_trip("timestamp", local).await;
    round_trip("timestamptz", local.and_utc()).await;
    round_trip("bigint[]", vec![Some(1_i64), None]).await;
    round_trip("boolean[]", vec![Some(true), None]).await;
    round_trip("double precision[]", vec![Some(0.5_f64), None]).await;
    round_trip("text[]", vec![Some("a,b".to_owned()), None, Some(String::new())]).await;
    round_trip("uuid[]", vec![Some(key), None]).await;
    round_trip("varchar(10)[]", vec![Some("a,b".to_owned()), None]).await;
    round_trip("jsonb[]", vec![Some(json!({"a": [1, null, "{x}"]})), None]).await;
}

async fn round_trip<T>(type_name: &str, value: T)
where
    T: Clone + Debug + PartialEq + Send + Type<Postgres> + for<'q> Encode<'q, Postgres> + for<'r> Decode<'r, Postgres> + 'static,
{
    report(CLIENT, &format!("type {type_name}"), stored(type_name, value)).await;
}

async fn stored<T>(type_name: &str, value: T) -> Outcome
where
    T: Clone + Debug + PartialEq + Send + Type<Postgres> + for<'q> Encode<'q, Postgres> + for<'r> Decode<'r, Postgres> + 'static,
{
    let mut connection = connect().await?;
    let table = format!("sqlx_{}", plain(type_name));
    execute(&mut connection, &format!("CREATE TABLE {table} (id bigint, v {type_name})")).await?;
    let insert = format!("INSERT INTO {table} VALUES ($1, $2), ($3, $4)");
    let insert = sqlx::query::<Postgres>(AssertSqlSafe(insert)).bind(1_i64).bind(value.clone()).bind(2_i64).bind(None::<T>);
    insert.execute(&mut connection).await?;
    let select = sqlx::query::<Postgres>(AssertSqlSafe(format!("SELECT v FROM {table} ORDER BY id")));
    let rows = select.fetch_all(&mut connection).await?;
    let found = rows.iter().map(|row| row.try_get::<Option<T>, _>(0)).collect::<Result<Vec<_>, _>>()?;
    equal(&found, &vec![Some(value), None])
}

async fn vectors() -> Outcome {
    let mut connection = connect().await?;
    execute(&mut connection, "CREATE TABLE sqlx_vectors (id bigint, v vector(3))").await?;
    let vector = Vector::from(vec![1.0, 2.5, -3.0]);
    let insert = sqlx::query::<Postgres>("INSERT INTO sqlx_vectors VALUES (1, $1), (2, $2)").bind(vector.clone()).bind(None::<Vector>);
    insert.execute(&mut connection).await?;
    let select = sqlx::query::<Postgres>("SELECT v, v <-> $1 FROM sqlx_vectors ORDER BY v <-> $1 LIMIT 1").bind(vector.clone());
    let row = select.fetch_one(&mut connection).await?;
    equal(&(row.try_get::<Vector, _>(0)?, row.try_get::<f64, _>(1)?), &(vector, 0.0))
}

async fn parameters() -> Outcome {
    let mut connection = connect().await?;
    execute(&mut connection, "CREATE TABLE sqlx_parameters (id bigint, name text)").await?;
    let insert = sqlx::query::<Postgres>("INSERT INTO sqlx_parameters VALUES ($1, $2)").bind(1_i64).bind("it's");
    insert.execute(&mut connection).await?;
    let select = "SELECT name FROM sqlx_parameters WHERE id = ANY($1) AND name LIKE $2 LIMIT $3";
    let select = sqlx::query::<Postgres>(select).bind(vec![1_i64, 2]).bind("it%").bind(5_i64);
    equal(&select.fetch_all(&mut connection).await?.len(), &1)
}

async fn batch() -> Outcome {
    let mut connection = connect().await?;
    execute(&mut connection, "CREATE TABLE sqlx_batch (id bigint PRIMARY KEY, name text)").await?;
    let ids: Vec<i64> = (0..1000).collect();
    let names: Vec<String> = ids.iter().map(|id| format!("name {id}")).collect();
    let insert = sqlx::query::<Postgres>("INSERT INTO sqlx_batch SELECT * FROM unnest($1::bigint[], $2::text[])").bind(ids).bind(names);
    equal(&insert.execute(&mut connection).await?.rows_affected(), &1000)?;
    equal(&count(&mut connection, "sqlx_batch").await?, &1000)
}

async fn large() -> Outcome {
    let mut connection = connect().await?;
    let before = peak_memory();
    let (mut count, mut sum) = (0, 0);
    let mut rows = sqlx::query::<Postgres>(LARGE).fetch(&mut connection);
    while let Some(row) = rows.try_next().await? {
        count += 1;
        // A series of small numbers is one of `integer` in PostgreSQL.
        sum += row.try_get::<i64, _>(0).or_else(|_| row.try_get::<i32, _>(0).map(i64::from))?;
    }
    equal(&(count, sum), &(LARGE_COUNT, LARGE_SUM))?;
    bounded(before)
}

async fn errors() -> Outcome {
    let mut connection = connect().await?;
    execute(&mut connection, "CREATE TABLE sqlx_errors (id bigint PRIMARY KEY)").await?;
    execute(&mut connection, "INSERT INTO sqlx_errors VALUES (1)").await?;
    for (sqlstate, statement) in [
        ("23505", "INSERT INTO sqlx_errors VALUES (1)"),
        ("42P01", "SELECT * FROM no_such_table"),
        ("22P02", "SELECT 'x'::bigint"),
        ("42601", "SELEC 1"),
    ] {
        equal(&code_of(&mut connection, statement).await, &sqlstate.to_owned())?;
    }
    let refused = execute(&mut connection, "INSERT INTO sqlx_errors VALUES (1)").await;
    let is_of_key = refused.err().and_then(|error| error.as_database_error().map(|error| error.is_unique_violation()));
    equal(&is_of_key, &Some(true))
}

/// sqlx has no cancel of its own.
async fn timeouts() -> Outcome {
    let mut connection = PgConnection::connect_with(&options().options([("statement_timeout", "300")])).await?;
    let started = Instant::now();
    equal(&code_of(&mut connection, LONG).await, &"57014".to_owned())?;
    soon(started)
}

async fn transactions() -> Outcome {
    let mut connection = connect().await?;
    execute(&mut connection, "CREATE TABLE sqlx_transactions (id bigint)").await?;
    let mut transaction = connection.begin().await?;
    execute(&mut transaction, "INSERT INTO sqlx_transactions VALUES (1)").await?;
    transaction.commit().await?;
    let mut transaction = connection.begin().await?;
    equal(&code_of(&mut transaction, "SELECT * FROM no_such_table").await, &"42P01".to_owned())?;
    equal(&code_of(&mut transaction, "SELECT 1").await, &"25P02".to_owned())?;
    transaction.rollback().await?;
    equal(&count(&mut connection, "sqlx_transactions").await?, &1)
}

async fn copies() -> Outcome {
    let mut connection = connect().await?;
    execute(&mut connection, "CREATE TABLE sqlx_copy (id bigint, name text)").await?;
    let mut sink = connection.copy_in_raw("COPY sqlx_copy FROM STDIN").await?;
    sink.send("1\tone\n2\t\\N\n".as_bytes()).await?;
    equal(&sink.finish().await?, &2)?;
    let mut pieces = connection.copy_out_raw("COPY (SELECT * FROM sqlx_copy ORDER BY id) TO STDOUT").await?;
    let mut text = Vec::new();
    while let Some(piece) = pieces.try_next().await? {
        text.extend_from_slice(&piece);
    }
    equal(&text, &b"1\tone\n2\t\\N\n".to_vec())
}

async fn pools() -> Outcome {
    let pool = PgPoolOptions::new().max_connections(4).connect_with(options()).await?;
    for number in 0..8_i64 {
        let row = sqlx::query::<Postgres>("SELECT $1::bigint").bind(number).fetch_one(&pool).await?;
        equal(&row.try_get::<i64, _>(0)?, &number)?;
    }
    pool.close().await;
    Ok(())
}
