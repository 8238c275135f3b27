//! Advisory locks: names that a session holds and others wait for, by which tools that change schemas keep out of each other's way. They lock nothing else.
//!
//! As in PostgreSQL a lock is held by one session, or is shared by several; a session may take it several times, and gives it back as often. It lasts until it
//! is given back or the session ends, or, taken for the transaction, until that ends. They are kept in memory: none outlives the process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::interruption::Wanted;
use crate::error::{Error, Result};

/// What is locked: one number, or two, which are names apart from that of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKey {
    One(i64),
    Two(i32, i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    Exclusive,
    Shared,
}

/// Until when it is held, unless it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockSpan {
    Session,
    Transaction,
}

/// The locks of a database.
#[derive(Debug, Default)]
pub struct AdvisoryLocks {
    table: Mutex<Table>,
    /// Told of every lock that is given back.
    released: Notify,
}

#[derive(Debug, Default)]
struct Table {
    last_session: u64,
    /// The sessions that there are.
    sessions: BTreeSet<u64>,
    held: HashMap<LockKey, BTreeMap<u64, Held>>,
    waiting: BTreeMap<u64, (LockKey, LockMode)>,
}

/// How often a session has a lock.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Held {
    exclusive: Times,
    shared: Times,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Times {
    session: u32,
    transaction: u32,
}

impl Held {
    fn times(&mut self, mode: LockMode, span: LockSpan) -> &mut u32 {
        let times = match mode {
            LockMode::Exclusive => &mut self.exclusive,
            LockMode::Shared => &mut self.shared,
        };
        match span {
            LockSpan::Session => &mut times.session,
            LockSpan::Transaction => &mut times.transaction,
        }
    }

    /// Whether nobody else may have it in that mode meanwhile.
    fn keeps_out(&self, mode: LockMode) -> bool {
        mode == LockMode::Exclusive || self.exclusive != Times::default()
    }
}

impl Table {
    /// The other sessions that keep a session from taking a lock.
    fn holders(&self, session: u64, key: LockKey, mode: LockMode) -> Vec<u64> {
        let held = self.held.get(&key).into_iter().flatten();
        held.filter(|(holder, held)| **holder != session && held.keeps_out(mode)).map(|(holder, _)| *holder).collect()
    }

    /// Whether a session waits, by way of others, for itself.
    fn is_deadlocked(&self, session: u64) -> bool {
        let mut seen = BTreeSet::new();
        let mut next = vec![session];
        while let Some(waiting) = next.pop() {
            let Some((key, mode)) = self.waiting.get(&waiting) else { continue };
            for holder in self.holders(waiting, *key, *mode) {
                if holder == session {
                    return true;
                }
                if seen.insert(holder) {
                    next.push(holder);
                }
            }
        }
        false
    }

    /// Takes away what is said of the locks of a session; whether it had any of it.
    fn release(&mut self, session: u64, change: impl Fn(&mut Held)) -> bool {
        let mut is_changed = false;
        self.held.retain(|_, holders| {
            if let Some(held) = holders.get_mut(&session) {
                let before = *held;
                change(held);
                is_changed |= *held != before;
                if *held == Held::default() {
                    holders.remove(&session);
                }
            }
            !holders.is_empty()
        });
        is_changed
    }
}

