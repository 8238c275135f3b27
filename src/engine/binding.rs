//! An agent's definition bound to what it names: its policy in `src/models`, its corpus in `rolloutdb_catalogs`, its prompts in `rollout.prompts`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use async_trait::async_trait;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use rolloutdb_catalogs::{Catalog, is_temporary_schema};
use rolloutdb_udfs::model::GenerateOptions;

use super::corpus_retriever::{Corpus, CorpusRetriever};
use super::retrieval_cache::RetrievalCache;
use super::versions;
use crate::agent::{self, Agent, AgentOptions, Generated, PolicyClient, Prompt, PromptRow, PromptSet, Protocol, Retriever, Sampling};
use crate::error::{Error, Result};
use crate::models::chat_template::ChatMessage;
use crate::models::remote::{RemoteCompletion, RemoteModel, RemoteRequest};
use crate::models::{Finish, GenerateRequest, Policy, PromptTokens, Runtime};

/// Opens what the options name and puts the agent together.
///
/// # Errors
/// Unknown model, table, protocol or prompt set; [`Error::NotReady`] for an empty corpus or one that the retriever cannot search.
pub async fn bind(
    options: &AgentOptions,
    catalog: &Arc<Catalog>,
    models: &Arc<Runtime>,
    retrievals: &Arc<RetrievalCache>,
) -> Result<Agent> {
    let environment = Environment::open(options, catalog, models, retrievals).await?;
    environment.agent(policy_client(&options.policy, models).await?)
}

/// All of an agent but its policy: another one may act in it.
pub struct Environment {
    options: AgentOptions,
    retriever: Arc<dyn Retriever>,
    prompts: Vec<PromptRow>,
}

impl Environment {
    /// Opens what the options name beside the policy.
    ///
    /// # Errors
    /// As [`bind`].
    pub async fn open(
        options: &AgentOptions,
        catalog: &Arc<Catalog>,
        models: &Arc<Runtime>,
        retrievals: &Arc<RetrievalCache>,
    ) -> Result<Self> {
        options.check_complete()?;
        let corpus = corpus(options, catalog, models).await?;
        if corpus.table().row_count().await? == 0 {
            return Err(Error::NotReady(format!("corpus \"{}\" is empty; load passages with COPY or INSERT first", options.corpus)));
        }
        let prompts = prompt_rows(catalog).await?;
        let retriever = Arc::new(CorpusRetriever::new(corpus, Arc::clone(retrievals))?);
        Ok(Self { options: options.clone(), retriever, prompts })
    }

    /// The agent with this policy.
    ///
    /// # Errors
    /// As [`Agent::new`].
    pub fn agent(&self, policy: Arc<dyn PolicyClient>) -> Result<Agent> {
        Agent::new(policy, Arc::clone(&self.retriever), &self.prompts, &self.options)
    }

    /// How the agent asks, and what.
    ///
    /// # Errors
    /// As [`Agent::new`].
    pub fn protocol(&self) -> Result<(Arc<dyn Protocol>, PromptSet)> {
        let protocol = agent::protocol::protocol(&self.options.protocol)?;
        let prompts = PromptSet::from_rows(&self.options.prompts, protocol.as_ref(), &self.prompts)?;
        Ok((protocol, prompts))
    }

    /// The version of the corpus that is searched.
    pub fn corpus_version(&self) -> u64 {
        self.retriever.corpus_version()
    }
}

/// The model of that name as one that writes: an agent's policy, or a judge.
///
/// # Errors
/// As [`Runtime::policy`].
pub async fn policy_client(reference: &str, models: &Arc<Runtime>) -> Result<Arc<dyn PolicyClient>> {
    Ok(match models.remote(reference).await? {
        Some(remote) => Arc::new(RemotePolicy(remote)),
        None => Arc::new(LocalPolicy::new(models.policy(reference).await?)),
    })
}

/// Checks that the corpus can be searched as the options say and that the prompt set is there, before anything runs. An empty corpus is no
/// error yet.
///
/// # Errors
/// As [`bind`].
pub async fn check(options: &AgentOptions, catalog: &Arc<Catalog>, models: &Arc<Runtime>) -> Result<()> {
    options.check_complete()?;
    corpus(options, catalog, models).await?;
    let protocol = agent::protocol::protocol(&options.protocol)?;
    PromptSet::from_rows(&options.prompts, protocol.as_ref(), &prompt_rows(catalog).await?)?;
    Ok(())
}

async fn corpus(options: &AgentOptions, catalog: &Arc<Catalog>, models: &Arc<Runtime>) -> Result<Corpus> {
    let (schema, table) = super::apply::planner::split_table_name(&options.corpus);
    if is_temporary_schema(&schema) {
        // An agent belongs to no session, and a name of this kind may be that of another one's table.
        let message =
            format!("the corpus of an agent cannot be temporary; make {table} a table that is not, with CREATE TABLE ... AS SELECT");
        return Err(Error::NotSupported(message));
    }
    let mut table = catalog.table(&schema, &table).await?;
    if let Some(version) = &options.corpus_version {
        table = Arc::new(versions::named(&table, version).await?);
    }
    Corpus::new(table, options.retriever, Arc::clone(models))
}

