//! Prepared statements by name. The session has them, since PREPARE, EXECUTE and DEALLOCATE name them too; the protocol library's store keeps them in
//! the form in which messages use them.
//!
//! Drivers count on DEALLOCATE: psycopg sends DEALLOCATE ALL after DROP and ALTER.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pgwire::api::stmt::StoredStatement;
use pgwire::api::store::PortalStore;
use pgwire::error::PgWireResult;

use super::connection::Connection;
use super::extended::{Prepared, unknown};
use crate::engine::Session;

/// The named statements in the protocol library's store, which cannot list them.
#[derive(Default)]
pub(super) struct StoredNames(Mutex<Names>);

#[derive(Default)]
struct Names {
    stored: BTreeSet<String>,
    /// How many statements the session had released when the store was last cleared of them.
    num_released: u64,
}

impl StoredNames {
    pub(super) fn add(&self, name: &str) {
        self.lock().stored.insert(name.to_string());
    }

    /// Removes from `store` what the session has released: a running statement cannot reach it.
    pub(super) fn release(&self, session: &Session, store: &impl PortalStore) {
        let num_released = session.num_released_statements();
        let mut names = self.lock();
        if names.num_released == num_released {
            return;
        }
        names.num_released = num_released;
        names.stored.retain(|name| {
            let is_kept = session.named_statement(name).is_some();
            if !is_kept {
                store.rm_statement(name);
            }
            is_kept
        });
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// The statement that `Parse` or PREPARE has given this name; `None`: the unnamed one.
    ///
    /// # Errors
    /// There is none (26000).
    pub(super) fn statement(
        &self,
        store: &impl PortalStore<Statement = Arc<Prepared>>,
        name: Option<&str>,
    ) -> PgWireResult<Arc<StoredStatement<Arc<Prepared>>>> {
        let missing = |name: &str| unknown("prepared statement", name, "26000");
        let Some(name) = name else {
            return store.get_statement(pgwire::api::DEFAULT_NAME).ok_or_else(|| missing(""));
        };
        let kept = self.session.named_statement(name).ok_or_else(|| missing(name))?;
        if let Some(stored) = store.get_statement(name)
            && stored.statement.is(kept.prepared.as_ref())
        {
            return Ok(stored);
        }
        // PREPARE has made it: what its parameters are follows from the statement.
        let stored = Arc::new(StoredStatement::new(name.to_string(), Arc::new(Prepared::new(kept.prepared)), Vec::new()));
        store.put_statement(Arc::clone(&stored));
        self.stored_names.add(name);
        Ok(stored)
    }
}
