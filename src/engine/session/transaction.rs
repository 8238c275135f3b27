//! The transaction of a session: its status, what it has written, and what its end takes away.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::{Session, TransactionStatus};
use crate::engine::savepoints::{SavedState, Savepoints};
use crate::engine::setting_definitions::TRANSACTION_READ_ONLY;

impl Session {
    pub fn transaction_status(&self) -> TransactionStatus {
        *self.inner.transaction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::engine) fn begin(&self) {
        self.inner.write_count.store(0, Ordering::Relaxed);
        self.inner.has_queried.store(false, Ordering::Relaxed);
        self.settings().begin();
        self.inner.user.begin();
        self.set_transaction_status(TransactionStatus::InTransaction);
    }

    /// How many statements have written since BEGIN.
    pub(in crate::engine) fn write_count(&self) -> u64 {
        self.inner.write_count.load(Ordering::Relaxed)
    }

    /// Whether a statement since BEGIN has read or written anything.
    pub(in crate::engine) fn has_queried(&self) -> bool {
        self.inner.has_queried.load(Ordering::Relaxed)
    }

    /// Whether the transaction may write nothing: the one of the block, or outside of a block that of each statement.
    pub(in crate::engine) fn is_read_only(&self) -> bool {
        self.settings().get(TRANSACTION_READ_ONLY) == Some("on")
    }

    pub(in crate::engine) fn savepoints(&self) -> MutexGuard<'_, Savepoints> {
        self.inner.savepoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a savepoint: what ROLLBACK TO brings back.
    pub(in crate::engine) fn saved_state(&self) -> SavedState {
        SavedState {
            settings: self.settings().at_savepoint(),
            role: self.inner.user.role_at(),
            cursors: self.cursors().numbers(),
            write_count: self.write_count(),
        }
    }

    /// Leaves the transaction block, if there is one. The names of the settings that end with it, see [`Settings::end`].
    pub(in crate::engine) fn end_transaction(&self, is_committed: bool) -> BTreeSet<String> {
        self.set_transaction_status(TransactionStatus::Idle);
        self.savepoints().clear();
        self.cursors().end_transaction(is_committed);
        self.advisory_locks().end_transaction();
        let role = self.role();
        self.inner.user.end(is_committed);
        if self.role() != role {
            self.settings_changed();
        }
        self.settings().end(is_committed)
    }

    pub(in crate::engine) fn set_transaction_status(&self, status: TransactionStatus) {
        *self.inner.transaction.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}
