//! Models by name: loads each version once, hands out handles, and answers the functions `embed`, `generate` and `rerank`, each input once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use arrow::array::{Array, FixedSizeListArray, Float32Array, Float64Array, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field};
use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use futures::future::try_join_all;
use rolloutdb_udfs::model::{EmbedKind, GenerateOptions, ModelRuntime};
use tokio::sync::oneshot;

use super::cache::{Cache, Question};
use super::calls::{self, Calls};
use super::chat_template::{ChatMessage, ChatTemplate};
use super::config::EncoderConfig;
use super::device::Place;
use super::embedder::{Embedder, LoadedEmbedder};
use super::embedder_settings::EmbedderSettings;
use super::generation::{Completion, GenerateRequest};
use super::kv_budget::KvBudgets;
use super::limits::ModelLimits;
use super::owner::{LoadedPolicy, Owner};
use super::policy_decoder::PolicyDecoder;
use super::pool::{Loaded, LoadedModel, Pool};
use super::registry::{ModelInfo, Registry, Task};
use super::remote::{AnswerSource, Cleared, RemoteModel, RemoteRequest, Remotes};
use super::reranker::{LoadedReranker, Reranker, ScoringModel};
use super::scheduler::Job;
use super::scorer::LoadedScorer;
use super::tokenizer::Tokenizer;
use super::training_policy::TrainingPolicy;
use crate::error::{Error, Result};

/// The models of a database, loaded on first use.
#[derive(Debug)]
pub struct Runtime {
    registry: Arc<Registry>,
    pool: Pool,
    kv_budgets: Arc<KvBudgets>,
    embeddings: Cache<Arc<[f32]>>,
    completions: Cache<Said>,
    scores: Cache<Option<f32>>,
    num_texts_embedded: AtomicU64,
    /// None: there are no connections to other hosts.
    remotes: Option<Arc<Remotes>>,
}

/// A handle to a policy; cheap to clone. The model stays in memory as long as a handle lives.
#[derive(Debug, Clone)]
pub struct Policy {
    info: Arc<ModelInfo>,
    model: Arc<LoadedPolicy>,
    owner: Owner,
}

impl Runtime {
    /// A runtime over the models of a registry whose weights are here.
    pub fn new(registry: Arc<Registry>) -> Arc<Self> {
        Self::with_remotes(registry, None, ModelLimits::default())
    }

    /// As [`Self::new`], with those that servers have.
    pub fn with_remotes(registry: Arc<Registry>, remotes: Option<Arc<Remotes>>, limits: ModelLimits) -> Arc<Self> {
        Arc::new(Self {
            registry,
            pool: Pool::new(limits.weights(), limits.gpu_memory),
            kv_budgets: Arc::new(KvBudgets::new(limits)),
            embeddings: Cache::default(),
            completions: Cache::default(),
            scores: Cache::default(),
            num_texts_embedded: AtomicU64::new(0),
            remotes,
        })
    }

    /// A policy, `name` (its newest version) or `name@version`.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::WrongType`] if it is an embedder, [`Error::NotSupported`] if a server has it ([`Self::remote`]), [`Error::Io`],
    /// [`Error::Damaged`].
    pub async fn policy(&self, reference: &str) -> Result<Policy> {
        let info = Arc::new(self.find(reference, Task::Generate)?);
        info.require_weights("this")?;
        let owner = Owner::get()?;
        let kv_budgets = Arc::clone(&self.kv_budgets);
        let load = move |info: &ModelInfo| load_policy(info, &kv_budgets).map(|model| Loaded::Policy(Arc::new(model)));
        match self.pool.get(&info, &owner, load).await? {
            Loaded::Policy(model) => Ok(Policy { info, model, owner }),
            _ => Err(loaded_as_another(&info)),
        }
    }

    /// What a policy that is trained from `base` writes with, beside its weights. `base`: one whose weights are here.
    ///
    /// # Errors
    /// Those of the tokenizer's files; [`Error::Internal`] if the model thread has ended.
    pub fn training_policy(&self, base: &ModelInfo) -> Result<TrainingPolicy> {
        TrainingPolicy::new(base.clone(), self.kv_budgets.of(Place::Cpu), Owner::get()?)
    }

