//! What makes and drops things: models, agents, tables, indexes; and options.

use expect_test::expect;

use super::*;
use crate::ast::Ident;

#[test]
fn comments() {
    check(
        "comment on table S.Wiki is 'it''s'; COMMENT ON COLUMN s.wiki.\"Title\" IS NULL; comment on schema s is ''",
        expect![[r#"
        COMMENT | COMMENT ON TABLE s.wiki IS 'it''s'
        COMMENT | COMMENT ON COLUMN s.wiki."Title" IS NULL
        COMMENT | COMMENT ON SCHEMA s IS NULL"#]],
    );
    check(
        "COMMENT ON COLUMN title IS 'x'",
        expect![[
            r#"syntax error at or near "IS" (line 1, column 25): a column is named with its table: COMMENT ON COLUMN table.column [at character 25]"#
        ]],
    );
}

#[test]
fn models() {
    check(
        "create model MiniLM from 'hf://o/m' with (task = 'embed')",
        expect!["CREATE MODEL | CREATE MODEL minilm FROM 'hf://o/m' WITH (task = 'embed')"],
    );
    check(
        "CREATE MODEL IF NOT EXISTS \"My Model\" FROM E'it\\'s'",
        expect![[r#"CREATE MODEL | CREATE MODEL IF NOT EXISTS "My Model" FROM 'it''s'"#]],
    );
    check(
        "CREATE MODEL t FROM 'random://qwen2' USING (SELECT prompt FROM demo) WITH (hidden_size = 128, seed = 7)",
        expect!["CREATE MODEL | CREATE MODEL t FROM 'random://qwen2' USING (SELECT prompt FROM demo) WITH (hidden_size = 128, seed = 7)"],
    );
    check(
        "DROP MODEL gpt4o; DROP MODEL IF EXISTS policy@3; DROP MODEL 'Policy@3'",
        expect![[r#"
        DROP MODEL | DROP MODEL gpt4o
        DROP MODEL | DROP MODEL IF EXISTS 'policy@3'
        DROP MODEL | DROP MODEL 'Policy@3'"#]],
    );
    check(
        "SHOW MODELS; DESCRIBE MODEL Policy; DESC MODEL 'policy@3'",
        expect![[r#"
        SHOW | SHOW MODELS
        DESCRIBE MODEL | DESCRIBE MODEL policy
        DESCRIBE MODEL | DESCRIBE MODEL 'policy@3'"#]],
    );
    check(
        "CREATE MODEL FROM 'x'",
        expect![[r#"syntax error at or near "FROM" (line 1, column 14): expected the model's name [at character 14]"#]],
    );
    check(
        "CREATE MODEL m FROM hf",
        expect![[
            r#"syntax error at or near "hf" (line 1, column 21): expected the model's source in quotes, such as 'hf://org/name' [at character 21]"#
        ]],
    );
    check("CREATE MODEL m", expect!["syntax error at end of input: expected FROM [at character 15]"]);
    check(
        "CREATE MODEL 'm@3' FROM 'x'",
        expect![[
            r#"syntax error at or near "'m@3'" (line 1, column 14): the model's name cannot contain "@"; versions are numbered by themselves [at character 14]"#
        ]],
    );
    check(
        "CREATE MODEL \"\" FROM 'x'",
        expect![[r#"syntax error at or near """" (line 1, column 14): the model's name cannot be empty [at character 14]"#]],
    );
    check(
        "CREATE MODEL m FROM 'x' USING SELECT 1",
        expect![[r#"syntax error at or near "SELECT" (line 1, column 31): expected "(" and a query that gives texts [at character 31]"#]],
    );
    check(
        "CREATE OR REPLACE MODEL m FROM 'x'",
        expect!["CREATE OR REPLACE MODEL is not supported yet; write DROP MODEL IF EXISTS first, or CREATE MODEL IF NOT EXISTS"],
    );
    check(
        "DESCRIBE MODEL policy@latest",
        expect![[r#"syntax error at or near "latest" (line 1, column 23): expected a version number after "@" [at character 23]"#]],
    );
}

#[test]
fn agents() {
    check(
        "CREATE AGENT qa WITH (policy = policy@3, corpus = 'wiki', k = 3, protocol = ReasonRAG)",
        expect!["CREATE AGENT | CREATE AGENT qa WITH (policy = 'policy@3', corpus = 'wiki', k = 3, protocol = 'reasonrag')"],
    );
    check(
        "CREATE AGENT IF NOT EXISTS qa; DROP AGENT IF EXISTS qa; SHOW AGENTS; DESCRIBE AGENT QA",
        expect![[r#"
        CREATE AGENT | CREATE AGENT IF NOT EXISTS qa
        DROP AGENT | DROP AGENT IF EXISTS qa
        SHOW | SHOW AGENTS
        DESCRIBE AGENT | DESCRIBE AGENT qa"#]],
    );
    check(
        "CREATE AGENT qa (policy = 'policy')",
        expect![[r#"syntax error at or near "(" (line 1, column 17): expected end of statement [at character 17]"#]],
    );
}

#[test]
fn options() {
    check(
        "CREATE AGENT a WITH (t = 'it''s', I = -3, f = 1e-6, g = +2.50, h = .5, b = TRUE, w = Hnsw, q = \"Hnsw\", n = null, alone)",
        expect![
            "CREATE AGENT | CREATE AGENT a WITH (t = 'it''s', i = -3, f = 1e-6, g = 2.5, h = 0.5, b = true, w = 'hnsw', q = 'Hnsw', n = NULL, alone = true)"
        ],
    );
    check(
        "CREATE AGENT a WITH (l = ['a', b, -1], m = ARRAY[1.5], n = ('x'), big = -9223372036854775808, u = 1_000)",
        expect!["CREATE AGENT | CREATE AGENT a WITH (l = ['a', 'b', -1], m = [1.5], n = ['x'], big = -9223372036854775808, u = 1000)"],
    );
    check("CREATE AGENT a WITH (k = 1, K = 2)", expect![[r#"option "k" is given twice"#]]);
    check(
        "CREATE AGENT a WITH (k = 9223372036854775808)",
        expect![[r#"option "k" has the number 9223372036854775808, which is out of range"#]],
    );
    check("CREATE AGENT a WITH (k = 1e999)", expect![[r#"option "k" has the number 1e999, which is out of range"#]]);
    check(
        "CREATE AGENT a WITH (k 1)",
        expect![[r#"syntax error at or near "1" (line 1, column 24): expected "=" after the option's name "k" [at character 24]"#]],
    );
    check(
        "CREATE AGENT a WITH ()",
        expect![[r#"syntax error at or near ")" (line 1, column 22): expected an option's name [at character 22]"#]],
    );
    check(
        "CREATE AGENT a WITH (k = )",
        expect![[r#"syntax error at or near ")" (line 1, column 26): expected a value for "k" [at character 26]"#]],
    );
    check(
        "CREATE AGENT a WITH (k = [['a']])",
        expect![[r#"syntax error at or near "[" (line 1, column 27): expected a value for "k" [at character 27]"#]],
    );
    check(
        "CREATE AGENT a WITH (k = 1 + 1)",
        expect![[r#"syntax error at or near "+" (line 1, column 28): expected "," or ")" [at character 28]"#]],
    );
    check("CREATE AGENT a WITH (k = 1", expect![[r#"syntax error at end of input: expected "," or ")" [at character 27]"#]]);
}

#[test]
fn options_are_found_by_name_and_keep_their_order() {
    let Statement::CreateAgent(agent) = parse_one("CREATE AGENT a WITH (Zeta = 1, alpha = 'x')") else { panic!("no agent") };
    assert_eq!(agent.options.get("zeta"), Some(&OptionValue::Integer(1)));
    assert_eq!(agent.options.get("beta"), None);
    assert_eq!(agent.options.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["zeta", "alpha"]);
    assert_eq!((agent.options.len(), agent.options.is_empty()), (2, false));
}

#[test]
fn create_table() {
    check(
        "CREATE TABLE wiki (id text PRIMARY KEY, Title text NOT NULL, contents text DEFAULT 'none', tags text[] NULL,
           embedding vector(384) GENERATED ALWAYS AS (embed('minilm', contents)) STORED)",
        expect![
            "CREATE TABLE | CREATE TABLE wiki (id TEXT PRIMARY KEY, title TEXT NOT NULL, contents TEXT DEFAULT 'none', tags TEXT[], embedding vector(384) GENERATED ALWAYS AS (embed('minilm', contents)) STORED)"
        ],
    );
    check(
        "CREATE TABLE IF NOT EXISTS a.t (x int, \"Y z\" double precision UNIQUE, CONSTRAINT pk PRIMARY KEY (x, \"Y z\"))",
        expect![[
            r#"CREATE TABLE | CREATE TABLE IF NOT EXISTS a.t (x INT, "Y z" DOUBLE PRECISION UNIQUE, CONSTRAINT pk PRIMARY KEY (x, "Y z"))"#
        ]],
    );
    check(
        "CREATE TABLE proguide AS SELECT * FROM preference_pairs(run1, min_gap => 0.01)",
        expect!["CREATE TABLE AS | CREATE TABLE proguide AS SELECT * FROM preference_pairs(run1, min_gap => 0.01)"],
    );
    check("CREATE TABLE t (a int) AS (VALUES (1)) WITH DATA", expect!["CREATE TABLE AS | CREATE TABLE t (a INT) AS (VALUES (1))"]);
    check(
        "CREATE TABLE t (v vector(2) DEFAULT '[1,2]'::vector(2))",
        expect!["CREATE TABLE | CREATE TABLE t (v vector(2) DEFAULT vector_in('[1,2]', 2))"],
    );
    check(
        "CREATE TABLE t",
        expect!["syntax error at end of input: expected the table's columns in parentheses, or AS and a query [at character 15]"],
    );
    check("CREATE TABLE t ()", expect![[r#"syntax error at or near ")" (line 1, column 17): expected a column's name [at character 17]"#]]);
    check(
        "CREATE TABLE t (a)",
        expect![[r#"syntax error at or near ")" (line 1, column 18): expected a data type name [at character 18]"#]],
    );
    check(
        "CREATE TABLE t (a int, b int,)",
        expect![[r#"syntax error at or near ")" (line 1, column 30): expected a column's name [at character 30]"#]],
    );
    check(
        "CREATE TABLE t (a int PRIMARY KEY, b int PRIMARY KEY)",
        expect![[r#"syntax error at or near ")" (line 1, column 53): a table has one primary key, here are two [at character 53]"#]],
    );
    check(
        "CREATE TABLE t (a int PRIMARY KEY, PRIMARY KEY (a))",
        expect![[r#"syntax error at or near ")" (line 1, column 51): a table has one primary key, here are two [at character 51]"#]],
    );
    check("CREATE TABLE t (a int CHECK (a > 0))", expect!["CREATE TABLE with CHECK is not supported yet"]);
    check("CREATE TABLE t (a int REFERENCES u)", expect!["CREATE TABLE with REFERENCES is not supported yet"]);
    check(
        "CREATE TABLE t (a int GENERATED ALWAYS AS IDENTITY)",
        expect!["CREATE TABLE | CREATE TABLE t (a INT NOT NULL GENERATED ALWAYS AS IDENTITY)"],
    );
    check(
        "CREATE TABLE t (a int CONSTRAINT Pk PRIMARY KEY, b int NOT NULL CONSTRAINT \"One b\" UNIQUE DEFAULT 1, c int CONSTRAINT some NOT NULL)",
        expect![[
            r#"CREATE TABLE | CREATE TABLE t (a INT CONSTRAINT pk PRIMARY KEY, b INT NOT NULL CONSTRAINT "One b" UNIQUE DEFAULT 1, c INT NOT NULL)"#
        ]],
    );
    check("CREATE TABLE t (a int, UNIQUE (a))", expect!["CREATE TABLE | CREATE TABLE t (a INT, UNIQUE (a))"]);
    check("CREATE TABLE t (a text COLLATE \"C\")", expect![[r#"the column option COLLATE "C" is not supported yet"#]]);
    check("CREATE TABLE t (a int) PARTITION BY RANGE (a)", expect!["CREATE TABLE ... PARTITION is not supported yet"]);
    check("CREATE TABLE t (a int) WITH (fillfactor = 70)", expect!["CREATE TABLE ... WITH is not supported yet"]);
    check(
        "CREATE TABLE t AS SELECT 1 WITH NO DATA",
        expect!["CREATE TABLE AS ... WITH NO DATA is not supported yet; add LIMIT 0 to the query"],
    );
    check(
        "create table T (a int, like Other including all excluding indexes, LIKE s.t, UNIQUE (a))",
        expect![[
            "CREATE TABLE | CREATE TABLE t (a INT, LIKE other INCLUDING COMMENTS INCLUDING COMPRESSION INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING \
             GENERATED INCLUDING IDENTITY INCLUDING STATISTICS INCLUDING STORAGE, LIKE s.t, UNIQUE (a))"
        ]],
    );
    check("CREATE TABLE t (LIKE s INCLUDING ALL)", expect!["CREATE TABLE | CREATE TABLE t (LIKE s INCLUDING ALL)"]);
    check("CREATE TABLE t (LIKE s) AS SELECT 1", expect!["LIKE in CREATE TABLE AS is not supported yet; name the columns in the query"]);
    check("CREATE UNLOGGED TABLE t (a int)", expect!["CREATE UNLOGGED TABLE is not supported yet"]);
    check(
        "CREATE OR REPLACE TABLE t AS SELECT 1",
        expect!["CREATE OR REPLACE TABLE is not supported yet; write DROP TABLE IF EXISTS first, or CREATE TABLE IF NOT EXISTS"],
    );
}

#[test]
fn temporary_tables_and_views() {
    check("CREATE TEMP TABLE t (a int)", expect!["CREATE TABLE | CREATE TEMP TABLE t (a INT)"]);
    check(
        "CREATE LOCAL TEMPORARY TABLE IF NOT EXISTS t (a int) ON COMMIT PRESERVE ROWS",
        expect!["CREATE TABLE | CREATE TEMP TABLE IF NOT EXISTS t (a INT)"],
    );
    check("CREATE GLOBAL TEMP TABLE t AS SELECT 1", expect!["CREATE TABLE AS | CREATE TEMP TABLE t AS SELECT 1"]);
    check("CREATE TEMP TABLE t ON COMMIT PRESERVE ROWS AS SELECT 1", expect!["CREATE TABLE AS | CREATE TEMP TABLE t AS SELECT 1"]);
    check("CREATE TEMPORARY VIEW v AS SELECT 1", expect!["CREATE VIEW | CREATE TEMP VIEW v AS SELECT 1"]);
    check("CREATE OR REPLACE TEMP VIEW v (a) AS SELECT 1", expect!["CREATE VIEW | CREATE OR REPLACE TEMP VIEW v (a) AS SELECT 1"]);
    for action in ["DELETE ROWS", "DROP"] {
        let refused = crate::parse(&format!("CREATE TEMP TABLE t (a int) ON COMMIT {action}"));
        let refused = refused.expect_err("rows that are gone at once").to_string();
        assert!(refused.starts_with(&format!("ON COMMIT {action} is not supported yet; every statement commits by itself")), "{refused}");
    }
    check("CREATE TABLE t (a int) ON COMMIT PRESERVE ROWS", expect!["CREATE TABLE ... ON is not supported yet"]);
}

#[test]
fn primary_key_columns_are_found_wherever_they_were_written() {
    for text in ["CREATE TABLE t (a int PRIMARY KEY, b int)", "CREATE TABLE t (a int, b int, PRIMARY KEY (A))"] {
        let Statement::CreateTable(table) = parse_one(text) else { panic!("no table") };
        assert_eq!(table.all_constraints(), [TableConstraint { name: None, is_primary: true, columns: vec![Ident::new("a")] }], "{text}");
    }
}

#[test]
fn constraints_of_a_table_that_exists() {
    check(
        "alter table T add unique (A, b), add constraint Pk primary key (id), ADD COLUMN c int constraint U UNIQUE",
        expect!["ALTER TABLE | ALTER TABLE t ADD UNIQUE (a, b), ADD CONSTRAINT pk PRIMARY KEY (id), ADD COLUMN c INT CONSTRAINT u UNIQUE"],
    );
    check(
        "ALTER TABLE t DROP CONSTRAINT t_a_key, DROP CONSTRAINT IF EXISTS \"T pkey\" CASCADE, DROP a RESTRICT",
        expect![[r#"ALTER TABLE | ALTER TABLE t DROP CONSTRAINT t_a_key, DROP CONSTRAINT IF EXISTS "T pkey", DROP COLUMN a"#]],
    );
    check("ALTER TABLE t ADD CHECK (a > 0)", expect!["ALTER TABLE ... ADD CHECK is not supported yet"]);
    check("ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (a) REFERENCES u", expect!["ALTER TABLE ... ADD FOREIGN is not supported yet"]);
    check(
        "ALTER TABLE t ADD CONSTRAINT c int",
        expect![[r#"syntax error at or near "int" (line 1, column 32): expected PRIMARY KEY or UNIQUE [at character 32]"#]],
    );
    check("ALTER TABLE t ADD UNIQUE", expect![[r#"syntax error at end of input: expected "(" [at character 25]"#]]);
    check("ALTER TABLE t DROP CONSTRAINT", expect!["syntax error at end of input: expected the constraint's name [at character 30]"]);
}

#[test]
fn drop_table() {
    check(
        "DROP TABLE IF EXISTS A, b.\"C\" CASCADE; DROP TABLE t RESTRICT",
        expect![[r#"
        DROP TABLE | DROP TABLE IF EXISTS a, b."C"
        DROP TABLE | DROP TABLE t"#]],
    );
    check("DROP TABLE", expect!["syntax error at end of input: expected the table's name [at character 11]"]);
    check(
        "DROP TALBE t",
        expect![[
            r#"syntax error at or near "TALBE" (line 1, column 6): unknown kind of object after DROP; did you mean TABLE? [at character 6]"#
        ]],
    );
    check("DROP VIEW v", expect!["DROP VIEW | DROP VIEW v"]);
}

#[test]
fn indexes() {
    check(
        "CREATE INDEX wiki_emb ON wiki USING hnsw (embedding vector_cosine_ops) WITH (m = 16)",
        expect!["CREATE INDEX | CREATE INDEX wiki_emb ON wiki USING hnsw (embedding vector_cosine_ops) WITH (m = 16)"],
    );
    check(
        "CREATE INDEX IF NOT EXISTS i ON s.wiki USING BM25 (contents); CREATE INDEX ON wiki (id)",
        expect![[r#"
        CREATE INDEX | CREATE INDEX IF NOT EXISTS i ON s.wiki USING bm25 (contents)
        CREATE INDEX | CREATE INDEX ON wiki USING btree (id)"#]],
    );
    check(
        "DROP INDEX IF EXISTS public.Wiki_emb CASCADE; DROP INDEX i",
        expect![[r#"
        DROP INDEX | DROP INDEX IF EXISTS public.wiki_emb
        DROP INDEX | DROP INDEX i"#]],
    );
    check(
        "create index concurrently if not exists i on t (a); CREATE INDEX CONCURRENTLY ON t USING hnsw (v halfvec_l2_ops); DROP INDEX CONCURRENTLY IF EXISTS i",
        expect![[r#"
        CREATE INDEX | CREATE INDEX IF NOT EXISTS i ON t USING btree (a)
        CREATE INDEX | CREATE INDEX ON t USING hnsw (v halfvec_l2_ops)
        DROP INDEX | DROP INDEX IF EXISTS i"#]],
    );
    check(
        "REINDEX INDEX CONCURRENTLY i; REINDEX TABLE CONCURRENTLY s.t; REINDEX TABLE t",
        expect![[r#"
        REINDEX | REINDEX INDEX i
        REINDEX | REINDEX TABLE s.t
        REINDEX | REINDEX TABLE t"#]],
    );
    check("CREATE INDEX i ON t (a, b)", expect!["CREATE INDEX on several columns is not supported yet; create one index for each"]);
    check(
        "CREATE INDEX i ON t (lower(a))",
        expect!["CREATE INDEX on an expression is not supported yet; add a generated column and index that"],
    );
    check(
        "CREATE INDEX ON t USING hnsw ((binary_quantize(v)::bit(3)) bit_hamming_ops)",
        expect!["CREATE INDEX | CREATE INDEX ON t USING hnsw ((binary_quantize(v)::BIT(3)) bit_hamming_ops)"],
    );
    check("CREATE INDEX i ON t (a DESC)", expect!["CREATE INDEX ... DESC is not supported yet"]);
    check("CREATE INDEX i ON t (a) WHERE a > 1", expect!["CREATE INDEX ... WHERE is not supported yet"]);
    check(
        "CREATE UNIQUE INDEX i ON t (a)",
        expect!["CREATE UNIQUE INDEX is not supported yet; write ALTER TABLE t ADD CONSTRAINT name UNIQUE (columns)"],
    );
    check(
        "CREATE INDEX IF NOT EXISTS ON t (a)",
        expect![[r#"syntax error at or near "ON" (line 1, column 28): expected the index's name after IF NOT EXISTS [at character 28]"#]],
    );
    check("CREATE INDEX i ON t USING hnsw", expect![[r#"syntax error at end of input: expected "(" [at character 31]"#]]);
    check("DROP INDEX a, b", expect!["DROP INDEX of several indexes is not supported yet; drop each by itself"]);
}

#[test]
fn extensions() {
    check(
        "CREATE EXTENSION vector; CREATE EXTENSION IF NOT EXISTS \"vector\" WITH SCHEMA public VERSION '0.8' CASCADE",
        expect![[r#"
        CREATE EXTENSION | CREATE EXTENSION vector
        CREATE EXTENSION | CREATE EXTENSION IF NOT EXISTS vector"#]],
    );
}
