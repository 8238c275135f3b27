//! Schemas of sessions: what is in them is seen by one session, and goes with it.
//!
//! They lie below one folder, which is emptied when the directory is opened: what a process that was killed has left is nobody's. So nothing in it
//! is synced.

use std::sync::PoisonError;

use crate::state::SchemaState;
use crate::{Catalog, Result, RolloutSchema};

/// What the names of such schemas start with; a number follows.
const PREFIX: &str = "pg_temp_";

/// The name of the schema of a session.
#[must_use]
pub fn temporary_schema(session: i32) -> String {
    format!("{PREFIX}{session}")
}

/// Whether a schema of this name is a session's.
#[must_use]
pub fn is_temporary_schema(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Catalog {
    /// Makes the schema of a session, unless it is there.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn create_temporary_schema(&self, session: i32) -> Result<()> {
        let name = temporary_schema(session);
        let mut schemas = self.schemas.write().unwrap_or_else(PoisonError::into_inner);
        if !schemas.contains_key(&name) {
            self.storage.create_schema(&name)?;
            schemas.insert(name.clone(), RolloutSchema(SchemaState::open(&name, &self.storage)?));
        }
        Ok(())
    }

    /// Removes the schema of a session that ends, with all that is in it. Files that cannot be removed go when the directory is opened.
    pub fn remove_temporary_schema(&self, session: i32) {
        let name = temporary_schema(session);
        let removed = self.schemas.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
        let Some(schema) = removed else { return };
        for table in schema.0.tables().values() {
            table.mark_dropped();
            table.drop_resident();
        }
        self.storage.remove_temporary_schema(&name);
        self.storage.register().forget_schema(&name);
    }
}
