//! Who makes, renames or drops what has a name, or gives rights to it, has that name to itself meanwhile.
//!
//! An object and its privileges are kept in different places. Between two steps of one statement another must not put an object of its own under the
//! name: it would get the owner and the grants of the first, or lose its own. Statements that only use an object take no lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as NameMutex, OwnedMutexGuard};

use super::privileges::Object;

/// The names that are taken.
#[derive(Debug, Default)]
pub struct NameLocks {
    names: Mutex<BTreeMap<Object, Weak<NameMutex<()>>>>,
}

/// A name that others wait for until this is dropped.
pub type NameLock = OwnedMutexGuard<()>;

impl NameLocks {
    /// Waits for the name. Of several names take a schema's before those of its tables, and tables' in their order.
    pub async fn lock(&self, object: &Object) -> NameLock {
        let name = self.of(object);
        name.lock_owned().await
    }

    /// Both names, whoever asks for them in which order.
    pub async fn lock_both(&self, one: &Object, other: &Object) -> (NameLock, Option<NameLock>) {
        let (first, second) = if one <= other { (one, other) } else { (other, one) };
        let first_lock = self.lock(first).await;
        // One name twice would wait for itself.
        let second_lock = if first == second { None } else { Some(self.lock(second).await) };
        (first_lock, second_lock)
    }

    fn of(&self, object: &Object) -> Arc<NameMutex<()>> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(object).and_then(Weak::upgrade) {
            return known;
        }
        names.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(NameMutex::new(()));
        names.insert(object.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_name_is_one_statements_at_a_time() {
        const SHORT: Duration = Duration::from_millis(50);
        let locks = NameLocks::default();
        let (a, b) = (Object::table("public", "a"), Object::table("public", "b"));
        let held = locks.lock(&a).await;
        assert!(timeout(SHORT, locks.lock(&a)).await.is_err(), "it is taken");
        assert!(timeout(SHORT, locks.lock_both(&b, &a)).await.is_err(), "one of them is");
        drop(locks.lock(&b).await);
        drop(held);
        drop(locks.lock_both(&b, &a).await);
        drop(locks.lock_both(&a, &a).await);
        drop(locks.lock(&Object::schema("a")).await);
        assert_eq!(locks.names.lock().expect("no panic").len(), 1, "those that nobody holds are forgotten");
    }
}
