//! Models by name: loads each version once, hands out handles, and answers the functions `embed`, `generate` and `rerank`, each input once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow::array::{Array, FixedSizeListArray, Float32Array, Float64Array, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field};
use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use futures::future::try_join_all;
use rolloutdb_udfs::model::{EmbedKind, GenerateOptions, ModelRuntime};
use tokio::sync::{OnceCell, oneshot};

use super::cache::{Cache, Question};
use super::calls;
use super::config::EncoderConfig;
use super::embedder::{Embedder, LoadedEmbedder};
use super::generation::{Completion, GenerateRequest};
use super::owner::{LoadedPolicy, Owner};
use super::packed::PackedDecoder;
use super::registry::{ModelInfo, Registry, Task};
use super::reranker::{LoadedReranker, Reranker};
use super::scheduler::Job;
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};

/// Versions kept in memory; beyond that the one unused longest is let go, as soon as no handle uses it.
const LOADED_MAX: usize = 16;

/// The models of a database, loaded on first use.
#[derive(Debug)]
pub struct Runtime {
    registry: Arc<Registry>,
    policies: Loaded<LoadedPolicy>,
    embedders: Loaded<LoadedEmbedder>,
    rerankers: Loaded<LoadedReranker>,
    embeddings: Cache<Arc<[f32]>>,
    completions: Cache<Arc<str>>,
    scores: Cache<f32>,
    num_texts_embedded: AtomicU64,
}

/// A handle to a policy; cheap to clone. The model stays in memory as long as a handle lives.
#[derive(Debug, Clone)]
pub struct Policy {
    info: Arc<ModelInfo>,
    model: Arc<LoadedPolicy>,
    owner: Owner,
}

impl Runtime {
    /// A runtime over the models of a registry.
    pub fn new(registry: Arc<Registry>) -> Arc<Self> {
        Arc::new(Self {
            registry,
            policies: Loaded::default(),
            embedders: Loaded::default(),
            rerankers: Loaded::default(),
            embeddings: Cache::default(),
            completions: Cache::default(),
            scores: Cache::default(),
            num_texts_embedded: AtomicU64::new(0),
        })
    }

    /// A policy, `name` (its newest version) or `name@version`.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::WrongType`] if it is an embedder, [`Error::Io`], [`Error::Damaged`].
    pub async fn policy(&self, reference: &str) -> Result<Policy> {
        let info = Arc::new(self.find(reference, Task::Generate)?);
        let owner = Owner::get()?;
        let load = |info: Arc<ModelInfo>| load_policy(&info);
        let model = self.policies.get(&info, &owner, load).await?;
        Ok(Policy { info, model, owner })
    }

    /// An embedder, `name` (its newest version) or `name@version`.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::WrongType`] if it is a policy, [`Error::Io`], [`Error::Damaged`].
    pub async fn embedder(&self, reference: &str) -> Result<Embedder> {
        let info = Arc::new(self.find(reference, Task::Embed)?);
        let owner = Owner::get()?;
        let load = |info: Arc<ModelInfo>| LoadedEmbedder::load(&info.directory, info.device);
        let model = self.embedders.get(&info, &owner, load).await?;
        Ok(Embedder::new(info, model, owner))
    }

    /// Texts that SQL's `embed` has sent to a model since this process began; a text that comes again within a batch counts once.
    pub fn num_texts_embedded(&self) -> u64 {
        self.num_texts_embedded.load(Ordering::Relaxed)
    }

    /// A cross-encoder, `name` (its newest version) or `name@version`.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::WrongType`] if it is none, [`Error::Io`], [`Error::Damaged`].
    pub async fn reranker(&self, reference: &str) -> Result<Reranker> {
        let info = Arc::new(self.find(reference, Task::Rerank)?);
        let owner = Owner::get()?;
        let load = |info: Arc<ModelInfo>| LoadedReranker::load(&info.directory, info.device);
        let model = self.rerankers.get(&info, &owner, load).await?;
        Ok(Reranker::new(info, model, owner))
    }