    /// A policy that a server has; None if its weights are here. No server is asked.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::WrongType`] if it is an embedder, [`Error::InsufficientPrivilege`] if its server may not be asked,
    /// [`Error::NotReady`] without connections to other hosts.
    pub async fn remote(&self, reference: &str) -> Result<Option<RemoteModel>> {
        let info = self.find(reference, Task::Generate)?;
        let Some(options) = &info.remote else { return Ok(None) };
        let no_connections = || Error::NotReady(format!("model {} is on a server, and this runtime has no connections", info.reference()));
        let remotes = self.remotes.as_ref().ok_or_else(no_connections)?;
        remotes.open(&info, options).await.map(Some)
    }

    /// Takes the kept answers of a source from the disk and out of memory, or those of all remote models.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub async fn clear_answers(&self, source: Option<AnswerSource>) -> Result<Cleared> {
        let Some(remotes) = &self.remotes else { return Ok(Cleared::default()) };
        let has_source = |info: &ModelInfo, source| info.remote.as_ref().is_some_and(|options| options.answer_source() == source);
        let is_cleared = |info: &ModelInfo| source.map_or(info.remote.is_some(), |source| has_source(info, source));
        let models: Vec<String> = self.registry.list()?.iter().filter(|info| is_cleared(info)).map(ModelInfo::reference).collect();
        // What is read from the disk meanwhile goes with what was in memory before; a statement that is cancelled in between leaves none of it.
        self.completions.forget(&models);
        let cleared = remotes.clear(source).await?;
        self.completions.forget(&models);
        Ok(cleared)
    }

    /// An embedder, `name` (its newest version) or `name@version`.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::WrongType`] if it is a policy, [`Error::Io`], [`Error::Damaged`].
    pub async fn embedder(&self, reference: &str) -> Result<Embedder> {
        let info = Arc::new(self.find(reference, Task::Embed)?);
        let owner = Owner::get()?;
        let load = |info: &ModelInfo| {
            let model = LoadedEmbedder::load(&info.directory, info.device, EmbedderSettings::of(info)?)?;
            Ok(Loaded::Embedder(Arc::new(model)))
        };
        match self.pool.get(&info, &owner, load).await? {
            Loaded::Embedder(model) => Ok(Embedder::new(info, model, owner)),
            _ => Err(loaded_as_another(&info)),
        }
    }

    /// Texts that SQL's `embed` has sent to a model since this process began; a text that comes again within a batch counts once.
    pub fn num_texts_embedded(&self) -> u64 {
        self.num_texts_embedded.load(Ordering::Relaxed)
    }

    /// A cross-encoder or a decoder with a score, `name` (its newest version) or `name@version`.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::WrongType`] if it is none, [`Error::Io`], [`Error::Damaged`].
    pub async fn reranker(&self, reference: &str) -> Result<Reranker> {
        let info = Arc::new(self.find(reference, Task::Rerank)?);
        let owner = Owner::get()?;
        let load = |info: &ModelInfo| match info.has_score() {
            true => LoadedScorer::load(&info.directory).map(|model| Loaded::Scorer(Arc::new(model))),
            false => LoadedReranker::load(&info.directory, info.device).map(|model| Loaded::Reranker(Arc::new(model))),
        };
        let model = match self.pool.get(&info, &owner, load).await? {
            Loaded::Reranker(model) => ScoringModel::CrossEncoder(model),
            Loaded::Scorer(model) => ScoringModel::Decoder(model),
            _ => return Err(loaded_as_another(&info)),
        };
        Ok(Reranker::new(info, model, owner))
    }

    /// Lets a model go that is in memory, all versions of `name` or `name@version`; how many there were. The next use loads it again.
    ///
    /// # Errors
    /// [`Error::UnknownObject`].
    pub fn unload(&self, reference: &str) -> Result<usize> {
        self.registry.get(reference)?;
        self.pool.unload(reference, &Owner::get()?)
    }

    /// As [`Self::unload`], of a model that was dropped.
    ///
    /// # Errors
    /// [`Error::Internal`] if the model thread has ended.
    pub fn forget(&self, reference: &str) -> Result<()> {
        self.pool.unload(reference, &Owner::get()?).map(drop)
    }

    /// The models in memory, the most recently used first.
    pub fn loaded(&self) -> Vec<LoadedModel> {
        self.pool.models()
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
    pub(super) fn new(info: Arc<ModelInfo>, model: Arc<LoadedPolicy>, owner: Owner) -> Self {
        Self { info, model, owner }
    }

    /// The version that this handle runs.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The policy's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.model.tokenizer
    }

    /// How the policy wants conversations to be written; None for one that only continues texts.
    ///
    /// # Errors
    /// [`Error::NotReady`] if its template cannot be read.
    pub fn chat_template(&self) -> Result<Option<&ChatTemplate>> {
        self.model.chat_template.as_ref().map(Option::as_ref).map_err(|reason| Error::NotReady(reason.clone()))
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
        self.generate_for(request, Weak::new()).await
    }

    /// As [`Self::generate`]. What is read and written is kept before other things as long as the holder is there: more requests that begin so will come.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub async fn generate_for(&self, request: GenerateRequest, holder: Weak<()>) -> Result<Completion> {
        let (reply, result) = oneshot::channel();
        self.owner.generate(Arc::clone(&self.model), Job { request, reply, arrived: Instant::now(), holder })?;
        calls::count(Calls { inputs: 1, ..Calls::default() });
        let ended = result.await.unwrap_or_else(|_| Err(Error::Internal("the model thread dropped a generation".to_owned())));
        ended.inspect(|completion| {
            calls::count(completion.tokens());
            calls::count_answers(1);
        })
    }
}

