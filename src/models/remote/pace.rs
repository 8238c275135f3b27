//! No more requests a minute than a server allows.

use std::time::Duration;

use tokio::sync::Mutex;
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

    /// Waits for a time to send at, in the order of asking. Who goes away leaves its place to the next.
    pub async fn wait(&self) {
        let Some(gap) = self.gap else { return };
        let mut next = self.next.lock().await;
        if let Some(next) = *next {
            tokio::time::sleep_until(next).await;
        }
        *next = Some(Instant::now() + gap);
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
