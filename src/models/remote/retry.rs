//! How long to wait before a request is made again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::models::random::CounterRng;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// A server that asks for more than this is given up for now.
pub(in crate::models) const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// The waits of one request. The randomness, which keeps requests that failed together from coming back together, is the request's own.
#[derive(Debug, Clone, Copy)]
pub(in crate::models) struct Backoff(CounterRng);

impl Backoff {
    pub fn new(key: &[u8; 32]) -> Self {
        let mut seed = [0; 8];
        seed.copy_from_slice(&key[..8]);
        Self(CounterRng::new(u64::from_le_bytes(seed)))
    }

    /// After the `attempt`-th attempt, from 0: twice the one before, and of that between a half and the whole.
    pub fn wait(self, attempt: usize) -> Duration {
        let doubled = FIRST.saturating_mul(1 << attempt.min(16)).min(LONGEST);
        doubled.mul_f64(0.5 + 0.5 * self.0.uniform(attempt as u64))
    }
}

/// The header `Retry-After`: seconds, or a date (RFC 9110, 10.2.3).
pub(super) fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(Duration::from_secs(seconds_of_date(value)?).saturating_sub(now))
}

/// Seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| name == month)? as i64;
    let (day, year): (i64, i64) =
        (day.parse().ok().filter(|day| (1..=31).contains(day))?, year.parse().ok().filter(|year| (1970..=9999).contains(year))?);
    let time: Vec<i64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour @ 0..=23, minute @ 0..=59, second @ 0..=60] = time.as_slice() else { return None };
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day - 1 - 719_468;
    u64::try_from(((days * 24 + hour) * 60 + minute) * 60 + second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_differ_between_requests() {
        let (one, other) = (Backoff::new(&[1; 32]), Backoff::new(&[2; 32]));
        for attempt in 0..20 {
            let whole = Duration::from_millis(500 << attempt.min(16)).min(LONGEST);
            assert!(one.wait(attempt) >= whole / 2 && one.wait(attempt) <= whole, "attempt {attempt}");
            assert_eq!(one.wait(attempt), Backoff::new(&[1; 32]).wait(attempt));
        }
        assert_ne!(one.wait(0), other.wait(0));
    }

    #[test]
    fn what_a_server_asks_for_is_seconds_or_a_date() {
        assert_eq!(retry_after("2"), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(" 0.5"), Some(Duration::from_millis(500)));
        // The example of RFC 9110, 5.6.7.
        assert_eq!(seconds_of_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds_of_date("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        for none in ["", "Sun, 06 Nov 9223372036854775807 08:49:37 GMT", "soon", "-1", "inf", "NaN", "Sun, 06 Foo 1994 08:49:37 GMT"] {
            assert_eq!(retry_after(none), None, "{none:?}");
        }
    }
}
