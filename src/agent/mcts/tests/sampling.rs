//! Independent trajectories: `method = 'sample'`.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::agent::search_options::ValueSource;

fn samples(count: usize, temperatures: &[f64]) -> SearchOptions {
    SearchOptions { method: Method::Sample, temperatures: temperatures.to_vec(), ..options(count, 3) }
}

/// The leaves: how often they were reached, and what they are worth.
fn ends(tree: &SearchTree) -> Vec<(u64, f64)> {
    let leaves = (1..tree.len()).filter(|node| tree.is_terminal(*node));
    leaves.map(|node| (tree.visit_count[node], tree.q_value(node).unwrap())).collect()
}

#[tokio::test]
async fn trajectories_are_kept_with_their_rewards() {
    let options = samples(32, &[]);
    let tree = jaws(&options).await;
    let ends = ends(&tree);
    assert_eq!(tree.visit_count[ROOT], 32);
    assert_eq!(ends.iter().map(|(visits, _)| visits).sum::<u64>(), 32, "each trajectory has an end");
    assert!(ends.len() > 3 && ends.iter().any(|(_, value)| *value > 0.0) && ends.iter().any(|(_, value)| *value == 0.0));
    let mean = ends.iter().map(|(visits, value)| *visits as f64 * value).sum::<f64>() / 32.0;
    assert!((tree.process_reward(ROOT).unwrap() - mean).abs() < 1e-12, "the mean over all, those that came again too");
    for node in 0..tree.len() {
        let children = &tree.children[node];
        assert_eq!(children.is_empty(), tree.is_terminal(node));
        if !children.is_empty() {
            let (visits, priors) =
                children.iter().fold((0, 0.0), |(visits, priors), child| (visits + tree.visit_count[*child], priors + tree.prior[*child]));
            assert!(visits == tree.visit_count[node] && (priors - 1.0).abs() < 1e-9, "node {node}");
        }
    }
}

#[tokio::test]
async fn a_trajectory_is_its_own_whatever_else_is_sampled() {
    let (few, many) = (jaws(&samples(4, &[])).await, jaws(&samples(32, &[])).await);
    let step =
        |tree: &SearchTree, node: usize| tree.step[node].as_ref().map(|step| (step.response.clone(), step.seed, tree.parent_id[node]));
    assert!((0..few.len()).all(|node| step(&few, node) == step(&many, node)), "the first four come first");
    assert_eq!(rows(&jaws(&samples(32, &[])).await), rows(&many));
}

/// Every second trajectory is greedy, and greedy the policy makes no mistake.
#[tokio::test]
async fn a_schedule_gives_each_trajectory_its_temperature() {
    let tree = jaws(&samples(9, &[0.0, 1.0])).await;
    let right = 0.9_f64.powi(5);
    let best = ends(&tree).into_iter().find(|(_, value)| (value - right).abs() < 1e-12).unwrap();
    assert!(best.0 >= 5 && tree.len() > 6, "{best:?}");
    let greedy = jaws(&samples(9, &[0.0])).await;
    assert_eq!((greedy.len(), greedy.visit_count.clone()), (6, vec![9; 6]));
}

#[tokio::test]
async fn discounted_returns_of_samples() {
    let options = SearchOptions { returns: Returns::Discounted, gamma: 0.5, ..samples(2, &[0.0]) };
    let tree = jaws(&options).await;
    let values: Vec<f64> = (0..tree.len()).map(|node| tree.q_value(node).unwrap()).collect();
    assert_eq!(values, [0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0]);
}

#[tokio::test]
async fn the_cost_is_that_of_all_trajectories() {
    let policy = Arc::new(FilmPolicy::default());
    let agent = agent_with(policy.clone(), MemoryCorpus::films());
    let tree = search(&agent, &born_question("Jaws", "1946"), &samples(3, &[0.0])).await.unwrap();
    assert_eq!(policy.calls.load(Ordering::Relaxed), 15);
    let tokens = tree.step[1].as_ref().map(|step| step.generated_tokens).unwrap();
    assert_eq!(tree.cost[1].generated_tokens, 3 * tokens);
}

