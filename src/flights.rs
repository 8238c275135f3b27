//! Equal requests in flight are one: of a server, or of a search.

use std::collections::HashMap;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

/// A driver that was woken may be dropped before it is polled, or have a client that takes no more rows; the wake-up is spent then.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A request that several may wait for, any of whom drives it; it is given up when nobody waits any more.
pub(crate) struct Flight<T>(Shared<Request<T>>);

/// `None`: it has panicked.
type Request<T> = BoxFuture<'static, Option<T>>;

/// The requests in flight, by key. Clones are the same.
pub(crate) struct Flights<K, T>(Arc<Mutex<HashMap<K, Entry<T>>>>);

struct Entry<T> {
    flight: WeakShared<Request<T>>,
    number: u64,
}

/// What [`Flights::join`] found.
pub(crate) enum Joined<T> {
    /// Nobody had asked.
    New(Flight<T>),
    Shared(Flight<T>),
    /// The answer is there already.
    Known,
}

impl<T: Clone> Flight<T> {
    /// What was asked for; `None` if the request panicked.
    pub async fn outcome(mut self) -> Option<T> {
        loop {
            tokio::select! {
                biased;
                found = &mut self.0 => return found,
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }
}

impl<K, T> Clone for Flights<K, T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash + Send + 'static, T: Clone + Send + Sync + 'static> Flights<K, T> {
    /// The flight of this key; without one, a new one unless `is_known`, which is asked while no flight can begin or end.
    pub fn join(&self, key: K, is_known: impl FnOnce() -> bool, ask: impl Future<Output = T> + Send + 'static) -> Joined<T> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&key).and_then(|entry| entry.flight.upgrade()) {
            return Joined::Shared(Flight(flight));
        }
        if is_known() {
            return Joined::Known;
        }
        let number = flights.get(&key).map_or(0, |entry| entry.number + 1);
        let landing = Landing { flights: self.clone(), key: key.clone(), number };
        let ask = async move {
            // Goes with the future, whether that ends or is given up.
            let _landing = landing;
            // Of a shared future that panics the others would wait for ever.
            AssertUnwindSafe(ask).catch_unwind().await.ok()
        };
        let flight = ask.boxed().shared();
        let weak = flight.downgrade().expect("it has not been polled");
        flights.insert(key, Entry { flight: weak, number });
        Joined::New(Flight(flight))
    }
}

/// Takes a flight off the list; a later one of the same key stays.
struct Landing<K: Eq + Hash, T> {
    flights: Flights<K, T>,
    key: K,
    number: u64,
}

impl<K: Eq + Hash, T> Drop for Landing<K, T> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.get(&self.key).is_some_and(|entry| entry.number == self.number) {
            flights.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    impl<K, T> Flights<K, T> {
        fn len(&self) -> usize {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
        }
    }

    #[tokio::test]
    async fn one_asks_and_all_get_the_answer_even_if_the_first_goes_away() {
        let (flights, asked) = (Flights::default(), Arc::new(AtomicUsize::new(0)));
        let (answer, wait) = oneshot::channel::<()>();
        let (counted, first) = (Arc::clone(&asked), Some(wait));
        let ask = async move {
            counted.fetch_add(1, Ordering::SeqCst);
            if let Some(wait) = first {
                let _ = wait.await;
            }
            "one"
        };
        let Joined::New(first) = flights.join(1, || false, ask) else { panic!("nobody asks yet") };
        let mut others = Vec::new();
        for _ in 0..3 {
            let Joined::Shared(other) = flights.join(1, || true, async { "never" }) else { panic!("it is in flight") };
            others.push(tokio::spawn(async move { other.outcome().await }));
        }
        let first = tokio::spawn(async move { first.outcome().await });
        tokio::task::yield_now().await;
        first.abort();
        answer.send(()).expect("it waits");
        for other in others {
            assert_eq!(other.await.expect("it ends"), Some("one"));
        }
        assert_eq!((asked.load(Ordering::SeqCst), flights.len()), (1, 0));
        assert!(matches!(flights.join(1, || true, async { "never" }), Joined::Known));
    }

    #[tokio::test]
    async fn a_request_that_nobody_waits_for_is_given_up() {
        let flights = Flights::default();
        let (given_up, is_given_up) = oneshot::channel::<()>();
        let ask = async move {
            let _until_dropped = given_up;
            std::future::pending::<()>().await;
        };
        let Joined::New(flight) = flights.join(2, || false, ask) else { panic!("nobody asks yet") };
        let Joined::Shared(other) = flights.join(2, || false, async {}) else { panic!("it is in flight") };
        drop(flight);
        assert_eq!(flights.len(), 1);
        drop(other);
        assert!(is_given_up.await.is_err());
        assert_eq!(flights.len(), 0);
    }

    /// The wake-up of a driver that is not polled any more is lost.
    #[tokio::test]
    async fn who_waits_goes_on_without_the_one_that_was_woken() {
        let (flights, (answer, wait)) = (Flights::default(), oneshot::channel::<()>());
        let Joined::New(first) = flights.join(4, || false, async { wait.await.is_ok() }) else { panic!("nobody asks yet") };
        let Joined::Shared(other) = flights.join(4, || true, async { false }) else { panic!("it is in flight") };
        let (mut first, mut other) = (Box::pin(first.outcome()), Box::pin(other.outcome()));
        assert!(futures::poll!(&mut other).is_pending() && futures::poll!(&mut first).is_pending());
        // Who drove it goes away without looking at what came.
        answer.send(()).expect("it waits");
        drop(first);
        assert_eq!(tokio::time::timeout(Duration::from_secs(10), other).await.expect("it ends"), Some(true));
    }

    #[tokio::test]
    async fn a_panic_ends_the_waiting() {
        let flights: Flights<i32, &str> = Flights::default();
        let Joined::New(flight) = flights.join(3, || false, async { panic!("as a broken search") }) else { panic!("nobody asks yet") };
        assert_eq!(flight.outcome().await, None);
        assert_eq!(flights.len(), 0);
    }
}
