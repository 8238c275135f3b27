//! No more requests a minute than a server allows.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Gives out times to send at, evenly: a burst at the start of a minute is what some servers count as too many.
#[derive(Debug)]
pub(super) struct Pace {
    /// Between two requests; None: no limit.
    gap: Option<Duration>,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub fn new(requests_per_minute: Option<usize>) -> Self {
        let gap = requests_per_minute.map(|requests| Duration::from_secs(60).div_f64(requests.max(1) as f64));
        Self { gap, next: Mutex::new(None) }
    }

    /// Waits for a time to send at; one that is given up is lost.
    pub async fn wait(&self) {
        let Some(gap) = self.gap else { return };
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
            *next = Some(turn + gap);
            turn
        };
        tokio::time::sleep_until(turn).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_apart() {
        let (pace, free) = (Pace::new(Some(1200)), Pace::new(None));
        let started = Instant::now();
        for _ in 0..4 {
            pace.wait().await;
        }
        // Three gaps of 50 ms.
        assert!(started.elapsed() >= Duration::from_millis(145), "{:?}", started.elapsed());
        let started = Instant::now();
        for _ in 0..1000 {
            free.wait().await;
        }
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}
