//! What the tests of this module act with: small rule-based policies over a small corpus in memory.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::answer::answer;
use super::client::{Generated, Passage, PolicyClient, Retriever};
use super::environment::Agent;
use super::mcts::Question;
use super::options::AgentOptions;
use super::prompts::builtin_prompts;
use super::protocol::Action;
use super::sampling::Sampling;
use crate::error::{Error, Result};

/// A corpus that is searched by shared words; ties break by id.
pub struct MemoryCorpus(Vec<Passage>);

impl MemoryCorpus {
    pub fn new(passages: &[(&str, &str, &str)]) -> Self {
        let passage = |(id, title, contents): &(&str, &str, &str)| Passage {
            id: (*id).to_owned(),
            title: (!title.is_empty()).then(|| (*title).to_owned()),
            contents: (*contents).to_owned(),
        };
        Self(passages.iter().map(passage).collect())
    }

    /// Three films, their directors, and the years in which those were born.
    pub fn films() -> Self {
        Self::new(&[
            ("f1", "Jaws", "Jaws is a film. It was directed by Steven Spielberg."),
            ("f2", "Alien", "Alien is a film. It was directed by Ridley Scott."),
            ("f3", "Amour", "Amour is a film. It was directed by Michael Haneke."),
            ("p1", "Steven Spielberg", "Steven Spielberg was born in 1946."),
            ("p2", "Ridley Scott", "Ridley Scott was born in 1937."),
            ("p3", "Michael Haneke", "Michael Haneke was born in 1942."),
        ])
    }
}

#[async_trait]
impl Retriever for MemoryCorpus {
    async fn search(&self, query: &str, k: usize) -> Result<Arc<[Passage]>> {
        let query = words(query);
        let mut found: Vec<(usize, &Passage)> = self.0.iter().map(|passage| (overlap(&query, passage), passage)).collect();
        found.retain(|(overlap, _)| *overlap > 0);
        found.sort_by(|(a, first), (b, second)| b.cmp(a).then(first.id.cmp(&second.id)));
        Ok(found.into_iter().take(k).map(|(_, passage)| passage.clone()).collect())
    }

    fn corpus_version(&self) -> u64 {
        4
    }
}

fn words(text: &str) -> HashSet<String> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

fn overlap(query: &HashSet<String>, passage: &Passage) -> usize {
    let text = format!("{} {}", passage.title.as_deref().unwrap_or_default(), passage.contents);
    words(&text).intersection(query).count()
}

/// Answers "When was the director of F born?" from the short prompts: looks F up, then its director, then answers.
///
/// It reads nothing but its prompt. Greedy it makes no mistake. With a temperature the seed decides: it wastes a query one time
/// in four, answers too early one time in eight, and forgets the tags one time in eight.
#[derive(Default)]
pub struct FilmPolicy {
    pub calls: AtomicUsize,
}

#[async_trait]
impl PolicyClient for FilmPolicy {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        // Replies leave the order in which they were asked for, as those of a real queue do.
        for _ in 0..sampling.seed % 5 {
            tokio::task::yield_now().await;
        }
        let mistake = if sampling.temperature > 0.0 { sampling.seed % 8 } else { 7 };
        Ok(generated(prompt, &film_step(prompt, mistake), sampling))
    }

    fn reference(&self) -> (String, u32) {
        ("films".to_owned(), 2)
    }
}

fn film_step(prompt: &str, mistake: u64) -> String {
    let film = between(prompt, "the director of ", " born?").unwrap_or_default();
    let director = between(prompt, "<evidence>It was directed by ", ".</evidence>");
    let born = between(prompt, "was born in ", ".</evidence>");
    if prompt.ends_with("Evidence:") {
        return format!(" <evidence>{}</evidence>", evidence(prompt));
    }
    match (mistake, born, director) {
        (0 | 1, ..) => " The weather first <query>weather report</query>".to_owned(),
        (2, ..) => " So the answer is <answer>1900</answer>".to_owned(),
        (3, ..) => " I do not know what to write".to_owned(),
        (_, Some(born), _) => format!(" So the answer is <answer>{born}</answer>"),
        (_, None, Some(director)) => format!(" It is {director}. So the next query is <query>{director} born</query>"),
        (_, None, None) if prompt.ends_with("Answer:") => " So the answer is <answer>unknown</answer>".to_owned(),
        (_, None, None) => format!(" Who made {film}? So the next query is <query>{film} directed</query>"),
    }
}

/// The last sentence of the first passage: in this corpus it is the fact.
fn evidence(prompt: &str) -> String {
    let passage = prompt.lines().find(|line| line.starts_with("[1] ")).unwrap_or("None");
    let sentence = passage.trim_end_matches('.').rsplit(". ").next().unwrap_or_default();
    let sentence = sentence.rsplit(": ").next().unwrap_or_default();
    format!("{sentence}.")
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.rsplit_once(start)?;
    Some(rest.split_once(end)?.0)
}

/// What a server makes of a text that a policy would write: it ends with the first stop string, which is not returned.
///
/// One token per character, so that the counts can be checked by eye.
fn generated(prompt: &str, text: &str, sampling: &Sampling) -> Generated {
    let stops = sampling.stop.iter().filter_map(|stop| Some((text.find(stop.as_str())?, stop.len())));
    let stop = stops.min();
    let sampled = stop.map_or(text, |(start, length)| &text[..start + length]);
    let token_ids: Vec<u32> = sampled.chars().map(u32::from).collect();
    Generated {
        text: stop.map_or(text, |(start, _)| &text[..start]).to_owned(),
        stopped: stop.is_some(),
        token_logprobs: vec![-0.5; token_ids.len()],
        generated_tokens: token_ids.len(),
        token_ids,
        prompt_tokens: prompt.chars().count(),
        ..Generated::default()
    }
}

