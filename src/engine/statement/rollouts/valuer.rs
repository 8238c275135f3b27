//! The models that value nodes besides the policy: a judge, or a process reward model.

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
            let (model, reference) = process_reward_model(session, &options.prm.take().unwrap_or_default()).await?;
            options.prm = Some(reference);
            Ok(Valuer::Prm(model))
        }
    }
}

/// Opens a process reward model, and gives its name with its version.
///
/// # Errors
/// As [`bind`].
pub async fn process_reward_model(session: &Session, name: &str) -> Result<(Arc<dyn ProcessRewardModel>, String)> {
    let models = &session.database().shared.models;
    session.access().require_model(name)?;
    let info = models.find(name, Task::Rerank)?;
    let reference = info.reference();
    let model = models.reranker(&reference).await?;
    Ok((Arc::new(ScoredStep { model }), reference))
}

/// A model that reads two texts as a process reward model: the prompt and the step that followed it. It is a decoder with a score, as ProRAG's model is
/// (arXiv 2601.21912), or a cross-encoder, for which the prompt is a query and the step a passage.
///
/// What is too long for the model is cut from the beginning of the prompt, so that the step which is valued is read whole, after what stands nearest to it.
struct ScoredStep {
    model: Reranker,
}

#[async_trait]
impl ProcessRewardModel for ScoredStep {
    async fn value(&self, prompt: &str, step: &str) -> Result<Option<f64>> {
        let Some(score) = self.model.score_step(prompt.to_owned(), step.to_owned()).await? else { return Ok(None) };
        let value = self.model.scale().value(score);
        if (0.0..=1.0).contains(&value) {
            return Ok(Some(value));
        }
        Err(Error::Internal(format!("model {} gave a step the value {value}", self.model.info().reference())))
    }
}
