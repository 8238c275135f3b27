//! How many connections there may be: of those who are known, and of those who have not said yet who they are.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::engine::Role;

/// The places of a server, for connections whose role is known.
#[derive(Debug)]
pub(in crate::server) struct Places {
    max: usize,
    /// Of these, how many are kept for superusers.
    reserved: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    by_role: HashMap<String, usize>,
}

/// A connection's place; free again when dropped.
#[derive(Debug)]
pub(in crate::server) struct Place {
    places: Arc<Places>,
    role: String,
}

impl Places {
    pub fn new(max: usize, reserved: usize) -> Arc<Self> {
        Arc::new(Self { max, reserved, taken: Mutex::default() })
    }

    /// What SHOW says of them.
    pub fn settings(&self) -> [(&'static str, String); 2] {
        [("max_connections", self.max.to_string()), ("superuser_reserved_connections", self.reserved.to_string())]
    }

    /// A place, or why there is none (53300).
    pub fn take(self: &Arc<Self>, role: &Role) -> Result<Place, String> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.count >= self.max {
            return Err("sorry, too many clients already".to_owned());
        }
        if !role.is_superuser && taken.count + self.reserved >= self.max {
            return Err("remaining connection slots are reserved for superusers".to_owned());
        }
        let of_role = taken.by_role.get(&role.name).copied().unwrap_or(0);
        let limit = role.connection_limit.filter(|_| !role.is_superuser);
        if limit.is_some_and(|limit| of_role >= limit as usize) {
            return Err(format!("too many connections for role \"{}\"", role.name));
        }
        taken.count += 1;
        taken.by_role.insert(role.name.clone(), of_role + 1);
        Ok(Place { places: Arc::clone(self), role: role.name.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.count -= 1;
        let left = taken.by_role.get_mut(&self.role).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            taken.by_role.remove(&self.role);
        }
    }
}

/// Connections whose client is not known yet. When there are too many the oldest is closed, so that those who only connect and say nothing keep nobody
/// out: who means it is known within moments.
#[derive(Debug)]
pub(in crate::server) struct Strangers {
    max: usize,
    next: AtomicU64,
    open: Mutex<VecDeque<(u64, CancellationToken)>>,
}

/// Told when it is time to go; gone when dropped.
#[derive(Debug)]
pub(in crate::server) struct Stranger {
    strangers: Arc<Strangers>,
    number: u64,
    turned_away: CancellationToken,
}

impl Strangers {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, next: AtomicU64::new(0), open: Mutex::default() })
    }

    pub fn enter(self: &Arc<Self>) -> Stranger {
        let (number, turned_away) = (self.next.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= self.max
            && let Some((_, oldest)) = open.pop_front()
        {
            oldest.cancel();
        }
        open.push_back((number, turned_away.clone()));
        Stranger { strangers: Arc::clone(self), number, turned_away }
    }
}

impl Stranger {
    pub async fn turned_away(&self) {
        self.turned_away.cancelled().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.strangers.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Roles;

    fn role(name: &str, connection_limit: Option<u32>, is_superuser: bool) -> Role {
        let directory = tempfile::tempdir().expect("a directory");
        let mut role = Roles::for_tests(directory.path(), name).get(name).expect("the superuser");
        role.connection_limit = connection_limit;
        role.is_superuser = is_superuser;
        role
    }

    #[test]
    fn superusers_have_places_of_their_own_and_roles_have_limits() {
        let places = Places::new(4, 1);
        let (owner, ann, bob) = (role("owner", Some(0), true), role("ann", Some(1), false), role("bob", None, false));
        let first = places.take(&ann).expect("a place");
        assert!(places.take(&ann).expect_err("one only").contains("\"ann\""));
        let _others = (places.take(&bob).expect("a place"), places.take(&bob).expect("a place"));
        assert!(places.take(&bob).expect_err("the last is reserved").contains("reserved"));
        let last = places.take(&owner).expect("the reserved place");
        assert!(places.take(&owner).expect_err("none is left").contains("too many"));
        drop((first, last));
        places.take(&ann).expect("a place that is free again");
    }

    #[tokio::test]
    async fn the_oldest_stranger_goes_when_there_are_too_many() {
        let strangers = Strangers::new(2);
        let (first, second) = (strangers.enter(), strangers.enter());
        drop(second);
        let third = strangers.enter();
        let _fourth = strangers.enter();
        first.turned_away().await;
        assert!(!third.turned_away.is_cancelled());
    }
}