/// Writes the same whatever it is asked.
pub struct Parrot(pub &'static str);

#[async_trait]
impl PolicyClient for Parrot {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        Ok(generated(prompt, self.0, sampling))
    }

    fn reference(&self) -> (String, u32) {
        ("parrot".to_owned(), 1)
    }
}

/// Writes its texts in order, and the last one for ever.
pub struct Script {
    texts: &'static [&'static str],
    calls: AtomicUsize,
}

impl Script {
    pub fn new(texts: &'static [&'static str]) -> Self {
        Self { texts, calls: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl PolicyClient for Script {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed).min(self.texts.len() - 1);
        Ok(generated(prompt, self.texts[call], sampling))
    }

    fn reference(&self) -> (String, u32) {
        ("script".to_owned(), 1)
    }
}

/// Reads conversations: prompts are what a user says.
pub struct Chatty(pub Script);

#[async_trait]
impl PolicyClient for Chatty {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        self.0.generate(prompt, sampling).await
    }

    fn written(&self, prompt: String) -> Result<String> {
        Ok(format!("[user]{prompt}[assistant]"))
    }

    fn reference(&self) -> (String, u32) {
        ("chatty".to_owned(), 1)
    }
}

/// Copies what it was shown last: the policy that a poisoned passage wants.
pub struct Copyist;

#[async_trait]
impl PolicyClient for Copyist {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let shown = prompt.lines().filter(|line| line.starts_with('[')).collect::<Vec<_>>().join("\n");
        let text = match prompt.lines().last() {
            Some("Thought:") => " <query>anything</query>".to_owned(),
            Some("Evidence:") => format!(" <evidence>{shown}</evidence>"),
            _ => format!(" {prompt}"),
        };
        Ok(generated(prompt, &text, sampling))
    }

    fn reference(&self) -> (String, u32) {
        ("copyist".to_owned(), 1)
    }
}

/// Fails where the prompt holds its text.
pub struct FailsOn(pub &'static str);

#[async_trait]
impl PolicyClient for FailsOn {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        if prompt.contains(self.0) {
            return Err(Error::OutOfMemory("the prompt is longer than the policy's context".to_owned()));
        }
        FilmPolicy::default().generate(prompt, sampling).await
    }

    fn reference(&self) -> (String, u32) {
        ("films".to_owned(), 2)
    }
}

pub fn agent(policy: impl PolicyClient + 'static) -> Agent {
    agent_with(Arc::new(policy), MemoryCorpus::films())
}

pub fn agent_with(policy: Arc<dyn PolicyClient>, corpus: MemoryCorpus) -> Agent {
    let options = AgentOptions { prompts: "short".to_owned(), ..AgentOptions::default() };
    Agent::new(policy, Arc::new(corpus), &builtin_prompts(), &options).unwrap()
}

/// An agent in another protocol than `reasonrag`.
pub fn agent_of(protocol: &str, policy: impl PolicyClient + 'static, corpus: MemoryCorpus) -> Agent {
    let options = AgentOptions { protocol: protocol.to_owned(), prompts: "short".to_owned(), k: 2, ..AgentOptions::default() };
    Agent::new(Arc::new(policy), Arc::new(corpus), &builtin_prompts(), &options).unwrap()
}

/// Prompts and responses of a whole trajectory, as the policy sees them.
pub async fn shown(agent: &Agent, question: &str) -> String {
    let trajectory = answer(agent, Some(question), "1").await.unwrap();
    let mut shown = String::new();
    for step in &trajectory.steps {
        writeln!(shown, "--- {} {}\n{}«{}»", step.state.as_str(), step.action.as_str(), step.prompt, step.response).unwrap();
    }
    writeln!(shown, "=== {} {:?}", trajectory.stop_reason.as_str(), trajectory.answer).unwrap();
    shown
}

/// As [`shown`], of a transcript: what each prompt adds to the one before it and its response.
pub async fn shown_transcript(agent: &Agent, question: &str) -> String {
    let trajectory = answer(agent, Some(question), "1").await.unwrap();
    let (mut shown, mut before) = (String::new(), String::new());
    for step in &trajectory.steps {
        let added = step.prompt.strip_prefix(before.as_str()).expect("a transcript is only appended to");
        write!(shown, "{added}«{}»", step.response).unwrap();
        before = [&*step.prompt, &*step.response].concat();
    }
    write!(shown, "\n=== {} {:?}\n", trajectory.stop_reason.as_str(), trajectory.answer).unwrap();
    shown
}

pub fn born_question(film: &str, born: &str) -> Question {
    Question {
        id: film.to_lowercase(),
        question: Some(format!("When was the director of {film} born?")),
        golden_answers: vec![born.to_owned()],
    }
}

pub fn born_questions() -> Vec<Question> {
    vec![born_question("Jaws", "1946"), born_question("Alien", "1937"), born_question("Amour", "1942")]
}

pub fn query(text: &str) -> Action {
    Action::Query(text.to_owned())
}

pub fn answered(text: &str) -> Action {
    Action::Answer(text.to_owned())
}
