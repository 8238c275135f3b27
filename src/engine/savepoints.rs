//! The savepoints of a transaction block: how the session stood when each was defined.
//!
//! What a statement wrote stays written, since every statement commits by itself. ROLLBACK TO goes back to a point since which nothing was written.

use std::collections::BTreeSet;

use super::cursors::CursorNumber;
use super::session_user::RoleAt;
use super::settings::SettingsAt;
use crate::error::{Error, Result};

/// In the order in which they were defined; a name may be there several times, and then means the last.
#[derive(Debug, Default)]
pub struct Savepoints(Vec<Savepoint>);

#[derive(Debug)]
struct Savepoint {
    name: String,
    state: SavedState,
}

/// What ROLLBACK TO brings back, and what tells whether it may.
#[derive(Debug, Clone)]
pub struct SavedState {
    pub settings: SettingsAt,
    pub role: RoleAt,
    /// Those that are declared later are closed.
    pub cursors: BTreeSet<CursorNumber>,
    /// How many statements had written since BEGIN.
    pub write_count: u64,
}

impl Savepoints {
    pub fn define(&mut self, name: &str, state: SavedState) {
        self.0.push(Savepoint { name: name.to_owned(), state });
    }

    /// Forgets the savepoint and those after it.
    ///
    /// # Errors
    /// [`Error::UnknownSavepoint`] (3B001).
    pub fn release(&mut self, name: &str) -> Result<()> {
        let position = self.position(name)?;
        self.0.truncate(position);
        Ok(())
    }

    /// # Errors
    /// [`Error::UnknownSavepoint`] (3B001).
    pub fn state(&self, name: &str) -> Result<SavedState> {
        Ok(self.0[self.position(name)?].state.clone())
    }

    /// Forgets those after the savepoint, which stays.
    ///
    /// # Errors
    /// [`Error::UnknownSavepoint`] (3B001).
    pub fn go_back_to(&mut self, name: &str) -> Result<()> {
        let position = self.position(name)?;
        self.0.truncate(position + 1);
        Ok(())
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn position(&self, name: &str) -> Result<usize> {
        let position = self.0.iter().rposition(|savepoint| savepoint.name == name);
        position.ok_or_else(|| Error::UnknownSavepoint(name.to_owned()))
    }
}