fn loaded_as_another(info: &ModelInfo) -> Error {
    Error::Internal(format!("{} is in memory as a model of another task", info.reference()))
}

fn load_policy(info: &ModelInfo, kv_budgets: &KvBudgets) -> Result<LoadedPolicy> {
    let decoder = PolicyDecoder::load(info)?;
    let tokenizer = Tokenizer::load(&info.directory)?;
    let mut eos_token_ids = decoder.config().eos_token_ids.clone();
    eos_token_ids.extend(tokenizer.eos_token_id());
    let chat_template = ChatTemplate::of(info).map_err(|error| error.to_string());
    let kv_budget = kv_budgets.of(PolicyDecoder::place(info));
    Ok(LoadedPolicy { decoder, tokenizer, chat_template, eos_token_ids, kv_budget, kv_counters: Arc::default() })
}

#[async_trait]
impl ModelRuntime for Runtime {
    fn embedding_dim(&self, model: &str) -> DataFusionResult<usize> {
        let info = self.find(model, Task::Embed)?;
        Ok(EncoderConfig::load(&info.directory)?.hidden_size)
    }

    fn note_repeats(&self, count: usize) {
        calls::count(Calls { repeats: count as u64, ..Calls::default() });
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
        let vectors = answers(&self.embeddings, questions, |vector| size_of_val(&vector[..]), |_| true, embed).await?;
        spread(&vectors.concat(), embedder.dim(), texts.nulls(), texts.len())
    }

    async fn generate(&self, model: &str, prompts: &StringArray, options: GenerateOptions) -> DataFusionResult<StringArray> {
        let policy = match self.remote(model).await? {
            Some(remote) => Generator::Remote(remote),
            None => Generator::Local(self.policy(model).await?),
        };
        let present: Vec<&str> = prompts.iter().flatten().collect();
        // The options are part of what is asked; the prompt stands last, so that no prompt reads as options.
        let questions = Question::all(policy.info(), present.iter().map(|prompt| format!("{options:?} {prompt}")));
        let generate = |missing: Vec<usize>| try_join_all(missing.into_iter().map(|index| policy.say(present[index], &options)));
        let said = answers(&self.completions, questions, |said| said.text.len(), |said| said.is_answer, generate).await?;
        let mut texts = said.into_iter().map(|said| said.text);
        Ok(prompts.iter().map(|prompt| prompt.and_then(|_| texts.next())).collect())
    }

