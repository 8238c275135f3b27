//! A table as such, whatever its versions.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use crate::Table;
use crate::state::TableState;

/// One table, from when it was made or opened until it is dropped or gets another name: a later one of the same name is another. It keeps nothing of
/// the table alive.
#[derive(Clone, Debug)]
pub struct TableIdentity(Weak<TableState>);

impl Table {
    /// Which table this is a version of.
    #[must_use]
    pub fn identity(&self) -> TableIdentity {
        TableIdentity(Arc::downgrade(&self.state))
    }
}

impl TableIdentity {
    /// Whether the table is gone.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.0.upgrade().is_none_or(|state| state.check_exists().is_err())
    }
}

/// No other table can take an address that something still points to.
impl PartialEq for TableIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for TableIdentity {}

impl Hash for TableIdentity {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.as_ptr().hash(hasher);
    }
}
