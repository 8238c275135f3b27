//! Roles are kept as they were made, and memberships lead as far as they may.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn open(directory: &Path) -> Roles {
    Roles::open(directory, Some("owner")).expect("roles open")
}

fn membership(role: &str, member: &str) -> Membership {
    let (role, member) = (role.to_owned(), member.to_owned());
    Membership { role, member, grantor: "owner".to_owned(), admin: false, inherit: true, set: true }
}

#[test]
fn a_fresh_directory_has_one_superuser_and_no_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let roles = open(directory.path());
    assert_eq!(
        roles.list().iter().map(|role| role.name.as_str()).collect::<Vec<_>>(),
        ["owner", "pg_read_all_stats", "pg_read_server_files", "pg_write_server_files"]
    );
    assert!(roles.get("owner").is_some_and(|role| role.is_superuser && role.can_login && !role.has_password()));
    assert!(!roles.has_passwords() && !directory.path().join("roles.json").exists());
}

#[test]
fn roles_are_there_when_the_directory_is_opened_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let verifier = Verifier::new("secret").expect("random numbers");
    open(directory.path())
        .change(|state| {
            state.create("ann", true)?;
            state.create("readers", false)?;
            state.set_verifier("ann", Some(verifier.clone()))?;
            state.grant(membership("readers", "ann"))
        })
        .expect("the file is written");
    let file = directory.path().join("roles.json");
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let roles = open(directory.path());
    assert_eq!(roles.verifier("ann"), (verifier, true));
    assert_eq!(roles.memberships("ann"), BTreeSet::from(["ann".to_owned(), "readers".to_owned()]));
    assert!(roles.has_login_with_password());
    assert!(matches!(Roles::open(directory.path(), Some("another")), Err(crate::Error::NotReady(_))));
    let text = std::fs::read_to_string(&file).expect("a text");
    std::fs::write(&file, &text[..text.len() / 2]).expect("the file is cut");
    assert!(matches!(Roles::open(directory.path(), None), Err(crate::Error::Damaged { .. })));
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let roles = open(directory.path());
    let outcome = roles.change(|state| {
        state.create("ann", true)?;
        state.create("ann", true).map(drop)
    });
    assert!(matches!(outcome, Err(crate::Error::DuplicateObject { .. })));
    assert_eq!(roles.get("ann"), None);
}

#[test]
fn rights_come_along_memberships_that_inherit() {
    let directory = tempfile::tempdir().expect("a directory");
    let roles = open(directory.path());
    roles
        .change(|state| {
            for name in ["a", "b", "c", "d"] {
                state.create(name, true)?;
            }
            state.grant(membership("b", "a"))?;
            state.grant(membership("c", "b"))?;
            state.grant(Membership { inherit: false, ..membership("d", "a") })
        })
        .expect("memberships");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(roles.memberships("a"), names(&["a", "b", "c"]));
    assert!(roles.may_become("a", "d") && !roles.may_become("d", "a") && roles.may_become("owner", "a"));
    let circle = roles.change(|state| state.grant(membership("a", "c")));
    assert!(matches!(circle, Err(crate::Error::InvalidGrant(_))));
    roles.change(|state| state.existing("b").map(|role| role.inherits = false)).expect("a change");
    assert_eq!(roles.memberships("a"), names(&["a", "b"]));
    roles.change(|state| state.remove("b")).expect("it is dropped");
    assert_eq!(roles.memberships("a"), names(&["a"]));
    for stays in ["owner", "pg_read_server_files"] {
        assert!(matches!(roles.change(|state| state.remove(stays)), Err(crate::Error::StillNeeded(_))), "{stays}");
    }
}

#[test]
fn a_name_that_does_not_exist_has_a_verifier_that_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let roles = open(directory.path());
    let (verifier, is_real) = roles.verifier("nobody");
    assert!(!is_real);
    assert_ne!(roles.verifier("somebody").0, verifier);
    roles.change(|state| state.create("ann", true).map(drop)).expect("the file is written");
    assert_eq!(open(directory.path()).verifier("nobody"), (verifier, false));
}