    /// The model of this name, if it is for this task.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::WrongType`].
    pub fn find(&self, reference: &str, task: Task) -> Result<ModelInfo> {
        let info = self.registry.get(reference)?;
        if info.task == task {
            return Ok(info);
        }
        let expected = format!("a model with task = '{task}'");
        Err(Error::WrongType { what: format!("model \"{reference}\""), found: format!("a model with task = '{}'", info.task), expected })
    }
}

impl Policy {
    /// The version that this handle runs.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The policy's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.model.tokenizer
    }

    /// Tokens that the policy can read and write in one sequence.
    pub fn max_tokens(&self) -> usize {
        self.model.decoder.config().max_position_embeddings
    }

    /// Continues a prompt. Requests in flight at the same time share their forwards; the result does not depend on them.
    /// Dropping the future stops the generation.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for an empty or too long prompt and for options out of range.
    pub async fn generate(&self, request: GenerateRequest) -> Result<Completion> {
        let (reply, result) = oneshot::channel();
        self.owner.generate(Arc::clone(&self.model), Job { request, reply, arrived: Instant::now() })?;
        result.await.unwrap_or_else(|_| Err(Error::Internal("the model thread dropped a generation".to_owned())))
    }
}

fn load_policy(info: &ModelInfo) -> Result<LoadedPolicy> {
    let decoder = PackedDecoder::load(&info.directory)?;
    let tokenizer = Tokenizer::load(&info.directory)?;
    let mut eos_token_ids = decoder.config().eos_token_ids.clone();
    eos_token_ids.extend(tokenizer.eos_token_id());
    Ok(LoadedPolicy { decoder: Arc::new(decoder), tokenizer, eos_token_ids })
}

/// Models in memory, the most recently used last.
#[derive(Debug)]
struct Loaded<T>(Mutex<Vec<(Key, Slot<T>)>>);

/// A place for a model that may still be loading.
type Slot<T> = Arc<OnceCell<Arc<T>>>;

/// A version, told apart from an earlier one of the same number that was dropped.
type Key = (String, i64);

impl<T> Default for Loaded<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T: Send + Sync + 'static> Loaded<T> {
    /// The model in memory; loaded on the model thread if it is not there, once even if several ask at the same time.
    async fn get(
        &self,
        info: &Arc<ModelInfo>,
        owner: &Owner,
        load: impl FnOnce(Arc<ModelInfo>) -> Result<T> + Send + 'static,
    ) -> Result<Arc<T>> {
        let cell = self.cell((info.reference(), info.created_at_ms));
        let info = Arc::clone(info);
        let load = || async { owner.run(move || load(info)).await.map(Arc::new) };
        cell.get_or_try_init(load).await.cloned()
    }

    fn cell(&self, key: Key) -> Slot<T> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = loaded.iter().position(|(known, _)| *known == key).map(|index| loaded.remove(index));
        let entry = found.unwrap_or_else(|| (key, Arc::default()));
        let cell = Arc::clone(&entry.1);
        loaded.push(entry);
        let excess = loaded.len().saturating_sub(LOADED_MAX);
        loaded.drain(..excess);
        cell
    }
}

#[async_trait]
impl ModelRuntime for Runtime {
    fn embedding_dim(&self, model: &str) -> DataFusionResult<usize> {
        let info = self.find(model, Task::Embed)?;
        Ok(EncoderConfig::load(&info.directory)?.hidden_size)
    }

    async fn embed(&self, model: &str, texts: &StringArray, kind: EmbedKind) -> DataFusionResult<FixedSizeListArray> {
        let embedder = self.embedder(model).await?;
        let present: Vec<String> = texts.iter().flatten().map(str::to_owned).collect();
        let questions = Question::all(embedder.info(), present.iter().map(|text| format!("{kind:?} {text}")));
        let (embedder, present) = (&embedder, &present);
        let embed = |missing: Vec<usize>| async move {
            self.num_texts_embedded.fetch_add(missing.len() as u64, Ordering::Relaxed);
            let missing = missing.into_iter().map(|index| present[index].clone()).collect();
            let vectors = match kind {
                EmbedKind::Query => embedder.embed_queries(missing).await?,
                EmbedKind::Passage => embedder.embed_passages(missing).await?,
            };
            Ok::<Vec<Arc<[f32]>>, Error>(vectors.chunks_exact(embedder.dim()).map(Arc::from).collect())
        };
        let vectors = answers(&self.embeddings, questions, |vector| size_of_val(&vector[..]), embed).await?;
        spread(&vectors.concat(), embedder.dim(), texts.nulls(), texts.len())
    }

