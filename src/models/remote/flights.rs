//! Equal requests in flight are one request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::failure::Failure;
use super::request::Key;
use super::response::RemoteCompletion;

type Outcome = Result<Arc<RemoteCompletion>, Failure>;
/// A request that several may wait for; it is given up when nobody waits any more.
pub(super) type Flight = Shared<BoxFuture<'static, Outcome>>;

/// The requests in flight, by key. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<Key, Entry>>>);

struct Entry {
    flight: WeakShared<BoxFuture<'static, Outcome>>,
    number: u64,
}

/// What [`Flights::join`] found.
pub(super) enum Joined {
    /// Nobody had asked.
    New(Flight),
    Shared(Flight),
    /// The answer is there already.
    Known,
}

impl Flights {
    /// The flight of this key; without one, a new one unless `is_known`, which is asked while no flight can begin or end.
    pub fn join(&self, key: Key, is_known: impl FnOnce() -> bool, ask: impl Future<Output = Outcome> + Send + 'static) -> Joined {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&key).and_then(|entry| entry.flight.upgrade()) {
            return Joined::Shared(flight);
        }
        if is_known() {
            return Joined::Known;
        }
        let number = flights.get(&key).map_or(0, |entry| entry.number + 1);
        let landing = Landing { flights: self.clone(), key, number };
        let ask = async move {
            // Goes with the future, whether that ends or is given up.
            let _landing = landing;
            ask.await
        };
        let flight = ask.boxed().shared();
        let weak = flight.downgrade().expect("it has not been polled");
        flights.insert(key, Entry { flight: weak, number });
        Joined::New(flight)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Takes a flight off the list; a later one of the same key stays.
struct Landing {
    flights: Flights,
    key: Key,
    number: u64,
}

impl Drop for Landing {
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

    fn completion(text: &str) -> Outcome {
        Ok(Arc::new(RemoteCompletion { text: text.to_owned(), ..RemoteCompletion::default() }))
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
            completion("one")
        };
        let Joined::New(first) = flights.join([1; 32], || false, ask) else { panic!("nobody asks yet") };
        let mut others = Vec::new();
        for _ in 0..3 {
            let Joined::Shared(other) = flights.join([1; 32], || true, async { completion("never") }) else { panic!("it is in flight") };
            others.push(tokio::spawn(other));
        }
        let first = tokio::spawn(first);
        tokio::task::yield_now().await;
        first.abort();
        answer.send(()).expect("it waits");
        for other in others {
            assert_eq!(other.await.expect("it ends"), completion("one"));
        }
        assert_eq!((asked.load(Ordering::SeqCst), flights.len()), (1, 0));
        assert!(matches!(flights.join([1; 32], || true, async { completion("never") }), Joined::Known));
    }

    #[tokio::test]
    async fn a_request_that_nobody_waits_for_is_given_up() {
        let flights = Flights::default();
        let (given_up, is_given_up) = oneshot::channel::<()>();
        let ask = async move {
            let _until_dropped = given_up;
            std::future::pending().await
        };
        let Joined::New(flight) = flights.join([2; 32], || false, ask) else { panic!("nobody asks yet") };
        let other = flight.clone();
        drop(flight);
        assert_eq!(flights.len(), 1);
        drop(other);
        assert!(is_given_up.await.is_err());
        assert_eq!(flights.len(), 0);
    }
}
