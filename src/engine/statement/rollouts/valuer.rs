//! The models that value nodes besides the policy: a judge, or a process reward model.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use crate::agent::judging::{self, Subject};
use crate::agent::{Judge, ProcessRewardModel, SearchOptions, ValueSource, Valuer};
use crate::engine::binding;
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::models::{Reranker, Task};

/// The set of prompts of a judge.
const DEFAULT_PROMPTS: &str = "default";

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
            if options.judge_prompt.is_some() {
                return Ok(Valuer::Judge(Judge::new(judge, options.judge_prompt.as_deref())));
            }
            let prompts = binding::prompt_rows(&session.database().shared.catalog).await?;
            Ok(Valuer::Judge(Judge::new(judge, Some(judging::template(&prompts, DEFAULT_PROMPTS, Subject::Steps)?))))
        }
        ValueSource::Prm => {
            let name = options.prm.take().unwrap_or_default();
            session.access().require_model(&name)?;
            let info = models.find(&name, Task::Rerank)?;
            let reference = info.reference();
            let gives_logits = gives_logits(&info.directory)?;
            let model = models.reranker(&reference).await?;
            options.prm = Some(reference);
            Ok(Valuer::Prm(Arc::new(CrossEncoder { model, gives_logits })))
        }
    }
}

/// A cross-encoder as a process reward model: it reads the prompt and the step together, as a query and a passage.
///
/// ProRAG's model (arXiv 2601.21912) is one too, a language model with one label on the text of prompt and step. What is too long for the
/// model is cut from the beginning of the prompt, so that the step which is valued is read whole, after what stands nearest to it.
struct CrossEncoder {
    model: Reranker,
    gives_logits: bool,
}

#[async_trait]
impl ProcessRewardModel for CrossEncoder {
    async fn value(&self, prompt: &str, step: &str) -> Result<Option<f64>> {
        let Some(score) = self.model.score_step(prompt.to_owned(), step.to_owned()).await?.map(f64::from) else { return Ok(None) };
        let value = if self.gives_logits { 1.0 / (1.0 + (-score).exp()) } else { score };
        if (0.0..=1.0).contains(&value) {
            return Ok(Some(value));
        }
        Err(Error::Internal(format!("model {} gave a step the value {value}", self.model.info().reference())))
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
