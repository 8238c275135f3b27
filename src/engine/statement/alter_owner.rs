//! ALTER ... OWNER TO.

use rolloutdb_catalogs::Error as CatalogError;
use rolloutdb_sql::{AlterOwner, OwnedKind};

use super::grant::unknown_table;
use super::{done, name, table_name};
use crate::engine::privileges::{Object, denied};
use crate::engine::roles::unknown_role;
use crate::engine::session::{Response, Session};
use crate::error::Result;

/// Who is no superuser gives away what it owns, to a role that it is a member of and that could make such an object, as in PostgreSQL.
pub async fn execute(session: &Session, alter: &AlterOwner) -> Result<Response> {
    let tag = format!("ALTER {}", alter.kind.keyword());
    let shared = &session.database().shared;
    let object = Object::owned(alter.kind, &alter.name)?;
    if alter.if_exists && !shared.knows(&object) {
        session.notices().notice(format!("{} \"{}\" does not exist, skipping", object.kind(), object.name()));
        return Ok(done(tag));
    }
    check_exists(session, alter, &object)?;
    let _name = name::to_change(session, &object).await?;
    check_exists(session, alter, &object)?;
    let access = session.access();
    access.require_owner(&object)?;
    let role = alter.role.clone().unwrap_or_else(|| session.role());
    if session.database().roles().get(&role).is_none() {
        return Err(unknown_role(&role));
    }
    if !access.is_member(&role) {
        return Err(denied(format!("role {role}"), format!("only its members and superusers give it a {}", object.kind())));
    }
    shared.privileges.set_owner(object, &role)?;
    Ok(done(tag))
}

/// The kind that is said is the kind that it is; tables and views share their names.
fn check_exists(session: &Session, alter: &AlterOwner, object: &Object) -> Result<()> {
    let shared = &session.database().shared;
    match alter.kind {
        OwnedKind::Table | OwnedKind::View => {
            let (schema, name) = table_name(&alter.name)?;
            let is_view = shared.catalog.view_query(&schema, &name).is_some();
            if !shared.knows(object) {
                return Err(unknown_table(shared, &schema, &name));
            }
            // PostgreSQL lets ALTER TABLE name a view.
            if alter.kind == OwnedKind::View && !is_view { Err(CatalogError::NotAView { name }.into()) } else { Ok(()) }
        }
        OwnedKind::Schema => Ok(shared.catalog.rollout_schema(object.name()).map(|_| ())?),
        OwnedKind::Model => shared.registry.get(object.name()).map(|_| ()),
        OwnedKind::Agent => shared.agents.get(object.name()).map(|_| ()),
    }
}