    async fn generate(&self, model: &str, prompts: &StringArray, options: GenerateOptions) -> DataFusionResult<StringArray> {
        let policy = self.policy(model).await?;
        let present: Vec<&str> = prompts.iter().flatten().collect();
        // The options are part of what is asked; the prompt stands last, so that no prompt reads as options.
        let questions = Question::all(policy.info(), present.iter().map(|prompt| format!("{options:?} {prompt}")));
        let generate =
            |missing: Vec<usize>| try_join_all(missing.into_iter().map(|index| generate_text(&policy, present[index], &options)));
        let mut texts = answers(&self.completions, questions, |text| text.len(), generate).await?.into_iter();
        Ok(prompts.iter().map(|prompt| prompt.and_then(|_| texts.next())).collect())
    }

    async fn rerank(&self, model: &str, queries: &StringArray, passages: &StringArray) -> DataFusionResult<Float64Array> {
        let reranker = self.reranker(model).await?;
        let pairs: Vec<(&str, &str)> = queries.iter().flatten().zip(passages.iter().flatten()).collect();
        let questions = Question::all(reranker.info(), pairs.iter().map(|(query, passage)| format!("{} {query} {passage}", query.len())));
        let score = |missing: Vec<usize>| {
            reranker.score(missing.into_iter().map(|index| (pairs[index].0.to_owned(), pairs[index].1.to_owned())).collect())
        };
        let scores = answers(&self.scores, questions, |_| 0, score).await?;
        Ok(scores.into_iter().map(|score| Some(f64::from(score))).collect())
    }
}

/// One answer per question: those that are kept, and for the others what `ask` says of their indices, which is kept then.
async fn answers<T: Clone, F: Future<Output = Result<Vec<T>>>>(
    cache: &Cache<T>,
    questions: Vec<Question>,
    bytes: fn(&T) -> usize,
    ask: impl FnOnce(Vec<usize>) -> F,
) -> Result<Vec<T>> {
    let known = cache.get(&questions, bytes);
    let missing: Vec<usize> = known.iter().enumerate().filter(|(_, answer)| answer.is_none()).map(|(index, _)| index).collect();
    calls::count(missing.len(), known.len() - missing.len());
    let asked = if missing.is_empty() { Vec::new() } else { ask(missing.clone()).await? };
    if asked.len() != missing.len() {
        return Err(Error::Internal(format!("a model gave {} answers to {} questions", asked.len(), missing.len())));
    }
    cache.put(missing.iter().map(|index| questions[*index].clone()).zip(asked.iter().cloned()), bytes);
    let mut asked = asked.into_iter();
    Ok(known.into_iter().filter_map(|answer| answer.or_else(|| asked.next())).collect())
}

async fn generate_text(policy: &Policy, prompt: &str, options: &GenerateOptions) -> Result<Arc<str>> {
    let request = GenerateRequest {
        prompt: policy.tokenizer().encode(prompt)?,
        max_new_tokens: options.max_tokens,
        temperature: options.temperature as f32,
        top_p: options.top_p as f32,
        seed: options.seed,
        stop: options.stop.clone(),
    };
    Ok(policy.generate(request).await?.text.into())
}

/// The vectors of the rows that are not null, with zeros under the nulls.
fn spread(vectors: &[f32], dim: usize, nulls: Option<&NullBuffer>, len: usize) -> DataFusionResult<FixedSizeListArray> {
    let mut present = vectors.chunks_exact(dim);
    let zeros = vec![0.0; dim];
    let mut values = Vec::with_capacity(len * dim);
    for row in 0..len {
        let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
        let vector = if is_null { None } else { present.next() };
        values.extend_from_slice(vector.unwrap_or(&zeros));
    }
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let list = FixedSizeListArray::try_new(item, dim as i32, Arc::new(Float32Array::from(values)), nulls.cloned());
    list.map_err(DataFusionError::from)
}
