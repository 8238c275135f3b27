//! Models on disk: named, versioned, immutable.
//!
//! A version is a directory `<root>/<name>/<version>` in Hugging Face's layout plus `model.json`. It is written beside the
//! others under a temporary name, synced, and appears by one rename, so a crash leaves a whole version or none.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tempfile::TempDir;

use super::chat_template::{CHAT_TEMPLATE_KWARGS, ChatTemplate, ChatVariables, take_variables};
use super::checkpoint::{self, Checkpoint};
use super::config::{DecoderArchitecture, EncoderConfig};
use super::device::{Device, Place};
use super::embedder_settings::EmbeddingOptions;
use super::encoder::Encoder;
use super::gguf::GgufInfo;
use super::lora::ADAPTER_DIRECTORY;
use super::policy_decoder::PolicyDecoder;
use super::remote::RemoteOptions;
use super::scorer::LoadedScorer;
use super::source::{self, OpenFile, Source};
use super::weights::weights_digest;
use crate::error::{Error, Result};
use crate::value::Value;

const INFO_FILE: &str = "model.json";
const STAGE_PREFIX: &str = ".stage-";
const DROPPED_PREFIX: &str = ".dropped-";
/// `.last-version-NAME` holds the last version of a dropped model.
const LAST_VERSION_PREFIX: &str = ".last-version-";
/// `.known-versions-NAME` holds what those of a dropped model said of themselves.
const MEMORY_PREFIX: &str = ".known-versions-";
const NAME_LEN_MAX: usize = 63;

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// A decoder that continues text.
    Generate,
    /// An encoder that turns text into vectors.
    Embed,
    /// An encoder that reads a query and a passage and says how well they fit, or a decoder that does so with a prompt and a step.
    Rerank,
}

/// One version of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    pub name: String,
    /// From 1 upwards.
    pub version: u32,
    pub task: Task,
    /// `Qwen2ForCausalLM`, `BertModel`, ...
    pub architecture: String,
    /// Where its files are; known from where it was found, so that a data directory can be moved.
    #[serde(skip)]
    pub directory: PathBuf,
    /// Where its weights came from.
    pub source: String,
    /// Of its files of weights, in the order of their names: SHA-256, as `cat *.safetensors | sha256sum` gives it. `None`: a server has them, or an earlier
    /// version of this program made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Weights; a tied head counts once.
    pub parameter_count: u64,
    pub created_at_ms: i64,
    /// Where it computes.
    #[serde(default = "Device::of_old_versions")]
    pub device: Device,
    /// How it was made, as the one who made it tells.
    pub lineage: Json,
    /// Of a model that a server has: where it is. There are no weights then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteOptions>,
    /// Of a model that embeds: what its maker said in place of its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<EmbeddingOptions>,
    /// Of a model with a chat template: what this may ask for beside the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template_kwargs: Option<ChatVariables>,
    /// Of a model from a GGUF file: how its weights are stored. It generates, and is not trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gguf: Option<GgufInfo>,
}

/// A model to create.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateModel {
    pub name: String,
    /// A directory, `builtin://tinyhop`, `random://qwen2`, `openai://` with the name that a server gives it, or `hf://org/name` with a revision.
    pub source: String,
    /// Checked against the files; read from them when absent.
    pub task: Option<Task>,
    pub device: Device,
    /// Sizes and seed of a random model, where and how a remote one is asked, how one that embeds is used.
    pub options: Vec<(String, Value)>,
    /// What a random model's tokenizer is trained on.
    pub texts: Vec<String>,
}

/// A directory of a model's files, and what opens them: it decides which may be read.
#[derive(Clone, Copy)]
pub struct ModelFiles<'a> {
    pub directory: &'a Path,
    pub open: &'a OpenFile<'a>,
}

/// A directory to fill with a new version's files; removed if it is dropped without [`Registry::publish`].
#[derive(Debug)]
pub struct StagedModel(TempDir);

/// What a new version records beside what its files say.
pub(super) struct Origin {
    pub source: String,
    pub device: Device,
    pub lineage: Json,
    pub remote: Option<RemoteOptions>,
    pub embedding: Option<EmbeddingOptions>,
    pub chat_template_kwargs: Option<ChatVariables>,
}

