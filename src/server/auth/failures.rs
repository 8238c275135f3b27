//! Against trying passwords: who failed lately waits before hearing of the next failure.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Of the first failure; the next ones take twice as long each.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// How long a failure counts.
const MEMORY: Duration = Duration::from_secs(60);
/// Addresses that are remembered; an attacker with more of them is slowed down less, and the server's memory is bounded.
const ADDRESSES_MAX: usize = 10_000;

/// Failures by address; `None` for Unix sockets.
#[derive(Debug, Default)]
pub(in crate::server) struct Failures(Mutex<HashMap<Option<IpAddr>, (u32, Instant)>>);

impl Failures {
    /// Notes a failure, and says how long its answer waits.
    pub fn note(&self, address: Option<IpAddr>) -> Duration {
        let now = Instant::now();
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES_MAX {
            failures.retain(|_, (_, last)| now.duration_since(*last) < MEMORY);
        }
        if failures.len() >= ADDRESSES_MAX && !failures.contains_key(&address) {
            return DELAY_MAX;
        }
        let (count, last) = failures.entry(address).or_insert((0, now));
        if now.duration_since(*last) >= MEMORY {
            *count = 0;
        }
        *last = now;
        *count += 1;
        (FIRST_DELAY * (1 << (*count - 1).min(10))).min(DELAY_MAX)
    }

    /// Somebody knew a password: what was tried before was a mistake.
    pub fn forget(&self, address: Option<IpAddr>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_takes_longer_until_a_password_is_right() {
        let failures = Failures::default();
        let delays: Vec<u128> = (0..8).map(|_| failures.note(None).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(failures.note(Some(IpAddr::from([127, 0, 0, 1]))), FIRST_DELAY);
        failures.forget(None);
        assert_eq!(failures.note(None), FIRST_DELAY);
    }
}
