//! The tree as a whole: determinism, invariants, rewards, ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use futures::{StreamExt, stream};
use proptest::prelude::*;

use super::*;
use crate::agent::RewardOptions;
use crate::agent::search_options::{Returns, Selection};
use crate::agent::search_tree::node_schema;
use crate::agent::testing::{FilmPolicy, MemoryCorpus, Parrot, agent, agent_of, agent_with, born_question, born_questions};

mod rounds;
mod sampling;
mod together;
mod valuers;

fn options(simulations: usize, seed: i64) -> SearchOptions {
    SearchOptions { simulations, seed, temperature: 1.0, ..SearchOptions::default() }
}

async fn search(agent: &Agent, question: &Question, options: &SearchOptions) -> Result<SearchTree> {
    Search::new(agent.clone(), options.clone(), Valuer::Policy).tree(question).await
}

fn search_many(
    agent: Agent,
    questions: impl Stream<Item = Question> + Send,
    options: SearchOptions,
) -> impl Stream<Item = (Question, Result<SearchTree>)> + Send {
    Search::new(agent, options, Valuer::Policy).trees(questions)
}

async fn jaws(options: &SearchOptions) -> SearchTree {
    search(&agent(FilmPolicy::default()), &born_question("Jaws", "1946"), options).await.unwrap()
}

/// All columns but the only one that a clock decides.
fn rows(tree: &SearchTree) -> RecordBatch {
    let batch = tree.to_record_batch("run1").unwrap();
    let latency = batch.schema().index_of("latency_ms").unwrap();
    batch.project(&(0..batch.num_columns()).filter(|column| *column != latency).collect::<Vec<_>>()).unwrap()
}

fn check_invariants(tree: &SearchTree, options: &SearchOptions) {
    for node in 0..tree.len() {
        let children = &tree.children[node];
        let visits: u64 = children.iter().map(|child| tree.visit_count[*child]).sum();
        assert!(tree.visit_count[node] >= visits, "node {node}");
        let completions: u64 = children.iter().map(|child| tree.completion_count[*child]).sum();
        assert!(tree.completion_count[node] >= completions, "node {node}");
        for value in [tree.q_value(node), tree.process_reward(node), tree.outcome_reward[node]].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&value), "node {node}: {value}");
        }
        assert!(tree.depth[node] <= options.max_depth && children.len() <= options.children);
        assert!(tree.parent_id[node].is_none_or(|parent| parent < node && tree.children[parent].contains(&node)));
        if !children.is_empty() {
            let priors: f64 = children.iter().map(|child| tree.prior[*child]).sum();
            assert!((priors - 1.0).abs() < 1e-9 && !tree.is_terminal(node));
        }
    }
    assert!(tree.virtual_count.iter().all(|count| *count == 0));
    assert!(tree.visit_count[ROOT] <= options.simulations as u64);
    assert!(tree.visit_count[ROOT] == options.simulations as u64 || tree.is_exhausted());
}

