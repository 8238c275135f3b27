//! The models that value nodes besides the policy: a judge, or a process reward model.

use std::path::Path;
use std::sync::Arc;

use arrow::array::StringArray;
use async_trait::async_trait;
use rolloutdb_udfs::model::ModelRuntime;

use crate::agent::{Judge, ProcessRewardModel, SearchOptions, ValueSource, Valuer};
use crate::engine::binding;
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::models::{Runtime, Task};

/// Opens the model that `options.value` asks for, and puts its version into the options.
///
/// # Errors
/// [`Error::UnknownObject`], [`Error::WrongType`] for a model of another task, [`Error::InsufficientPrivilege`]; those of loading it.
pub async fn bind(session: &Session, options: &mut SearchOptions) -> Result<Valuer> {
    let models = &session.database().shared.models;
    match options.value {
        ValueSource::Simulate => Ok(Valuer::Policy),
        ValueSource::Judge => {
            let name = options.judge.take().unwrap_or_default();
            session.access().require_model(&name)?;
            let judge = binding::policy_client(&name, models).await?;
            let (name, version) = judge.reference();
            options.judge = Some(format!("{name}@{version}"));
            Ok(Valuer::Judge(Judge::new(judge, options.judge_prompt.as_deref())))
        }
        ValueSource::Prm => {
            let name = options.prm.take().unwrap_or_default();
            session.access().require_model(&name)?;
            let info = models.find(&name, Task::Rerank)?;
            let reference = info.reference();
            let gives_logits = gives_logits(&info.directory)?;
            // Whether it can be loaded is known before the first tree.
            models.reranker(&reference).await?;
            options.prm = Some(reference.clone());
            Ok(Valuer::Prm(Arc::new(CrossEncoder { models: Arc::clone(models), reference, gives_logits })))
        }
    }
}

/// A cross-encoder as a process reward model: it reads the prompt and the step together, as a query and a passage.
///
/// ProRAG's model (arXiv 2601.21912) is one too, a language model with one label on the text of prompt and step. What is too long for the
/// model is cut from the longer of the two, the prompt, so that the step which is valued is always read.
struct CrossEncoder {
    models: Arc<Runtime>,
    reference: String,
    gives_logits: bool,
}

#[async_trait]
impl ProcessRewardModel for CrossEncoder {
    async fn value(&self, prompt: &str, step: &str) -> Result<f64> {
        let text = |text: &str| StringArray::from_iter_values([text]);
        let scores = self.models.rerank(&self.reference, &text(prompt), &text(step)).await?;
        let score = scores.value(0);
        let value = if self.gives_logits { 1.0 / (1.0 + (-score).exp()) } else { score };
        if (0.0..=1.0).contains(&value) {
            return Ok(value);
        }
        Err(Error::Internal(format!("model {} gave a step the value {value}", self.reference)))
    }
}

/// Whether the model's scores are logits: sentence-transformers' cross-encoders have a sigmoid unless their `config.json` names the identity.
fn gives_logits(directory: &Path) -> Result<bool> {
    let path = directory.join("config.json");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let config: serde_json::Value = serde_json::from_str(&text).map_err(|error| Error::Damaged { path, reason: error.to_string() })?;
    let named =
        config["sentence_transformers"]["activation_fn"].as_str().or_else(|| config["sbert_ce_default_activation_function"].as_str());
    Ok(named.is_some_and(|class| class.rsplit('.').next() == Some("Identity")))
}
