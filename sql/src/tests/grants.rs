//! Privileges, owners, secrets.

use expect_test::expect;

use super::*;

#[test]
fn grants() {
    check(
        "grant select, insert on Films, s.t to alice, \"Bob\", public with grant option",
        expect![[r#"GRANT | GRANT SELECT, INSERT ON TABLE films, s.t TO alice, "Bob", PUBLIC WITH GRANT OPTION"#]],
    );
    check(
        "GRANT ALL ON ALL TABLES IN SCHEMA a, b TO GROUP readers; GRANT ALL PRIVILEGES ON SCHEMA s TO CURRENT_USER",
        expect![[r#"
        GRANT | GRANT ALL PRIVILEGES ON ALL TABLES IN SCHEMA a, b TO readers
        GRANT | GRANT ALL PRIVILEGES ON SCHEMA s TO CURRENT_ROLE"#]],
    );
    check(
        "GRANT USAGE ON MODEL encoder TO a; GRANT USAGE ON AGENT qa TO a; GRANT CREATE ON DATABASE rolloutdb TO a",
        expect![[r#"
        GRANT | GRANT USAGE ON MODEL encoder TO a
        GRANT | GRANT USAGE ON AGENT qa TO a
        GRANT | GRANT CREATE ON DATABASE rolloutdb TO a"#]],
    );
    check("GRANT SELECT ON model TO a", expect!["GRANT | GRANT SELECT ON TABLE model TO a"]);
    check(
        "REVOKE GRANT OPTION FOR SELECT ON t FROM a CASCADE; REVOKE ALL ON TABLE t FROM PUBLIC RESTRICT",
        expect![[r#"
        REVOKE | REVOKE GRANT OPTION FOR SELECT ON TABLE t FROM a CASCADE
        REVOKE | REVOKE ALL PRIVILEGES ON TABLE t FROM PUBLIC"#]],
    );
}

#[test]
fn what_no_grant_can_say() {
    check(
        "GRANT SELECT (a) ON t TO b",
        expect!["a privilege on single columns is not supported yet; grant SELECT on a view that has these columns"],
    );
    check(
        "GRANT TRIGGER ON t TO b",
        expect!["the privilege TRIGGER is not supported yet; SELECT, INSERT, UPDATE, DELETE, TRUNCATE, USAGE and CREATE are"],
    );
    check("GRANT SELECT ON t TO b GRANTED BY c", expect!["GRANTED BY is not supported yet; leave it out, or SET ROLE to that role first"]);
    check(
        "GRANT USAGE ON SEQUENCE q TO b",
        expect!["privileges on a SEQUENCE is not supported yet; those on TABLE, SCHEMA, MODEL, AGENT and DATABASE are"],
    );
}

#[test]
fn owners() {
    check(
        "ALTER TABLE IF EXISTS s.Films OWNER TO alice; alter view v owner to current_user; ALTER MODEL m OWNER TO \"Bob\"",
        expect![[r#"
        ALTER TABLE | ALTER TABLE IF EXISTS s.films OWNER TO alice
        ALTER VIEW | ALTER VIEW v OWNER TO CURRENT_ROLE
        ALTER MODEL | ALTER MODEL m OWNER TO "Bob""#]],
    );
    check("ALTER TABLE t RENAME owner TO boss", expect!["ALTER TABLE | ALTER TABLE t RENAME COLUMN owner TO boss"]);
}

#[test]
fn secrets_are_never_in_the_text() {
    check(
        "CREATE SECRET openai FROM ENV 'OPENAI_API_KEY'; CREATE SECRET IF NOT EXISTS hub FROM FILE '/run/secrets/hub'; DROP SECRET IF EXISTS openai",
        expect![[r#"
        CREATE SECRET | CREATE SECRET openai FROM ENV 'OPENAI_API_KEY'
        CREATE SECRET | CREATE SECRET IF NOT EXISTS hub FROM FILE '/run/secrets/hub'
        DROP SECRET | DROP SECRET IF EXISTS openai"#]],
    );
    for text in ["CREATE SECRET s AS 'sk-123'", "CREATE SECRET s FROM 'sk-123'", "CREATE SECRET s 'sk-123'", "CREATE SECRET s = 'sk-123'"] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains("FROM ENV") && !error.contains("sk-123"), "{text}: {error}");
    }
}
