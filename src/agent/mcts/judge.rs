//! The judge: a model that grades the steps so far, with the right answer before it (ReasonRAG's code values nodes so, by GPT-4o).

use std::sync::Arc;
use std::time::Instant;

use super::Question;
use crate::agent::client::{Generated, PolicyClient};
use crate::agent::environment::StepRecord;
use crate::agent::judging::{self, Subject, TEMPERATURES};
use crate::agent::sampling::{Sampling, SeedPath};
use crate::agent::search_tree::Cost;
use crate::error::{Error, Result};

/// Tokens of a verdict: two sentences and a number.
const MAX_TOKENS: usize = 256;

/// A model that says 0 to 100 of the steps so far.
#[derive(Clone)]
pub struct Judge {
    model: Arc<dyn PolicyClient>,
    template: Arc<str>,
}

impl Judge {
    /// `template`: for [`Subject::Steps`], the built-in one if it is None.
    pub fn new(model: Arc<dyn PolicyClient>, template: Option<&str>) -> Self {
        Self { model, template: template.unwrap_or(Subject::Steps.builtin()).into() }
    }

    /// The same judge, asked through what `door` makes of its model.
    pub fn through(&self, door: impl FnOnce(&Arc<dyn PolicyClient>) -> Arc<dyn PolicyClient>) -> Self {
        Self { model: door(&self.model), template: Arc::clone(&self.template) }
    }

    /// What it is asked by.
    pub fn template(&self) -> &str {
        &self.template
    }

    /// The value in [0, 1] of the last step, given all before it; None if two replies could not be read. Beside it what was spent.
    pub(super) async fn value(&self, question: &Question, steps: &[&StepRecord], seeds: SeedPath) -> Result<(Option<f64>, Cost)> {
        let prompt = self.model.written(self.prompt(question, steps))?;
        if !self.model.fits(&prompt) {
            return Ok((None, Cost::default()));
        }
        let mut cost = Cost::default();
        for (attempt, temperature) in (0..).zip(TEMPERATURES) {
            let sampling = Sampling { temperature, max_tokens: MAX_TOKENS, seed: seeds.rollout(attempt).seed(), ..Sampling::default() };
            let start = Instant::now();
            let reply = match self.model.generate(&prompt, &sampling).await {
                // Only the asking told that it cannot read the prompt.
                Err(Error::ContextFull(_)) => break,
                reply => reply?,
            };
            cost.add(cost_of(&reply, start));
            if let Some(value) = judging::score(&reply.text) {
                return Ok((Some(value), cost));
            }
        }
        Ok((None, cost))
    }

    fn prompt(&self, question: &Question, steps: &[&StepRecord]) -> String {
        // As passages are in prompts of policies: no token that the judge's tokenizer adds is in what is judged.
        let plain = |text: &str| self.model.plain(text).into_owned();
        let asked = plain(question.question.as_deref().unwrap_or_default());
        let golden_answers: Vec<String> = question.golden_answers.iter().map(|golden| plain(golden)).collect();
        let responses: Vec<String> = steps.iter().map(|step| plain(&step.response)).collect();
        let steps = steps.iter().zip(&responses).map(|(step, response)| (step.action.as_str(), response.as_str()));
        judging::steps_prompt(&self.template, &asked, &golden_answers, steps)
    }
}

fn cost_of(reply: &Generated, start: Instant) -> Cost {
    Cost {
        prompt_tokens: reply.prompt_tokens,
        cached_tokens: reply.cached_tokens,
        generated_tokens: reply.generated_tokens,
        price: reply.cost,
        latency_ms: start.elapsed().as_secs_f64() * 1e3,
    }
}
