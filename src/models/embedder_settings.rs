//! How an encoder is used, beside its weights: pooling, normalisation, prompts and the longest text. Its sentence-transformers files say it, and `CREATE
//! MODEL` may say otherwise, since some models tell their prompts in prose only (E5, BGE).

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::config::read_json;
use super::encoder::Pooling;
use super::registry::{ModelInfo, Task};
use super::shown::shown;
use super::tokenizer::TOKENIZER_CONFIG_FILE;
use crate::error::{Error, Result};
use crate::value::Value;

/// The list of what is done to a text, in order.
const MODULES_FILE: &str = "modules.json";
/// The prompts.
const PROMPTS_FILE: &str = "config_sentence_transformers.json";
/// The longest text, and whether its letters become small ones; older versions of sentence-transformers named the file after the architecture.
const TRANSFORMER_FILES: [&str; 3] = ["sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json"];
/// The names that the prompt of passages goes by, in sentence-transformers' order.
const PASSAGE_PROMPTS: [&str; 3] = ["document", "passage", "corpus"];
/// Poolings of sentence-transformers: the flag, the name, and what it is here.
const POOLINGS: [(&str, &str, Option<Pooling>); 6] = [
    ("pooling_mode_mean_tokens", "mean", Some(Pooling::Mean)),
    ("pooling_mode_cls_token", "cls", Some(Pooling::Cls)),
    ("pooling_mode_lasttoken", "lasttoken", Some(Pooling::Last)),
    ("pooling_mode_max_tokens", "max", Some(Pooling::Max)),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", None),
    ("pooling_mode_weightedmean_tokens", "weightedmean", None),
];

/// What the files beside an encoder say about its use. Without them: mean, normalised, no prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderSettings {
    pub pooling: Pooling,
    /// Vectors have length 1.
    pub normalise: bool,
    /// Longest text in tokens; longer ones are cut. `None`: what the encoder can read.
    pub max_tokens: Option<usize>,
    /// Texts are read in small letters, whatever the tokenizer does.
    pub lower_case: bool,
    /// Put before a query.
    pub query_prompt: String,
    /// Put before a passage.
    pub passage_prompt: String,
}

/// What `CREATE MODEL` says in place of an encoder's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddingOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passage_prompt: Option<String>,
}

impl EmbedderSettings {
    /// Reads `modules.json`, the pooling's `config.json`, `sentence_bert_config.json` and `config_sentence_transformers.json`
    /// as far as they are there.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], [`Error::NotSupported`] for a pooling or a module that we do not compute.
    pub fn load(directory: &Path) -> Result<Self> {
        let (pooling, normalise) = match read_optional(&directory.join(MODULES_FILE))? {
            Some(modules) => read_modules(directory, &modules)?,
            None => (Pooling::Mean, true),
        };
        let (query_prompt, passage_prompt) = read_prompts(&read_optional(&directory.join(PROMPTS_FILE))?.unwrap_or_default());
        let transformer = transformer(directory)?;
        let lower_case = transformer.and_then(|transformer| transformer.get("do_lower_case")?.as_bool()).unwrap_or(false);
        Ok(Self { pooling, normalise, max_tokens: max_tokens(directory)?, lower_case, query_prompt, passage_prompt })
    }

    /// Those of a model version.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn of(info: &ModelInfo) -> Result<Self> {
        let EmbeddingOptions { pooling, normalize, query_prompt, passage_prompt } = info.embedding.clone().unwrap_or_default();
        let of_files = Self::load(&info.directory)?;
        Ok(Self {
            pooling: pooling.unwrap_or(of_files.pooling),
            normalise: normalize.unwrap_or(of_files.normalise),
            query_prompt: query_prompt.unwrap_or(of_files.query_prompt),
            passage_prompt: passage_prompt.unwrap_or(of_files.passage_prompt),
            ..of_files
        })
    }

    /// A text as the tokenizer gets it, after its prompt.
    pub fn read_as(&self, prompt: &str, text: &str) -> String {
        let text = format!("{prompt}{text}");
        if self.lower_case { text.to_lowercase() } else { text }
    }
}

