//! Several servers of one model: the next request goes to the one with the fewest in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use url::Url;

/// A server that failed once is passed over so long, and twice as long after each further failure.
const FIRST_REST: Duration = Duration::from_secs(1);
/// Whatever a server asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(86_400);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// The servers of a model.
#[derive(Debug)]
pub(super) struct Endpoints {
    /// Where requests go, in the order of the option.
    urls: Vec<Url>,
    states: Mutex<Vec<State>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    in_flight: usize,
    sent: u64,
    failures: u32,
    /// Until then others are asked first.
    rests_until: Option<Instant>,
    /// Until then it asked to be left alone.
    paused_until: Option<Instant>,
}

/// One request at a server, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    endpoints: Arc<Endpoints>,
    index: usize,
    /// How long the server still wants to be left alone.
    pub wait: Duration,
}

impl Endpoints {
    pub fn new(urls: Vec<Url>) -> Self {
        let states = Mutex::new(vec![State::default(); urls.len()]);
        Self { urls, states }
    }

    /// The server to ask now: one that works and has not asked for a pause, with the fewest requests in flight; of equals the one asked least.
    pub fn choose(self: &Arc<Self>) -> Place {
        let now = Instant::now();
        let mut states = self.states();
        let left = |until: Option<Instant>| until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let order = |state: &State| (left(state.paused_until), left(state.rests_until), state.in_flight, state.sent);
        let index = (0..states.len()).min_by_key(|index| order(&states[*index])).expect("a model has at least one server");
        states[index].in_flight += 1;
        states[index].sent += 1;
        Place { endpoints: Arc::clone(self), index, wait: left(states[index].paused_until) }
    }

    /// Whether some server is worth asking at once.
    pub fn is_any_ready(&self) -> bool {
        let now = Instant::now();
        let is_over = |until: Option<Instant>| until.is_none_or(|until| until <= now);
        self.states().iter().any(|state| is_over(state.rests_until) && is_over(state.paused_until))
    }

    pub fn in_flight(&self) -> usize {
        self.states().iter().map(|state| state.in_flight).sum()
    }

    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub fn url(&self) -> &Url {
        &self.endpoints.urls[self.index]
    }

    /// `host:port`, as messages name the server.
    pub fn host(&self) -> String {
        let url = self.url();
        let host = url.host_str().unwrap_or_default();
        url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    pub fn succeeded(&self) {
        let state = &mut self.endpoints.states()[self.index];
        (state.failures, state.rests_until) = (0, None);
    }

    /// `pause`: what the server asked for.
    pub fn failed(&self, pause: Option<Duration>) {
        let now = Instant::now();
        let state = &mut self.endpoints.states()[self.index];
        let rest = FIRST_REST.saturating_mul(1 << state.failures.min(16)).min(LONGEST_REST);
        state.failures = state.failures.saturating_add(1);
        state.rests_until = Some(now + rest);
        if let Some(pause) = pause {
            state.paused_until = Some(now + pause.min(LONGEST_PAUSE));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let state = &mut self.endpoints.states()[self.index];
        state.in_flight = state.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(num: usize) -> Arc<Endpoints> {
        let url = |index: usize| Url::parse(&format!("http://host{index}:80{index}0/v1")).expect("a URL");
        Arc::new(Endpoints::new((0..num).map(url).collect()))
    }

    #[tokio::test]
    async fn the_least_loaded_is_asked_and_one_that_failed_is_passed_over() {
        let endpoints = endpoints(3);
        let places: Vec<Place> = (0..3).map(|_| endpoints.choose()).collect();
        assert_eq!(places.iter().map(|place| place.index).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(places[1].host(), "host1:8010");
        let mut places = places.into_iter();
        let (first, second, third) = (places.next(), places.next(), places.next());
        drop(second);
        assert_eq!(endpoints.choose().index, 1, "nothing is in flight there");
        first.as_ref().expect("a place").failed(None);
        drop((first, third));
        assert_eq!(endpoints.in_flight(), 0);
        let asked: Vec<usize> = (0..4).map(|_| endpoints.choose().index).collect();
        assert!(!asked.contains(&0), "{asked:?}");
    }

    #[tokio::test]
    async fn when_all_rest_the_one_that_rests_least_is_asked() {
        let endpoints = endpoints(2);
        for _ in 0..2 {
            let place = endpoints.choose();
            place.failed(Some(Duration::from_secs(5 + place.index as u64)));
        }
        assert!(!endpoints.is_any_ready());
        let place = endpoints.choose();
        assert_eq!(place.index, 0);
        assert!(place.wait > Duration::from_secs(4), "{:?}", place.wait);
        place.succeeded();
    }
}
