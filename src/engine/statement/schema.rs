//! CREATE SCHEMA, DROP SCHEMA.

use rolloutdb_catalogs::Error as CatalogError;
use rolloutdb_sql::{CreateSchema, DropSchema};

use super::{done, name};
use crate::engine::privileges::Object;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

/// What the names of the system's schemas start with.
const RESERVED_PREFIX: &str = "pg_";

pub async fn create(session: &Session, create: &CreateSchema) -> Result<Response> {
    if create.name.starts_with(RESERVED_PREFIX) {
        return Err(Error::ReservedName(format!(
            "schema \"{}\" cannot be made: names that start with \"pg_\" are the system's",
            create.name
        )));
    }
    let catalog = &session.database().shared.catalog;
    if create.if_not_exists && catalog.rollout_schema(&create.name).is_ok() {
        session.notices().notice(format!("schema \"{}\" already exists, skipping", create.name));
        return Ok(done("CREATE SCHEMA"));
    }
    let object = Object::schema(&create.name);
    let _name = name::to_make(session, &object).await;
    match catalog.create_schema(&create.name, false) {
        // Another session was faster: the schema is its.
        Err(CatalogError::DuplicateSchema { .. }) if create.if_not_exists => {
            session.notices().notice(format!("schema \"{}\" already exists, skipping", create.name));
        }
        created => {
            created?;
            session.own(object)?;
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
    let schema = Object::schema(&drop.name);
    let _name = name::to_drop(session, &schema).await?;
    if drop.cascade {
        for table in catalog.tables(&drop.name)? {
            let object = Object::table(&drop.name, &table);
            let _name = name::to_drop(session, &object).await?;
            match catalog.view_query(&drop.name, &table) {
                Some(_) => catalog.drop_view(&drop.name, &table)?,
                None => catalog.drop_table(&drop.name, &table).await?,
            }
            privileges.forget(&object)?;
        }
    }
    shared.retrievals.forget_dropped();
    catalog.drop_schema(&drop.name)?;
    privileges.forget(&schema)?;
    Ok(done("DROP SCHEMA"))
}