impl EmbeddingOptions {
    /// What `WITH (name = value)` may say of a model that embeds, beside task and device.
    pub const NAMES: [&'static str; 4] = ["pooling", "normalize", "query_prompt", "passage_prompt"];

    /// Takes the options of these names out of `options`; `None` if there are none.
    ///
    /// # Errors
    /// [`Error::WrongType`]; [`Error::InvalidParameter`] for an unknown pooling.
    pub fn take(options: &mut Vec<(String, Value)>) -> Result<Option<Self>> {
        let mut taken = Self::default();
        for (name, value) in options.extract_if(.., |(name, _)| Self::NAMES.contains(&name.as_str())) {
            match (name.as_str(), value) {
                ("pooling", Value::Text(text)) => taken.pooling = Some(text.parse()?),
                ("normalize", Value::Bool(normalize)) => taken.normalize = Some(normalize),
                ("query_prompt", Value::Text(text)) => taken.query_prompt = Some(text),
                ("passage_prompt", Value::Text(text)) => taken.passage_prompt = Some(text),
                (name, other) => {
                    let expected = if name == "normalize" { "true or false" } else { "a text" };
                    return Err(Error::WrongType {
                        what: format!("option {name}"),
                        found: other.to_string(),
                        expected: expected.to_owned(),
                    });
                }
            }
        }
        Ok(Some(taken).filter(|taken| *taken != Self::default()))
    }

    /// The error for a model of another task.
    pub(super) fn refused_for(&self, task: Task) -> Error {
        let are_given = [self.pooling.is_some(), self.normalize.is_some(), self.query_prompt.is_some(), self.passage_prompt.is_some()];
        let given = Self::NAMES.into_iter().zip(are_given).find(|(_, is_given)| *is_given);
        let name = given.map_or(Self::NAMES[0], |(name, _)| name).to_owned();
        let known = vec!["task".to_owned(), "device".to_owned()];
        Error::UnknownOption { kind: "option", name, of: format!("CREATE MODEL of a model with task = '{task}'"), known }
    }
}

/// The limit that the model was trained with, else the tokenizer's own.
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`].
pub fn max_tokens(directory: &Path) -> Result<Option<usize>> {
    // transformers writes 1e30 for "no limit", which is not a whole number of 64 bits.
    let limit = |config: Option<Json>, field: &str| config.and_then(|config| usize::try_from(config.get(field)?.as_u64()?).ok());
    match limit(transformer(directory)?, "max_seq_length") {
        Some(trained) => Ok(Some(trained)),
        None => Ok(limit(read_optional(&directory.join(TOKENIZER_CONFIG_FILE))?, "model_max_length")),
    }
}

/// The settings of the module that has the weights.
fn transformer(directory: &Path) -> Result<Option<Json>> {
    let file = TRANSFORMER_FILES.iter().map(|name| directory.join(name)).find(|path| path.exists());
    file.map(|path| read_json(&path)).transpose()
}

fn read_optional(path: &Path) -> Result<Option<Json>> {
    if path.exists() { read_json(path).map(Some) } else { Ok(None) }
}

/// The prompts of queries and of passages; without one of its own either has the default one.
fn read_prompts(config: &Json) -> (String, String) {
    let named = |name: &str| config.get("prompts")?.get(name)?.as_str();
    let default = || config.get("default_prompt_name").and_then(Json::as_str).and_then(named);
    let of_passages: Vec<&str> = PASSAGE_PROMPTS.iter().filter_map(|name| named(name)).collect();
    // Newer versions of sentence-transformers write an empty "document" beside the "passage" of a model.
    let passage = of_passages.iter().find(|prompt| !prompt.is_empty()).or(of_passages.first()).copied();
    let query = named("query").or_else(default).unwrap_or_default();
    (query.to_owned(), passage.or_else(default).unwrap_or_default().to_owned())
}

/// Pooling and normalisation from the list of modules; module types are Python classes, of which the last part counts.
fn read_modules(directory: &Path, modules: &Json) -> Result<(Pooling, bool)> {
    let (mut pooling, mut normalise) = (Pooling::Mean, false);
    for module in modules.as_array().into_iter().flatten() {
        let class = module.get("type").and_then(Json::as_str).unwrap_or_default();
        let path = module.get("path").and_then(Json::as_str).unwrap_or_default();
        match class.rsplit('.').next().unwrap_or_default() {
            "Transformer" => {}
            "Pooling" => pooling = read_pooling(&module_directory(directory, path)?.join("config.json"))?,
            "Normalize" => normalise = true,
            other => return Err(Error::NotSupported(format!("the sentence-transformers module \"{}\" is not supported", shown(other)))),
        }
    }
    Ok((pooling, normalise))
}

/// The folder of a module, which is below the model's.
fn module_directory(directory: &Path, path: &str) -> Result<PathBuf> {
    if Path::new(path).components().all(|component| matches!(component, Component::Normal(_))) {
        return Ok(directory.join(path));
    }
    Err(Error::Damaged { path: directory.join(MODULES_FILE), reason: format!("\"{}\" is no folder of the model", shown(path)) })
}

fn read_pooling(path: &Path) -> Result<Pooling> {
    let config = read_json(path)?;
    let refused = |what: &str| {
        let supported = POOLINGS.iter().filter_map(|(_, name, pooling)| pooling.map(|_| *name)).collect::<Vec<_>>().join(", ");
        Err(Error::NotSupported(format!("{}: {what} is not supported; supported is one of {supported}", path.display())))
    };
    if config.get("include_prompt") == Some(&Json::Bool(false)) {
        return refused("pooling without the tokens of the prompt (include_prompt)");
    }
    let names = pooling_names(&config);
    let name = match names.as_slice() {
        [name] => name,
        several => return refused(&format!("pooling by {} together", shown(&several.join(" and ")))),
    };
    match POOLINGS.iter().find(|(_, known, _)| known == name) {
        Some((_, _, Some(pooling))) => Ok(*pooling),
        _ => refused(&format!("the pooling \"{}\"", shown(name))),
    }
}

/// The poolings that a configuration asks for, whose vectors sentence-transformers puts side by side: by one field, or by a flag for each. Without any it
/// is the mean.
fn pooling_names(config: &Json) -> Vec<&str> {
    match config.get("pooling_mode") {
        Some(Json::String(mode)) => mode.split('+').collect(),
        Some(Json::Array(modes)) => modes.iter().filter_map(Json::as_str).collect(),
        _ => {
            let is_set = |flag: &str| config.get(flag).and_then(Json::as_bool) == Some(true);
            let names: Vec<&str> = POOLINGS.iter().filter(|(flag, ..)| is_set(flag)).map(|(_, name, _)| *name).collect();
            if names.is_empty() { vec!["mean"] } else { names }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The settings of a folder with these files.
    fn settings(files: &[(&str, Json)]) -> Result<EmbedderSettings> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, content) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it is below the folder")).expect("a temporary directory");
            std::fs::write(path, content.to_string()).expect("a temporary file is writable");
        }
        EmbedderSettings::load(directory.path())
    }

    fn modules(classes: &[&str]) -> Json {
        let module = |(index, class): (usize, &&str)| {
            let path = if *class == "Transformer" { String::new() } else { format!("{index}_{class}") };
            json!({ "idx": index, "name": index.to_string(), "path": path, "type": format!("sentence_transformers.models.{class}") })
        };
        Json::Array(classes.iter().enumerate().map(module).collect())
    }

    fn pooling(config: Json) -> Result<Pooling> {
        let files = [("modules.json", modules(&["Transformer", "Pooling"])), ("1_Pooling/config.json", config)];
        Ok(settings(&files)?.pooling)
    }

    fn prompts(config: Json) -> (String, String) {
        let settings = settings(&[("config_sentence_transformers.json", config)]).expect("a configuration");
        (settings.query_prompt, settings.passage_prompt)
    }

    #[test]
    fn without_files_it_is_the_normalised_mean() {
        let expected = EmbedderSettings {
            pooling: Pooling::Mean,
            normalise: true,
            max_tokens: None,
            lower_case: false,
            query_prompt: String::new(),
            passage_prompt: String::new(),
        };
        assert_eq!(settings(&[]).expect("no files"), expected);
    }

    #[test]
    fn poolings_are_read_in_both_forms_and_the_others_are_refused() {
        for (flag, name, expected) in POOLINGS {
            let flags = json!({ "word_embedding_dimension": 64, "pooling_mode_mean_tokens": false, flag: true, "include_prompt": true });
            for config in [flags, json!({ "embedding_dimension": 64, "pooling_mode": name })] {
                match expected {
                    Some(expected) => assert_eq!(pooling(config).expect(name), expected),
                    None => assert!(matches!(pooling(config), Err(Error::NotSupported(message)) if message.contains(name))),
                }
            }
        }
        let refused = [
            json!({ "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true }),
            json!({ "pooling_mode": "mean+max" }),
            json!({ "pooling_mode": ["cls", "mean"] }),
            json!({ "pooling_mode": "median" }),
            json!({ "pooling_mode": "mean", "include_prompt": false }),
        ];
        for config in refused {
            assert!(matches!(pooling(config.clone()), Err(Error::NotSupported(_))), "{config}");
        }
        assert_eq!(pooling(json!({ "word_embedding_dimension": 64 })).expect("the default"), Pooling::Mean);
    }

    #[test]
    fn vectors_are_normalised_if_a_module_says_so() {
        let normalise = |classes: &[&str]| {
            let pooling = json!({ "pooling_mode": "cls" });
            settings(&[("modules.json", modules(classes)), ("1_Pooling/config.json", pooling)]).map(|settings| settings.normalise)
        };
        assert!(normalise(&["Transformer", "Pooling", "Normalize"]).expect("known modules"));
        assert!(!normalise(&["Transformer", "Pooling"]).expect("known modules"));
        assert!(matches!(normalise(&["Transformer", "Pooling", "Dense"]), Err(Error::NotSupported(_))));
    }

    #[test]
    fn a_module_is_a_folder_of_the_model() {
        for path in ["../1_Pooling", "/etc", "1_Pooling/../../x"] {
            let modules = json!([{ "idx": 1, "name": "1", "path": path, "type": "sentence_transformers.models.Pooling" }]);
            assert!(matches!(settings(&[("modules.json", modules)]), Err(Error::Damaged { .. })), "{path}");
        }
    }

    #[test]
    fn prompts_are_found_by_their_names() {
        let owned = |query: &str, passage: &str| (query.to_owned(), passage.to_owned());
        let e5 = json!({ "query": "query: ", "passage": "passage: " });
        assert_eq!(prompts(json!({ "prompts": e5, "default_prompt_name": null })), owned("query: ", "passage: "));
        let both = json!({ "query": "query: ", "document": "", "passage": "passage: " });
        assert_eq!(prompts(json!({ "prompts": both })), owned("query: ", "passage: "));
        let retrieval = json!({ "query": "q: ", "document": "d: ", "passage": "p: ", "clustering": "c: " });
        assert_eq!(prompts(json!({ "prompts": retrieval, "default_prompt_name": "clustering" })), owned("q: ", "d: "));
        let clustering = json!({ "clustering": "c: ", "corpus": "k: " });
        assert_eq!(prompts(json!({ "prompts": clustering, "default_prompt_name": "clustering" })), owned("c: ", "k: "));
        let empty = json!({ "query": "", "document": "", "clustering": "c: " });
        assert_eq!(prompts(json!({ "prompts": empty, "default_prompt_name": "clustering" })), owned("", ""));
        assert_eq!(prompts(json!({ "prompts": {}, "default_prompt_name": "absent" })), owned("", ""));
        assert_eq!(prompts(json!({ "__version__": {} })), owned("", ""));
    }

    #[test]
    fn the_longest_text_is_that_of_the_training() {
        let limit = |files: &[(&str, Json)]| settings(files).expect("files").max_tokens;
        let tokenizer = ("tokenizer_config.json", json!({ "model_max_length": 512 }));
        for name in TRANSFORMER_FILES {
            assert_eq!(limit(&[(name, json!({ "max_seq_length": 128 })), tokenizer.clone()]), Some(128));
        }
        assert_eq!(limit(&[("sentence_bert_config.json", json!({ "max_seq_length": null })), tokenizer]), Some(512));
        assert_eq!(limit(&[("tokenizer_config.json", json!({ "model_max_length": 1e30 }))]), None);
    }

    #[test]
    fn a_text_stands_after_its_prompt() {
        let settings = settings(&[("sentence_bert_config.json", json!({ "do_lower_case": true }))]).expect("files");
        assert_eq!(settings.read_as("Query: ", "Who WROTE Emma?"), "query: who wrote emma?");
        let settings = EmbedderSettings { lower_case: false, ..settings };
        assert_eq!(settings.read_as("Query: ", ""), "Query: ");
    }

    #[test]
    fn options_are_taken_by_their_names() {
        let text = |name: &str, text: &str| (name.to_owned(), Value::Text(text.to_owned()));
        let mut options =
            vec![text("pooling", "last"), text("other", "x"), ("normalize".to_owned(), Value::Bool(false)), text("query_prompt", "q: ")];
        let taken = EmbeddingOptions::take(&mut options).expect("right types").expect("some");
        let expected = EmbeddingOptions {
            pooling: Some(Pooling::Last),
            normalize: Some(false),
            query_prompt: Some("q: ".to_owned()),
            passage_prompt: None,
        };
        assert_eq!((taken, options), (expected, vec![text("other", "x")]));
        assert_eq!(EmbeddingOptions::take(&mut vec![]).expect("nothing"), None);
        let refused = |option: (String, Value)| EmbeddingOptions::take(&mut vec![option]).expect_err("it is wrong");
        assert!(matches!(refused(text("pooling", "median")), Error::InvalidParameter { .. }));
        assert!(matches!(refused(text("normalize", "true")), Error::WrongType { .. }));
        assert!(matches!(refused(("query_prompt".to_owned(), Value::Int(1))), Error::WrongType { .. }));
    }
}
