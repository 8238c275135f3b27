//! Simulations of one tree at the same time.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::agent::{Generated, PolicyClient, Sampling};

/// A policy that takes another time for each call, by the order in which calls come, and counts those in flight.
#[derive(Default)]
struct Uneven {
    inner: FilmPolicy,
    in_flight: AtomicUsize,
    in_flight_max: AtomicUsize,
}

#[async_trait::async_trait]
impl PolicyClient for Uneven {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let in_flight = 1 + self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.in_flight_max.fetch_max(in_flight, Ordering::Relaxed);
        let call = self.inner.calls.load(Ordering::Relaxed) as u64;
        tokio::time::sleep(Duration::from_millis(call * 7 % 11)).await;
        let generated = self.inner.generate(prompt, sampling).await;
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        generated
    }

    fn reference(&self) -> (String, u32) {
        self.inner.reference()
    }
}

fn parallel(parallel: usize) -> SearchOptions {
    SearchOptions { parallel, children: 3, ..options(40, 11) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tree_of_rounds_depends_on_no_clock_and_on_no_thread() {
    for selection in [Selection::Uct, Selection::Puct] {
        let options = SearchOptions { selection, ..parallel(8) };
        let at_once = jaws(&options).await;
        check_invariants(&at_once, &options);
        let policy = Arc::new(Uneven::default());
        let unevenly = search(&agent_with(policy.clone(), MemoryCorpus::films()), &born_question("Jaws", "1946"), &options).await.unwrap();
        assert_eq!(rows(&unevenly), rows(&at_once));
        assert!(policy.in_flight_max.load(Ordering::Relaxed) > 3, "more than the samples of one node");
        assert_ne!(
            rows(&jaws(&SearchOptions { parallel: 1, ..options }).await),
            rows(&at_once),
            "a round selects before it knows what its leaves are worth"
        );
    }
}

#[tokio::test]
async fn a_round_of_one_looks_at_one_leaf() {
    let policy = Arc::new(Uneven::default());
    let agent = agent_with(policy.clone(), MemoryCorpus::films());
    search(&agent, &born_question("Jaws", "1946"), &parallel(1)).await.unwrap();
    assert_eq!(policy.in_flight_max.load(Ordering::Relaxed), 3, "the samples of one node");
}

#[tokio::test]
async fn what_is_counted_is_what_the_trees_cost() {
    let search = Search::new(agent(FilmPolicy::default()), parallel(4), Valuer::Policy);
    let counters = search.counters();
    let trees: Vec<SearchTree> = search.trees(stream::iter(born_questions())).map(|(_, tree)| tree.unwrap()).collect().await;
    let sum = |of: fn(&SearchTree) -> u64| trees.iter().map(of).sum::<u64>();
    let counts = counters.counts();
    assert_eq!(counts.simulations, sum(|tree| tree.visit_count[ROOT]));
    assert_eq!(counts.generated_tokens, sum(|tree| tree.cost.iter().map(|cost| cost.generated_tokens as u64).sum()));
    assert_eq!(counts.prompt_tokens, sum(|tree| tree.cost.iter().map(|cost| cost.prompt_tokens as u64).sum()));
    assert_eq!(counts.cache_hit_rate(), Some(0.0));
}