/// The models of a data directory.
#[derive(Debug)]
pub struct Registry {
    root: PathBuf,
    source_root: PathBuf,
    /// Held while a version number is chosen and taken.
    publishing: Mutex<()>,
}

impl ModelInfo {
    /// The adapters that were added to its weights, in PEFT's layout, if they were kept.
    pub fn adapter_directory(&self) -> Option<PathBuf> {
        Some(self.directory.join(ADAPTER_DIRECTORY)).filter(|path| path.is_dir())
    }

    /// `name@version`.
    pub fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// What `device` says, and the GPU that this means here, if the model computes on one.
    pub fn device_description(&self) -> String {
        match (self.task, PolicyDecoder::place(self)) {
            (Task::Generate, Place::Cpu) => self.device.to_string(),
            (Task::Rerank, _) if self.has_score() => self.device.to_string(),
            _ => self.device.description(),
        }
    }

    /// Whether it is a decoder with a score.
    pub fn has_score(&self) -> bool {
        self.task == Task::Rerank && DecoderArchitecture::is_score_class(&self.architecture)
    }

    /// Fails for a remote model: `what` needs weights.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn require_weights(&self, what: &str) -> Result<()> {
        if self.remote.is_none() {
            return Ok(());
        }
        let (model, source) = (self.reference(), &self.source);
        Err(Error::NotSupported(format!("{what} needs a model whose weights are here; {model} is {source}, which a server has")))
    }

    /// Fails for a model that cannot be trained: `what` needs weights, and in full precision.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn require_trainable(&self, what: &str) -> Result<()> {
        self.require_weights(what)?;
        let Some(gguf) = &self.gguf else { return Ok(()) };
        let (model, types) = (self.reference(), gguf.tensor_types.join(", "));
        Err(Error::NotSupported(format!(
            "{what} needs weights in full precision; {model} is from a GGUF file ({types}), which is for generation alone; \
             make a model of the safetensors that the file was converted from, and train that one"
        )))
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generate => "generate",
            Self::Embed => "embed",
            Self::Rerank => "rerank",
        })
    }
}

impl FromStr for Task {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "generate" => Ok(Self::Generate),
            "embed" => Ok(Self::Embed),
            "rerank" => Ok(Self::Rerank),
            other => Err(invalid("task", other, "generate, embed or rerank")),
        }
    }
}

impl StagedModel {
    /// Where to write the files.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes the folder for the adapters that the weights have in them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn make_adapter_directory(&self) -> Result<PathBuf> {
        let path = self.path().join(ADAPTER_DIRECTORY);
        std::fs::create_dir(&path).map_err(|source| io(&path, source))?;
        Ok(path)
    }
}

