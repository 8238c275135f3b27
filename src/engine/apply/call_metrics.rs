//! What EXPLAIN ANALYZE shows of the model calls of a node, and of what its agents search for.

use std::any::Any;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datafusion::physical_plan::metrics::{CustomMetricValue, Metric, MetricValue};

use crate::models::{CallCounts, Calls};

/// The calls of one node, of all its partitions.
#[derive(Debug, Default)]
pub(super) struct NodeCalls {
    pub counts: Arc<CallCounts>,
    /// Input rows whose calls have all ended, in slices.
    pub rows: AtomicU64,
    busy: Mutex<Busy>,
}

/// How long at least one call has been in flight: partitions call at the same time.
#[derive(Debug, Default)]
struct Busy {
    in_flight: usize,
    since: Option<Instant>,
    before: Duration,
}

/// A call in flight.
pub(super) struct InFlight<'a>(&'a NodeCalls);

impl NodeCalls {
    pub fn begin(&self) -> InFlight<'_> {
        let mut busy = self.lock();
        if busy.in_flight == 0 {
            busy.since = Some(Instant::now());
        }
        busy.in_flight += 1;
        InFlight(self)
    }

    /// What models were given, and what was there, always; the rest where models were asked, where a server takes requests or money, and where corpora
    /// were searched.
    pub fn metrics(&self) -> Vec<Arc<Metric>> {
        let calls = self.counts.calls();
        let mut metrics = vec![count("model_inputs", calls.inputs), count("cache_hits", calls.cache_hits)];
        if calls.asked() > 0 {
            metrics.extend(self.of_asked(&calls));
        }
        if calls.retrievals > 0 {
            metrics.extend([count("retrievals", calls.retrievals), count("retrieval_hits", calls.retrieval_hits)]);
        }
        metrics
    }

    fn of_asked(&self, calls: &Calls) -> Vec<Arc<Metric>> {
        let tokens = [
            count("model_calls", calls.asked()),
            count("prompt_tokens", calls.prompt_tokens),
            count("cached_tokens", calls.cached_tokens),
            count("generated_tokens", calls.generated_tokens),
        ];
        let speed = calls.tokens_per_second(self.seconds()).map(|speed| metric("tokens_per_second", speed, 1));
        let requests = (calls.requests > 0).then(|| count("requests", calls.requests));
        let cost = calls.cost.known().map(|cost| metric("cost", cost, 6));
        tokens.into_iter().chain(speed).chain(requests).chain(cost).collect()
    }

    fn seconds(&self) -> f64 {
        let busy = self.lock();
        (busy.before + busy.since.map_or(Duration::ZERO, |since| since.elapsed())).as_secs_f64()
    }

    fn lock(&self) -> MutexGuard<'_, Busy> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut busy = self.0.lock();
        busy.in_flight -= 1;
        if busy.in_flight == 0 {
            let last = busy.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            busy.before += last;
        }
    }
}

fn count(name: &'static str, count: u64) -> Arc<Metric> {
    // Tallies stay far below 2^53.
    metric(name, count as f64, 0)
}

fn metric(name: &'static str, number: f64, decimals: usize) -> Arc<Metric> {
    let value = Arc::new(Exact { number: Mutex::new(number), decimals });
    Arc::new(Metric::new(MetricValue::Custom { name: name.into(), value }, None))
}

/// A number with all its digits, where DataFusion's counters show `1.23 K`: it is for tokens that somebody pays for.
#[derive(Debug)]
struct Exact {
    number: Mutex<f64>,
    decimals: usize,
}

impl Exact {
    fn number(&self) -> f64 {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*}", self.decimals, self.number())
    }
}

impl CustomMetricValue for Exact {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::new(Self { number: Mutex::default(), decimals: self.decimals })
    }

    fn aggregate(&self, other: Arc<dyn CustomMetricValue>) {
        if let Some(other) = other.as_any().downcast_ref::<Self>() {
            let sum = self.number() + other.number();
            *self.number.lock().unwrap_or_else(PoisonError::into_inner) = sum;
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_usize(&self) -> usize {
        self.number() as usize
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| self.to_string() == other.to_string())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::metrics::MetricsSet;

    use super::*;

    #[test]
    fn numbers_have_all_their_digits() {
        let mut metrics = MetricsSet::new();
        for metric in [count("prompt_tokens", 1_234_567), metric("cost", 0.00052, 6), metric("tokens_per_second", 1234.56, 1)] {
            metrics.push(metric);
        }
        let shown = metrics.aggregate_by_name().sorted_for_display().to_string();
        assert_eq!(shown, "cost=0.000520, prompt_tokens=1234567, tokens_per_second=1234.6");
    }

    #[test]
    fn calls_at_the_same_time_take_their_time_once() {
        let node = NodeCalls::default();
        let started = Instant::now();
        let (first, second) = (node.begin(), node.begin());
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
        drop(second);
        let busy = node.seconds();
        std::thread::sleep(Duration::from_millis(20));
        assert!((0.02..=started.elapsed().as_secs_f64() - 0.02).contains(&busy), "{busy}");
        assert_eq!(node.metrics().len(), 2, "without calls there are no tokens to show");
    }
}
