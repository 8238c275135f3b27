//! A model from adapters in PEFT's layout: its base, with the adapters added to the weights. transformers and everything here load it as
//! any other model.

use std::path::Path;

use candle_core::Device;
use serde_json::{Value as Json, json};

use super::chat_template::{CHAT_TEMPLATE_KWARGS, take_variables};
use super::config::read_json;
use super::decoder::Decoder;
use super::hub::SCHEME;
use super::lora::{ADAPTER_FILE, CONFIG_FILE};
use super::registry::{CreateModel, ModelFiles, ModelInfo, Origin, Registry, Task};
use super::shown::shown;
use super::source::{self, copy_file};
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};

/// As PEFT wrote them before safetensors: a pickle, which could hold code.
const PICKLE_FILE: &str = "adapter_model.bin";
/// The field of the configuration that names the model that the adapters belong to.
const BASE_FIELD: &str = "base_model_name_or_path";
/// The options of CREATE MODEL from adapters.
const OPTIONS: [&str; 4] = ["task", "device", "base", CHAT_TEMPLATE_KWARGS];

/// The model that adapters are added to.
#[derive(Clone, Copy)]
pub struct AdapterBase<'a> {
    /// `None`: the one that the configuration of the adapters names.
    pub name: Option<&'a str>,
    /// Asked before anything of the base is read.
    pub may_use: &'a dyn Fn(&ModelInfo) -> Result<()>,
}

/// Whether these are the files of adapters: of a directory with such a configuration transformers loads the base and the adapters, whatever
/// else is in it.
pub fn is_adapter(directory: &Path) -> bool {
    directory.join(CONFIG_FILE).is_file()
}

impl Registry {
    /// As [`Self::create_unless`], from the adapters in `files`. They stay beside the weights that they were added to.
    ///
    /// # Errors
    /// As [`Self::create_unless`] and [`Decoder::load_adapter`]; [`Error::InvalidParameter`] if it is not clear which model the base is,
    /// [`Error::UnknownObject`] if there is no such model, [`Error::NotSupported`] for one that is no policy with weights in full
    /// precision; those of `may_use`.
    pub fn create_adapted(
        &self,
        mut create: CreateModel,
        files: ModelFiles<'_>,
        base: AdapterBase<'_>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<ModelInfo> {
        self.check_new(&create.name)?;
        let variables = take_variables(&mut create.options)?;
        if let Some((name, _)) = create.options.first() {
            let of = "CREATE MODEL from adapters".to_owned();
            return Err(Error::UnknownOption { kind: "option", name: name.clone(), of, known: OPTIONS.map(str::to_owned).into() });
        }
        let staged = self.stage()?;
        let adapters = staged.make_adapter_directory()?;
        copy(files, &adapters)?;
        let info = match base.name {
            Some(name) => self.get(name)?,
            None => self.named_base(&adapters)?,
        };
        (base.may_use)(&info)?;
        info.require_trainable("adding adapters to a model")?;
        if info.task != Task::Generate {
            return Err(Error::NotSupported(format!(
                "adapters of {}, whose task is {}, are not supported; its task is to be generate",
                info.reference(),
                info.task
            )));
        }
        add(&info, &adapters, staged.path()).map_err(|error| of_source(error, &adapters, files.directory))?;
        let mut lineage = source::lineage(&create.source, &[]);
        lineage["base"] = json!(info.reference());
        let chat_template_kwargs = variables.or_else(|| info.chat_template_kwargs.clone());
        let origin = Origin { source: create.source, device: create.device, lineage, remote: None, embedding: None, chat_template_kwargs };
        self.publish_new(&create.name, create.task, staged, origin, is_cancelled)
    }

    /// The model that the configuration of adapters names: one that is called so, or the only one that was made from there.
    fn named_base(&self, adapters: &Path) -> Result<ModelInfo> {
        let config = read_json(&adapters.join(CONFIG_FILE))?;
        let named = config.get(BASE_FIELD).and_then(Json::as_str).filter(|named| !named.is_empty());
        let Some(named) = named else { return Err(no_base("none, and adapter_config.json names none")) };
        match self.get(named) {
            Err(Error::UnknownObject { .. }) => {}
            found => return found,
        }
        let mut made: Vec<ModelInfo> = self.list()?.into_iter().filter(|info| is_made_from(&info.source, named)).collect();
        match (made.pop(), made.is_empty()) {
            (Some(info), true) => Ok(info),
            (None, _) => Err(no_base(&format!(
                "none, and no model here is called \"{}\" or was made from it, which adapter_config.json names",
                shown(named)
            ))),
            (Some(last), false) => {
                let all: Vec<String> = made.iter().chain([&last]).map(ModelInfo::reference).collect();
                Err(no_base(&format!("none, and {} were made from \"{}\", which adapter_config.json names", all.join(", "), shown(named))))
            }
        }
    }
}

fn no_base(found: &str) -> Error {
    let expected = "the model that the adapters belong to, as in WITH (base = 'policy')".to_owned();
    Error::InvalidParameter { name: "base".to_owned(), found: found.to_owned(), expected }
}

/// `named`: a directory, or `org/name` of a hub.
fn is_made_from(source: &str, named: &str) -> bool {
    source == named || source.strip_prefix(SCHEME).is_some_and(|hub| hub.split('@').next() == Some(named))
}

fn copy(files: ModelFiles<'_>, target: &Path) -> Result<()> {
    if !files.directory.join(ADAPTER_FILE).exists() && files.directory.join(PICKLE_FILE).exists() {
        let message = format!("{PICKLE_FILE} is not read, because such a file can hold code; save the adapters as {ADAPTER_FILE}");
        return Err(Error::NotSupported(message));
    }
    [CONFIG_FILE, ADAPTER_FILE].iter().try_for_each(|name| copy_file(&files.directory.join(name), &target.join(name), files.open))
}

/// Writes the base with the adapters in its weights to `target`.
fn add(base: &ModelInfo, adapters: &Path, target: &Path) -> Result<()> {
    let mut decoder = Decoder::load(&base.directory, &Device::Cpu, false)?;
    decoder.load_adapter(adapters)?;
    decoder.merge_lora()?;
    decoder.save(target)?;
    Tokenizer::copy_files(&base.directory, target)
}

/// Names the file that the user knows, instead of the copy.
fn of_source(error: Error, copy: &Path, directory: &Path) -> Error {
    match error {
        Error::Damaged { path, reason } => {
            let path = path.strip_prefix(copy).map_or_else(|_| path.clone(), |name| directory.join(name));
            Error::Damaged { path, reason }
        }
        other => other,
    }
}
