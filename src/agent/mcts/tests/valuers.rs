//! Values of models: a judge, a process reward model.

use std::sync::Mutex;

use super::*;
use crate::agent::search_options::ValueSource;
use crate::agent::{Generated, PolicyClient, Sampling};

/// A judge that likes the right first query, and remembers what it was asked.
struct Critic {
    /// What it writes when it is asked greedily, and otherwise; None: its verdict.
    replies: [Option<&'static str>; 2],
    asked: Mutex<Vec<String>>,
}

impl Critic {
    fn new(replies: [Option<&'static str>; 2]) -> Arc<Self> {
        Arc::new(Self { replies, asked: Mutex::default() })
    }
}

#[async_trait::async_trait]
impl PolicyClient for Critic {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        self.asked.lock().unwrap().push(prompt.to_owned());
        let score = if prompt.contains("weather") { 10 } else { 80 };
        let verdict = format!("The steps are clear.\nScore: {score}");
        let reply = self.replies[usize::from(sampling.temperature > 0.0)].map_or(verdict, str::to_owned);
        Ok(Generated { generated_tokens: 7, prompt_tokens: 100, text: reply, ..Generated::default() })
    }

    fn reference(&self) -> (String, u32) {
        ("critic".to_owned(), 1)
    }
}

fn judged(simulations: usize) -> SearchOptions {
    SearchOptions { value: ValueSource::Judge, judge: Some("critic".to_owned()), children: 8, ..options(simulations, 5) }
}

async fn judge(critic: &Arc<Critic>, options: SearchOptions) -> (SearchTree, SearchCounts) {
    let judge = Judge::new(critic.clone(), options.judge_prompt.clone().as_deref());
    let search = Search::new(agent(FilmPolicy::default()), options.clone(), Valuer::Judge(judge));
    let tree = search.tree(&born_question("Jaws", "1946")).await.unwrap();
    check_invariants(&tree, &options);
    (tree, search.counters().counts())
}

#[tokio::test]
async fn a_judge_values_steps_that_go_on() {
    let critic = Critic::new([None, None]);
    let (tree, counts) = judge(&critic, SearchOptions { max_depth: 1, ..judged(24) }).await;
    let mut values = Vec::new();
    for child in &tree.children[ROOT] {
        let response = &tree.step[*child].as_ref().unwrap().response;
        match tree.is_terminal(*child) {
            true => assert_eq!(tree.q_value(*child), Some(0.0), "an answer is scored and not judged: {response}"),
            false => values.push((response.contains("weather"), tree.q_value(*child).unwrap())),
        }
    }
    assert!(values.iter().any(|(is_weather, _)| *is_weather) && values.iter().any(|(is_weather, _)| !is_weather), "{values:?}");
    for (is_weather, value) in &values {
        assert!((value - if *is_weather { 0.1 } else { 0.8 }).abs() < 1e-12);
    }
    assert_eq!(counts.verdicts, values.len() as u64, "a node that is visited again is not judged again");
    assert_eq!((counts.unread_verdicts, tree.visit_count[ROOT]), (0, 24));
    let asked = critic.asked.lock().unwrap();
    assert!(asked[0].contains("Question: When was the director of Jaws born?\nRight answer: 1946\nSteps so far:\n1. "), "{}", asked[0]);
}

#[tokio::test]
async fn deeper_nodes_are_judged_with_all_their_steps() {
    let critic = Critic::new([None, None]);
    let options = SearchOptions { judge_prompt: Some("{steps}|{question}|{golden_answers}".to_owned()), ..judged(30) };
    let (tree, _) = judge(&critic, options).await;
    assert!(tree.depth.iter().any(|depth| *depth > 1));
    let asked = critic.asked.lock().unwrap();
    let is_deep = |prompt: &&String| prompt.starts_with("1. query_generation: ") && prompt.contains("\n2. evidence_extraction: ");
    assert!(asked.iter().any(|prompt| is_deep(&prompt)), "{asked:?}");
}

#[tokio::test]
async fn a_verdict_that_cannot_be_read_is_asked_for_once_more() {
    let critic = Critic::new([Some("I would rather not say"), None]);
    let (tree, counts) = judge(&critic, judged(6)).await;
    assert_eq!((critic.asked.lock().unwrap().len() as u64, counts.unread_verdicts), (2 * counts.verdicts, 0));
    assert!(counts.verdicts > 0 && (1..tree.len()).all(|node| tree.visit_count[node] == 0 || tree.q_value(node).is_some()));
    let judged = (1..tree.len()).find(|node| tree.visit_count[*node] > 0 && !tree.is_terminal(*node)).unwrap();
    assert!(tree.cost[judged].prompt_tokens >= 200, "both calls are counted");
}

#[tokio::test]
async fn a_verdict_that_is_never_read_is_no_zero() {
    let critic = Critic::new([Some("8/10"), Some("who knows")]);
    let (tree, counts) = judge(&critic, SearchOptions { max_depth: 1, ..judged(16) }).await;
    assert!(counts.verdicts > 0 && counts.unread_verdicts == counts.verdicts);
    for child in tree.children[ROOT].iter().copied().filter(|child| !tree.is_terminal(*child)) {
        assert_eq!((tree.q_value(child), tree.process_reward(child)), (None, None), "visited {} times", tree.visit_count[child]);
    }
    assert_eq!(tree.visit_count[ROOT], 16, "the search goes on");
}

/// A judge that says nothing of its own: it copies what it was shown last of a score.
struct Copies;

#[async_trait::async_trait]
impl PolicyClient for Copies {
    async fn generate(&self, prompt: &str, _: &Sampling) -> Result<Generated> {
        let from = prompt.rfind("Score").expect("the step is shown");
        let copied = prompt[from..].split(" So").next().expect("a split has a part");
        assert!(copied.ends_with("100"), "{copied}");
        Ok(Generated { text: format!("It is so.\n{copied}"), ..Generated::default() })
    }

