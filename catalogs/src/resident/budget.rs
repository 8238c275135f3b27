//! Who may hold how much: the oldest tables in memory make room for the next.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::state::TableState;

/// What the resident tables of a data directory may take together.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: Mutex<Vec<Used>>,
}

#[derive(Debug)]
struct Used {
    by: Weak<TableState>,
    /// By the size of its files.
    expected: usize,
    /// What was there when it was looked at last.
    seen: usize,
    /// Whether it is in memory; what did not fit is remembered, so that it is not read again and again.
    is_held: bool,
}

impl Used {
    fn bytes(&self) -> usize {
        self.expected.max(self.seen)
    }

    fn is_by(&self, state: &Arc<TableState>) -> bool {
        self.by.upgrade().is_some_and(|by| Arc::ptr_eq(&by, state))
    }
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, used: Mutex::default() }
    }

    /// Makes room for `bytes` of a table, by dropping the tables that became resident first. False if it does not fit.
    pub(super) fn make_room(&self, state: &Arc<TableState>, bytes: usize) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a table that has shrunk, what was seen says nothing.
        let seen = used.iter().find(|used| used.is_by(state) && used.expected <= bytes).map_or(0, |used| used.seen);
        let mut new = Used { by: Arc::downgrade(state), expected: bytes, seen, is_held: true };
        used.retain(|used| !used.is_by(state) && used.by.upgrade().is_some_and(|other| other.check_exists().is_ok()));
        new.is_held = new.bytes() <= self.limit && Self::free(&mut used, self.limit - new.bytes());
        let fits = new.is_held;
        used.push(new);
        fits
    }

    /// Drops tables until the others take no more than `rest`. One that is being searched stays.
    fn free(used: &mut [Used], rest: usize) -> bool {
        while used.iter().filter(|used| used.is_held).map(Used::bytes).sum::<usize>() > rest {
            let mut held = used.iter_mut().filter(|used| used.is_held);
            match held.find(|used| used.by.upgrade().is_none_or(|other| other.drop_resident())) {
                Some(dropped) => dropped.is_held = false,
                None => return false,
            }
        }
        true
    }

    /// Whether so much is free, for a while.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.iter().filter(|used| used.is_held).map(Used::bytes).sum::<usize>() + bytes <= self.limit
    }

    /// What a table takes by now, with words and graphs: the next that needs room finds it counted.
    pub(super) fn note(&self, state: &Arc<TableState>, bytes: usize) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = used.iter_mut().find(|used| used.is_by(state)) {
            used.seen = bytes;
        }
    }
}
