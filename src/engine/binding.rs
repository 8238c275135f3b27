//! An agent's definition bound to what it names: its policy in `src/models`, its corpus in `rolloutdb_catalogs`, its prompts in `rollout.prompts`.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use rolloutdb_catalogs::{Catalog, Table, is_temporary_schema};

use super::retrieval::{Queries, Retrieval, RetrievalOptions, RetrieverKind};
use super::versions;
use crate::agent::{self, Agent, AgentOptions, Generated, Passage, PolicyClient, PromptRow, Retriever, Sampling};
use crate::error::{Error, Result};
use crate::models::chat_template::ChatMessage;
use crate::models::remote::{RemoteModel, RemoteRequest};
use crate::models::{Finish, GenerateRequest, Policy, Runtime, Sampler};

/// Opens what the options name and puts the agent together.
///
/// # Errors
/// Unknown model, table, protocol or prompt set; [`Error::NotReady`] for an empty corpus or one that the retriever cannot search.
pub async fn bind(options: &AgentOptions, catalog: &Arc<Catalog>, models: &Arc<Runtime>) -> Result<Agent> {
    options.check_complete()?;
    let retriever = corpus_retriever(options, catalog, models).await?;
    if retriever.retrieval.table().row_count().await? == 0 {
        return Err(Error::NotReady(format!("corpus \"{}\" is empty; load passages with COPY or INSERT first", options.corpus)));
    }
    let policy = policy_client(&options.policy, models).await?;
    let prompts = prompt_rows(catalog).await?;
    Agent::new(policy, Arc::new(retriever), &prompts, options)
}

/// The model of that name as one that writes: an agent's policy, or a judge.
///
/// # Errors
/// As [`Runtime::policy`].
pub async fn policy_client(reference: &str, models: &Arc<Runtime>) -> Result<Arc<dyn PolicyClient>> {
    Ok(match models.remote(reference).await? {
        Some(remote) => Arc::new(RemotePolicy(remote)),
        None => Arc::new(LocalPolicy(models.policy(reference).await?)),
    })
}

/// Checks that the corpus can be searched as the options say and that the prompt set is there, before anything runs. An empty corpus is no
/// error yet.
///
/// # Errors
/// As [`bind`].
pub async fn check(options: &AgentOptions, catalog: &Arc<Catalog>, models: &Arc<Runtime>) -> Result<()> {
    options.check_complete()?;
    corpus_retriever(options, catalog, models).await?;
    let protocol = agent::protocol::protocol(&options.protocol)?;
    agent::PromptSet::from_rows(&options.prompts, protocol.as_ref(), &prompt_rows(catalog).await?)?;
    Ok(())
}

async fn corpus_retriever(options: &AgentOptions, catalog: &Arc<Catalog>, models: &Arc<Runtime>) -> Result<CorpusRetriever> {
    let (schema, table) = super::apply::planner::split_table_name(&options.corpus);
    if is_temporary_schema(&schema) {
        // An agent belongs to no session, and a name of this kind may be that of another one's table.
        let message =
            format!("the corpus of an agent cannot be temporary; make {table} a table that is not, with CREATE TABLE ... AS SELECT");
        return Err(Error::NotSupported(message));
    }
    let mut corpus = catalog.table(&schema, &table).await?;
    if let Some(version) = &options.corpus_version {
        corpus = Arc::new(versions::named(&corpus, version).await?);
    }
    CorpusRetriever::new(corpus, options.retriever, Arc::clone(models))
}

/// Every row of `rollout.prompts`.
async fn prompt_rows(catalog: &Arc<Catalog>) -> Result<Vec<PromptRow>> {
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
struct LocalPolicy(Policy);

#[async_trait]
impl PolicyClient for LocalPolicy {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let request = GenerateRequest {
            prompt: self.0.tokenizer().encode_prompt(prompt)?,
            max_new_tokens: sampling.max_tokens,
            sampler: Sampler { temperature: sampling.temperature as f32, top_p: sampling.top_p as f32, ..Sampler::default() },
            seed: sampling.seed,
            stop: sampling.stop.clone(),
        };
        let completion = self.0.generate(request).await?;
        Ok(Generated {
            generated_tokens: completion.token_ids.len(),
            stopped: completion.finish == Finish::Stop,
            text: completion.text,
            token_ids: completion.token_ids,
            token_logprobs: completion.token_logprobs,
            prompt_tokens: completion.prompt_tokens,
            cached_tokens: completion.cached_tokens,
        })
    }

    fn written(&self, prompt: String) -> Result<String> {
        match self.0.chat_template()? {
            Some(template) => template.render(&[ChatMessage::user(prompt)], true, &serde_json::Map::new()),
            None => Ok(prompt),
        }
    }

    fn fits(&self, prompt: &str) -> bool {
        // A token is at least a byte, but for the few with which a prompt begins.
        let limit = self.0.max_tokens();
        prompt.len() + 16 < limit || self.0.tokenizer().encode_prompt(prompt).is_ok_and(|tokens| tokens.len() < limit)
    }

    fn reference(&self) -> (String, u32) {
        (self.0.info().name.clone(), self.0.info().version)
    }
}

