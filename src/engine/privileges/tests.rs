//! Grants as they are stored, taken back and followed.

use rolloutdb_sql::Privilege::{Insert, Select};

use super::*;

/// The superuser is "owner", and the others are there.
fn roles(directory: &tempfile::TempDir) -> Roles {
    let roles = Roles::for_tests(directory.path(), "owner");
    for name in ["alice", "bob", "carol", "dave"] {
        // Who opens it once more finds them there.
        let _ = roles.change(|state| state.create(name, true).map(|_| ()));
    }
    roles
}

fn open(directory: &tempfile::TempDir) -> Privileges {
    Privileges::open(directory.path(), &roles(directory)).expect("privileges open")
}

fn films() -> Object {
    Object::table("public", "films")
}

/// Who has what from whom: `bob=ar*/alice`.
fn listed(privileges: &Privileges) -> Vec<String> {
    let grants = privileges.acl(&films()).grants(&films());
    let mut list: Vec<_> = grants.iter().map(|grant| format!("{}={}/{}", grant.grantee, grant.rights, grant.grantor)).collect();
    list.sort();
    list
}

fn grant(privileges: &Privileges, grantee: &str, grantor: &str, with_option: bool) -> Result<()> {
    privileges.grant(&[films()], &[grantee.to_owned()], grantor, &[Select], with_option)
}

fn revoke(privileges: &Privileges, grantee: &str, grantor: Option<&str>, option_only: bool, cascade: bool) -> Result<()> {
    let revoked = Revoked { privileges: vec![Select], option_only, cascade };
    privileges.revoke(&[films()], &[grantee.to_owned()], grantor, &revoked)
}

#[test]
fn grants_outlive_the_process() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let privileges = open(&directory);
    privileges.own(films(), "alice")?;
    privileges.grant(&[films()], &["bob".to_owned(), PUBLIC.to_owned()], "alice", &[Select, Insert], false)?;
    grant(&privileges, "bob", "alice", true)?;
    let expected = ["=ar/alice", "bob=ar*/alice"];
    assert_eq!(listed(&privileges), expected);
    let again = open(&directory);
    assert_eq!(listed(&again), expected);
    assert_eq!(again.acl(&films()).owner.as_deref(), Some("alice"));
    again.renamed(&films(), Object::table("public", "movies"))?;
    assert_eq!(again.acl(&films()), Acl::default());
    assert_eq!(open(&directory).acl(&Object::table("public", "movies")).owner.as_deref(), Some("alice"));
    // What was dropped, by a statement or by a process that ended before it could say so.
    again.forget(&Object::table("public", "movies"))?;
    again.own(films(), "alice")?;
    again.keep_only(|_| false)?;
    assert!(open(&directory).list().is_empty());
    Ok(())
}

#[test]
fn what_was_granted_on_is_taken_too() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let privileges = open(&directory);
    privileges.own(films(), "alice")?;
    grant(&privileges, "bob", "alice", true)?;
    grant(&privileges, "carol", "bob", true)?;
    grant(&privileges, "dave", "carol", false)?;
    assert!(matches!(revoke(&privileges, "bob", None, false, false), Err(Error::StillNeeded(_))));
    assert_eq!(listed(&privileges), ["bob=r*/alice", "carol=r*/bob", "dave=r/carol"], "nothing was taken");
    revoke(&privileges, "bob", None, true, true)?;
    assert_eq!(listed(&privileges), ["bob=r/alice"], "bob reads, and grants no more");
    revoke(&privileges, "bob", Some("carol"), false, false)?;
    assert_eq!(listed(&privileges), ["bob=r/alice"], "carol takes what carol granted");
    revoke(&privileges, "bob", None, false, false)?;
    assert!(listed(&privileges).is_empty());
    Ok(())
}

#[test]
fn rights_to_grant_make_no_circle() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let privileges = open(&directory);
    privileges.own(films(), "alice")?;
    grant(&privileges, "bob", "alice", true)?;
    grant(&privileges, "carol", "bob", true)?;
    assert!(matches!(grant(&privileges, "bob", "carol", true), Err(Error::InvalidGrant(_))));
    assert!(matches!(grant(&privileges, "bob", "bob", true), Err(Error::InvalidGrant(_))));
    revoke(&privileges, "bob", None, false, true)?;
    assert!(listed(&privileges).is_empty());
    Ok(())
}

