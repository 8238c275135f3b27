//! Samples that share a call, and prompts that turn out to be too long when they are asked.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::*;
use crate::agent::client::{Generated, PolicyClient};
use crate::agent::sampling::Sampling;
use crate::agent::testing::agent_of;
use crate::agent::{AnswerReward, RewardOptions, StopReason};

/// Draws the samples of a call as a server does: from its first seed, in order.
struct Together {
    inner: FilmPolicy,
    at_once: usize,
    /// Samples of each call.
    calls: Mutex<Vec<usize>>,
}

impl Together {
    fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self { inner: FilmPolicy::default(), at_once, calls: Mutex::default() })
    }

    /// How many calls there were for so many samples.
    fn num_calls(&self, num_samples: usize) -> usize {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|count| **count == num_samples).count()
    }

    fn count(&self, num_samples: usize) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(num_samples);
    }
}

#[async_trait::async_trait]
impl PolicyClient for Together {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        self.count(1);
        self.inner.generate(prompt, sampling).await
    }

    fn samples_per_call(&self) -> usize {
        self.at_once
    }

    async fn generate_together(&self, prompt: &str, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        self.count(seeds.len());
        let seeds: Vec<u64> = (seeds[0]..).take(seeds.len()).collect();
        self.inner.generate_together(prompt, sampling, &seeds).await
    }

    fn reference(&self) -> (String, u32) {
        self.inner.reference()
    }
}

async fn grown(policy: &Arc<Together>, options: &SearchOptions) -> SearchTree {
    search(&agent_with(policy.clone(), MemoryCorpus::films()), &born_question("Jaws", "1946"), options).await.unwrap()
}

#[tokio::test]
async fn children_and_first_steps_of_completions_share_calls() {
    let options = SearchOptions { children: 5, rollouts_per_node: 4, ..options(1, 7) };
    let policy = Together::new(2);
    grown(&policy, &options).await;
    assert_eq!(policy.num_calls(2), 2 + 2, "of the children, and of the completions of the first of them");
    let alone = Together::new(1);
    let tree = grown(&alone, &SearchOptions { simulations: 20, ..options.clone() }).await;
    assert_eq!(rows(&tree), rows(&jaws(&SearchOptions { simulations: 20, ..options }).await), "one at a time they are what they were");
}

#[tokio::test]
async fn trees_of_calls_that_are_shared_repeat() {
    for selection in [Selection::Uct, Selection::Puct] {
        let options = SearchOptions { selection, children: 3, parallel: 4, ..options(40, 3) };
        let tree = grown(&Together::new(8), &options).await;
        check_invariants(&tree, &options);
        assert_eq!(rows(&tree), rows(&grown(&Together::new(8), &options).await));
        assert_ne!(rows(&tree), rows(&grown(&Together::new(2), &options).await), "who shares a call is a part of what is drawn");
    }
}

#[tokio::test]
async fn sampled_trajectories_share_their_first_calls() {
    let options = SearchOptions { method: Method::Sample, ..options(10, 3) };
    let policy = Together::new(4);
    let tree = grown(&policy, &options).await;
    assert_eq!((tree.visit_count[ROOT], policy.num_calls(4), policy.num_calls(2)), (10, 2, 1));
    // Those of other temperatures cannot.
    let scheduled = Together::new(4);
    grown(&scheduled, &SearchOptions { temperatures: vec![0.5, 1.0], ..options }).await;
    assert_eq!(scheduled.num_calls(4), 0);
}

#[tokio::test]
async fn together_is_each_alone_unless_a_policy_says_otherwise() {
    let (policy, sampling) = (FilmPolicy::default(), Sampling { temperature: 1.0, ..Sampling::default() });
    let together = policy.generate_together("Thought:", &sampling, &[5, 6, 7]).await.unwrap();
    for (seed, generated) in [5, 6, 7].into_iter().zip(together) {
        assert_eq!(policy.generate("Thought:", &Sampling { seed, ..sampling.clone() }).await.unwrap(), generated);
    }
}

/// Searches for one film or another, and reads prompts of so many characters.
struct Searcher {
    readable: usize,
    /// Whether that is known before a prompt is sent.
    tells: bool,
}

#[async_trait::async_trait]
impl PolicyClient for Searcher {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        if prompt.chars().count() > self.readable {
            return Err(Error::ContextFull("the prompt is too long".to_owned()));
        }
        let text = if sampling.seed.is_multiple_of(2) { "<search>Jaws</search>" } else { "<search>Alien</search>" };
        Ok(Generated { text: text.to_owned(), ..Generated::default() })
    }

    fn fits(&self, prompt: &str) -> bool {
        !self.tells || prompt.chars().count() <= self.readable
    }

    fn reference(&self) -> (String, u32) {
        ("searcher".to_owned(), 1)
    }
}

#[tokio::test]
async fn a_prompt_that_is_refused_ends_what_one_ends_that_is_not_sent() {
    for method in [Method::Mcts, Method::Sample] {
        // Of 400 characters a few steps can be read, of 10 not even the first.
        for readable in [400, 10] {
            let mut trees = Vec::new();
            for tells in [true, false] {
                let reward = RewardOptions { reward: AnswerReward::ProRag, redundant_search_penalty: 0.5, ..RewardOptions::default() };
                let options = SearchOptions { method, reward, rollouts_per_node: 2, ..options(200, 1) };
                let agent = agent_of("search_r1", Searcher { readable, tells }, MemoryCorpus::films());
                let tree = search(&agent, &born_question("Jaws", "1946"), &options).await.unwrap();
                assert_eq!(tree.len() == 1, readable == 10);
                let full = tree.step.iter().flatten().filter(|step| step.stop_reason() == Some(StopReason::ContextFull));
                assert_eq!(full.count() > 0, readable > 10);
                check_full_ends(&tree);
                assert!(readable == 10 || method == Method::Sample || tree.is_exhausted(), "every node was visited");
                trees.push(rows(&tree));
            }
            assert_eq!(trees[0], trees[1], "{readable}");
        }
    }
}

/// A trajectory that is ended by its length broke ProRAG's format, which costs 1, and asked again, which costs a half each time.
fn check_full_ends(tree: &SearchTree) {
    for node in 1..tree.len() {
        let steps = tree.steps_to(node);
        if steps.last().and_then(|step| step.stop_reason()) != Some(StopReason::ContextFull) {
            continue;
        }
        let queries: BTreeSet<&str> = steps.iter().filter_map(|step| step.query()).collect();
        let asked = steps.iter().filter(|step| step.query().is_some()).count();
        assert_eq!(tree.outcome_reward[node], Some(-1.0 - 0.5 * (asked - queries.len()) as f64));
    }
}