#[tokio::test]
async fn the_first_of_the_ends_that_are_worth_most_is_marked() {
    let (tree, sampled) = (jaws(&SearchOptions { method: Method::BestOfN, ..samples(32, &[]) }).await, jaws(&samples(32, &[])).await);
    assert_eq!((&tree.visit_count, &tree.value_sum), (&sampled.visit_count, &sampled.value_sum), "it samples as the other method does");
    assert!(sampled.is_best.iter().all(Option::is_none));
    let value = |node: usize| tree.q_value(node).unwrap();
    let most = (1..tree.len()).filter(|node| tree.is_terminal(*node)).map(value).fold(0.0, f64::max);
    let first = (1..tree.len()).find(|node| tree.is_terminal(*node) && value(*node) >= most);
    let mut path: Vec<usize> = std::iter::successors(first, |node| tree.parent_id[*node]).collect();
    path.reverse();
    let marked: Vec<usize> = (0..tree.len()).filter(|node| tree.is_best[*node] == Some(true)).collect();
    assert_eq!(marked, path);
    assert!(tree.is_best.iter().all(Option::is_some));
}

/// Likes one answer, which is wrong.
#[derive(Default)]
struct Mistaken {
    calls: AtomicUsize,
}

#[async_trait::async_trait]
impl ProcessRewardModel for Mistaken {
    async fn value(&self, _: &str, step: &str) -> Result<Option<f64>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(Some(if step.contains("1900") { 0.75 } else { 0.25 }))
    }
}

#[tokio::test]
async fn a_model_may_choose_the_best_and_is_asked_once_about_equal_ones() {
    let options = SearchOptions { method: Method::BestOfN, value: ValueSource::Prm, ..samples(32, &[]) };
    let model = Arc::new(Mistaken::default());
    let search = Search::new(agent(FilmPolicy::default()), options, Valuer::Prm(model.clone()));
    let tree = search.tree(&born_question("Jaws", "1946")).await.unwrap();
    let ends: Vec<usize> = (1..tree.len()).filter(|node| tree.is_terminal(*node)).collect();
    assert_eq!(model.calls.load(Ordering::Relaxed), ends.len());
    assert_eq!(search.counters().counts().verdicts, ends.len() as u64);
    let best = ends.into_iter().find(|node| tree.is_best[*node] == Some(true)).unwrap();
    let answer = tree.step[best].as_ref().and_then(|step| step.action.answer());
    assert_eq!((answer, tree.q_value(best), tree.outcome_reward[best]), (Some("1900"), Some(0.75), Some(0.0)));
}

/// Cannot read a step, but for those that hold a text.
struct Unreadable {
    but: Option<&'static str>,
}

#[async_trait::async_trait]
impl ProcessRewardModel for Unreadable {
    async fn value(&self, _: &str, step: &str) -> Result<Option<f64>> {
        Ok(self.but.is_some_and(|text| step.contains(text)).then_some(0.0))
    }
}

#[tokio::test]
async fn an_end_without_a_value_is_not_the_best() {
    let options = SearchOptions { method: Method::BestOfN, value: ValueSource::Prm, ..samples(32, &[]) };
    for but in [None, Some("1900")] {
        let search = Search::new(agent(FilmPolicy::default()), options.clone(), Valuer::Prm(Arc::new(Unreadable { but })));
        let tree = search.tree(&born_question("Jaws", "1946")).await.unwrap();
        assert!(tree.is_best.iter().all(Option::is_some));
        let marked: Vec<usize> = (0..tree.len()).filter(|node| tree.is_terminal(*node) && tree.is_best[*node] == Some(true)).collect();
        assert_eq!(marked.len(), usize::from(but.is_some()));
        assert!(marked.iter().all(|end| tree.q_value(*end) == Some(0.0)));
    }
}

#[tokio::test]
async fn a_tree_without_an_end_has_no_best_one() {
    let blank = Question { id: "1".to_owned(), question: None, golden_answers: Vec::new() };
    let of =
        async |method| search(&agent(FilmPolicy::default()), &blank, &SearchOptions { method, ..samples(4, &[]) }).await.unwrap().is_best;
    assert_eq!(of(Method::BestOfN).await, [Some(false)]);
    assert_eq!(of(Method::Sample).await, [None]);
}
