//! What the policy computes for trees, against what it has to compute.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::util::display::array_value_to_string;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};

use crate::Database;
use crate::agent::{AgentOptions, Generated, PolicyClient, Question, Sampling, Search, SearchOptions, Valuer};
use crate::engine::binding;
use crate::error::Result;

const WORLD: &str = "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate');
    CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3);
    CREATE INDEX wiki_text ON wiki USING bm25 (contents);
    CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 3, prompts = 'short', max_tokens = 48)";
const QUESTIONS: &str = "SELECT id, question, golden_answers[1] FROM hopworld_questions(seed => 3, count => 4)";

/// Writes down what a policy is asked, in that order, and what it answers.
struct Recording {
    policy: Arc<dyn PolicyClient>,
    calls: Mutex<Vec<(String, Generated)>>,
}

#[async_trait]
impl PolicyClient for Recording {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let calls = || self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let number = calls().len();
        calls().push((prompt.to_owned(), Generated::default()));
        let generated = self.policy.generate(prompt, sampling).await?;
        calls()[number].1 = generated.clone();
        Ok(generated)
    }

    fn written(&self, prompt: String) -> Result<String> {
        self.policy.written(prompt)
    }

    fn fits(&self, prompt: &str) -> bool {
        self.policy.fits(prompt)
    }

    fn reference(&self) -> (String, u32) {
        self.policy.reference()
    }
}

/// Tokens of prompts: all, those that need not be computed, and those that were not.
#[derive(Debug, Default)]
struct Tokens {
    prompt: usize,
    optimum: usize,
    cached: usize,
}

async fn questions(database: &Database) -> Result<Vec<Question>> {
    let mut questions = Vec::new();
    for batch in database.session().sql(QUESTIONS).await?.try_collect::<Vec<_>>().await? {
        for row in 0..batch.num_rows() {
            let text = |column: usize| array_value_to_string(batch.column(column), row).expect("a text");
            questions.push(Question { id: text(0), question: Some(text(1)), golden_answers: vec![text(2)] });
        }
    }
    Ok(questions)
}

/// Grows the trees of the questions with a policy that has read nothing yet.
///
/// The optimum is the tree's: of each prompt the longest beginning that it shares with a prompt that was asked for before it, or with what the
/// policy wrote after that one. Only the last token of a prompt is computed in any case, for its logits, and the keys and values of the last
/// token that was written are never computed. What is shared may end within a block, and where calls are in flight together the earlier one
/// counts as done: the later one can wait for it.
async fn tokens_of_trees(database: &Database, protocol: &str, search_options: &SearchOptions) -> Result<Tokens> {
    let shared = &database.shared;
    shared.models.unload("policy")?;
    let options = AgentOptions { protocol: protocol.to_owned(), ..shared.agents.get("qa")?.options };
    let mut agent = binding::bind(&options, &shared.catalog, &shared.models, &shared.retrievals).await?;
    let recording = Arc::new(Recording { policy: Arc::clone(&agent.policy), calls: Mutex::default() });
    agent.policy = recording.clone();
    let search = Search::new(agent, search_options.clone(), Valuer::Policy);
    let trees: Vec<_> = search.trees(stream::iter(questions(database).await?)).collect().await;
    for (_, tree) in trees {
        assert!(tree?.len() > 1, "the policy takes steps");
    }

    let policy = shared.models.policy("policy").await?;
    let mut tokens = Tokens::default();
    let mut read: Vec<Vec<u32>> = Vec::new();
    for (prompt, generated) in recording.calls.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let mut sequence = policy.tokenizer().encode_prompt(prompt)?;
        let usable = &sequence[..sequence.len() - 1];
        let shared = |earlier: &Vec<u32>| earlier.iter().zip(usable).take_while(|(a, b)| a == b).count();
        tokens.optimum += read.iter().map(shared).max().unwrap_or(0);
        tokens.prompt += sequence.len();
        tokens.cached += generated.cached_tokens;
        sequence.extend(generated.token_ids.iter().rev().skip(1).rev());
        read.push(sequence);
    }
    Ok(tokens)
}

/// One after the other, several trees at once, and several leaves of each; transcripts, which are encoded anew with each step, too.
#[tokio::test(flavor = "multi_thread")]
async fn the_prefix_cache_reaches_the_optimum_of_the_trees() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    database.session().sql(WORLD).await?.try_collect::<Vec<_>>().await?;
    for (protocol, concurrency, parallel) in
        [("reasonrag", 1, 1), ("reasonrag", 4, 1), ("reasonrag", 4, 3), ("search_r1", 4, 1), ("prorag", 4, 1), ("ircot", 4, 1)]
    {
        let options =
            SearchOptions { simulations: 8, children: 3, temperature: 1.0, seed: 7, concurrency, parallel, ..SearchOptions::default() };
        let tokens = tokens_of_trees(&database, protocol, &options).await?;
        println!("{protocol}, concurrency {concurrency}, parallel {parallel}: {tokens:?}");
        assert!(2 * tokens.optimum > tokens.prompt, "{protocol}: most of a tree is shared: {tokens:?}");
        assert!(
            tokens.cached as f64 >= 0.98 * tokens.optimum as f64,
            "{protocol}, concurrency {concurrency}, parallel {parallel}: {tokens:?}"
        );
    }
    Ok(())
}
