//! CREATE SCHEMA, DROP SCHEMA.

use rolloutdb_catalogs::Error as CatalogError;
use rolloutdb_sql::{CreateSchema, DropSchema};

use super::done;
use crate::engine::privileges::Object;
use crate::engine::session::{Response, Session};
use crate::error::Result;

pub fn create(session: &Session, create: &CreateSchema) -> Result<Response> {
    let catalog = &session.database().shared.catalog;
    if create.if_not_exists && catalog.rollout_schema(&create.name).is_ok() {
        session.notices().notice(format!("schema \"{}\" already exists, skipping", create.name));
        return Ok(done("CREATE SCHEMA"));
    }
    match catalog.create_schema(&create.name, false) {
        // Another session was faster: the schema is its.
        Err(CatalogError::DuplicateSchema { .. }) if create.if_not_exists => {
            session.notices().notice(format!("schema \"{}\" already exists, skipping", create.name));
        }
        created => {
            created?;
            session.own(Object::schema(&create.name))?;
        }
    }
    Ok(done("CREATE SCHEMA"))
}

/// With CASCADE its tables and views go first, one by one.
pub async fn drop(session: &Session, drop: &DropSchema) -> Result<Response> {
    let shared = &session.database().shared;
    let (catalog, privileges) = (&shared.catalog, &shared.privileges);
    match catalog.check_droppable(&drop.name) {
        Err(CatalogError::UnknownSchema { .. }) if drop.if_exists => {
            session.notices().notice(format!("schema \"{}\" does not exist, skipping", drop.name));
            return Ok(done("DROP SCHEMA"));
        }
        checked => checked?,
    }
    if drop.cascade {
        for name in catalog.tables(&drop.name)? {
            match catalog.view_query(&drop.name, &name) {
                Some(_) => catalog.drop_view(&drop.name, &name)?,
                None => catalog.drop_table(&drop.name, &name).await?,
            }
            privileges.forget(&Object::table(&drop.name, &name))?;
        }
    }
    catalog.drop_schema(&drop.name)?;
    privileges.forget(&Object::schema(&drop.name))?;
    Ok(done("DROP SCHEMA"))
}
