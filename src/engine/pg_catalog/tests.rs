//! Shapes of queries that clients send and DataFusion does not plan, each with what PostgreSQL gives; and numbers of objects over a restart.

use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;

use crate::{Database, Result, Session};

/// The rows as texts, values with `|` between them.
async fn rows(session: &Session, sql: &str) -> Result<Vec<String>> {
    let batches: Vec<RecordBatch> = session.sql(sql).await?.try_collect().await?;
    let row_text = |batch: &RecordBatch, row: usize| {
        let cells = batch.columns().iter().map(|column| array_value_to_string(column, row).expect("a value can be shown"));
        cells.collect::<Vec<_>>().join("|")
    };
    Ok(batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| row_text(batch, row)).collect::<Vec<_>>()).collect())
}

async fn database(directory: &std::path::Path) -> Result<Session> {
    let session = Database::open(directory).await?.session();
    for statement in [
        "CREATE TABLE wiki (id text PRIMARY KEY, \"Title\" varchar(20) NOT NULL, rank integer DEFAULT 1, tags text[], v vector(3))",
        "CREATE TABLE pairs (a bigint, b bigint, CONSTRAINT pairs_both UNIQUE (b, a))",
        "CREATE INDEX wiki_v ON wiki USING hnsw (v vector_l2_ops) WITH (m = 8)",
        "CREATE VIEW titles AS SELECT \"Title\" FROM wiki",
    ] {
        rows(&session, statement).await?;
    }
    Ok(session)
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_shapes_of_queries_run() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = database(data.path()).await?;
    let cases: &[(&str, &[&str])] = &[
        // A subquery among the outputs that names the query round it, in a CASE, with LIMIT.
        (
            "SELECT a.attname, (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d \
             WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef LIMIT 1) FROM pg_catalog.pg_attribute a \
             WHERE a.attrelid = 'wiki'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            &["id|", "Title|", "rank|1", "tags|", "v|"],
        ),
        // Operators with their schema, and collations.
        (
            "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(wiki)$' COLLATE pg_catalog.default",
            &["wiki"],
        ),
        // Columns of an index: ANY over a vector of numbers, its subscripts from 0, and rows of it with their places.
        (
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) \
             WHERE i.indrelid = 'pairs'::regclass ORDER BY array_position(i.indkey, a.attnum)",
            &["b", "a"],
        ),
        ("SELECT i.indkey[0], i.indkey[1] FROM pg_index i WHERE i.indrelid = 'pairs'::regclass", &["2|1"]),
        (
            "SELECT x.n, a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS x(num, n) \
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = x.num WHERE i.indexrelid = 'pairs_both'::regclass ORDER BY x.n",
            &["1|b", "2|a"],
        ),
        (
            "SELECT (information_schema._pg_expandarray(i.indkey)).n, (information_schema._pg_expandarray(i.indkey)).x \
             FROM pg_index i WHERE i.indrelid = 'pairs'::regclass ORDER BY 1",
            &["1|2", "2|1"],
        ),
        (
            "SELECT unnest(conkey) AS attnum, generate_subscripts(conkey, 1) AS ord FROM pg_constraint WHERE conname = 'pairs_both' ORDER BY ord",
            &["2|1", "1|2"],
        ),
        // Arrays of subqueries, aggregates with an order and a filter.
        (
            "SELECT ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum) \
             FROM pg_class c WHERE c.relname = 'pairs'",
            &["[a, b]"],
        ),
        (
            "SELECT count(*) FILTER (WHERE attnum > 1), string_agg(attname, ',' ORDER BY attnum DESC), array_agg(attname ORDER BY attnum) \
             FROM pg_attribute WHERE attrelid = 'pairs'::regclass",
            &["1|b,a|[a, b]"],
        ),
        // Window functions.
        (
            "SELECT attname, row_number() OVER (PARTITION BY attrelid ORDER BY attnum DESC) AS n FROM pg_attribute \
             WHERE attrelid = 'pairs'::regclass ORDER BY n",
            &["b|1", "a|2"],
        ),
        // EXISTS, IN, set operations, and a query within WITH; a recursive one.
        (
            "WITH mine AS (SELECT oid, relname FROM pg_class WHERE relname IN ('wiki', 'pairs')) \
             SELECT relname FROM mine m WHERE EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = m.oid AND i.indisprimary) \
             UNION ALL SELECT nspname FROM pg_namespace WHERE oid IN (2200) ORDER BY 1",
            &["public", "wiki"],
        ),
        (
            "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i, current_schema() FROM n ORDER BY i DESC",
            &["3|public", "2|public", "1|public"],
        ),
        // Outer joins with conditions on either side.
        (
            "SELECT c.relname, i.indisprimary FROM pg_class c LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary \
             WHERE c.relname IN ('wiki', 'pairs') ORDER BY 1",
            &["pairs|", "wiki|true"],
        ),
        // Literals as names of objects, and back.
        ("SELECT 'wiki'::regclass::oid = c.oid, c.oid::regclass::text FROM pg_class c WHERE c.relname = 'wiki'", &["true|wiki"]),
        (
            "SELECT to_regtype('vector')::oid, 'bigint[]'::regtype, to_regclass('nothing'), 'public'::regnamespace::text",
            &["16380|bigint[]||public"],
        ),
        ("SELECT count(*) FROM pg_type WHERE oid = ANY ('{16380,25}'::oid[])", &["2"]),
        ("SELECT current_schemas(false), array_to_string(current_schemas(true), ',')", &["[public]|pg_catalog,public"]),
        // pgjdbc's look for a type by its name along the search path.
        (
            "SELECT typinput='pg_catalog.array_in'::regproc as is_array, typtype, typname, pg_type.oid FROM pg_catalog.pg_type \
             LEFT JOIN (select ns.oid as nspoid, ns.nspname, r.r from pg_namespace as ns join ( select s.r, (current_schemas(false))[s.r] as nspname \
             from generate_series(1, array_upper(current_schemas(false), 1)) as s(r) ) as r using ( nspname )) as sp ON sp.nspoid = typnamespace \
             WHERE typname = '_text' ORDER BY sp.r, pg_type.oid DESC LIMIT 1",
            &["true|b|_text|1009"],
        ),
        ("SELECT set_config('jit', 'off', false), current_setting('no_such', true)", &["off|"]),
        ("SELECT set_config(name, 'off', false), current_setting('jit') FROM pg_settings WHERE name = 'jit'", &["off|off"]),
        // The ADBC driver's types: `regproc` compares as a number and reads as a name.
        (
            "SELECT typname, typreceive FROM pg_catalog.pg_type WHERE (typreceive != 0 OR typsend != 0) AND typtype != 'r' \
             AND typreceive::TEXT != 'array_recv' AND typname IN ('bool', '_bool', 'vector') ORDER BY oid",
            &["bool|boolrecv", "vector|vector_recv"],
        ),
        // What a pool sends when it takes a connection back.
        ("SELECT pg_advisory_unlock_all()", &[""]),
        // Roles, and who asks.
        (
            "SELECT r.rolname = current_user, r.oid, r.rolsuper, u.usesysid, r.rolconnlimit FROM pg_roles r JOIN pg_user u ON u.usename = r.rolname",
            &["true|10|true|10|-1"],
        ),
        ("SELECT pg_has_role(current_user, 'MEMBER'), count(*) FROM pg_auth_members", &["true|0"]),
        (
            "SELECT c.relname, a.atttypid::regtype FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
          WHERE c.relname = 'pg_stat_activity' AND c.relnamespace = 'pg_catalog'::regnamespace AND a.attname IN ('datid', 'usename') ORDER BY 2",
            &["pg_stat_activity|name", "pg_stat_activity|oid"],
        ),
        ("SELECT pg_get_viewdef('titles'::regclass, true)", &[" SELECT \"Title\" FROM wiki;"]),
    ];
    for (sql, expected) in cases {
        assert_eq!(rows(&session, sql).await?, *expected, "{sql}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_catalog_query_is_told_with_its_code() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = database(data.path()).await?;
    for (sql, code) in [
        ("SELECT nothing FROM pg_class", "42703"),
        ("SELECT oid FROM pg_class, pg_namespace", "42702"),
        ("SELECT 'nothing'::regclass", "42P01"),
        ("SELECT 'nothing'::regtype", "42704"),
        ("SELECT * FROM pg_class WHERE oid = 'x'", "22P02"),
        ("SELECT * FROM pg_catalog.pg_nothing", "42P01"),
        ("SELECT (SELECT oid FROM pg_class) FROM pg_namespace", "21000"),
        ("SELECT relname FROM pg_class WHERE relname ~ '('", "22023"),
        ("SELECT current_setting('no_such')", "42704"),
        ("SELECT pg_no_such_function() FROM pg_class", "42883"),
    ] {
        let error = rows(&session, sql).await.expect_err(sql);
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
    }
    Ok(())
}

/// A cancel or a timeout ends a query that only computes.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_ends_when_its_rows_are_not_wanted_any_more() -> Result<()> {
    const LONG: &str =
        "SELECT count(*) FROM pg_tablespace, generate_series(1, 100000) AS a(n), generate_series(1, 100000) AS b(n) WHERE a.n + b.n < 0";
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = database(data.path()).await?;
    let running = tokio::spawn({
        let session = session.clone();
        async move { rows(&session, LONG).await }
    });
    while !running.is_finished() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        session.interrupt();
    }
    let error = running.await.expect("it does not panic").expect_err("nobody waits for its rows");
    assert_eq!(error.sqlstate(), "57014", "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_looked_at_only_for_queries_about_them() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = database(data.path()).await?;
    let without = super::Snapshot::load(&session, false).await?;
    assert_eq!((without.class_named(None, "wiki"), without.class_named(None, "pg_class")), (None, Some(1259)));
    let with = super::Snapshot::load(&session, true).await?;
    let number = with.class_named(Some("public"), "wiki").expect("it is there");
    assert_eq!(with.class(number).map(|class| class.name().to_owned()).as_deref(), Some("wiki"));
    Ok(())
}