#[test]
fn roles_take_their_grants_along_and_do_not_leave_them_behind() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roles = roles(&directory);
    let privileges = Privileges::open(directory.path(), &roles)?;
    privileges.own(films(), "alice")?;
    grant(&privileges, "bob", "alice", false)?;
    for (role, is_used) in [("alice", true), ("bob", true), ("carol", false)] {
        let dropped = privileges.drop_unused(&[&role.to_owned()], || Ok(()));
        assert_eq!(matches!(dropped, Err(Error::StillNeeded(_))), is_used, "{role}");
    }
    privileges.rename_role("bob", "robert", || roles.change(|state| state.rename("bob", "robert")))?;
    privileges.set_owner(films(), "carol")?;
    assert_eq!(listed(&privileges), ["robert=r/carol"]);
    assert_eq!(privileges.acl(&films()).owner.as_deref(), Some("carol"));
    let taken = privileges.rename_role("robert", "carol", || roles.change(|state| state.rename("robert", "carol")));
    assert!(matches!(taken, Err(Error::DuplicateObject { .. })));
    assert_eq!(listed(&privileges), ["robert=r/carol"]);
    Ok(())
}

#[test]
fn a_role_that_is_dropped_gets_nothing_more() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roles = roles(&directory);
    let privileges = Privileges::open(directory.path(), &roles)?;
    privileges.own(films(), "alice")?;
    privileges.drop_unused(&[&"bob".to_owned()], || roles.change(|state| state.remove("bob")))?;
    // As of a statement that found bob before he was dropped.
    assert!(matches!(grant(&privileges, "bob", "alice", false), Err(Error::UnknownObject { .. })));
    assert!(matches!(privileges.own(Object::schema("s"), "bob"), Err(Error::UnknownObject { .. })));
    assert!(listed(&privileges).is_empty());
    Ok(())
}

#[test]
fn a_crash_between_the_names_of_a_role_takes_nothing_from_it() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roles = roles(&directory);
    let privileges = Privileges::open(directory.path(), &roles)?;
    privileges.own(films(), "alice")?;
    grant(&privileges, "bob", "alice", false)?;
    // The roles have their new names, and another has one of the old ones, when the process ends.
    roles.change(|state| state.rename("bob", "robert"))?;
    roles.change(|state| state.rename("alice", "bob"))?;
    let again = Privileges::open(directory.path(), &Roles::for_tests(directory.path(), "owner"))?;
    assert_eq!(listed(&again), ["robert=r/bob"]);
    assert_eq!(again.acl(&films()).owner.as_deref(), Some("bob"));
    Ok(())
}

#[test]
fn owners_grant_to_themselves_and_only_their_own_grants_change_hands() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let privileges = open(&directory);
    // From before there were owners: it is the superuser's.
    grant(&privileges, "bob", "owner", true)?;
    grant(&privileges, "carol", "bob", false)?;
    grant(&privileges, "owner", "owner", true)?;
    grant(&privileges, "owner", "bob", true)?;
    privileges.set_owner(films(), "alice")?;
    assert_eq!(listed(&privileges), ["bob=r*/alice", "carol=r/bob", "owner=r*/alice", "owner=r*/bob"]);
    grant(&privileges, "alice", "alice", true)?;
    revoke(&privileges, "alice", None, false, false)?;
    revoke(&privileges, "bob", None, false, true)?;
    assert_eq!(listed(&privileges), ["owner=r*/alice"]);
    Ok(())
}

#[test]
fn the_public_schema_is_everybodys_to_use_until_it_is_taken() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let privileges = open(&directory);
    let public = Object::schema("public");
    let rights =
        |privileges: &Privileges| privileges.acl(&public).grants(&public).iter().map(|grant| grant.rights.to_string()).collect::<String>();
    assert_eq!(rights(&privileges), "U");
    let usage = Revoked { privileges: vec![Privilege::Usage], option_only: false, cascade: false };
    privileges.revoke(std::slice::from_ref(&public), &[PUBLIC.to_owned()], None, &usage)?;
    assert_eq!((rights(&privileges), rights(&open(&directory))), (String::new(), String::new()));
    assert!(Acl::default().grants(&Object::schema("other")).is_empty() && Acl::default().grants(&films()).is_empty());
    assert_eq!(Acl::default().grants(&Object::table("rollout", "models")).len(), 1);
    Ok(())
}

#[test]
fn a_damaged_file_opens_no_doors() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for text in [
        "",
        "{",
        "[{}]",
        r#"[{"object":{"kind":"table","schema":"public","name":"t"},"grants":[{"grantee":"","grantor":"a","rights":"x"}]}]"#,
    ] {
        std::fs::write(directory.path().join(FILE), text).expect("a temporary file is writable");
        assert!(matches!(Privileges::open(directory.path(), &roles(&directory)), Err(Error::Damaged { .. })), "{text}");
    }
}