impl Registry {
    /// Opens the models of a data directory, and makes the directory if it does not exist. Removes what a crash left half-made.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(root: &Path) -> Result<Self> {
        std::fs::create_dir_all(root).map_err(|source| io(root, source))?;
        if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync(parent)?;
        }
        for name in entries(root)? {
            if name.starts_with(STAGE_PREFIX) || name.starts_with(DROPPED_PREFIX) {
                let path = root.join(name);
                std::fs::remove_dir_all(&path).map_err(|source| io(&path, source))?;
            }
        }
        Ok(Self { root: root.to_owned(), source_root: PathBuf::new(), publishing: Mutex::new(()) })
    }

    /// Reads the relative directories of `CREATE MODEL` from `source_root`; without this from the working directory.
    pub fn with_source_root(self, source_root: PathBuf) -> Self {
        Self { source_root, ..self }
    }

    /// Makes version 1 of a new model. A model that could not run is refused here, not at its first use.
    ///
    /// # Errors
    /// [`Error::DuplicateObject`] if the name is taken, [`Error::InvalidParameter`] for a bad name or option,
    /// [`Error::UnknownOption`], [`Error::UnknownObject`] for an unknown built-in model, [`Error::NotSupported`] for a source
    /// or an architecture, [`Error::NotReady`] for a random model without texts, [`Error::Io`], [`Error::Damaged`].
    pub fn create(&self, create: CreateModel) -> Result<ModelInfo> {
        self.create_unless(create, None, &|| false)
    }

    /// As [`Self::create`], from the files of a directory if `files` names one; there is no model if `is_cancelled` when its files are written.
    ///
    /// # Errors
    /// As [`Self::create`], and [`Error::Cancelled`]; those of opening a file.
    pub fn create_unless(
        &self,
        mut create: CreateModel,
        files: Option<ModelFiles<'_>>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<ModelInfo> {
        self.check_new(&create.name)?;
        let source = match files {
            Some(ModelFiles { directory, .. }) => Source::Directory(directory.to_owned()),
            None => Source::parse(&create.source, &self.source_root)?,
        };
        if matches!(source, Source::Remote) {
            return self.create_remote(create);
        }
        let lineage = source::lineage(&create.source, &create.options);
        // A random one has neither: its own options are all there are.
        let (embedding, chat_template_kwargs) = match source {
            Source::RandomQwen2 => (None, None),
            _ => (EmbeddingOptions::take(&mut create.options)?, take_variables(&mut create.options)?),
        };
        let open_any: &OpenFile<'_> = &|path| std::fs::File::open(path).map_err(|source| io(path, source));
        let staged = self.stage()?;
        source.write(&create.options, &create.texts, staged.path(), files.map_or(open_any, |files| files.open))?;
        let origin = Origin { source: create.source, device: create.device, lineage, remote: None, embedding, chat_template_kwargs };
        self.publish_new(&create.name, create.task, staged, origin, is_cancelled)
    }

    /// As [`Self::create_unless`], of files that were fetched: `source` says exactly what they are, where the one of the statement leaves that open.
    ///
    /// # Errors
    /// As [`Self::create_unless`].
    pub fn create_staged(
        &self,
        mut create: CreateModel,
        staged: StagedModel,
        source: String,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<ModelInfo> {
        self.check_new(&create.name)?;
        let lineage = source::lineage(&create.source, &create.options);
        let embedding = EmbeddingOptions::take(&mut create.options)?;
        let chat_template_kwargs = take_variables(&mut create.options)?;
        let origin = Origin { source, device: create.device, lineage, remote: None, embedding, chat_template_kwargs };
        self.publish_new(&create.name, create.task, staged, origin, is_cancelled)
    }

    /// Version 1 of a new model, if its files are one that runs and does what is asked of it.
    pub(super) fn publish_new(
        &self,
        name: &str,
        task: Option<Task>,
        staged: StagedModel,
        origin: Origin,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<ModelInfo> {
        let checkpoint = checkpoint::inspect(staged.path())?;
        let device = origin.device;
        if let Some(task) = task.filter(|task| *task != checkpoint.task) {
            return Err(invalid(
                "task",
                &task.to_string(),
                &format!("{}, because the model is a {}", checkpoint.task, checkpoint.architecture),
            ));
        }
        if let Some(options) = origin.embedding.as_ref().filter(|_| checkpoint.task != Task::Embed) {
            return Err(options.refused_for(checkpoint.task));
        }
        if origin.chat_template_kwargs.is_some() && (checkpoint.task != Task::Generate || ChatTemplate::load(staged.path())?.is_none()) {
            return Err(invalid(
                CHAT_TEMPLATE_KWARGS,
                "variables",
                "a model that generates and has a chat template among its files beside them",
            ));
        }
        match checkpoint.task {
            Task::Generate => PolicyDecoder::check(checkpoint.gguf.as_ref(), device)?,
            Task::Rerank if DecoderArchitecture::is_score_class(&checkpoint.architecture) => LoadedScorer::check(device)?,
            Task::Embed | Task::Rerank => Encoder::check(&EncoderConfig::load(staged.path())?, device)?,
        }
        if is_cancelled() {
            return Err(Error::Cancelled("CREATE MODEL"));
        }
        self.publish_checkpoint(name, staged, checkpoint, origin, true)
    }

    /// A model that a server has: its version is its options. The server is not asked.
    fn create_remote(&self, create: CreateModel) -> Result<ModelInfo> {
        if let Some(task) = create.task.filter(|task| *task != Task::Generate) {
            let message = format!("task = '{task}': models of openai:// generate; a model whose files are here does that");
            return Err(Error::NotSupported(message));
        }
        if create.device != Device::Auto {
            return Err(invalid("device", &format!("'{}'", create.device), "none: a remote model computes where its server does"));
        }
        let remote = RemoteOptions::read(&create.source, &create.options)?;
        let lineage = source::lineage(&create.source, &create.options);
        let checkpoint = Checkpoint { task: Task::Generate, architecture: "remote".to_owned(), parameter_count: 0, gguf: None };
        let origin = Origin {
            source: create.source,
            device: Device::Auto,
            lineage,
            remote: Some(remote),
            embedding: None,
            chat_template_kwargs: None,
        };
        self.publish_checkpoint(&create.name, self.stage()?, checkpoint, origin, true)
    }

    /// The newest version of `name`, or exactly `name@version`.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], which lists the models there are (or the versions of this one).
    pub fn get(&self, reference: &str) -> Result<ModelInfo> {
        let unknown = |known| Error::UnknownObject { kind: "model", name: reference.to_owned(), known };
        let (name, version) = match reference.split_once('@') {
            Some((name, version)) => (name, Some(version.parse::<u32>().map_err(|_| unknown(Vec::new()))?)),
            None => (reference, None),
        };
        let versions = if check_name(name).is_ok() { self.versions(name)? } else { Vec::new() };
        match version.or_else(|| versions.last().copied()).filter(|version| versions.contains(version)) {
            Some(version) => self.read(name, version),
            None if versions.is_empty() => Err(unknown(self.names()?)),
            None => Err(unknown(versions.iter().map(|version| format!("{name}@{version}")).collect())),
        }
    }

    /// How many versions there are of a model; 0 if there is none of this name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn num_versions(&self, name: &str) -> Result<usize> {
        if check_name(name).is_ok() { Ok(self.versions(name)?.len()) } else { Ok(0) }
    }

    /// Every version of every model, by name and version.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn list(&self) -> Result<Vec<ModelInfo>> {
        let mut models = Vec::new();
        for name in self.names()? {
            for version in self.versions(&name)? {
                models.push(self.read(&name, version)?);
            }
        }
        Ok(models)
    }

    /// Removes all versions of a model. Their numbers are not given again: rollouts and metrics go on naming the versions that made them.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::Io`].
    pub fn drop_model(&self, name: &str) -> Result<()> {
        let directory = self.root.join(name);
        if check_name(name).is_err() || !directory.exists() {
            return Err(Error::UnknownObject { kind: "model", name: name.to_owned(), known: self.names()? });
        }
        let last_version = self.next_version(name)? - 1;
        // What a crash leaves in here is cleaned up by the next open.
        let grave = self.temporary(DROPPED_PREFIX)?;
        let (written, mark) = (grave.path().join("last-version"), self.last_version_mark(name));
        std::fs::write(&written, last_version.to_string()).map_err(|source| io(&written, source))?;
        sync(&written)?;
        std::fs::rename(&written, &mark).map_err(|source| io(&mark, source))?;
        self.remember(name)?;
        // One rename takes the model away whole.
        let target = grave.path().join(name);
        std::fs::rename(&directory, &target).map_err(|source| io(&directory, source))?;
        sync(&self.root)?;
        grave.close().map_err(|source| io(&target, source))
    }

    /// Removes one version of a model that has others. Its number is not given again.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::Io`].
    pub fn drop_version(&self, info: &ModelInfo) -> Result<()> {
        self.remember(&info.name)?;
        let directory = self.root.join(&info.name);
        let last_version = self.next_version(&info.name)? - 1;
        // What a crash leaves in here is cleaned up by the next open.
        let grave = self.temporary(DROPPED_PREFIX)?;
        let (written, mark) = (grave.path().join("last-version"), self.last_version_mark(&info.name));
        std::fs::write(&written, last_version.to_string()).map_err(|source| io(&written, source))?;
        sync(&written)?;
        std::fs::rename(&written, &mark).map_err(|source| io(&mark, source))?;
        sync(&self.root)?;
        let (version, target) = (directory.join(info.version.to_string()), grave.path().join(info.version.to_string()));
        std::fs::rename(&version, &target).map_err(|source| io(&version, source))?;
        sync(&directory)?;
        grave.close().map_err(|source| io(&target, source))
    }

    /// Keeps what the versions of a model say of themselves: what was made with them still names them when it is gone.
    fn remember(&self, name: &str) -> Result<()> {
        let memory = self.root.join(format!("{MEMORY_PREFIX}{name}"));
        std::fs::create_dir_all(&memory).map_err(|source| io(&memory, source))?;
        for version in self.versions(name)? {
            let (from, to) = (self.root.join(name).join(version.to_string()).join(INFO_FILE), memory.join(format!("{version}.json")));
            // A version that is damaged leaves none.
            if std::fs::copy(&from, &to).is_ok() {
                sync(&to)?;
            }
        }
        sync(&memory)
    }

    /// A version of a model that was dropped, or the last one that it had. Its files are gone.
    ///
    /// # Errors
    /// [`Error::UnknownObject`], [`Error::Io`], [`Error::Damaged`].
    pub fn dropped(&self, reference: &str) -> Result<ModelInfo> {
        let unknown = || Error::UnknownObject { kind: "model", name: reference.to_owned(), known: Vec::new() };
        let (name, version) = match reference.split_once('@') {
            Some((name, version)) => (name, Some(version.parse::<u32>().map_err(|_| unknown())?)),
            None => (reference, None),
        };
        check_name(name).map_err(|_| unknown())?;
        let memory = self.root.join(format!("{MEMORY_PREFIX}{name}"));
        let version = match version {
            Some(version) => version,
            None if memory.is_dir() => {
                let files = entries(&memory)?;
                let versions = files.iter().filter_map(|file| file.strip_suffix(".json")?.parse::<u32>().ok());
                versions.max().ok_or_else(unknown)?
            }
            None => return Err(unknown()),
        };
        let path = memory.join(format!("{version}.json"));
        let bytes = std::fs::read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => unknown(),
            _ => io(&path, source),
        })?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Damaged { path, reason: error.to_string() })
    }

    fn last_version_mark(&self, name: &str) -> PathBuf {
        self.root.join(format!("{LAST_VERSION_PREFIX}{name}"))
    }

    /// After the newest version, and after those of dropped models of this name.
    fn next_version(&self, name: &str) -> Result<u32> {
        let mark = self.last_version_mark(name);
        let dropped = match std::fs::read_to_string(&mark) {
            Ok(text) => {
                let damaged = || Error::Damaged { path: mark.clone(), reason: format!("\"{text}\" is no version") };
                text.trim().parse::<u32>().map_err(|_| damaged())?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(source) => return Err(io(&mark, source)),
        };
        Ok(self.versions(name)?.last().copied().unwrap_or(0).max(dropped) + 1)
    }

    /// Whether a new model can have this name: to be asked before hours of downloading, not after.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] with the rule; [`Error::DuplicateObject`].
    pub fn check_new(&self, name: &str) -> Result<()> {
        check_name(name)?;
        if self.versions(name)?.is_empty() { Ok(()) } else { Err(Error::DuplicateObject { kind: "model", name: name.to_owned() }) }
    }

    /// Whether a model can have this name: to be asked before hours of training, not after.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] with the rule.
    pub fn check_name(&self, name: &str) -> Result<()> {
        check_name(name)
    }

    /// A directory on the same disk for the files of a new version.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stage(&self) -> Result<StagedModel> {
        Ok(StagedModel(self.temporary(STAGE_PREFIX)?))
    }

    /// Makes the staged files the next version of `name`, which may be new. `base` is the model that it was trained from.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a bad name, [`Error::Damaged`] if the files are not a whole model, [`Error::Io`].
    pub fn publish(&self, name: &str, staged: StagedModel, base: &ModelInfo, lineage: Json) -> Result<ModelInfo> {
        check_name(name)?;
        let checkpoint = checkpoint::inspect(staged.path())?;
        let source = format!("train://{}", base.reference());
        // A decoder with a score computes on the CPU, wherever the policy does that it was made of.
        let device = if checkpoint.task == base.task { base.device } else { Device::Auto };
        // What it has learned is written by the template in this way.
        let chat_template_kwargs = base.chat_template_kwargs.clone();
        let origin = Origin { source, device, lineage, remote: None, embedding: None, chat_template_kwargs };
        self.publish_checkpoint(name, staged, checkpoint, origin, false)
    }

    fn publish_checkpoint(
        &self,
        name: &str,
        staged: StagedModel,
        checkpoint: Checkpoint,
        origin: Origin,
        must_be_new: bool,
    ) -> Result<ModelInfo> {
        let digest = if origin.remote.is_some() { None } else { Some(weights_digest(staged.path())?) };
        let _taken = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        if must_be_new && !self.versions(name)?.is_empty() {
            return Err(Error::DuplicateObject { kind: "model", name: name.to_owned() });
        }
        let version = self.next_version(name)?;
        let home = self.root.join(name);
        let info = ModelInfo {
            name: name.to_owned(),
            version,
            task: checkpoint.task,
            architecture: checkpoint.architecture,
            directory: home.join(version.to_string()),
            source: origin.source,
            digest,
            parameter_count: checkpoint.parameter_count,
            created_at_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64),
            device: origin.device,
            lineage: origin.lineage,
            remote: origin.remote,
            embedding: origin.embedding,
            chat_template_kwargs: origin.chat_template_kwargs,
            gguf: checkpoint.gguf,
        };
        write_info(&info, staged.path())?;
        sync_tree(staged.path())?;
        std::fs::create_dir_all(&home).map_err(|source| io(&home, source))?;
        std::fs::rename(staged.path(), &info.directory).map_err(|source| io(&info.directory, source))?;
        // The directory has moved: there is nothing left to remove.
        let _ = staged.0.keep();
        sync(&home)?;
        sync(&self.root)?;
        Ok(info)
    }

    fn temporary(&self, prefix: &str) -> Result<TempDir> {
        tempfile::Builder::new().prefix(prefix).tempdir_in(&self.root).map_err(|source| io(&self.root, source))
    }

    /// The models that have a version, in order.
    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for name in entries(&self.root)? {
            if check_name(&name).is_ok() && !self.versions(&name)?.is_empty() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The versions of a model in ascending order; none if there is no such model.
    fn versions(&self, name: &str) -> Result<Vec<u32>> {
        let home = self.root.join(name);
        if !home.exists() {
            return Ok(Vec::new());
        }
        let mut versions: Vec<u32> = entries(&home)?.iter().filter_map(|entry| entry.parse().ok()).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    fn read(&self, name: &str, version: u32) -> Result<ModelInfo> {
        let directory = self.root.join(name).join(version.to_string());
        let path = directory.join(INFO_FILE);
        let bytes = std::fs::read(&path).map_err(|source| io(&path, source))?;
        let info: ModelInfo = serde_json::from_slice(&bytes).map_err(|error| Error::Damaged { path, reason: error.to_string() })?;
        Ok(ModelInfo { directory, ..info })
    }
}

/// Model names are lower-case identifiers; they become directory names, so nothing else may pass.
fn check_name(name: &str) -> Result<()> {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.'));
    if first && rest && name.len() <= NAME_LEN_MAX {
        return Ok(());
    }
    let expected = format!("lower-case letters, digits, '_', '-' and '.', a letter first, at most {NAME_LEN_MAX}");
    Err(invalid("model name", name, &expected))
}

fn write_info(info: &ModelInfo, directory: &Path) -> Result<()> {
    let path = directory.join(INFO_FILE);
    let text = serde_json::to_string_pretty(info).map_err(|error| Error::Internal(format!("describing a model: {error}")))?;
    std::fs::write(&path, text + "\n").map_err(|source| Error::Io { path, source })
}

/// Names in a directory.
fn entries(directory: &Path) -> Result<Vec<String>> {
    let found = std::fs::read_dir(directory).map_err(|source| io(directory, source))?;
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
    found.map(name).collect::<std::io::Result<_>>().map_err(|source| io(directory, source))
}

/// Flushes a directory with all that it holds.
fn sync_tree(directory: &Path) -> Result<()> {
    for name in entries(directory)? {
        let path = directory.join(name);
        if path.is_dir() { sync_tree(&path)? } else { sync(&path)? }
    }
    sync(directory)
}

fn sync(path: &Path) -> Result<()> {
    std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(|source| io(path, source))
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io { path: path.to_owned(), source }
}

fn invalid(name: &str, found: &str, expected: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}
