//! What works with rows and sessions: queries, COPY, TRAIN, settings; and errors in the text.

use expect_test::expect;

use super::*;

#[test]
fn several_statements() {
    check("", expect![[""]]);
    check(" ;; -- nothing\n /* at /* all */ */ ; ", expect![[""]]);
    check(
        "SELECT 1; ; -- one\nSHOW MODELS;",
        expect![[r#"
        SELECT | SELECT 1
        SHOW | SHOW MODELS"#]],
    );
    check(
        "SELECT 1 SHOW MODELS SELECT",
        expect![[r#"syntax error at or near "MODELS" (line 1, column 15): expected end of statement [at character 15]"#]],
    );
    check(
        "SHOW MODELS SELECT 1",
        expect![[r#"syntax error at or near "SELECT" (line 1, column 13): expected end of statement [at character 13]"#]],
    );
}

#[test]
fn generate_rollouts() {
    check(
        "GENERATE ROLLOUTS INTO run1 USING AGENT qa
           FROM (SELECT id, question, golden_answers FROM hotpotqa WHERE split = 'train' LIMIT 500)
           WITH (simulations = 64, children = 2, exploration = 1.414, alpha = 0.9, max_depth = 8, seed = 7);",
        expect![
            "GENERATE ROLLOUTS | GENERATE ROLLOUTS INTO run1 USING AGENT qa FROM (SELECT id, question, golden_answers FROM hotpotqa WHERE split = 'train' LIMIT 500) WITH (simulations = 64, children = 2, exploration = 1.414, alpha = 0.9, max_depth = 8, seed = 7)"
        ],
    );
    check(
        "GENERATE ROLLOUTS INTO Lab.\"Run 1\" USING AGENT \"QA\" FROM (VALUES (1, 'q'))",
        expect![[r#"GENERATE ROLLOUTS | GENERATE ROLLOUTS INTO lab."Run 1" USING AGENT "QA" FROM (VALUES (1, 'q'))"#]],
    );
    check(
        "GENERATE ROLOUTS INTO run1",
        expect![[r#"syntax error at or near "ROLOUTS" (line 1, column 10): expected ROLLOUTS [at character 10]"#]],
    );
    check(
        "GENERATE ROLLOUTS INTO run1 USING qa",
        expect![[r#"syntax error at or near "qa" (line 1, column 35): expected AGENT [at character 35]"#]],
    );
    check(
        "GENERATE ROLLOUTS INTO run1 USING AGENT qa FROM hotpotqa",
        expect![[
            r#"syntax error at or near "hotpotqa" (line 1, column 49): expected "(" and a query that gives questions [at character 49]"#
        ]],
    );
    check(
        "GENERATE ROLLOUTS INTO run1 USING AGENT qa FROM (SELECT 1",
        expect![[r#"syntax error at end of input: expected ")" [at character 58]"#]],
    );
}

#[test]
fn train() {
    check(
        "TRAIN SFT MODEL warm FROM policy USING (SELECT prompt, completion FROM demonstrations) WITH (epochs = 1)",
        expect!["TRAIN | TRAIN SFT MODEL warm FROM policy USING (SELECT prompt, completion FROM demonstrations) WITH (epochs = 1)"],
    );
    check(
        "train dpo model better from 'policy@3' using (select * from p) validate using (select * from v) with (beta = 0.3)",
        expect![
            "TRAIN | TRAIN DPO MODEL better FROM 'policy@3' USING (SELECT * FROM p) VALIDATE USING (SELECT * FROM v) WITH (beta = 0.3)"
        ],
    );
    check("TRAIN PRM MODEL m FROM policy@12 USING (SELECT 1)", expect!["TRAIN | TRAIN PRM MODEL m FROM 'policy@12' USING (SELECT 1)"]);
    check(
        "TRAIN RFT MODEL m FROM b USING (SELECT 1); TRAIN GRPO MODEL m FROM b USING (SELECT 1)",
        expect![[r#"
        TRAIN | TRAIN RFT MODEL m FROM b USING (SELECT 1)
        TRAIN | TRAIN GRPO MODEL m FROM b USING (SELECT 1)"#]],
    );
    check(
        "TRAIN DOP MODEL m FROM b USING (SELECT 1)",
        expect![[
            r#"syntax error at or near "DOP" (line 1, column 7): expected a training method (SFT, DPO, PRM, RFT, GRPO, PPO); did you mean DPO? [at character 7]"#
        ]],
    );
    check(
        "TRAIN MODEL m FROM b USING (SELECT 1)",
        expect![[
            r#"syntax error at or near "MODEL" (line 1, column 7): expected a training method (SFT, DPO, PRM, RFT, GRPO, PPO) [at character 7]"#
        ]],
    );
    check(
        "TRAIN DPO MODEL m@2 FROM b USING (SELECT 1)",
        expect![[
            r#"syntax error at or near "@" (line 1, column 18): the new model's name cannot contain "@"; versions are numbered by themselves [at character 18]"#
        ]],
    );
    check(
        "TRAIN DPO MODEL m FROM b WITH (beta = 0.1)",
        expect![[r#"syntax error at or near "WITH" (line 1, column 26): expected USING [at character 26]"#]],
    );
}

#[test]
fn dry_runs() {
    check(
        "train sft model m from b using (select 1) validate using (select 2) with (epochs = 2) dry run",
        expect!["TRAIN | TRAIN SFT MODEL m FROM b USING (SELECT 1) VALIDATE USING (SELECT 2) WITH (epochs = 2) DRY RUN"],
    );
    check("TRAIN DPO MODEL m FROM b USING (SELECT 1) DRY RUN", expect!["TRAIN | TRAIN DPO MODEL m FROM b USING (SELECT 1) DRY RUN"]);
    check("TRAIN DPO MODEL m FROM b USING (SELECT 1) DRY", expect!["syntax error at end of input: expected RUN [at character 46]"]);
    check(
        "TRAIN DPO MODEL m FROM b USING (SELECT 1) DRY RUN ASYNC",
        expect!["TRAIN ... DRY RUN ASYNC is not supported yet; a dry run answers at once; leave out ASYNC"],
    );
}

#[test]
fn jobs() {
    check("TRAIN DPO MODEL m FROM b USING (SELECT 1) ASYNC", expect!["TRAIN | TRAIN DPO MODEL m FROM b USING (SELECT 1) ASYNC"]);
    check("create index on t (a) async", expect!["CREATE INDEX | CREATE INDEX ON t USING btree (a) ASYNC"]);
    check("COPY t FROM 'f.csv' ASYNC", expect!["COPY | COPY t FROM 'f.csv' ASYNC"]);
    check("REINDEX TABLE t ASYNC", expect!["REINDEX | REINDEX TABLE t ASYNC"]);
    check(
        "OPTIMIZE ASYNC; OPTIMIZE t ASYNC; OPTIMIZE \"async\"",
        expect![[r#"
        OPTIMIZE | OPTIMIZE ASYNC
        OPTIMIZE | OPTIMIZE t ASYNC
        OPTIMIZE | OPTIMIZE "async""#]],
    );
    check(
        "SHOW JOBS; CANCEL JOB 3; RESUME JOB 4; WAIT FOR JOB 5",
        expect![[r#"
        SHOW | SHOW JOBS
        CANCEL JOB | CANCEL JOB 3
        RESUME JOB | RESUME JOB 4
        WAIT FOR JOB | WAIT FOR JOB 5"#]],
    );
    check(
        "INSERT INTO t SELECT a FROM s ASYNC; INSERT INTO t SELECT 1 ASYNC; INSERT INTO t (a) SELECT a FROM s x WHERE a > 1 ON CONFLICT DO NOTHING ASYNC",
        expect![[r#"
            INSERT | INSERT INTO t SELECT a FROM s ASYNC
            INSERT | INSERT INTO t SELECT 1 ASYNC
            INSERT | INSERT INTO t (a) SELECT a FROM s x WHERE a > 1 ON CONFLICT DO NOTHING ASYNC"#]],
    );
    check(
        "CREATE TABLE t AS SELECT * FROM s async; WITH s AS (SELECT 1) INSERT INTO t SELECT * FROM s ASYNC; CREATE TABLE t AS TABLE s ASYNC",
        expect![[r#"
        CREATE TABLE AS | CREATE TABLE t AS SELECT * FROM s ASYNC
        INSERT | WITH s AS (SELECT 1) INSERT INTO t SELECT * FROM s ASYNC
        CREATE TABLE AS | CREATE TABLE t AS SELECT * FROM s ASYNC"#]],
    );
    // A name of that sound.
    check(
        "INSERT INTO t SELECT a AS async FROM async AS async ORDER BY async; SELECT 1 async; INSERT INTO t SELECT a, async FROM s AS \"async\"",
        expect![[r#"
        INSERT | INSERT INTO t SELECT a AS async FROM async AS async ORDER BY async
        SELECT | SELECT 1 AS async
        INSERT | INSERT INTO t SELECT a, async FROM s AS "async""#]],
    );
    for refused in [
        "INSERT INTO t SELECT 1 RETURNING a ASYNC",
        "CREATE TEMP TABLE t AS SELECT 1 ASYNC",
        "DELETE FROM t ASYNC",
        "UPDATE t SET a = 1 FROM s ASYNC",
    ] {
        assert!(matches!(parse(refused), Err(Error::NotSupported { .. })), "{refused}: {:?}", parse(refused));
    }
    for refused in ["INSERT INTO t VALUES (1) ASYNC", "ALTER TABLE t ADD COLUMN a bigint ASYNC", "ANALYZE ASYNC"] {
        assert!(!matches!(parse(refused).as_deref(), Ok([Statement::Async(_)])), "{refused}");
    }
    let generated = "ALTER TABLE t ADD COLUMN v vector(3) GENERATED ALWAYS AS (embed('m', a)) STORED ASYNC";
    assert!(matches!(parse_one(generated), Statement::Async(_)));
}

#[test]
fn copy() {
    check(
        "COPY wiki (id, Title, contents) FROM 'corpus.jsonl' (FORMAT jsonl)",
        expect!["COPY | COPY wiki (id, title, contents) FROM 'corpus.jsonl' (format 'jsonl')"],
    );
    check(
        "COPY s.t FROM 'a.csv' WITH (FORMAT CSV, HEADER, NULL '', force_not_null (a, b))",
        expect![[r#"COPY | COPY s.t FROM 'a.csv' (format 'csv', header true, "null" '', force_not_null ['a', 'b'])"#]],
    );
    check(
        "COPY proguide TO 'rag.parquet'; COPY (SELECT 1 AS x) TO 'x.csv' (format csv, header true)",
        expect![[r#"
        COPY | COPY proguide TO 'rag.parquet'
        COPY | COPY (SELECT 1 AS x) TO 'x.csv' (format 'csv', header true)"#]],
    );
    check("COPY t FROM 'x' (FORMAT csv) ON ERROR SKIP", expect!["COPY | COPY t FROM 'x' (format 'csv', on_error 'skip')"]);
    check("COPY t FROM 'x' (ON_ERROR ignore) ON ERROR STOP", expect![[r#"option "on_error" is given twice"#]]);
    check("COPY t (a) TO $$it's$$", expect!["COPY | COPY t (a) TO 'it''s'"]);
    check(
        "COPY t FROM corpus.jsonl",
        expect![[
            r#"syntax error at or near "corpus" (line 1, column 13): expected the file's name in quotes, STDIN or STDOUT [at character 13]"#
        ]],
    );
    check("COPY t INTO 'x'", expect![[r#"syntax error at or near "INTO" (line 1, column 8): expected FROM or TO [at character 8]"#]]);
    check("COPY t TO 'x' STORED AS PARQUET", expect!["COPY ... STORED AS is not supported yet; write (FORMAT parquet)"]);
    check(
        "COPY t FROM 'x' PARQUET",
        expect![[
            r#"syntax error at or near "PARQUET" (line 1, column 17): expected options in parentheses, as in (FORMAT csv, HEADER true), or end of statement [at character 17]"#
        ]],
    );
    check("COPY t FROM 'x' (FORMAT csv, FORMAT jsonl)", expect![[r#"option "format" is given twice"#]]);
    check("COPY (DELETE FROM t) TO 'x'", expect!["DELETE inside a query is not supported yet; write the DELETE as a statement of its own"]);
}

#[test]
fn insert() {
    check(
        "INSERT INTO Wiki (ID, \"T t\") VALUES (1, 'a'), ($1, NULL)",
        expect![[r#"INSERT | INSERT INTO wiki (id, "T t") VALUES (1, 'a'), ($1, NULL)"#]],
    );
    check(
        "INSERT INTO s.t SELECT * FROM u; INSERT INTO t VALUES (ARRAY[1, 2], '[1,2]'::vector)",
        expect![[r#"
        INSERT | INSERT INTO s.t SELECT * FROM u
        INSERT | INSERT INTO t VALUES (ARRAY[1, 2], vector_in('[1,2]'))"#]],
    );
    check("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", expect!["INSERT | INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING"]);
    check("INSERT INTO t VALUES (1) RETURNING id, a + 1 AS b", expect!["INSERT | INSERT INTO t VALUES (1) RETURNING id, a + 1 AS b"]);
    check("INSERT INTO t AS x VALUES (1)", expect!["INSERT | INSERT INTO t AS x VALUES (1)"]);
    check(
        "INSERT INTO t (SELECT 1); INSERT INTO t (a) (SELECT 1)",
        expect![[r#"
        INSERT | INSERT INTO t (SELECT 1)
        INSERT | INSERT INTO t (a) (SELECT 1)"#]],
    );
    check(
        "INSERT INTO t VALUES (1) ON CONFLICT (ID) DO UPDATE SET (a, B) = (excluded.a, DEFAULT) WHERE t.a > 1",
        expect!["INSERT | INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET a = excluded.a, b = DEFAULT WHERE t.a > 1"],
    );
    check("INSERT t VALUES", expect![[r#"syntax error at or near "t" (line 1, column 8): expected INTO [at character 8]"#]]);
    check(
        "INSERT INTO t VALUES (1) ON CONFLICT DO DELETE",
        expect![[r#"syntax error at or near "DELETE" (line 1, column 41): expected NOTHING or UPDATE SET [at character 41]"#]],
    );
    check(
        "INSERT INTO t VALUES (1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING",
        expect!["ON CONFLICT ON CONSTRAINT is not supported yet; name the constraint's columns in parentheses"],
    );
}

#[test]
fn insert_of_defaults() {
    check(
        "INSERT INTO t DEFAULT VALUES; INSERT INTO t AS x DEFAULT VALUES ON CONFLICT DO NOTHING RETURNING id",
        expect![[r#"
        INSERT | INSERT INTO t DEFAULT VALUES
        INSERT | INSERT INTO t AS x DEFAULT VALUES ON CONFLICT DO NOTHING RETURNING id"#]],
    );
    check(
        "INSERT INTO t (a) DEFAULT VALUES",
        expect![[
            r#"syntax error at or near "DEFAULT" (line 1, column 19): expected SELECT, VALUES, or a subquery in the query body [at character 19]"#
        ]],
    );
    check(
        "insert into t (id, a) overriding system value values (1, default); INSERT INTO t OVERRIDING USER VALUE SELECT * FROM u",
        expect![[r#"
        INSERT | INSERT INTO t (id, a) OVERRIDING SYSTEM VALUE VALUES (1, default)
        INSERT | INSERT INTO t OVERRIDING USER VALUE SELECT * FROM u"#]],
    );
    check(
        "INSERT INTO t OVERRIDING VALUE VALUES (1)",
        expect![[r#"syntax error at or near "VALUE" (line 1, column 26): expected SYSTEM VALUE or USER VALUE [at character 26]"#]],
    );
}

#[test]
fn changes_after_with() {
    check(
        "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x; WITH x (A) AS (SELECT 1) INSERT INTO t WITH y AS (SELECT 2) SELECT * FROM x, y",
        expect![[r#"
        INSERT | WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x
        INSERT | WITH x (A) AS (SELECT 1) INSERT INTO t WITH y AS (SELECT 2) SELECT * FROM x, y"#]],
    );
    check(
        "WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT 2), y AS (SELECT '[1]'::vector) UPDATE t SET a = 1 FROM x WHERE t.a = 2",
        expect![
            "UPDATE | WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT 2), y AS (SELECT vector_in('[1]')) UPDATE t SET a = 1 FROM x WHERE t.a = 2"
        ],
    );
    check(
        "WITH x AS (SELECT 1 AS a) DELETE FROM t USING x WHERE t.a = x.a RETURNING t.a",
        expect!["DELETE | WITH x AS (SELECT 1 AS a) DELETE FROM t USING x WHERE t.a = x.a RETURNING t.a"],
    );
    check(
        "WITH x AS (SELECT 1 AS a) MERGE INTO t USING x ON t.a = x.a WHEN MATCHED THEN DELETE",
        expect!["MERGE | WITH x AS (SELECT 1 AS a) MERGE INTO t USING x ON t.a = x.a WHEN MATCHED THEN DELETE"],
    );
    check("WITH x AS (SELECT 1) (SELECT * FROM x)", expect!["SELECT | WITH x AS (SELECT 1) (SELECT * FROM x)"]);
    check(
        "WITH x AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM x",
        expect!["DELETE inside a query is not supported yet; write the DELETE as a statement of its own"],
    );
    check(
        "WITH X AS (SELECT 1) DELETE FROM t RETURNING (SELECT * FROM x)",
        expect!["RETURNING from a query of WITH is not supported yet; read it by a statement of its own"],
    );
    check(
        "WITH x AS (SELECT 1) WITH y AS (SELECT 2) SELECT 3",
        expect![[
            r#"syntax error at or near "WITH" (line 1, column 22): expected SELECT, INSERT, UPDATE, DELETE or MERGE [at character 22]"#
        ]],
    );
}

#[test]
fn update_of_several_columns() {
    check(
        "UPDATE t SET (a, B) = (1, DEFAULT), (c, d) = ROW(a + 1, f(2)), (e) = (3), (f) = (SELECT max(a) FROM u)",
        expect!["UPDATE | UPDATE t SET a = 1, b = DEFAULT, c = a + 1, d = f(2), e = (3), f = (SELECT max(a) FROM u)"],
    );
    check(
        "UPDATE t SET (a, b) = (1, 2, 3)",
        expect![[r#"syntax error at or near "a" (line 1, column 15): 2 columns are set to 3 values [at character 15]"#]],
    );
    check(
        "UPDATE t SET (A, \"B\") = (SELECT x, y FROM u WHERE u.id = t.id), c = 1, (d, e) = ((WITH v AS (SELECT 1) SELECT 1, 2))",
        expect![[
            r#"UPDATE | UPDATE t SET (a, "B") = (SELECT x, y FROM u WHERE u.id = t.id), c = 1, (d, e) = (WITH v AS (SELECT 1) SELECT 1, 2)"#
        ]],
    );
    check(
        "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET (b, c) = (SELECT 1, 2)",
        expect!["INSERT | INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET (b, c) = (SELECT 1, 2)"],
    );
    check(
        "UPDATE t SET (a, b) = c",
        expect!["SET of columns in parentheses to c is not supported yet; write (1, 2), ROW(1, 2) or a subquery"],
    );
}

#[test]
fn merge() {
    check(
        "MERGE INTO t AS x USING (SELECT 1 AS a) s ON x.a = s.a WHEN MATCHED AND s.a > 0 THEN UPDATE SET (a, b) = ROW(1, DEFAULT)
         WHEN NOT MATCHED BY SOURCE THEN DO NOTHING WHEN NOT MATCHED THEN INSERT (A, b) OVERRIDING SYSTEM VALUE VALUES (s.a, DEFAULT)",
        expect![
            "MERGE | MERGE INTO t AS x USING (SELECT 1 AS a) s ON x.a = s.a WHEN MATCHED AND s.a > 0 THEN UPDATE SET a = 1, b = DEFAULT WHEN NOT MATCHED BY SOURCE THEN DO NOTHING WHEN NOT MATCHED THEN INSERT (a, b) OVERRIDING SYSTEM VALUE VALUES (s.a, DEFAULT)"
        ],
    );
    check(
        "MERGE t USING u ON t.a = u.a WHEN NOT MATCHED BY TARGET THEN INSERT DEFAULT VALUES RETURNING t.a",
        expect!["MERGE | MERGE INTO t USING u ON t.a = u.a WHEN NOT MATCHED THEN INSERT DEFAULT VALUES RETURNING t.a"],
    );
    check(
        "MERGE INTO t USING u ON true WHEN MATCHED THEN INSERT DEFAULT VALUES",
        expect![[r#"syntax error at or near "INSERT" (line 1, column 48): expected UPDATE, DELETE or DO NOTHING [at character 48]"#]],
    );
}

#[test]
fn settings() {
    check(
        "SHOW TABLES; SHOW search_path; SHOW Rollout.Seed; SHOW ALL; SHOW TIME ZONE",
        expect![[r#"
        SHOW | SHOW TABLES
        SHOW | SHOW search_path
        SHOW | SHOW rollout.seed
        SHOW | SHOW ALL
        SHOW | SHOW timezone"#]],
    );
    check(
        "SHOW TRANSACTION ISOLATION LEVEL; SHOW \"TimeZone\"; SHOW \"tables\"",
        expect![[r#"
        SHOW | SHOW transaction_isolation
        SHOW | SHOW timezone
        SHOW | SHOW "tables""#]],
    );
    check(
        "SET search_path TO a, \"B\"; SET SESSION rollout.seed = -7; SET LOCAL DateStyle = ISO, MDY",
        expect![[r#"
        SET | SET search_path = 'a', 'B'
        SET | SET rollout.seed = -7
        SET | SET LOCAL datestyle = 'iso', 'mdy'"#]],
    );
    check(
        "SET TIME ZONE 'UTC'; SET NAMES 'UTF8'; SET standard_conforming_strings = on; SET x = 1.5",
        expect![[r#"
        SET | SET timezone = 'UTC'
        SET | SET client_encoding = 'UTF8'
        SET | SET standard_conforming_strings = 'on'
        SET | SET x = 1.5"#]],
    );
    check(
        "RESET ALL; RESET x.y; SET x TO DEFAULT; SET TIME ZONE LOCAL; DISCARD ALL; DISCARD TEMPORARY",
        expect![[r#"
        RESET | RESET ALL
        RESET | RESET x.y
        RESET | RESET x
        RESET | RESET timezone
        DISCARD ALL | DISCARD ALL
        DISCARD TEMP | DISCARD TEMP"#]],
    );
    check(
        "SET TRANSACTION READ ONLY; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; DISCARD PLANS",
        expect![[r#"
        SET | SET TRANSACTION READ ONLY
        SET | SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY
        DISCARD | DISCARD PLANS"#]],
    );
    check("SET x 1", expect![[r#"syntax error at or near "1" (line 1, column 7): expected "=" or TO [at character 7]"#]]);
    check("SET x =", expect![[r#"syntax error at end of input: expected a value for "x" [at character 8]"#]]);
    check("SHOW", expect!["syntax error at end of input: expected a setting's name [at character 5]"]);
}

#[test]
fn transactions() {
    check(
        "BEGIN; BEGIN WORK; START TRANSACTION; BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY",
        expect![[r#"
        BEGIN | BEGIN
        BEGIN | BEGIN
        BEGIN | BEGIN
        BEGIN | BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY"#]],
    );
    check(
        "BEGIN READ WRITE NOT DEFERRABLE; START TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY, DEFERRABLE",
        expect![[r#"
        BEGIN | BEGIN READ WRITE, NOT DEFERRABLE
        BEGIN | BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, DEFERRABLE"#]],
    );
    check(
        "SET LOCAL TRANSACTION READ WRITE; SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY",
        expect![[r#"
        SET | SET TRANSACTION READ WRITE
        SET | SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY"#]],
    );
    check(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE",
        expect!["SET | SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"],
    );
    check(
        "SET TRANSACTION",
        expect![
            "syntax error at end of input: expected READ ONLY, READ WRITE, ISOLATION LEVEL, DEFERRABLE or NOT DEFERRABLE [at character 16]"
        ],
    );
    check(
        "BEGIN READ ONLY, COMMIT",
        expect![[
            r#"syntax error at or near "COMMIT" (line 1, column 18): expected READ ONLY, READ WRITE, ISOLATION LEVEL, DEFERRABLE or NOT DEFERRABLE [at character 18]"#
        ]],
    );
    check(
        "BEGIN ISOLATION LEVEL SNAPSHOT",
        expect![[
            r#"syntax error at or near "SNAPSHOT" (line 1, column 23): expected READ UNCOMMITTED, READ COMMITTED, REPEATABLE READ or SERIALIZABLE [at character 23]"#
        ]],
    );
    check("SET TRANSACTION SNAPSHOT '00000003-1'", expect!["SET TRANSACTION SNAPSHOT is not supported yet"]);
    check(
        "COMMIT; END; COMMIT AND NO CHAIN; ROLLBACK; ABORT WORK; ROLLBACK TRANSACTION",
        expect![[r#"
        COMMIT | COMMIT
        COMMIT | COMMIT
        COMMIT | COMMIT
        ROLLBACK | ROLLBACK
        ROLLBACK | ROLLBACK
        ROLLBACK | ROLLBACK"#]],
    );
    check(
        "SAVEPOINT A; savepoint \"_pg3_1\"; RELEASE SAVEPOINT a; RELEASE a; SAVEPOINT savepoint; RELEASE savepoint",
        expect![[r#"
        SAVEPOINT | SAVEPOINT a
        SAVEPOINT | SAVEPOINT _pg3_1
        RELEASE | RELEASE SAVEPOINT a
        RELEASE | RELEASE SAVEPOINT a
        SAVEPOINT | SAVEPOINT savepoint
        RELEASE | RELEASE SAVEPOINT savepoint"#]],
    );
    check(
        "ROLLBACK TO a; ROLLBACK WORK TO SAVEPOINT \"B c\"; ROLLBACK TRANSACTION TO SAVEPOINT savepoint",
        expect![[r#"
        ROLLBACK | ROLLBACK TO SAVEPOINT a
        ROLLBACK | ROLLBACK TO SAVEPOINT "B c"
        ROLLBACK | ROLLBACK TO SAVEPOINT savepoint"#]],
    );
    check("ROLLBACK TO", expect!["syntax error at end of input: expected the savepoint's name [at character 12]"]);
    check("COMMIT PREPARED 'a'", expect!["two-phase commit is not supported yet"]);
    check("COMMIT AND CHAIN", expect!["AND CHAIN is not supported yet; write BEGIN afterwards"]);
    check("START", expect!["syntax error at end of input: expected TRANSACTION [at character 6]"]);
}

#[test]
fn explain() {
    check(
        "EXPLAIN SELECT 1; EXPLAIN ANALYZE VERBOSE SELECT 1; EXPLAIN FORMAT tree SELECT 1",
        expect![[r#"
        EXPLAIN | EXPLAIN SELECT 1
        EXPLAIN | EXPLAIN (ANALYZE, VERBOSE) SELECT 1
        EXPLAIN | EXPLAIN (FORMAT 'tree') SELECT 1"#]],
    );
    check(
        "EXPLAIN (ANALYZE, VERBOSE false, COSTS off, FORMAT JSON) TRAIN SFT MODEL m FROM b USING (SELECT 1)",
        expect!["EXPLAIN | EXPLAIN (ANALYZE, FORMAT 'json') TRAIN SFT MODEL m FROM b USING (SELECT 1)"],
    );
    check(
        "EXPLAIN (SELECT 1); EXPLAIN DELETE FROM t",
        expect![[r#"
        EXPLAIN | EXPLAIN (SELECT 1)
        EXPLAIN | EXPLAIN DELETE FROM t"#]],
    );
    check("EXPLAIN (ANALYSE) SELECT 1", expect![[r#"option "analyse" of EXPLAIN is unknown; did you mean analyze?"#]]);
    check("EXPLAIN (BUFFERS) SELECT 1", expect!["EXPLAIN (BUFFERS) is not supported yet"]);
    check("EXPLAIN (VERBOSE 3) SELECT 1", expect![[r#"option "verbose" of EXPLAIN is 3, expected true or false"#]]);
    check(
        "EXPLAIN EXPLAIN SELECT 1",
        expect![[r#"syntax error at or near "EXPLAIN" (line 1, column 9): EXPLAIN cannot explain an EXPLAIN [at character 9]"#]],
    );
}

#[test]
fn queries() {
    check(
        "(SELECT 1) UNION ALL VALUES (2); WITH x AS (SELECT 1) SELECT * FROM x; TABLE t",
        expect![[r#"
        SELECT | (SELECT 1) UNION ALL VALUES (2)
        SELECT | WITH x AS (SELECT 1) SELECT * FROM x
        SELECT | SELECT * FROM t"#]],
    );
    check(
        "SELECT * FROM vector_search(wiki, 'who directed Jaws', k => 3) s",
        expect!["SELECT | SELECT * FROM vector_search(wiki, 'who directed Jaws', k => 3) s"],
    );
    check(
        "SELECT avg(exact_match(a.answer, q.golden_answers)) AS em
         FROM hotpotqa q CROSS JOIN LATERAL answer(q.question, agent => 'qa', policy => 'better') a WHERE q.split = 'test'",
        expect![
            "SELECT | SELECT avg(exact_match(a.answer, q.golden_answers)) AS em FROM hotpotqa q CROSS JOIN LATERAL answer(q.question, agent => 'qa', policy => 'better') a WHERE q.split = 'test'"
        ],
    );
    check(
        "SELECT embed('m', t, kind => 'query') <=> $1 AS d FROM wiki, LATERAL f(wiki.x) ORDER BY d LIMIT 3",
        expect!["SELECT | SELECT embed('m', t, kind => 'query') <=> $1 AS d FROM wiki, LATERAL f(wiki.x) ORDER BY d LIMIT 3"],
    );
    check(
        "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
        expect!["DELETE inside a query is not supported yet; write the DELETE as a statement of its own"],
    );
    check("SELECT * FROM (SELECT 1 INTO u) t", expect!["SELECT INTO is not supported yet; write CREATE TABLE u AS SELECT ..."]);
    check("SELECT * INTO u FROM t", expect!["SELECT INTO is not supported yet; write CREATE TABLE u AS SELECT ..."]);
    check(
        "SELECT id FROM (SELECT id FROM t FOR UPDATE SKIP LOCKED) q",
        expect![
            "SELECT ... FOR UPDATE SKIP LOCKED is not supported yet; no row is locked here: leave it out, and put what must hold into WHERE of the UPDATE or DELETE"
        ],
    );
}

#[test]
fn casts_to_vector() {
    check(
        "SELECT '[1,2]'::vector, ('[1,2]')::Vector(2), CAST('[1]' AS vector(1)), $1::vector(3)",
        expect!["SELECT | SELECT vector_in('[1,2]'), vector_in('[1,2]', 2), vector_in('[1]', 1), vector_in($1, 3)"],
    );
    check(
        "SELECT a::vector(3), ARRAY[1, 2]::vector, NULL::vector, '{1}'::float[], '[1]'::vector::text",
        expect!["SELECT | SELECT a::vector(3), ARRAY[1, 2]::vector, NULL::vector, '{1}'::FLOAT[], vector_in('[1]')::TEXT"],
    );
    check(
        "UPDATE t SET v = '[1,2]'::vector WHERE v <-> '[0,0]'::vector < 1; DELETE FROM t WHERE v = '[1]'::vector",
        expect![[r#"
        UPDATE | UPDATE t SET v = vector_in('[1,2]') WHERE v <-> vector_in('[0,0]') < 1
        DELETE | DELETE FROM t WHERE v = vector_in('[1]')"#]],
    );
}

#[test]
fn distance_operators_bind_tighter_than_comparison() {
    check_grouping("0.3 > a <=> b", expect!["[0.3 > [a <=> b]]"]);
    check_grouping("a <=> b < 0.5 AND a <-> b >= 1", expect!["[[[a <=> b] < 0.5] AND [[a <-> b] >= 1]]"]);
    check_grouping("0.3 > a <-> b", expect!["[0.3 > [a <-> b]]"]);
    check_grouping("0.3 > a <#> b", expect!["[0.3 > [a <#> b]]"]);
    check_grouping("0.3 > a <+> b", expect!["[0.3 > [a <+> b]]"]);
    check_grouping("1 - a <=> b + c", expect!["[[1 - a] <=> [b + c]]"]);
    check_grouping("x = a <=> b", expect!["[x = [a <=> b]]"]);
    check_grouping("a <=> b BETWEEN 0 AND 1", expect!["[[a <=> b] between 0 and 1]"]);
}

#[test]
fn is_distinct_from_ends_before_and() {
    check_grouping("x IS DISTINCT FROM y AND z = 1", expect!["[x IS DISTINCT FROM y AND [z = 1]]"]);
    check_grouping("p AND x IS DISTINCT FROM y OR q", expect!["[[p AND x IS DISTINCT FROM y] OR q]"]);
    check_grouping("x IS NOT DISTINCT FROM y + 1 AND z", expect!["[x IS NOT DISTINCT FROM y + 1 AND z]"]);
    check_grouping("NOT x IS DISTINCT FROM y = z", expect!["NOT x IS DISTINCT FROM y = z"]);
}

#[test]
fn other_statements() {
    check(
        "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE; TRUNCATE TABLE t",
        expect![[r#"
            MERGE | MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE
            TRUNCATE TABLE | TRUNCATE t"#]],
    );
    check(
        "CREATE VIEW v AS SELECT 1; CREATE SCHEMA s; ALTER TABLE t ADD COLUMN a INT; DESCRIBE t",
        expect![[r#"
            CREATE VIEW | CREATE VIEW v AS SELECT 1
            CREATE SCHEMA | CREATE SCHEMA s
            ALTER TABLE | ALTER TABLE t ADD COLUMN a INT
            DESCRIBE | DESCRIBE TABLE t"#]],
    );
    check(
        "PREPARE p AS SELECT $1; EXECUTE p(1); DEALLOCATE p",
        expect![[r#"
        PREPARE | PREPARE p AS SELECT $1
        EXECUTE | EXECUTE p(1)
        DEALLOCATE | DEALLOCATE p"#]],
    );
    check(
        "PREPARE \"P\" (bigint, text[]) AS UPDATE t SET a = $1; EXECUTE \"P\" (1 + 1, 'x'); DEALLOCATE PREPARE ALL; DEALLOCATE prepare",
        expect![[r#"
            PREPARE | PREPARE "P"(BIGINT, TEXT[]) AS UPDATE t SET a = $1
            EXECUTE | EXECUTE "P"(1 + 1, 'x')
            DEALLOCATE ALL | DEALLOCATE ALL
            DEALLOCATE | DEALLOCATE prepare"#]],
    );
    check(
        "PREPARE p AS PREPARE q AS SELECT 1",
        expect![[
            r#"syntax error at or near "PREPARE" (line 1, column 14): expected SELECT, VALUES, INSERT, UPDATE, DELETE or MERGE [at character 14]"#
        ]],
    );
}

#[test]
fn misspelt_words() {
    check(
        "SELCT 1",
        expect![[r#"syntax error at or near "SELCT" (line 1, column 1): unknown statement; did you mean SELECT? [at character 1]"#]],
    );
    check(
        "CREATE MODLE m FROM 'x'",
        expect![[
            r#"syntax error at or near "MODLE" (line 1, column 8): unknown kind of object after CREATE; did you mean MODEL? [at character 8]"#
        ]],
    );
    check(
        "CREATE AGNET a",
        expect![[
            r#"syntax error at or near "AGNET" (line 1, column 8): unknown kind of object after CREATE; did you mean AGENT? [at character 8]"#
        ]],
    );
    check(
        "DROP MODELS m",
        expect![[
            r#"syntax error at or near "MODELS" (line 1, column 6): unknown kind of object after DROP; did you mean MODEL? [at character 6]"#
        ]],
    );
    check(
        "CREATE wombat",
        expect![[r#"syntax error at or near "wombat" (line 1, column 8): unknown kind of object after CREATE [at character 8]"#]],
    );
    check(
        "CREATE",
        expect!["syntax error at end of input: expected the kind of object after CREATE, such as TABLE or MODEL [at character 7]"],
    );
    check("frobnicate", expect![[r#"syntax error at or near "frobnicate" (line 1, column 1): unknown statement [at character 1]"#]]);
    check("42", expect![[r#"syntax error at or near "42" (line 1, column 1): expected a statement [at character 1]"#]]);
}

#[test]
fn places_of_errors() {
    check(
        "SELECT *\nFROM t\nWHERE é = = 1",
        expect![[r#"syntax error at or near "=" (line 3, column 11): expected an expression [at character 27]"#]],
    );
    check("SELECT 'abc", expect![[r#"syntax error at or near "'abc" (line 1, column 8): unterminated string literal [at character 8]"#]]);
    check(
        "SELECT \"abc",
        expect![[r#"syntax error at or near ""abc" (line 1, column 8): expected close delimiter '"' before EOF [at character 8]"#]],
    );
    check(
        "SELECT 1;\nSELECT (1;\nSELECT 2",
        expect![[r#"syntax error at or near ";" (line 2, column 10): expected ")" [at character 20]"#]],
    );
    check("SELECT a b c d", expect![[r#"syntax error at or near "c" (line 1, column 12): expected end of statement [at character 12]"#]]);
    check("SELECT * FROM t WHERE\n", expect!["syntax error at end of input: expected an expression [at character 23]"]);
}
