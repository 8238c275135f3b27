//! The thread that trains waits for its rollouts and for nothing else; what it learns from is what was sampled.

use std::time::{Duration, Instant};

use futures::TryStreamExt;
use tokio::sync::mpsc::unbounded_channel;

use super::questions::TrainingQuestion;
use super::source::{Request, Wanted};
use super::*;
use crate::Database;
use crate::agent::{AgentOptions, RewardOptions};
use crate::error::Error;
use crate::models::Decoder;
use crate::training::{Draw, RolloutSource, SampledTrajectory, Stop};

/// The longest that a cancel may take.
const PATIENCE: Duration = Duration::from_millis(250);

const WORLD: &str = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate'); \
    CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3); \
    CREATE INDEX wiki_text ON wiki USING bm25 (contents); \
    CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_steps = 4, max_tokens = 32)";

async fn world() -> (tempfile::TempDir, Session, ModelInfo) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await.expect("a new database").session();
    session.sql(WORLD).await.expect("it is made").try_collect::<Vec<_>>().await.expect("it is made");
    let base = session.database().shared.registry.get("policy").expect("it is there");
    (data, session, base)
}

fn source(session: &Session, base: &ModelInfo) -> (Rollouts, tokio::sync::mpsc::UnboundedReceiver<Request>) {
    let (requests, received) = unbounded_channel();
    let policy = session.database().shared.models.training_policy(base).expect("its files are there");
    (Rollouts { policy, requests, num_questions: 2, num_validation_questions: 0, completion_tokens_max: 128 }, received)
}

const DRAW: Draw<'static> = Draw { step: 0, questions: &[1, 0], group_size: 3, temperature: 1.0 };

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_waits_for_rollouts_can_be_cancelled() {
    let (_data, session, base) = world().await;
    let (rollouts, mut received) = source(&session, &base);
    let decoder = Decoder::load_trainable(&base.directory).expect("its weights are there");
    let stop = Stop::default();
    let flag = stop.clone();
    let waiting = tokio::task::spawn_blocking(move || (rollouts.sample(&decoder, &DRAW, &flag), Instant::now(), rollouts, decoder));
    let Request { wanted, reply, .. } = received.recv().await.expect("it asks");
    assert_eq!(wanted, Wanted::Groups { step: 0, questions: vec![1, 0], group_size: 3, temperature: 1.0 });
    // Nobody answers.
    let stopped = Instant::now();
    stop.stop();
    let (result, ended, rollouts, decoder) = waiting.await.expect("no panic");
    assert!(matches!(result, Err(Error::Cancelled(_))), "{result:?}");
    assert!(ended - stopped < PATIENCE, "{:?}", ended - stopped);
    drop(reply);

    // A statement that is gone answers nothing any more.
    drop(received);
    let result = tokio::task::spawn_blocking(move || rollouts.measure(&decoder, &Stop::default())).await.expect("no panic");
    assert!(matches!(result, Err(Error::Cancelled(_))), "{result:?}");
}

fn question(id: &str, question: &str, golden: &str) -> TrainingQuestion {
    TrainingQuestion { id: id.to_owned(), question: question.to_owned(), golden_answers: vec![golden.to_owned()] }
}

async fn sampler(session: &Session, seed: u64, tokens_max: usize) -> Sampler {
    sampler_in(session, "reasonrag", seed, tokens_max).await
}

async fn sampler_in(session: &Session, protocol: &str, seed: u64, tokens_max: usize) -> Sampler {
    let shared = &session.database().shared;
    let options = AgentOptions { protocol: protocol.to_owned(), ..shared.agents.get("qa").expect("it is there").options };
    let environment = Environment::open(&options, &shared.catalog, &shared.models, &shared.retrievals).await.expect("it is whole");
    let (protocol, _) = environment.protocol().expect("it is known");
    let learned = vec![question("a", "Who directed it?", "Ann"), question("b", "Where was Ann born?", "Oslo")];
    let questions = Questions { measured: learned[..1].to_vec(), learned, ..Questions::default() };
    Sampler { environment, protocol, reward: RewardOptions::default(), step_scorer: None, questions, seed, tokens_max }
}

/// What the thread gets for this draw.
async fn sampled(session: &Session, base: &ModelInfo, sampler: &Sampler, draw: Draw<'static>) -> Vec<Vec<SampledTrajectory>> {
    let (rollouts, received) = source(session, base);
    let directory = base.directory.clone();
    let thread = tokio::task::spawn_blocking(move || {
        let decoder = Decoder::load_trainable(&directory)?;
        rollouts.sample(&decoder, &draw, &Stop::default())
    });
    let ((), groups) = tokio::join!(sampler.serve(received), thread);
    groups.expect("no panic").expect("it samples")
}

#[tokio::test(flavor = "multi_thread")]
async fn trajectories_are_keyed_by_seed_step_question_and_place() {
    let (_data, session, base) = world().await;
    let sampler_of = |seed| sampler(&session, seed, 2048);
    let groups = sampled(&session, &base, &sampler_of(7).await, DRAW).await;
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    assert!(groups[0].windows(2).any(|pair| pair[0] != pair[1]), "each place has a sample of its own");
    let again = sampled(&session, &base, &sampler_of(7).await, DRAW).await;
    assert_eq!(groups, again);
    let turned = sampled(&session, &base, &sampler_of(7).await, Draw { questions: &[0, 1], group_size: 2, ..DRAW }).await;
    assert_eq!(turned[1], groups[0][..2], "neither other questions nor the size of the group matter");
    let next = sampled(&session, &base, &sampler_of(7).await, Draw { step: 1, ..DRAW }).await;
    assert!(next != groups, "the next step samples anew");
    assert!(sampled(&session, &base, &sampler_of(8).await, DRAW).await != groups, "and so does another seed");
}