fn any_options() -> impl Strategy<Value = SearchOptions> {
    let limits = (1..40usize, 1..5usize, 1..9usize, 1..4usize, 1..7usize);
    let kinds = (any::<bool>(), any::<bool>(), prop_oneof![Just(None), Just(Some(0.0))]);
    (limits, kinds, 0.0..3.0, 0.1..=1.0, prop_oneof![Just(0.0), 0.1..1.0], any::<i64>()).prop_map(
        |(limits, (is_puct, is_discounted, rollout_temperature), exploration, decay, temperature, seed)| {
            let (simulations, children, max_depth, rollouts_per_node, parallel) = limits;
            SearchOptions {
                simulations,
                children,
                max_depth,
                rollouts_per_node,
                parallel,
                selection: if is_puct { Selection::Puct } else { Selection::Uct },
                returns: if is_discounted { Returns::Discounted } else { Returns::Spre },
                exploration,
                alpha: decay,
                gamma: decay,
                temperature,
                rollout_temperature,
                seed,
                ..SearchOptions::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn trees_keep_their_invariants(options in any_options(), max_steps in 1..9usize) {
        let mut agent = agent(FilmPolicy::default());
        agent.max_steps = max_steps;
        let question = born_question("Jaws", "1946");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tree = runtime.block_on(search(&agent, &question, &options)).unwrap();
        check_invariants(&tree, &options);
        let again = runtime.block_on(search(&agent, &question, &options)).unwrap();
        prop_assert_eq!(rows(&again), rows(&tree));
    }
}

#[tokio::test]
async fn a_tree_depends_on_its_seed_and_not_on_what_is_in_flight() {
    let questions = || stream::iter((0..12).map(|row| Question { id: format!("q{row}"), ..born_questions()[row % 3].clone() }));
    let mut runs = Vec::new();
    for concurrency in [1, 3, 12] {
        let options = SearchOptions { concurrency, ..options(24, 7) };
        let mut trees: Vec<(String, RecordBatch)> = search_many(agent(FilmPolicy::default()), questions(), options)
            .map(|(question, tree)| (question.id, rows(&tree.unwrap())))
            .collect()
            .await;
        trees.sort_by(|(a, _), (b, _)| a.cmp(b));
        runs.push(trees);
    }
    assert!(runs.windows(2).all(|pair| pair[0] == pair[1]));
    assert_ne!(rows(&jaws(&options(24, 7)).await), rows(&jaws(&options(24, 8)).await));
}

#[tokio::test]
async fn good_first_steps_earn_more_than_bad_ones() {
    let options = SearchOptions { children: 32, ..options(400, 1) };
    let tree = jaws(&options).await;
    let reward_of = |wanted: &str| {
        let is_wanted = |child: &usize| tree.step[*child].as_ref().is_some_and(|step| step.response.contains(wanted));
        tree.children[ROOT].iter().copied().find(is_wanted).and_then(|child| tree.process_reward(child)).unwrap()
    };
    let (good, wasted, early) = (reward_of("Jaws directed"), reward_of("weather report"), reward_of("1900"));
    assert!(good > wasted && wasted > early, "{good} {wasted} {early}");
    assert_eq!(early, 0.0);
}

/// Greedy, the policy takes five steps to the right answer: the value of every node is 1 · 0.9^5.
#[tokio::test]
async fn the_reward_decays_with_all_steps_of_the_trajectory() {
    let options = SearchOptions { temperature: 0.0, rollouts_per_node: 3, ..options(64, 0) };
    let tree = jaws(&options).await;
    assert_eq!(tree.len(), 6, "one child each: the samples are equal");
    for node in 0..tree.len() {
        assert!((tree.q_value(node).unwrap() - 0.9_f64.powi(5)).abs() < 1e-12);
        assert!((tree.process_reward(node).unwrap() - 0.9_f64.powi(5)).abs() < 1e-12);
    }
    assert_eq!(tree.outcome_reward[5], Some(1.0));
    assert_eq!(tree.outcome_reward[..5], [None; 5]);
    assert_eq!(tree.prior, [1.0; 6]);
    assert_eq!(tree.visit_count, [5, 5, 4, 3, 2, 1], "and then nothing is left to find out");
    assert!(tree.is_exhausted());
}

/// The same trajectory with discounted returns: what is left of 1 at a node are the steps behind it.
#[tokio::test]
async fn discounted_returns_grow_towards_the_answer() {
    let options = SearchOptions { returns: Returns::Discounted, gamma: 0.8, temperature: 0.0, ..options(64, 0) };
    let tree = jaws(&options).await;
    assert_eq!(tree.len(), 6);
    for node in 0..tree.len() {
        let expected = 0.8_f64.powi(5 - tree.depth[node] as i32);
        assert!((tree.q_value(node).unwrap() - expected).abs() < 1e-12, "node {node}");
        assert!((tree.process_reward(node).unwrap() - expected).abs() < 1e-12, "node {node}");
    }
}

/// Siblings that all answer are all rewarded: a tree that ends early leaves none of them out.
#[tokio::test]
async fn a_tree_ends_when_every_answer_was_visited() {
    let mut agent = agent(FilmPolicy::default());
    agent.max_steps = 1;
    let options = SearchOptions { children: 32, ..options(64, 3) };
    let tree = search(&agent, &born_question("Jaws", "1900"), &options).await.unwrap();
    assert!(tree.is_exhausted() && tree.len() > 3);
    assert_eq!(tree.visit_count[ROOT], tree.len() as u64 - 1);
    let rewards: Vec<Option<f64>> = (1..tree.len()).map(|node| tree.process_reward(node)).collect();
    assert!(rewards.contains(&Some(0.9)) && rewards.contains(&Some(0.0)) && !rewards.contains(&None), "{rewards:?}");
}

#[tokio::test]
async fn the_cost_of_the_tree_is_that_of_all_policy_calls() {
    let policy = Arc::new(FilmPolicy::default());
    let agent = agent_with(policy.clone(), MemoryCorpus::films());
    let options = SearchOptions { simulations: 1, children: 4, temperature: 0.0, ..options(1, 0) };
    let tree = search(&agent, &born_question("Jaws", "1946"), &options).await.unwrap();
    assert_eq!(tree.len(), 2);
    assert_eq!(policy.calls.load(Ordering::Relaxed), 4 + 4, "four equal samples and a completion of four steps");
    let tokens = |node: usize| tree.step[node].as_ref().map_or(0, |step| step.token_ids.len());
    assert!(tree.cost[1].generated_tokens > 4 * tokens(1), "duplicates and the completion count");
    assert_eq!(tree.cost[ROOT].generated_tokens, 0);
}

#[tokio::test]
async fn a_terminal_node_is_visited_again_without_a_policy_call() {
    let tree = |simulations| async move {
        let policy = Arc::new(FilmPolicy::default());
        let agent = agent_with(policy.clone(), MemoryCorpus::films());
        // No exploration: once an answer has a value, it is selected for ever.
        let options = SearchOptions { exploration: 0.0, children: 3, ..options(simulations, 5) };
        let tree = search(&agent, &born_question("Jaws", "1946"), &options).await.unwrap();
        (tree, policy.calls.load(Ordering::Relaxed))
    };
    let ((early, early_calls), (late, late_calls)) = (tree(200).await, tree(400).await);
    assert!(!late.is_exhausted(), "the seed leaves something open");
    assert_eq!(early_calls, late_calls);
    assert_eq!(late.visit_count[ROOT], 400);
    assert_eq!(early.completion_count, late.completion_count, "seeing an answer again is no new completion");
}

#[tokio::test]
async fn policies_that_write_nothing_of_use_have_small_trees_without_rewards() {
    let question = born_question("Jaws", "1946");
    let garbage = search(&agent(Parrot("garbage")), &question, &options(64, 0)).await.unwrap();
    assert_eq!(garbage.len(), 3, "malformed, then malformed again");
    assert_eq!(garbage.process_reward(ROOT), Some(0.0));
    let searches = Parrot("<query>Jaws</query><evidence>None</evidence>");
    let never = search(&agent(searches), &question, &options(64, 0)).await.unwrap();
    assert_eq!((never.len(), never.process_reward(ROOT)), (9, Some(0.0)));
}

#[tokio::test]
async fn questions_that_cannot_be_searched() {
    let agent = agent(FilmPolicy::default());
    for blank in [None, Some(" ".to_owned())] {
        let question = Question { id: "1".to_owned(), question: blank, golden_answers: Vec::new() };
        let tree = search(&agent, &question, &options(8, 0)).await.unwrap();
        assert_eq!((tree.len(), tree.is_terminal(ROOT), tree.visit_count[ROOT]), (1, true, 0));
        assert_eq!(tree.to_record_batch("r").unwrap().num_rows(), 1);
    }
    let unanswered = Question { golden_answers: Vec::new(), ..born_question("Jaws", "1946") };
    let error = search(&agent, &unanswered, &options(8, 0)).await.unwrap_err().to_string();
    assert_eq!(error, "golden_answers = empty for question \"jaws\": expected at least one answer to score against");
}

#[tokio::test]
async fn a_tree_is_rows() {
    let tree = jaws(&options(16, 7)).await;
    let batch = tree.to_record_batch("run1").unwrap();
    assert_eq!(batch.schema(), node_schema());
    let int8 = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
    let text = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>();
    assert_eq!(int8("node_id").values().to_vec(), (0..tree.len() as i64).collect::<Vec<_>>());
    assert_eq!((text("state").value(0), text("prompt").value(0)), ("begin_reasoning", "When was the director of Jaws born?"));
    for column in ["parent_id", "action", "response", "token_ids", "seed"] {
        let column = batch.column_by_name(column).unwrap();
        assert!(column.is_null(0) && column.null_count() == 1);
    }
    let visited = int8("visit_count").iter().zip(batch.column_by_name("q_value").unwrap().as_primitive::<Float64Type>());
    assert!(visited.into_iter().all(|(visits, q_value)| (visits == Some(0)) == q_value.is_none()));
    assert_eq!((text("policy").value(1), int8("corpus_version").value(1)), ("films", 4));
}

/// A policy that never comes back: dropping the stream must end everything.
struct Hangs(Arc<FilmPolicy>);

#[async_trait::async_trait]
impl crate::agent::PolicyClient for Hangs {
    async fn generate(&self, prompt: &str, sampling: &crate::agent::Sampling) -> Result<crate::agent::Generated> {
        let generated = self.0.generate(prompt, sampling).await?;
        if self.0.calls.load(Ordering::Relaxed) > 20 {
            std::future::pending::<()>().await;
        }
        Ok(generated)
    }

    fn reference(&self) -> (String, u32) {
        self.0.reference()
    }
}

#[tokio::test]
async fn dropping_a_search_stops_it() {
    let inner = Arc::new(FilmPolicy::default());
    let agent = agent_with(Arc::new(Hangs(inner.clone())), MemoryCorpus::films());
    let trees = search_many(agent, stream::iter(born_questions()), options(1000, 0));
    let mut trees = Box::pin(trees);
    assert!(tokio::time::timeout(Duration::from_millis(100), trees.next()).await.is_err());
    let calls = inner.calls.load(Ordering::Relaxed);
    assert!(calls > 20);
    drop(trees);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(inner.calls.load(Ordering::Relaxed), calls);
    assert_eq!(Arc::strong_count(&inner), 1, "nothing holds the policy any more");
}

/// The steps before a node are part of what its completions earn.
#[tokio::test]
async fn a_completion_earns_what_its_whole_trajectory_does() {
    let reward = RewardOptions { redundant_search_penalty: 0.5, ..RewardOptions::default() };
    let agent = agent_of("search_r1", Parrot("<search>Jaws</search>"), MemoryCorpus::films());
    let question = born_question("Jaws", "1946");
    let options = SearchOptions { reward, children: 1, alpha: 1.0, ..options(1, 1) };
    let searched = search(&agent, &question, &options).await.unwrap();
    let sampled = search(&agent, &question, &SearchOptions { method: Method::Sample, ..options }).await.unwrap();
    let end = sampled.len() - 1;
    let asked = sampled.steps_to(end).iter().filter(|step| step.query().is_some()).count();
    assert!(asked > 2);
    assert_eq!(sampled.outcome_reward[end], Some(-0.5 * (asked - 1) as f64));
    assert_eq!(searched.process_reward(searched.children[ROOT][0]), sampled.outcome_reward[end]);
}