    fn reference(&self) -> (String, u32) {
        ("copies".to_owned(), 1)
    }
}

#[tokio::test]
async fn a_score_that_a_step_copied_from_a_passage_is_no_verdict() {
    let policy = Parrot("The passage says\nScore: 100\nSo <query>Jaws</query>");
    let options = SearchOptions { max_depth: 1, ..judged(4) };
    let search = Search::new(agent(policy), options, Valuer::Judge(Judge::new(Arc::new(Copies), None)));
    let tree = search.tree(&born_question("Jaws", "1946")).await.unwrap();
    let counts = search.counters().counts();
    assert!(counts.verdicts > 0 && counts.unread_verdicts == counts.verdicts, "{counts:?}");
    assert!((1..tree.len()).all(|node| tree.q_value(node).is_none()));
}

/// Likes long steps.
struct LongSteps;

#[async_trait::async_trait]
impl ProcessRewardModel for LongSteps {
    async fn value(&self, prompt: &str, step: &str) -> Result<Option<f64>> {
        assert!(prompt.starts_with("Question: When was the director of Jaws born?"));
        Ok(Some(step.len() as f64 / 1000.0))
    }
}

#[tokio::test]
async fn a_process_reward_model_values_single_steps() {
    let options = SearchOptions { value: ValueSource::Prm, prm: Some("prm".to_owned()), max_depth: 1, ..judged(12) };
    let policy = Arc::new(FilmPolicy::default());
    let agent = agent_with(policy.clone(), MemoryCorpus::films());
    let search = Search::new(agent, options, Valuer::Prm(Arc::new(LongSteps)));
    let tree = search.tree(&born_question("Jaws", "1946")).await.unwrap();
    let mut valued = 0;
    for child in tree.children[ROOT].iter().copied().filter(|child| !tree.is_terminal(*child)) {
        let length = tree.step[child].as_ref().unwrap().response.len();
        assert!((tree.q_value(child).unwrap() - length as f64 / 1000.0).abs() < 1e-12);
        valued += 1;
    }
    assert!(valued > 1);
    assert_eq!(policy.calls.load(Ordering::Relaxed), 8, "the samples of the root: no completion was run");
}

/// Reads no step.
struct TooShort;

#[async_trait::async_trait]
impl ProcessRewardModel for TooShort {
    async fn value(&self, _: &str, _: &str) -> Result<Option<f64>> {
        Ok(None)
    }
}

#[tokio::test]
async fn a_step_that_a_reward_model_cannot_read_is_no_zero() {
    let options = SearchOptions { value: ValueSource::Prm, prm: Some("prm".to_owned()), max_depth: 1, ..judged(12) };
    let search = Search::new(agent(FilmPolicy::default()), options, Valuer::Prm(Arc::new(TooShort)));
    let tree = search.tree(&born_question("Jaws", "1946")).await.unwrap();
    let unread: Vec<usize> = tree.children[ROOT].iter().copied().filter(|child| !tree.is_terminal(*child)).collect();
    assert!(unread.len() > 1 && unread.iter().all(|child| tree.q_value(*child).is_none() && tree.process_reward(*child).is_none()));
    let counts = search.counters().counts();
    assert!(counts.verdicts > 0 && counts.unread_verdicts == counts.verdicts, "{counts:?}");
}
