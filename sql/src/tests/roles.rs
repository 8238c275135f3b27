//! Roles and who is a member of whom; passwords are read and never printed.

use expect_test::expect;

use super::*;

#[test]
fn roles() {
    check(
        "create role Readers; CREATE USER ann; CREATE USER bob NOLOGIN CONNECTION LIMIT -1; CREATE ROLE \"Ann B\" WITH SUPERUSER INHERIT",
        expect![[r#"
            CREATE ROLE | CREATE ROLE readers
            CREATE ROLE | CREATE ROLE ann WITH LOGIN
            CREATE ROLE | CREATE ROLE bob WITH NOLOGIN CONNECTION LIMIT -1
            CREATE ROLE | CREATE ROLE "Ann B" WITH SUPERUSER INHERIT"#]],
    );
    check(
        "CREATE ROLE a VALID UNTIL '2030-01-01' IN ROLE x, y ROLE z ADMIN CURRENT_USER PASSWORD NULL NOREPLICATION",
        expect!["CREATE ROLE | CREATE ROLE a WITH VALID UNTIL '2030-01-01' IN ROLE x, y ROLE z ADMIN CURRENT_ROLE PASSWORD NULL"],
    );
    check(
        "ALTER USER ann NOLOGIN CREATEDB; ALTER ROLE CURRENT_USER RENAME TO \"none\"; DROP USER IF EXISTS a, b; DROP ROLE \"user\"",
        expect![[r#"
            ALTER ROLE | ALTER ROLE ann WITH NOLOGIN CREATEDB
            ALTER ROLE | ALTER ROLE CURRENT_ROLE RENAME TO "none"
            DROP ROLE | DROP ROLE IF EXISTS a, b
            DROP ROLE | DROP ROLE "user""#]],
    );
    check(
        "SET ROLE ann; SET SESSION ROLE 'Ann'; SET ROLE NONE; RESET ROLE; SET role TO \"none\"; SET LOCAL ROLE ann; SET LOCAL role = NONE",
        expect![[r#"
            SET | SET ROLE ann
            SET | SET ROLE "Ann"
            RESET | RESET ROLE
            RESET | RESET ROLE
            SET | SET ROLE "none"
            SET | SET LOCAL ROLE ann
            SET | SET LOCAL ROLE NONE"#]],
    );
    check(
        "ALTER ROLE ann SET search_path = x",
        expect!["ALTER ROLE ... SET is not supported yet; SET is for one session; clients set what they need when they connect"],
    );
    check("CREATE ROLE a LOGIN NOLOGIN", expect![[r#"option "nologin" is given twice"#]]);
    check(
        "CREATE ROLE a LOGON",
        expect![[r#"syntax error at or near "LOGON" (line 1, column 15): expected an option of the role [at character 15]"#]],
    );
    check("CREATE ROLE a CONNECTION LIMIT -2", expect![[r#"option "connection limit" takes a number from -1 to 2147483647"#]]);
}

#[test]
fn membership() {
    check(
        "GRANT readers TO ann; GRANT a, b TO c, CURRENT_USER WITH ADMIN OPTION, SET FALSE; REVOKE ADMIN OPTION FOR a FROM b CASCADE; REVOKE a FROM b, c",
        expect![[r#"
            GRANT ROLE | GRANT readers TO ann
            GRANT ROLE | GRANT a, b TO c, CURRENT_ROLE WITH ADMIN TRUE, SET FALSE
            REVOKE ROLE | REVOKE ADMIN OPTION FOR a FROM b
            REVOKE ROLE | REVOKE a FROM b, c"#]],
    );
    check("GRANT a TO b WITH SET TRUE, SET FALSE", expect![[r#"option "set" is given twice"#]]);
    assert!(!matches!(parse_one("GRANT SELECT ON t TO ann"), Statement::GrantRole(_)));
}

#[test]
fn passwords_are_never_printed() {
    for text in ["CREATE ROLE ann PASSWORD 'secret'", "ALTER USER ann WITH ENCRYPTED PASSWORD 'secret'"] {
        let statement = parse_one(text);
        assert!(!format!("{statement} {statement:?}").contains("secret"));
        let options = match &statement {
            Statement::CreateRole(create) => &create.options,
            Statement::AlterRole(AlterRole { action: AlterRoleAction::Options(options), .. }) => options,
            other => panic!("{other}"),
        };
        assert!(matches!(options.as_slice(), [RoleOption::Password(Some(password))] if password.reveal() == "secret"));
    }
}
