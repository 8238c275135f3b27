//! The agent as a whole: answering, limits, bad input, rows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::util::pretty::pretty_format_batches;
use expect_test::expect;
use futures::{StreamExt, TryStreamExt, stream};

use super::testing::{Chatty, FailsOn, FilmPolicy, MemoryCorpus, Parrot, Script, agent, agent_of, agent_with, born_questions};
use super::*;
use crate::error::Error;

const QUESTION: Option<&str> = Some("When was the director of Jaws born?");

fn without_latency(batch: &arrow::array::RecordBatch) -> arrow::array::RecordBatch {
    let kept: Vec<usize> = (0..batch.num_columns()).filter(|column| batch.schema().field(*column).name() != "latency_ms").collect();
    batch.project(&kept).unwrap()
}

#[tokio::test]
async fn an_answer_is_a_row_and_its_steps_are_rows() {
    let trajectory = answer(&agent(FilmPolicy::default()), QUESTION, "q1").await.unwrap();
    let answer = without_latency(&answer_batch(std::slice::from_ref(&trajectory)).unwrap());
    expect![[r#"
        +--------+-------+------------+-------------+----------------------+---------------+------------------+------+
        | answer | steps | retrievals | stop_reason | passage_ids          | prompt_tokens | generated_tokens | cost |
        +--------+-------+------------+-------------+----------------------+---------------+------------------+------+
        | 1946   | 5     | 2          | answered    | [f1, f2, f3, p1, p2] | 1282          | 300              |      |
        +--------+-------+------------+-------------+----------------------+---------------+------------------+------+"#]]
    .assert_eq(&pretty_format_batches(&[answer]).unwrap().to_string());
    let steps = answer_steps_batch(&trajectory).unwrap();
    let names = ["step", "state", "action", "query", "evidence", "answer", "passage_ids", "prompt_tokens", "generated_tokens", "logprob"];
    let columns: Vec<usize> = names.iter().map(|name| steps.schema().index_of(name).unwrap()).collect();
    expect![[r#"
        +------+---------------------+---------------------+-----------------------+--------------------------------------+--------+--------------+---------------+------------------+---------+
        | step | state               | action              | query                 | evidence                             | answer | passage_ids  | prompt_tokens | generated_tokens | logprob |
        +------+---------------------+---------------------+-----------------------+--------------------------------------+--------+--------------+---------------+------------------+---------+
        | 1    | begin_reasoning     | query_generation    | Jaws directed         |                                      |        | [f1, f2, f3] | 54            | 65               | -32.5   |
        | 2    | evidence_extraction | evidence_extraction |                       | It was directed by Steven Spielberg. |        |              | 307           | 58               | -29.0   |
        | 3    | reasoning           | query_generation    | Steven Spielberg born |                                      |        | [p1, f1, p2] | 177           | 82               | -41.0   |
        | 4    | evidence_extraction | evidence_extraction |                       | Steven Spielberg was born in 1946.   |        |              | 429           | 56               | -28.0   |
        | 5    | reasoning           | answer_generation   |                       |                                      | 1946   |              | 315           | 39               | -19.5   |
        +------+---------------------+---------------------+-----------------------+--------------------------------------+--------+--------------+---------------+------------------+---------+"#]].assert_eq(&pretty_format_batches(&[steps.project(&columns).unwrap()]).unwrap().to_string());
}

#[tokio::test]
async fn no_question_no_policy_call() {
    let policy = Arc::new(FilmPolicy::default());
    let agent = agent_with(policy.clone(), MemoryCorpus::films());
    for question in [None, Some(""), Some(" \n")] {
        let trajectory = answer(&agent, question, "q1").await.unwrap();
        assert_eq!((trajectory.answer.as_deref(), trajectory.stop_reason), (None, StopReason::EmptyQuestion));
        assert_eq!(answer_batch(&[trajectory]).unwrap().num_rows(), 1);
    }
    assert_eq!(policy.calls.load(Ordering::Relaxed), 0);
}

/// Reads prompts of up to 400 characters.
struct Narrow(Parrot);

#[async_trait::async_trait]
impl PolicyClient for Narrow {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> crate::error::Result<Generated> {
        assert!(self.fits(prompt), "it is asked what it can read");
        self.0.generate(prompt, sampling).await
    }

    fn fits(&self, prompt: &str) -> bool {
        prompt.chars().count() <= 400
    }

    fn reference(&self) -> (String, u32) {
        self.0.reference()
    }
}

/// A transcript that outgrows the policy ends before the step that could not be read.
#[tokio::test]
async fn a_trajectory_ends_with_the_policys_context() {
    let agent = agent_of("search_r1", Narrow(Parrot("<search>Jaws</search>")), MemoryCorpus::films());
    let trajectory = answer(&agent, QUESTION, "q1").await.unwrap();
    assert_eq!((trajectory.stop_reason, trajectory.answer.as_deref()), (StopReason::ContextFull, None));
    assert!((1..8).contains(&trajectory.steps.len()), "{} steps", trajectory.steps.len());
}

/// As [`Narrow`], but only whoever asks is told.
struct Refusing(Narrow);

#[async_trait::async_trait]
impl PolicyClient for Refusing {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> crate::error::Result<Generated> {
        if self.0.fits(prompt) { self.0.generate(prompt, sampling).await } else { Err(Error::ContextFull("too long".to_owned())) }
    }

    fn reference(&self) -> (String, u32) {
        self.0.reference()
    }
}

#[tokio::test]
async fn a_refusal_of_a_long_prompt_is_no_error() {
    let refusing = agent_of("search_r1", Refusing(Narrow(Parrot("<search>Jaws</search>"))), MemoryCorpus::films());
    let narrow = agent_of("search_r1", Narrow(Parrot("<search>Jaws</search>")), MemoryCorpus::films());
    let (refused, known) = (answer(&refusing, QUESTION, "q1").await.unwrap(), answer(&narrow, QUESTION, "q1").await.unwrap());
    assert_eq!((refused.stop_reason, refused.steps.len()), (StopReason::ContextFull, known.steps.len()));
    assert_eq!(without_latency(&answer_batch(&[refused]).unwrap()), without_latency(&answer_batch(&[known]).unwrap()));
    let long = format!("{} {}", QUESTION.unwrap(), "or ".repeat(200));
    let trajectory = answer(&refusing, Some(&long), "q2").await.unwrap();
    assert_eq!((trajectory.stop_reason, trajectory.steps.len()), (StopReason::ContextFull, 0));
}

async fn stops(policy: &'static str, max_steps: usize) -> (usize, usize, StopReason) {
    let mut agent = agent(Parrot(policy));
    agent.max_steps = max_steps;
    let trajectory = answer(&agent, QUESTION, "q1").await.unwrap();
    assert_eq!(trajectory.answer, None);
    (trajectory.steps.len(), trajectory.retrieval_count, trajectory.stop_reason)
}

#[tokio::test]
async fn policies_that_never_answer_are_stopped() {
    let searches = "<query>Jaws</query><evidence>None</evidence>";
    assert_eq!(stops(searches, 8).await, (8, 3, StopReason::MaxSteps));
    assert_eq!(stops(searches, 2).await, (2, 0, StopReason::MaxSteps), "nobody would read a retrieval before the last step");
    assert_eq!(stops(searches, 1).await, (1, 0, StopReason::MaxSteps));
    assert_eq!(stops("blah < blah", 8).await, (2, 0, StopReason::Malformed));
    assert_eq!(stops("", 1).await, (1, 0, StopReason::Malformed));
}

#[tokio::test]
async fn an_empty_corpus_leaves_a_policy_without_passages() {
    let agent = agent_with(Arc::new(FilmPolicy::default()), MemoryCorpus::new(&[]));
    let trajectory = answer(&agent, QUESTION, "q1").await.unwrap();
    assert_eq!(trajectory.stop_reason, StopReason::Answered);
    assert!(trajectory.passage_ids().is_empty());
    assert!(trajectory.retrieval_count > 0);
}

#[tokio::test]
async fn many_answers_come_in_order_and_do_not_depend_on_each_other() {
    let mut agent = agent(FilmPolicy::default());
    agent.temperature = 1.0;
    agent.seed = -3;
    let questions: Vec<(String, Option<String>)> =
        born_questions().into_iter().cycle().take(30).enumerate().map(|(row, q)| (row.to_string(), q.question)).collect();
    let mut rows = Vec::new();
    for concurrency in [0, 1, 8, 100] {
        let trajectories = answer_many(agent.clone(), stream::iter(questions.clone()), concurrency);
        rows.push(without_latency(&answer_batch(&trajectories.try_collect::<Vec<_>>().await.unwrap()).unwrap()));
    }
    assert!(rows.windows(2).all(|pair| pair[0] == pair[1]));
    let alone = answer(&agent, questions[17].1.as_deref(), &questions[17].0).await.unwrap();
    assert_eq!(without_latency(&answer_batch(&[alone]).unwrap()), rows[0].slice(17, 1));
}

/// What online training compares: trajectories of one question that differ by their seeds alone.
#[tokio::test]
async fn a_group_answers_one_question_several_times() {
    let mut agent = agent(FilmPolicy::default());
    agent.temperature = 1.0;
    let written = |group: &[Trajectory]| -> Vec<Vec<(u64, Arc<str>)>> {
        group.iter().map(|one| one.steps.iter().map(|step| (step.seed, step.response.clone())).collect()).collect()
    };
    let group = written(&answer_group(&agent, QUESTION.unwrap(), "q1", 8).await.unwrap());
    assert_eq!(group.len(), 8);
    let responses = |index: usize| group[index].iter().map(|(_, response)| response).collect::<Vec<_>>();
    assert!((1..8).any(|index| responses(index) != responses(0)), "eight trajectories are one: {group:?}");
    assert_eq!(written(&answer_group(&agent, QUESTION.unwrap(), "q1", 8).await.unwrap()), group);
    assert_eq!(written(&answer_group(&agent, QUESTION.unwrap(), "q1", 3).await.unwrap()), group[..3], "a smaller group is its beginning");
    assert_ne!(written(&answer_group(&agent, QUESTION.unwrap(), "q2", 8).await.unwrap()), group);

    let blank = answer_group(&agent, " ", "q1", 2).await.unwrap();
    assert!(blank.len() == 2 && blank.iter().all(|one| one.stop_reason == StopReason::EmptyQuestion && one.steps.is_empty()));
    agent.temperature = 0.0;
    let greedy = answer_group(&agent, QUESTION.unwrap(), "q1", 3).await.unwrap();
    assert!(greedy.iter().all(|one| one.answer.as_deref() == Some("1946")));
}

#[tokio::test]
async fn an_error_of_the_policy_is_the_errors_of_its_question_only() {
    let options = SearchOptions { simulations: 4, ..SearchOptions::default() };
    let search = Search::new(agent(FailsOn("of Alien born")), options, Valuer::Policy);
    let results: Vec<_> = search.trees(stream::iter(born_questions())).collect().await;
    let failed: Vec<&str> = results.iter().filter(|(_, tree)| tree.is_err()).map(|(question, _)| question.id.as_str()).collect();
    assert_eq!((results.len(), failed), (3, vec!["alien"]));
    let error = answer(&agent(FailsOn("of Jaws born")), QUESTION, "q1").await.unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)));
}

#[test]
fn unknown_names_are_named() {
    let new = |options: AgentOptions| {
        Agent::new(Arc::new(Parrot("")), Arc::new(MemoryCorpus::films()), &builtin_prompts(), &options).err().unwrap().to_string()
    };
    expect![[r#"unknown protocol "reasonrga" of an agent; did you mean "reasonrag"?; it has: reasonrag, search_r1, prorag, r3rag, direct, cot, naive_rag, ircot, self_ask, iter_retgen"#]]
        .assert_eq(&new(AgentOptions { protocol: "reasonrga".to_owned(), ..AgentOptions::default() }));
    expect![[r#"unknown prompt set "shrt"; known: default, short"#]]
        .assert_eq(&new(AgentOptions { prompts: "shrt".to_owned(), ..AgentOptions::default() }));
}

/// A policy that follows no protocol and every one: some of its texts are an action wherever they are written, and the seed chooses.
struct Jack;

#[async_trait::async_trait]
impl PolicyClient for Jack {
    async fn generate(&self, _: &str, sampling: &Sampling) -> crate::error::Result<Generated> {
        const TEXTS: &[&str] = &[
            "Jaws.",
            "So the answer is: 1946",
            "</step><subquery>Jaws directed</subquery>",
            "<think>Hm.</think><search>Steven Spielberg born</search>",
            "Step 1:\nThe problem analysis: x\nThe retrieval query: Alien directed",
            "Follow up: Who directed Amour?",
        ];
        let text = TEXTS[usize::try_from(sampling.seed % TEXTS.len() as u64).expect("it is small")];
        Ok(Generated { text: text.to_owned(), ..Generated::default() })
    }

    fn reference(&self) -> (String, u32) {
        ("jack".to_owned(), 1)
    }
}

/// Every protocol can be searched: what is retrieved before the first step is listed with those of the first level, and along the branches of
/// a tree a transcript is only appended to.
#[tokio::test]
async fn trees_of_all_protocols() {
    for protocol in protocol::all_protocols() {
        let name = protocol.name();
        let options = SearchOptions { simulations: 24, children: 3, seed: 5, temperature: 1.0, ..SearchOptions::default() };
        let search = Search::new(agent_of(name, Jack, MemoryCorpus::films()), options, Valuer::Policy);
        let tree = search.tree(&born_questions()[0]).await.unwrap();
        assert!(tree.len() > 2, "{name}: {} nodes", tree.len());
        for (node, step) in tree.step.iter().enumerate() {
            let Some(step) = step else { continue };
            assert!(protocol.states().contains(&step.state), "{name}");
            let opens = protocol.opening_query("q").is_some() && tree.depth[node] == 1;
            assert!(!opens || step.passage_ids.as_ref().is_some_and(|ids| !ids.is_empty()), "{name}, node {node}");
            let before = tree.parent_id[node].and_then(|parent| tree.step[parent].as_ref());
            if let Some(before) = before.filter(|_| matches!(name, "search_r1" | "prorag")) {
                assert!(step.prompt.starts_with(&[&*before.prompt, &*before.response].concat()), "{name}, node {node}");
            }
        }
    }
}

#[tokio::test]
async fn a_policy_of_conversations_reads_each_prompt_as_what_a_user_says() {
    let script =
        Script::new(&["<query>Jaws</query>", "<evidence>It was directed by Steven Spielberg.</evidence>", "<answer>1946</answer>"]);
    let trajectory = answer(&agent_of("reasonrag", Chatty(script), MemoryCorpus::films()), QUESTION, "q1").await.unwrap();
    assert_eq!(trajectory.steps.len(), 3);
    for step in &trajectory.steps {
        assert!(step.prompt.starts_with("[user]") && step.prompt.ends_with("[assistant]"), "{}", step.prompt);
        assert_eq!(step.prompt.matches("[user]").count(), 1);
    }
}

#[tokio::test]
async fn a_transcript_goes_on_in_the_answer_that_it_began() {
    let script = Script::new(&["<think>Who?</think><search>Jaws</search>", "<think>So.</think><answer>1946</answer>"]);
    let trajectory = answer(&agent_of("search_r1", Chatty(script), MemoryCorpus::films()), QUESTION, "q1").await.unwrap();
    let [first, second] = trajectory.steps.as_slice() else { panic!("{} steps", trajectory.steps.len()) };
    assert!(first.prompt.starts_with("[user]") && first.prompt.ends_with("[assistant]"), "{}", first.prompt);
    assert!(second.prompt.starts_with(&[&*first.prompt, &*first.response].concat()), "{}", second.prompt);
    assert_eq!(second.prompt.matches("[user]").count(), 1);
    assert!(second.prompt.contains("Steven Spielberg") && second.prompt.contains("<information>"), "{}", second.prompt);
}

/// ProRAG's steps are opened in the policy's mouth: the user does not say them.
#[tokio::test]
async fn what_a_prompt_begins_for_the_policy_stands_in_its_answer() {
    let script = Script::new(&["Who?\n</step>\n<subquery>Jaws</subquery>", "By him.\n</step>\n<subanswer>Spielberg</subanswer>"]);
    let mut agent = agent_of("prorag", Chatty(script), MemoryCorpus::films());
    agent.max_steps = 2;
    let trajectory = answer(&agent, QUESTION, "q1").await.unwrap();
    let [first, second] = trajectory.steps.as_slice() else { panic!("{} steps", trajectory.steps.len()) };
    assert!(first.prompt.starts_with("[user]Question:") && first.prompt.ends_with("[assistant]<step>\n"), "{}", first.prompt);
    assert_eq!(first.prompt.matches("<step>").count(), 1);
    assert!(second.prompt.starts_with(&[&*first.prompt, &*first.response].concat()), "{}", second.prompt);
    assert_eq!(second.prompt.matches("[user]").count(), 1);
}
