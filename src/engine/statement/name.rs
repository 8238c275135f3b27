//! The name of what a statement makes, renames, drops, or gives rights to: taken before its rights to it are asked about for the last time.

use crate::engine::name_locks::NameLock;
use crate::engine::privileges::Object;
use crate::engine::session::Session;
use crate::error::Result;

/// For what is new.
pub async fn to_make(session: &Session, object: &Object) -> NameLock {
    session.database().shared.names.lock(object).await
}

/// For what is there: it may have become another's while the statement waited. What is gone is told by the statement.
///
/// # Errors
/// [`crate::Error::InsufficientPrivilege`] (42501).
pub async fn to_change(session: &Session, object: &Object) -> Result<NameLock> {
    let lock = to_make(session, object).await;
    check_owner(session, object)?;
    Ok(lock)
}

/// As [`to_change`]; the owner of a schema may drop what others have made in it.
///
/// # Errors
/// As [`to_change`].
pub async fn to_drop(session: &Session, object: &Object) -> Result<NameLock> {
    let lock = to_make(session, object).await;
    match object {
        Object::Table { schema, .. } if session.access().owns(&Object::schema(schema)) => Ok(lock),
        _ => check_owner(session, object).map(|()| lock),
    }
}

/// As [`to_change`], and the name that it is to have.
///
/// # Errors
/// As [`to_change`].
pub async fn to_rename(session: &Session, from: &Object, to: &Object) -> Result<(NameLock, Option<NameLock>)> {
    let locks = session.database().shared.names.lock_both(from, to).await;
    check_owner(session, from)?;
    Ok(locks)
}

fn check_owner(session: &Session, object: &Object) -> Result<()> {
    if session.database().shared.knows(object) { session.access().require_owner(object) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::TryStreamExt;

    use super::*;
    use crate::{Database, Error};

    async fn run(session: &Session, text: &str) -> Result<()> {
        session.sql(text).await?.try_collect::<Vec<_>>().await?;
        Ok(())
    }

    /// What was another's when the statement came to it stays so, with what was granted on it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_name_that_changes_hands_is_not_the_one_that_was_authorized() -> Result<()> {
        for statement in ["DROP TABLE a", "ALTER TABLE a RENAME TO b", "ALTER TABLE a OWNER TO ann", "GRANT SELECT ON a TO ann"] {
            let data = tempfile::tempdir().expect("a temporary directory");
            let database = Database::open(data.path()).await?;
            let (owner, ann) = (database.session(), database.session());
            run(&owner, "CREATE ROLE ann; CREATE ROLE bob; GRANT CREATE ON SCHEMA public TO ann").await?;
            ann.set_user("ann");
            run(&ann, "CREATE TABLE a (id bigint)").await?;
            let (a, shared) = (Object::table("public", "a"), &database.shared);
            let held = shared.names.lock(&a).await;
            let waiting = tokio::spawn(async move { run(&ann, statement).await });
            // By then it has been authorized; if not, it is refused all the more.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let definition = shared.catalog.table("public", "a").await?.definition().clone();
            shared.catalog.rename_table("public", "a", "c").await?;
            shared.privileges.renamed(&a, Object::table("public", "c"))?;
            shared.catalog.create_table("public", "a", definition, false).await?;
            shared.privileges.own(a.clone(), "bob")?;
            drop(held);
            let refused = waiting.await.expect("no panic");
            assert!(matches!(refused, Err(Error::InsufficientPrivilege(_))), "{statement}: {refused:?}");
            assert!(shared.knows(&a) && !shared.knows(&Object::table("public", "b")), "{statement}");
            let acl = shared.privileges.acl(&a);
            assert_eq!((acl.owner.as_deref(), acl.grants), (Some("bob"), None), "{statement}");
            assert_eq!(shared.privileges.acl(&Object::table("public", "c")).owner.as_deref(), Some("ann"), "{statement}");
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_made_waits_for_the_name() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(data.path()).await?;
        let session = database.session();
        for (statement, object) in [
            ("CREATE TABLE t (id bigint)", Object::table("public", "t")),
            ("CREATE TABLE u AS SELECT 1 AS id", Object::table("public", "u")),
            ("CREATE VIEW v AS SELECT 1 AS id", Object::table("public", "v")),
            ("CREATE SCHEMA s", Object::schema("s")),
            ("CREATE MODEL m FROM 'builtin://tinyhop' WITH (task = 'generate')", Object::model("m")),
            ("ALTER TABLE t RENAME TO w", Object::table("public", "w")),
            ("DROP SCHEMA s", Object::schema("s")),
            ("DROP VIEW v", Object::table("public", "v")),
            ("DROP MODEL m", Object::model("m")),
        ] {
            let held = database.shared.names.lock(&object).await;
            let was_there = database.shared.knows(&object);
            let early = tokio::time::timeout(Duration::from_millis(200), run(&session, statement)).await;
            assert!(early.is_err() && database.shared.knows(&object) == was_there, "{statement}");
            drop(held);
            run(&session, statement).await?;
            assert!(database.shared.knows(&object) != was_there, "{statement}");
        }
        Ok(())
    }
}
