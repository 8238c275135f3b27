//! What `judge()` and `judge_relevance()` ask and how often: prompts of `rollout.prompts`, in the form that the model reads, once more where the verdict
//! cannot be read.
//!
//! The model is asked as `generate()` asks it, so that what it said is kept: the same case costs nothing a second time.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::StringArray;
use async_trait::async_trait;
use datafusion::error::Result;
use futures::future::try_join_all;
use rolloutdb_catalogs::Catalog;
use rolloutdb_udfs::model::{GenerateOptions, JudgeOptions, JudgedAnswer, JudgedStep, ModelJudge, ModelRuntime, Ruling};

use crate::agent::PolicyClient;
use crate::agent::judging::{self, Subject, TEMPERATURES};
use crate::engine::binding;
use crate::error::Error;
use crate::models::Runtime;

pub fn model_judge(catalog: &Arc<Catalog>, models: &Arc<Runtime>) -> Arc<dyn ModelJudge> {
    Arc::new(PromptedJudge { catalog: Arc::clone(catalog), models: Arc::clone(models) })
}

#[derive(Debug)]
struct PromptedJudge {
    catalog: Arc<Catalog>,
    models: Arc<Runtime>,
}

#[async_trait]
impl ModelJudge for PromptedJudge {
    async fn rule(&self, model: &str, cases: &[JudgedAnswer<'_>], options: &JudgeOptions) -> Result<Vec<Ruling>> {
        let template = self.template(options, Subject::Answer).await?;
        let judge = binding::policy_client(model, &self.models).await?;
        let prompt = |case: &JudgedAnswer<'_>| {
            let golds = plain(judge.as_ref(), case.golds);
            let golds: Vec<&str> = golds.iter().map(AsRef::as_ref).collect();
            judging::answer_prompt(&template, &judge.plain(case.question), &golds, &judge.plain(case.answer))
        };
        let prompts = cases.iter().map(prompt).collect();
        self.ask(judge.as_ref(), prompts, options, |reply| judging::is_correct(reply).map(f64::from)).await
    }

    async fn grade(&self, model: &str, cases: &[JudgedStep<'_>], options: &JudgeOptions) -> Result<Vec<Ruling>> {
        let template = self.template(options, Subject::Relevance).await?;
        let judge = binding::policy_client(model, &self.models).await?;
        let prompt = |case: &JudgedStep<'_>| {
            let passages = plain(judge.as_ref(), case.passages);
            let passages: Vec<&str> = passages.iter().map(AsRef::as_ref).collect();
            judging::relevance_prompt(&template, &judge.plain(case.question), &judge.plain(case.step), &passages)
        };
        let prompts = cases.iter().map(prompt).collect();
        self.ask(judge.as_ref(), prompts, options, judging::score).await
    }
}

impl PromptedJudge {
    async fn template(&self, options: &JudgeOptions, subject: Subject) -> Result<String> {
        let rows = binding::prompt_rows(&self.catalog).await?;
        Ok(judging::template(&rows, &options.prompts, subject)?.to_owned())
    }

    /// One ruling per prompt; `read` finds the verdict in a reply.
    async fn ask(
        &self,
        judge: &dyn PolicyClient,
        prompts: Vec<String>,
        options: &JudgeOptions,
        read: fn(&str) -> Option<f64>,
    ) -> Result<Vec<Ruling>> {
        // Of one version, whatever is made meanwhile.
        let (name, version) = judge.reference();
        let model = format!("{name}@{version}");
        let prompts = prompts.into_iter().map(|prompt| readable(judge, prompt)).collect::<Result<Vec<_>>>()?;
        let mut rulings = vec![Ruling::default(); prompts.len()];
        let mut open: Vec<(usize, &str)> =
            prompts.iter().enumerate().filter_map(|(index, prompt)| Some((index, prompt.as_deref()?))).collect();
        for (seed, temperature) in (0..).zip(TEMPERATURES) {
            let sampling = GenerateOptions { max_tokens: options.max_tokens, temperature, seed, ..GenerateOptions::default() };
            // All at once, so that they share the model's batches or connections.
            let replies = try_join_all(open.iter().map(|(_, prompt)| self.reply(&model, prompt, &sampling))).await?;
            for ((index, _), reply) in open.iter().zip(replies) {
                rulings[*index] = Ruling { verdict: reply.as_deref().and_then(read), reply };
            }
            open.retain(|(index, _)| matches!(rulings[*index], Ruling { verdict: None, reply: Some(_) }));
        }
        Ok(rulings)
    }

    /// None if only the asking tells that the model cannot read the prompt.
    async fn reply(&self, model: &str, prompt: &str, sampling: &GenerateOptions) -> Result<Option<String>> {
        let replies = self.models.generate(model, &StringArray::from_iter_values([prompt]), sampling.clone()).await;
        match replies.map_err(Error::from) {
            Ok(replies) => Ok(replies.iter().flatten().next().map(str::to_owned)),
            Err(Error::ContextFull(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// What is judged, as it may stand in a prompt of the judge: no token that its tokenizer adds is read in it.
fn plain<'a>(judge: &dyn PolicyClient, texts: &[&'a str]) -> Vec<Cow<'a, str>> {
    texts.iter().map(|text| judge.plain(text)).collect()
}

/// The prompt in the model's form; None if the model cannot read it.
fn readable(judge: &dyn PolicyClient, prompt: String) -> Result<Option<String>> {
    let prompt = judge.written(prompt)?;
    Ok(judge.fits(&prompt).then_some(prompt))
}