impl AdvisoryLocks {
    /// The locks of a new session.
    pub fn session(self: &Arc<Self>) -> SessionLocks {
        let mut table = self.table();
        table.last_session += 1;
        let session = table.last_session;
        table.sessions.insert(session);
        SessionLocks(LockHandle { locks: Arc::clone(self), session })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The locks that a session has; they end with this.
#[derive(Debug)]
pub struct SessionLocks(LockHandle);

impl SessionLocks {
    /// For functions that the session calls.
    pub fn handle(&self) -> LockHandle {
        self.0.clone()
    }
}

impl Drop for SessionLocks {
    fn drop(&mut self) {
        let LockHandle { locks, session } = &self.0;
        let mut table = locks.table();
        table.sessions.remove(session);
        table.waiting.remove(session);
        table.release(*session, |held| *held = Held::default());
        drop(table);
        locks.released.notify_waiters();
    }
}

/// Takes and gives back the locks of a session.
#[derive(Debug, Clone)]
pub struct LockHandle {
    locks: Arc<AdvisoryLocks>,
    session: u64,
}

impl LockHandle {
    /// Whether the session has the lock now: nobody is waited for.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the session has ended.
    pub fn try_lock(&self, key: LockKey, mode: LockMode, span: LockSpan) -> Result<bool> {
        let mut table = self.locks.table();
        if !table.sessions.contains(&self.session) {
            return Err(Error::Cancelled("session"));
        }
        let is_free = table.holders(self.session, key, mode).is_empty();
        if is_free {
            *table.held.entry(key).or_default().entry(self.session).or_default().times(mode, span) += 1;
        }
        Ok(is_free)
    }

    /// Waits until the session has the lock. `wanted`: of the statement that waits.
    ///
    /// # Errors
    /// [`Error::Deadlock`] if those who have it wait for this session; [`Error::Cancelled`] if the statement or the session is over.
    pub async fn lock(&self, key: LockKey, mode: LockMode, span: LockSpan, wanted: &Wanted) -> Result<()> {
        let waiting = Waiting(self);
        loop {
            let released = self.locks.released.notified();
            tokio::pin!(released);
            // From here on nothing that is given back is missed.
            released.as_mut().enable();
            wanted.check()?;
            if self.try_lock(key, mode, span)? {
                return Ok(());
            }
            waiting.note(key, mode)?;
            released.await;
        }
    }

    /// Gives a lock of the session back, once; false: it has none of this mode.
    pub fn unlock(&self, key: LockKey, mode: LockMode) -> bool {
        let mut table = self.locks.table();
        let Some(holders) = table.held.get_mut(&key) else { return false };
        let Some(held) = holders.get_mut(&self.session) else { return false };
        let times = held.times(mode, LockSpan::Session);
        if *times == 0 {
            return false;
        }
        *times -= 1;
        if *held == Held::default() {
            holders.remove(&self.session);
        }
        if holders.is_empty() {
            table.held.remove(&key);
        }
        drop(table);
        self.locks.released.notify_waiters();
        true
    }

    /// Gives back all that were taken for the session.
    pub fn unlock_all(&self) {
        self.release_all(LockSpan::Session);
    }

    /// Gives back all that were taken for the transaction.
    pub fn end_transaction(&self) {
        self.release_all(LockSpan::Transaction);
    }

    fn release_all(&self, span: LockSpan) {
        let is_changed = self.locks.table().release(self.session, |held| {
            *held.times(LockMode::Exclusive, span) = 0;
            *held.times(LockMode::Shared, span) = 0;
        });
        if is_changed {
            self.locks.released.notify_waiters();
        }
    }
}

/// A session waits as long as this is there.
struct Waiting<'a>(&'a LockHandle);

impl Waiting<'_> {
    fn note(&self, key: LockKey, mode: LockMode) -> Result<()> {
        let mut table = self.0.locks.table();
        table.waiting.insert(self.0.session, (key, mode));
        if table.is_deadlocked(self.0.session) { Err(Error::Deadlock) } else { Ok(()) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.locks.table().waiting.remove(&self.0.session);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::LockMode::{Exclusive, Shared};
    use super::*;

    const KEY: LockKey = LockKey::One(1);
    const OTHER: LockKey = LockKey::Two(0, 1);

    fn take(handle: &LockHandle, key: LockKey, mode: LockMode) -> bool {
        handle.try_lock(key, mode, LockSpan::Session).expect("the session is there")
    }

    #[test]
    fn a_lock_is_of_one_session_or_shared_and_is_given_back_as_often_as_it_was_taken() {
        let locks = Arc::new(AdvisoryLocks::default());
        let (a, b) = (locks.session(), locks.session());
        let (one, two) = (a.handle(), b.handle());
        assert!(take(&one, KEY, Exclusive) && take(&one, KEY, Exclusive) && take(&one, KEY, Shared), "its own is in nobody's way");
        assert!(!take(&two, KEY, Shared) && take(&two, OTHER, Exclusive));
        assert!(one.unlock(KEY, Exclusive) && !take(&two, KEY, Shared));
        assert!(one.unlock(KEY, Exclusive) && !one.unlock(KEY, Exclusive));
        assert!(take(&two, KEY, Shared) && !take(&two, KEY, Exclusive), "both share it");
        one.unlock_all();
        assert!(take(&two, KEY, Exclusive));
        drop(b);
        assert!(two.try_lock(KEY, Exclusive, LockSpan::Session).is_err(), "the session has ended");
        assert!(take(&one, KEY, Exclusive) && take(&one, OTHER, Exclusive), "its locks with it");
        drop(a);
        assert!(locks.table().held.is_empty());
    }

    #[test]
    fn those_of_the_transaction_end_with_it_and_are_not_given_back_before() {
        let locks = Arc::new(AdvisoryLocks::default());
        let session = locks.session();
        let handle = session.handle();
        assert!(handle.try_lock(KEY, Exclusive, LockSpan::Transaction).expect("it is there"));
        assert!(take(&handle, KEY, Exclusive));
        assert!(handle.unlock(KEY, Exclusive) && !handle.unlock(KEY, Exclusive));
        handle.unlock_all();
        assert!(!take(&locks.session().handle(), KEY, Shared));
        handle.end_transaction();
        assert!(locks.table().held.is_empty());
    }

    #[tokio::test]
    async fn who_waits_gets_it_when_it_is_free_and_not_when_each_waits_for_the_other() {
        let locks = Arc::new(AdvisoryLocks::default());
        let (a, b) = (locks.session(), locks.session());
        let (one, two) = (a.handle(), b.handle());
        let wanted = Wanted::default();
        assert!(take(&one, KEY, Exclusive) && take(&two, OTHER, Exclusive));
        let waiting = {
            let two = two.clone();
            tokio::spawn(async move { two.lock(KEY, Exclusive, LockSpan::Session, &Wanted::default()).await })
        };
        while locks.table().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        let refused = one.lock(OTHER, Shared, LockSpan::Session, &wanted).await;
        assert!(matches!(refused, Err(Error::Deadlock)), "{refused:?}");
        let given_up =
            tokio::time::timeout(Duration::from_millis(5), locks.session().handle().lock(KEY, Shared, LockSpan::Session, &wanted)).await;
        assert!(given_up.is_err());
        one.unlock_all();
        waiting.await.expect("no panic").expect("it has the lock");
        assert!(locks.table().waiting.is_empty());
    }
}