/// A model of a server as the agent's policy.
struct RemotePolicy(RemoteModel);

#[async_trait]
impl PolicyClient for RemotePolicy {
    async fn generate(&self, prompt: &str, sampling: &Sampling) -> Result<Generated> {
        let Sampling { max_tokens, temperature, top_p, seed, ref stop } = *sampling;
        let completion = self.0.complete(&RemoteRequest { prompt, max_tokens, temperature, top_p, seed, stop }).await?;
        Ok(Generated {
            text: completion.text.clone(),
            stopped: completion.stopped,
            token_ids: completion.token_ids.clone(),
            token_logprobs: completion.token_logprobs.clone(),
            prompt_tokens: completion.prompt_tokens as usize,
            cached_tokens: completion.cached_tokens as usize,
            generated_tokens: completion.generated_tokens as usize,
        })
    }

    fn reference(&self) -> (String, u32) {
        (self.0.info().name.clone(), self.0.info().version)
    }
}

/// A table snapshot as the agent's corpus.
struct CorpusRetriever {
    retrieval: Retrieval,
    id_column: String,
    contents_column: String,
    title_column: Option<String>,
}

impl CorpusRetriever {
    fn new(table: Arc<Table>, kind: agent::RetrieverKind, models: Arc<Runtime>) -> Result<Self> {
        let definition = table.definition().clone();
        let kind = match kind {
            agent::RetrieverKind::Text => RetrieverKind::Text,
            agent::RetrieverKind::Vector => RetrieverKind::Vector,
            agent::RetrieverKind::Hybrid => RetrieverKind::Hybrid,
        };
        let has = |name: &str| definition.schema.index_of(name).is_ok();
        let id_column = match definition.primary_key.as_slice() {
            [key] => key.clone(),
            _ if has("id") => "id".to_owned(),
            _ => return Err(missing(&table, "id")),
        };
        let contents_column = ["contents", "text"].into_iter().find(|name| has(name)).ok_or_else(|| missing(&table, "contents"))?;
        // By convention `contents` starts with its title; a `text` does not.
        let title_column = (contents_column == "text" && has("title")).then(|| "title".to_owned());
        let retrieval = Retrieval::new(table, kind, models, &RetrievalOptions::default())?;
        Ok(Self { retrieval, id_column, contents_column: contents_column.to_owned(), title_column })
    }
}

fn missing(table: &Table, column: &str) -> Error {
    Error::MissingColumn {
        of: format!("corpus {}", table.name()),
        name: column.to_owned(),
        known: table.definition().schema.fields().iter().map(|field| field.name().clone()).collect(),
    }
}

#[async_trait]
impl Retriever for CorpusRetriever {
    async fn search(&self, query: &str, k: usize) -> Result<Vec<Passage>> {
        let (found, _) = self.retrieval.search(&Queries::Texts(vec![query.to_owned()]), k).await?;
        let texts = |name: &str| -> Result<Vec<String>> {
            let column = found.column_by_name(name).ok_or_else(|| Error::Internal(format!("search gave no column {name}")))?;
            let column = cast(column, &DataType::Utf8).map_err(DataFusionError::from)?;
            let column = column.as_string::<i32>();
            Ok((0..column.len()).map(|row| if column.is_null(row) { String::new() } else { column.value(row).to_owned() }).collect())
        };
        let (ids, contents) = (texts(&self.id_column)?, texts(&self.contents_column)?);
        let titles = self.title_column.as_deref().map(texts).transpose()?;
        Ok(ids
            .into_iter()
            .zip(contents)
            .enumerate()
            .map(|(row, (id, contents))| Passage { id, title: titles.as_ref().map(|titles| titles[row].clone()), contents })
            .collect())
    }

    fn corpus_version(&self) -> u64 {
        self.retrieval.table().version()
    }
}