/// A call's prompt is what the policy read, and its completion what it wrote: passages are in prompts alone.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_the_tokens_that_the_policy_read_and_wrote() {
    let (_data, session, base) = world().await;
    let groups = sampled(&session, &base, &sampler(&session, 7, 2048).await, DRAW).await;
    let tokenizer = session.database().shared.models.training_policy(&base).expect("its files").tokenizer().clone();
    let mut num_passages = 0;
    for trajectory in groups.iter().flatten() {
        assert!((1..=4).contains(&trajectory.calls.len()) && (0.0..=1.0).contains(&trajectory.reward));
        for call in &trajectory.calls {
            assert!(!call.prompt.is_empty() && (1..=32).contains(&call.completion.len()));
            assert_eq!(call.completion.len(), call.logprobs.len());
            assert!(call.logprobs.iter().all(|logprob| *logprob <= 0.0) && call.score.is_none());
            let prompt = tokenizer.decode(&call.prompt).expect("it is text");
            num_passages += usize::from(prompt.contains("[1] "));
        }
    }
    assert!(num_passages > 0, "some of them read passages");
    // A prompt that leaves no room ends its trajectory before it is asked.
    let narrow = sampled(&session, &base, &sampler(&session, 7, 24).await, DRAW).await;
    assert!(narrow.iter().flatten().flat_map(|trajectory| &trajectory.calls).all(|call| call.prompt.len() + call.completion.len() <= 24));
}

/// A policy that searches in the protocols whose transcript goes on, whatever it is asked.
const SEARCHER: &str = "TRAIN SFT MODEL searcher FROM policy USING (SELECT 'Question: ' || question || chr(10) || opened AS prompt, completion FROM \
    (VALUES ('Who directed it?'), ('Where was Ann born?')) q(question) CROSS JOIN \
    (VALUES ('', '<search>publication year</search>'), ('<step>' || chr(10), 'When?</step><subquery>publication year</subquery>')) c(opened, completion)) \
    WITH (epochs = 60, batch_size = 4, learning_rate = 3e-3, warmup_ratio = 0)";

/// As Search-R1 and ProRAG mask it: of a transcript only what the policy wrote is learned, each call after all that stands before it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_into_a_transcript_is_never_learned() {
    let (_data, session, _) = world().await;
    session.sql(SEARCHER).await.expect("it learns").try_collect::<Vec<_>>().await.expect("it learns");
    let shared = &session.database().shared;
    let base = shared.registry.get("searcher").expect("it is there");
    let tokenizer = shared.models.training_policy(&base).expect("its files").tokenizer().clone();
    let text = |tokens: &[u32]| tokenizer.decode(tokens).expect("it is text");
    for (protocol, mark, query) in
        [("search_r1", "<information>", "<search>publication year"), ("prorag", "<retrieval>", "<subquery>publication year")]
    {
        let groups = sampled(&session, &base, &sampler_in(&session, protocol, 7, 2048).await, DRAW).await;
        let mut num_read = 0;
        for calls in groups.iter().flatten().map(|trajectory| &trajectory.calls) {
            for pair in calls.windows(2) {
                let (before, written, next) = (text(&pair[0].prompt), text(&pair[0].completion), text(&pair[1].prompt));
                let rest = next.strip_prefix(&before).unwrap_or_else(|| panic!("{protocol}: {next:?} does not go on after {before:?}"));
                if written.contains(query) {
                    assert!(rest.contains(query) && rest.contains(mark), "{protocol}: {rest:?}");
                    assert_eq!(rest.matches("[1] ").count(), 1, "{protocol}: what was found is there once: {rest:?}");
                    num_read += 1;
                }
            }
            assert!(calls.iter().all(|call| !text(&call.completion).contains("[1] ")), "{protocol}: a passage is learned");
        }
        assert!(num_read >= 4, "{protocol}: {num_read} searches were read");
    }
}

/// The policy that samples is the one that is trained, and not that of the agent.
#[tokio::test(flavor = "multi_thread")]
async fn other_weights_sample_otherwise() {
    let (_data, session, base) = world().await;
    let before = sampled(&session, &base, &sampler(&session, 7, 2048).await, DRAW).await;
    let (rollouts, received) = source(&session, &base);
    let directory = base.directory.clone();
    let thread = tokio::task::spawn_blocking(move || {
        let decoder = Decoder::load_trainable(&directory)?;
        for parameter in decoder.parameters().values() {
            parameter.set(&(parameter.as_tensor() * 0.5)?.detach())?;
        }
        rollouts.sample(&decoder, &DRAW, &Stop::default())
    });
    let sampler = sampler(&session, 7, 2048).await;
    let ((), after) = tokio::join!(sampler.serve(received), thread);
    assert!(after.expect("no panic").expect("it samples") != before);
}