/// What clients keep of a table is its number.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_objects_outlive_a_restart_and_a_new_name() -> Result<()> {
    const NUMBERS: &str = "SELECT 'relation ' || relname AS name, oid FROM pg_class WHERE relname !~ '^pg_' \
        UNION ALL SELECT 'constraint ' || conname, oid FROM pg_constraint UNION ALL SELECT 'type ' || typname, oid FROM pg_type \
        UNION ALL SELECT 'function ' || proname || oid, oid FROM pg_proc UNION ALL SELECT 'schema ' || nspname, oid FROM pg_namespace \
        UNION ALL SELECT 'default ' || adnum, oid FROM pg_attrdef ORDER BY 1, 2";
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = database(data.path()).await?;
    let before = rows(&session, NUMBERS).await?;
    assert!(before.len() > 200, "{} objects", before.len());
    let of_table = rows(&session, "SELECT 'pairs'::regclass::oid, 'pairs_both'::regclass::oid").await?;
    drop(session);
    let session = Database::open(data.path()).await?.session();
    assert_eq!(rows(&session, NUMBERS).await?, before);
    rows(&session, "ALTER TABLE pairs RENAME TO couples").await?;
    assert_eq!(rows(&session, "SELECT 'couples'::regclass::oid, 'pairs_both'::regclass::oid").await?, of_table);
    rows(&session, "DROP TABLE couples").await?;
    rows(&session, "CREATE TABLE couples (a bigint)").await?;
    assert_ne!(rows(&session, "SELECT 'couples'::regclass::oid").await?[0], of_table[0].split('|').next().unwrap_or_default());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn catalog_tables_join_with_others() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = database(data.path()).await?;
    rows(&session, "INSERT INTO pairs VALUES (1, 2)").await?;
    let joined = "SELECT p.a, c.relname, pg_catalog.pg_get_userbyid(c.relowner) = current_user \
                  FROM pairs p JOIN pg_catalog.pg_class c ON c.relname = 'pairs'";
    assert_eq!(rows(&session, joined).await?, ["1|pairs|true"]);
    let kept = "CREATE TABLE kept AS SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public'";
    rows(&session, kept).await?;
    assert_eq!(rows(&session, "SELECT * FROM kept ORDER BY 1").await?, ["pairs|BASE TABLE", "titles|VIEW", "wiki|BASE TABLE"]);
    // A table of the user's whose name begins as those of the catalog.
    rows(&session, "CREATE TABLE pg_notes (n bigint)").await?;
    assert_eq!(rows(&session, "SELECT count(*) FROM pg_notes").await?, ["0"]);
    Ok(())
}

/// As tables are read: each row has a value for each column, which is of the column's type.
#[tokio::test(flavor = "multi_thread")]
async fn every_catalog_table_can_be_read() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = database(data.path()).await?;
    let names = "SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_schema IN ('pg_catalog', 'information_schema')";
    let names = rows(&session, names).await?;
    assert!(names.len() > 80, "{} tables", names.len());
    for name in names {
        rows(&session, &format!("SELECT * FROM {name}")).await?;
        let widths = "SELECT count(*) FROM information_schema.columns WHERE table_schema || '.' || table_name = ";
        let columns = rows(&session, &format!("{widths}'{name}'")).await?;
        assert_ne!(columns, ["0"], "{name}");
    }
    Ok(())
}
