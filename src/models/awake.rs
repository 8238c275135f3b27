//! Threads of a pool that stay awake between two pieces of work.
//!
//! A decode step hands out some seventy pieces of work of a tenth of a millisecond, with a few microseconds between them, in which a thread of the pool would
//! fall asleep. To wake it again each time is a loss that can be seen.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::Yield;

/// How long a thread looks for work before it goes.
const IDLE_MAX: Duration = Duration::from_micros(200);
/// How long all threads have to come. Those that are busy elsewhere are not waited for.
const COMING_MAX: Duration = Duration::from_millis(1);
/// After a round in which some did not come: they have other work, and would not be waited for in vain each time.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// Looks for work between two looks at the clock.
const LOOKS: u32 = 32;

thread_local! {
    static IS_AWAKE: Cell<bool> = const { Cell::new(false) };
}

/// The threads of a pool that look for work all the time.
#[derive(Debug, Default)]
pub struct Awake {
    num_awake: Arc<AtomicUsize>,
    /// Not before.
    retry_at: Option<Instant>,
}

/// Who came in a round, and whether others still may.
struct Round(AtomicUsize);

/// Set once nobody may come any more.
const CLOSED: usize = 1 << (usize::BITS - 1);

impl Awake {
    /// Wakes the other threads of the pool of which this thread is one; they stay awake as long as there is work for them every 200 µs.
    ///
    /// The caller has given the pool no work that is not done yet: a thread that waits for a part of it could take up to look for work instead, and keep
    /// whoever waits for that thread waiting too.
    pub fn renew(&mut self) {
        if rayon::current_thread_index().is_none() || self.retry_at.is_some_and(|time| Instant::now() < time) {
            return;
        }
        let num_others = rayon::current_num_threads() - 1;
        let num_awake = self.num_awake.load(Ordering::Relaxed);
        if num_awake >= num_others {
            return;
        }
        let (round, awake) = (Arc::new(Round(AtomicUsize::new(0))), Arc::clone(&self.num_awake));
        let (caller, coming) = (rayon::current_thread_index(), Arc::clone(&round));
        rayon::spawn_broadcast(move |thread| {
            if Some(thread.index()) != caller && !IS_AWAKE.replace(true) {
                if coming.enter() {
                    look_for_work(&awake);
                }
                IS_AWAKE.set(false);
            }
        });
        let start = Instant::now();
        while round.num_inside() < num_others - num_awake && start.elapsed() < COMING_MAX {
            std::thread::yield_now();
        }
        let num_inside = round.close();
        self.retry_at = (num_inside < num_others - num_awake).then(|| Instant::now() + RETRY_AFTER);
        // This thread was given its part too, and may have no other occasion to take it.
        while rayon::yield_local() == Some(Yield::Executed) {}
    }
}

impl Round {
    /// False if it is too late.
    fn enter(&self) -> bool {
        self.0.fetch_add(1, Ordering::AcqRel) & CLOSED == 0
    }

    fn num_inside(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// How many have come.
    fn close(&self) -> usize {
        self.0.fetch_or(CLOSED, Ordering::AcqRel)
    }
}

/// Runs what the pool has to do until there was nothing for a while. Whoever else wants the core has it meanwhile.
fn look_for_work(num_awake: &AtomicUsize) {
    num_awake.fetch_add(1, Ordering::Relaxed);
    let mut idle_since = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if rayon::yield_now() == Some(Yield::Executed) {
                idle_since = Instant::now();
            } else {
                spin_loop();
            }
        }
        if idle_since.elapsed() > IDLE_MAX {
            break;
        }
        std::thread::yield_now();
    }
    num_awake.fetch_sub(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn threads_come_do_their_work_and_go() {
        for num_threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(num_threads).build().expect("threads");
            let mut awake = Awake::default();
            pool.install(|| {
                let start = Instant::now();
                while num_threads > 1 && awake.num_awake.load(Ordering::Relaxed) == 0 {
                    awake.renew();
                    assert!(start.elapsed() < Duration::from_secs(60), "nobody came");
                }
                for round in 0..100 {
                    awake.renew();
                    // Nested, so that threads wait for parts that others took.
                    let sum: usize =
                        (0..64_usize).into_par_iter().map(|row| (0..row).into_par_iter().map(|x| x * round).sum::<usize>()).sum();
                    assert_eq!(sum, round * (0..64).map(|row| (0..row).sum::<usize>()).sum::<usize>());
                }
            });
            while awake.num_awake.load(Ordering::Relaxed) > 0 {
                std::thread::sleep(IDLE_MAX);
            }
            assert_eq!(pool.install(|| (0..1000_u64).into_par_iter().sum::<u64>()), 499_500);
        }
        Awake::default().renew();
    }
}
