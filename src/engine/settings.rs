//! What SET, SET LOCAL and RESET have said in a session, as texts; what a setting does is told in `statement/settings.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::statement;

/// Values other than the defaults, by name.
type Values = BTreeMap<String, String>;

/// The settings of one session; who has them does not hold the session.
#[derive(Debug, Clone, Default)]
pub struct SessionSettings(Arc<Mutex<Settings>>);

impl SessionSettings {
    /// Name, value and default of each, as SHOW ALL gives them.
    pub fn list(&self) -> Vec<(&'static str, String, &'static str)> {
        statement::settings_list(&self.lock())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub struct Settings {
    values: Values,
    transaction: Option<Transaction>,
}

/// Since BEGIN.
#[derive(Debug, Default)]
struct Transaction {
    /// What ROLLBACK brings back.
    before: Values,
    /// In force until COMMIT or ROLLBACK.
    local: Values,
}

impl Settings {
    /// `None`: the default.
    pub fn get(&self, name: &str) -> Option<&str> {
        let local = self.transaction.as_ref().and_then(|transaction| transaction.local.get(name));
        local.or_else(|| self.values.get(name)).map(String::as_str)
    }

    /// The settings whose names begin so, with their values.
    pub fn in_force(&self, prefix: &str) -> Vec<(String, String)> {
        let mut values = self.values.clone();
        values.extend(self.transaction.iter().flat_map(|transaction| transaction.local.clone()));
        values.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect()
    }

    /// For the session; a SET LOCAL before it in the transaction no longer counts. `None`: the default.
    pub fn set(&mut self, name: &str, value: Option<String>) {
        if let Some(transaction) = &mut self.transaction {
            transaction.local.remove(name);
        }
        match value {
            Some(value) => self.values.insert(name.to_owned(), value),
            None => self.values.remove(name),
        };
    }

    /// Until the end of the transaction; false when there is none, and nothing happens.
    pub fn set_local(&mut self, name: &str, value: String) -> bool {
        let transaction = self.transaction.as_mut();
        transaction.map(|transaction| transaction.local.insert(name.to_owned(), value)).is_some()
    }

    /// Every setting to its default. Returns those that were set.
    pub fn reset_all(&mut self) -> BTreeSet<String> {
        let local = self.transaction.as_mut().map(|transaction| std::mem::take(&mut transaction.local));
        std::mem::take(&mut self.values).into_keys().chain(local.unwrap_or_default().into_keys()).collect()
    }

    pub fn begin(&mut self) {
        self.transaction = Some(Transaction { before: self.values.clone(), local: Values::new() });
    }

    /// What SET LOCAL said ends with the transaction, and what SET said with one that is rolled back. Returns the names of settings that may have changed.
    pub fn end(&mut self, is_committed: bool) -> BTreeSet<String> {
        let Some(Transaction { before, local }) = self.transaction.take() else { return BTreeSet::new() };
        let mut changed: BTreeSet<String> = local.into_keys().collect();
        if !is_committed {
            let after = std::mem::replace(&mut self.values, before);
            changed.extend(after.into_keys().chain(self.values.keys().cloned()));
        }
        changed
    }
}
