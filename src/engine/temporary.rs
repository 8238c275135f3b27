//! Temporary tables and views: they are in a schema of the session's own, `pg_temp_<number>`, which is searched first and goes when the session ends.
//!
//! Names are seen to in one place: before a statement is authorized and planned, those of temporary tables get their schema in it ([`names`]), and what
//! comes after is as for any other table. Queries of views are not touched: what they read was decided when they were made.

mod names;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rolloutdb_catalogs::{Catalog, is_temporary_schema, temporary_schema};
use rolloutdb_sql::Statement;

use super::database::Database;
use super::privileges::{Object, Privileges};
use super::session::Session;
use crate::error::Result;

pub use names::{resolved, resolved_query};

/// What every session calls its own schema.
pub const TEMPORARY_ALIAS: &str = "pg_temp";

/// A session's temporary tables and views.
pub struct TemporarySchema {
    session: i32,
    name: String,
    /// A session that makes nothing temporary has no schema.
    is_made: AtomicBool,
    catalog: Arc<Catalog>,
    privileges: Privileges,
}

impl TemporarySchema {
    /// `session`: its number.
    pub fn new(database: &Database, session: i32) -> Self {
        Self {
            session,
            name: temporary_schema(session),
            is_made: AtomicBool::new(false),
            catalog: Arc::clone(&database.shared.catalog),
            privileges: database.shared.privileges.clone(),
        }
    }

    /// The name that the schema has, or will have.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `None`: the session has made nothing temporary.
    pub fn made(&self) -> Option<&str> {
        self.is_made.load(Ordering::Acquire).then_some(&self.name)
    }

    fn make(&self) -> Result<()> {
        self.catalog.create_temporary_schema(self.session)?;
        self.is_made.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for TemporarySchema {
    fn drop(&mut self) {
        if self.made().is_some() {
            self.catalog.remove_temporary_schema(self.session);
            // Nothing of it is stored, so nothing can fail.
            let _ = self.privileges.forget_schema(&self.name);
        }
    }
}

/// DISCARD TEMP: drops all temporary tables and views of the session.
pub async fn drop_all(session: &Session) -> Result<()> {
    let Some(schema) = session.temporary().made() else { return Ok(()) };
    let shared = &session.database().shared;
    let _changed = NamesChange(session);
    for name in shared.catalog.tables(schema)? {
        match shared.catalog.view_query(schema, &name) {
            Some(_) => shared.catalog.drop_view(schema, &name)?,
            None => shared.catalog.drop_table(schema, &name).await?,
        }
        shared.privileges.forget(&Object::table(schema, &name))?;
    }
    Ok(())
}

/// What comes before the run of a statement that names something temporary. What it gives is held while the statement runs.
///
/// # Errors
/// [`crate::Error::Catalog`] when the schema cannot be made.
pub fn before_run<'a>(session: &'a Session, written: &Statement, resolved: &Statement) -> Result<Option<NamesChange<'a>>> {
    match resolved {
        Statement::CreateTable(create) if create.temporary => session.temporary().make()?,
        Statement::CreateView(create) if create.temporary => {
            if matches!(written, Statement::CreateView(written) if !written.temporary && written.name.0.len() == 1) {
                let name = written_name(written);
                session.notices().notice(format!("view \"{name}\" will be a temporary view: it reads a temporary table"));
            }
            session.temporary().make()?;
        }
        Statement::DropTable(_) | Statement::DropView(_) | Statement::AlterTable(_) => {}
        _ => return Ok(None),
    }
    Ok(Some(NamesChange(session)))
}

fn written_name(statement: &Statement) -> &str {
    let Statement::CreateView(create) = statement else { return "" };
    create.name.0.last().and_then(|part| part.as_ident()).map_or("", |name| name.value.as_str())
}

/// Names may stand for other tables when it is dropped, however the statement ends: plans that are kept were made for those before.
pub struct NamesChange<'a>(&'a Session);

impl Drop for NamesChange<'_> {
    fn drop(&mut self) {
        self.0.settings_changed();
    }
}

/// Whether the schema is that of another session.
fn is_of_another(schema: &str, own: &str) -> bool {
    is_temporary_schema(schema) && schema != own
}

#[cfg(test)]
mod tests;