/// Every row of `rollout.prompts`.
///
/// # Errors
/// Those of reading it.
pub async fn prompt_rows(catalog: &Arc<Catalog>) -> Result<Vec<PromptRow>> {
    let table = catalog.table("rollout", "prompts").await?;
    let context = SessionContext::new();
    let batches: Vec<RecordBatch> = context.read_table(table)?.execute_stream().await?.try_collect().await?;
    let mut rows = Vec::new();
    for batch in &batches {
        let column = |name: &str| -> Result<Vec<String>> {
            let column = batch.column_by_name(name).ok_or_else(|| Error::Internal(format!("rollout.prompts has no column {name}")))?;
            Ok(column.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect())
        };
        let columns = (column("prompt_set")?, column("protocol")?, column("state")?, column("template")?);
        for row in 0..batch.num_rows() {
            rows.push(PromptRow {
                prompt_set: columns.0[row].clone(),
                protocol: columns.1[row].clone(),
                state: columns.2[row].clone(),
                template: columns.3[row].clone(),
            });
        }
    }
    Ok(rows)
}

/// A model of this process as the agent's policy.
pub struct LocalPolicy {
    policy: Policy,
    /// Of a prompt and what is written after it.
    tokens_max: usize,
    prompts: PromptTokens,
}

impl LocalPolicy {
    pub fn new(policy: Policy) -> Self {
        Self { tokens_max: policy.max_tokens(), policy, prompts: PromptTokens::default() }
    }

    /// The same policy, which reads and writes at most so many tokens in one sequence.
    pub fn within(policy: Policy, tokens_max: usize) -> Self {
        Self { tokens_max: tokens_max.min(policy.max_tokens()), policy, prompts: PromptTokens::default() }
    }

    fn token_ids(&self, prompt: &str) -> Result<Arc<[u32]>> {
        self.prompts.get(prompt, |prompt| self.policy.tokenizer().encode_prompt(prompt))
    }
}

#[async_trait]
impl PolicyClient for LocalPolicy {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let prompt_ids = self.token_ids(prompt)?;
        let mut request = GenerateRequest::new(prompt_ids.to_vec(), &generate_options(sampling));
        // At least one, since a prompt that leaves no room does not fit.
        let room = self.tokens_max.saturating_sub(request.prompt.len()).max(1);
        request.max_new_tokens = request.max_new_tokens.min(room);
        let completion = self.policy.generate_for(request, agent::in_work()).await?;
        Ok(Generated {
            prompt_ids,
            generated_tokens: completion.token_ids.len(),
            stopped: completion.finish == Finish::Stop,
            text: completion.text,
            token_ids: completion.token_ids,
            token_logprobs: completion.token_logprobs,
            prompt_tokens: completion.prompt_tokens,
            cached_tokens: completion.cached_tokens,
            ..Generated::default()
        })
    }

    fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.policy.tokenizer().plain(text)
    }

    fn prompt_ids(&self, prompt: &str) -> Option<Arc<[u32]>> {
        self.token_ids(prompt).ok()
    }

    fn num_tokens_of(&self, generated: &Generated, num_bytes: usize) -> Option<usize> {
        self.policy.tokenizer().num_tokens_of(&generated.prompt_ids, &generated.token_ids, num_bytes).ok()
    }

    fn written(&self, prompt: String) -> Result<String> {
        match self.policy.chat_template()? {
            Some(template) => template.render(&[ChatMessage::user(prompt)], true),
            None => Ok(prompt),
        }
    }

    fn fits(&self, prompt: &str) -> bool {
        // A token is at least a byte, but for the few with which a prompt begins.
        let limit = self.tokens_max;
        prompt.len() + 16 < limit || self.token_ids(prompt).is_ok_and(|tokens| tokens.len() < limit)
    }

    fn reference(&self) -> (String, u32) {
        (self.policy.info().name.clone(), self.policy.info().version)
    }
}

/// A model of a server as the agent's policy.
struct RemotePolicy(RemoteModel);

#[async_trait]
impl PolicyClient for RemotePolicy {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        self.0.complete(&RemoteRequest::new(prompt, &generate_options(sampling))).await.map(generated)
    }

    fn samples_per_call(&self) -> usize {
        self.0.samples_per_request()
    }

    async fn generate_together(&self, prompt: &str, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        self.generate_in_turns(Prompt { text: prompt, turns: &[] }, sampling, seeds).await
    }

    async fn generate_in_turns(&self, prompt: Prompt<'_>, sampling: &Sampling, seeds: &[u64]) -> Result<Vec<Generated>> {
        let options = generate_options(sampling);
        let request = RemoteRequest { turns: prompt.turns, ..RemoteRequest::new(prompt.text, &options) };
        let completions = match seeds {
            [_] => vec![self.0.complete(&request).await?],
            _ => self.0.complete_all(&request, seeds).await?,
        };
        Ok(completions.into_iter().map(generated).collect())
    }

    fn keeps_answers(&self) -> bool {
        self.0.keeps_answers()
    }

    fn fits(&self, prompt: &str) -> bool {
        self.0.fits(prompt)
    }

    fn reference(&self) -> (String, u32) {
        (self.0.info().name.clone(), self.0.info().version)
    }
}

/// A policy call as SQL's `generate` would say it.
fn generate_options(sampling: &Sampling) -> GenerateOptions {
    let Sampling { max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed, stop } = sampling.clone();
    GenerateOptions { max_tokens, temperature, top_p, seed, stop, top_k, min_p, repetition_penalty }
}

fn generated(completion: RemoteCompletion) -> Generated {
    Generated {
        text: completion.text,
        stopped: completion.stopped,
        token_ids: completion.token_ids,
        token_logprobs: completion.token_logprobs,
        prompt_tokens: completion.prompt_tokens as usize,
        cached_tokens: completion.cached_tokens as usize,
        generated_tokens: completion.generated_tokens as usize,
        cost: completion.cost,
        prompt_ids: completion.prompt_ids.into(),
        is_unanswered: !completion.is_answer,
    }
}