    async fn apply_chat_template(
        &self,
        model: &str,
        conversations: &StringArray,
        add_generation_prompt: bool,
    ) -> DataFusionResult<StringArray> {
        let policy = self.policy(model).await?;
        let no_template = || Error::NotReady(format!("model {} has no chat template among its files", policy.info().reference()));
        let template = policy.chat_template()?.ok_or_else(no_template)?;
        let render = |conversation: &str| {
            let messages = ChatMessage::read_all(conversation)?;
            template.render(&messages, add_generation_prompt)
        };
        Ok(StringArray::from(conversations.iter().map(|conversation| conversation.map(render).transpose()).collect::<Result<Vec<_>>>()?))
    }

    async fn rerank(&self, model: &str, queries: &StringArray, passages: &StringArray) -> DataFusionResult<Float64Array> {
        let reranker = self.reranker(model).await?;
        let pairs: Vec<(&str, &str)> = queries.iter().flatten().zip(passages.iter().flatten()).collect();
        let questions = Question::all(reranker.info(), pairs.iter().map(|(query, passage)| format!("{} {query} {passage}", query.len())));
        let score = |missing: Vec<usize>| {
            reranker.score(missing.into_iter().map(|index| (pairs[index].0.to_owned(), pairs[index].1.to_owned())).collect())
        };
        let scores = answers(&self.scores, questions, |_| 0, |_| true, score).await?;
        Ok(scores.into_iter().map(|score| score.map(f64::from)).collect())
    }
}

/// One answer per question: those that are kept, and for the others what `ask` says of their indices, which is kept then if `is_answer` says so.
async fn answers<T: Clone, F: Future<Output = Result<Vec<T>>>>(
    cache: &Cache<T>,
    questions: Vec<Question>,
    bytes: fn(&T) -> usize,
    is_answer: fn(&T) -> bool,
    ask: impl FnOnce(Vec<usize>) -> F,
) -> Result<Vec<T>> {
    let known = cache.get(&questions, bytes);
    let missing: Vec<usize> = known.iter().enumerate().filter(|(_, answer)| answer.is_none()).map(|(index, _)| index).collect();
    // What is missing is counted where the model is given it.
    calls::count(Calls { cache_hits: (known.len() - missing.len()) as u64, ..Calls::default() });
    let asked = if missing.is_empty() { Vec::new() } else { ask(missing.clone()).await? };
    if asked.len() != missing.len() {
        return Err(Error::Internal(format!("a model gave {} answers to {} questions", asked.len(), missing.len())));
    }
    let kept = missing.iter().zip(&asked).filter(|(_, answer)| is_answer(answer));
    cache.put(kept.map(|(index, answer)| (questions[*index].clone(), answer.clone())), bytes);
    let mut asked = asked.into_iter();
    Ok(known.into_iter().filter_map(|answer| answer.or_else(|| asked.next())).collect())
}

/// A continuation of a text.
#[derive(Debug, Clone)]
struct Said {
    text: Arc<str>,
    /// False of an empty text in the place of one: nobody keeps it.
    is_answer: bool,
}

/// What continues the texts of SQL's `generate`.
enum Generator {
    Local(Policy),
    Remote(RemoteModel),
}

impl Generator {
    fn info(&self) -> &ModelInfo {
        match self {
            Self::Local(policy) => policy.info(),
            Self::Remote(remote) => remote.info(),
        }
    }

    async fn say(&self, prompt: &str, options: &GenerateOptions) -> Result<Said> {
        match self {
            Self::Local(policy) => Ok(Said { text: generate_text(policy, prompt, options).await?, is_answer: true }),
            Self::Remote(remote) => {
                let completion = remote.complete(&RemoteRequest::new(prompt, options)).await?;
                Ok(Said { text: completion.text.as_str().into(), is_answer: completion.is_answer })
            }
        }
    }
}

async fn generate_text(policy: &Policy, prompt: &str, options: &GenerateOptions) -> Result<Arc<str>> {
    let request = GenerateRequest::new(policy.tokenizer().encode_prompt(prompt)?, options);
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
