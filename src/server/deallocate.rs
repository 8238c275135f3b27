//! DEALLOCATE and DISCARD ALL: prepared statements belong to the connection, so they are released here and not in the engine.
//!
//! Drivers count on it: psycopg sends DEALLOCATE ALL after DROP and ALTER.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgwire::api::store::PortalStore;
use pgwire::error::PgWireResult;
use rolloutdb_sql::{Statement, ast};

use super::response::client_error;

/// Names of a connection's prepared statements.
///
/// The protocol library's store cannot list its statements, and a running statement cannot reach it: names are released here and
/// [`Self::apply`] removes them when the statement is done.
#[derive(Default)]
pub(super) struct PreparedNames(Mutex<Names>);

#[derive(Default)]
struct Names {
    known: BTreeSet<String>,
    released: Vec<String>,
}

/// What a statement releases.
#[derive(Debug, PartialEq)]
pub(super) enum Deallocation {
    One(String),
    All,
}

impl Deallocation {
    /// `None` for all statements but DEALLOCATE.
    pub(super) fn of(statement: &Statement) -> Option<Self> {
        let Statement::Other(statement) = statement else { return None };
        let ast::Statement::Deallocate { name, .. } = statement.as_ref() else { return None };
        Some(match name.quote_style {
            Some(_) => Self::One(name.value.clone()),
            None if name.value.eq_ignore_ascii_case("all") => Self::All,
            None => Self::One(name.value.to_lowercase()),
        })
    }
}

impl PreparedNames {
    pub(super) fn add(&self, name: &str) {
        self.lock().known.insert(name.to_string());
    }

    pub(super) fn remove(&self, name: &str) {
        self.lock().known.remove(name);
    }

    /// Releases and gives the command tag.
    ///
    /// # Errors
    /// A name that was not prepared (26000).
    pub(super) fn release(&self, deallocation: &Deallocation) -> PgWireResult<&'static str> {
        let mut names = self.lock();
        match deallocation {
            Deallocation::All => {
                let all = std::mem::take(&mut names.known);
                names.released.extend(all);
                Ok("DEALLOCATE ALL")
            }
            Deallocation::One(name) if names.known.remove(name) => {
                names.released.push(name.clone());
                Ok("DEALLOCATE")
            }
            Deallocation::One(name) => Err(client_error("26000", format!("prepared statement \"{name}\" does not exist"))),
        }
    }

    /// Removes from `store` what was released.
    pub(super) fn apply(&self, store: &impl PortalStore) {
        for name in std::mem::take(&mut self.lock().released) {
            store.rm_statement(&name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folded_unless_quoted() {
        let of = |text: &str| Deallocation::of(&rolloutdb_sql::parse(text).expect("SQL")[0]);
        assert_eq!(of("DEALLOCATE ALL"), Some(Deallocation::All));
        assert_eq!(of("DEALLOCATE PREPARE Plan"), Some(Deallocation::One("plan".to_string())));
        assert_eq!(of("DEALLOCATE \"Plan\""), Some(Deallocation::One("Plan".to_string())));
        assert_eq!(of("SELECT 1"), None);
    }
}
