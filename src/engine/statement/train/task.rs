//! The method of a TRAIN with its options, checked before any row is read.

use std::path::Path;

use rolloutdb_sql::{Options, Train, TrainMethod};
use serde_json::{Map, Value as Json, json};

use super::input::Row;
use crate::engine::options;
use crate::error::{Error, Result};
use crate::models::{Decoder, DecoderConfig, ModelInfo, Registry, ScoreConfig, ScoredText, Task as ModelTask};
use crate::training::{
    DpoOptions, PreferenceLoss, PrmOptions, RewardLoss, RftOptions, RunOptions, STATEMENT_OPTIONS, Schedule, SftOptions, StoppingMetric,
};
use crate::value::Value;

/// Whether the checkpoints of an earlier run of the statement are taken up.
const RESUME: &str = "resume";
const ON_DIVERGENCE: &str = "on_divergence";
/// Whether adapters are kept beside the model that they were added to.
pub const LORA_KEEP: &str = "lora_keep";

/// How to learn.
pub enum Method {
    Sft(SftOptions),
    /// Supervised fine-tuning of what was good enough.
    Rft(RftOptions),
    Dpo(DpoOptions),
    Prm(PrmOptions),
}

/// What a TRAIN is to do.
pub struct Task {
    pub method: Method,
    pub resume: bool,
    pub on_divergence: OnDivergence,
}

/// What becomes of a run whose loss or gradient is no number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDivergence {
    /// It fails; its last good checkpoint stays.
    #[default]
    Error,
    /// The model has the weights of that checkpoint; without one it fails.
    LastCheckpoint,
}

impl OnDivergence {
    /// # Errors
    /// [`Error::InvalidParameter`], [`Error::WrongType`].
    pub fn of(given: &Options) -> Result<Self> {
        match options::text(given, ON_DIVERGENCE)? {
            None | Some("error") => Ok(Self::Error),
            Some("last_checkpoint") => Ok(Self::LastCheckpoint),
            Some(other) => {
                let expected = "'error' or 'last_checkpoint'".to_owned();
                Err(Error::InvalidParameter { name: ON_DIVERGENCE.to_owned(), found: format!("'{other}'"), expected })
            }
        }
    }
}

impl Task {
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::InvalidParameter`] and [`Error::WrongType`] for options; [`Error::Internal`] for a method without examples.
    pub fn of(train: &Train) -> Result<Self> {
        let mut method = match train.method {
            TrainMethod::Sft => Method::Sft(SftOptions::default()),
            TrainMethod::Rft => Method::Rft(RftOptions::default()),
            TrainMethod::Dpo => Method::Dpo(DpoOptions::default()),
            TrainMethod::Prm => Method::Prm(PrmOptions::default()),
            other @ (TrainMethod::Grpo | TrainMethod::Ppo) => return Err(Error::Internal(format!("TRAIN {other} samples its examples"))),
        };
        for (name, value) in train.options.iter().filter(|(name, _)| !STATEMENT_OPTIONS.contains(name)) {
            method.set(name, &options::value(name, value)?).map_err(with_own_names)?;
        }
        if let Method::Dpo(dpo) = &mut method {
            dpo.finish()?;
        }
        check_validation(method.run(), train.validate.is_some())?;
        method.check_stopping_metric()?;
        check_adapters(&train.options, method.run())?;
        method.run().device.check_training()?;
        let resume = options::boolean(&train.options, RESUME, true)?;
        Ok(Self { method, resume, on_divergence: OnDivergence::of(&train.options)? })
    }

    /// No sequence is longer than what the model reads.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for adapters that the model cannot have, which is found before any row is read.
    pub fn fit(&mut self, config: &DecoderConfig) -> Result<()> {
        let run = self.method.run_mut();
        run.max_length = run.max_length.min(config.max_position_embeddings);
        run.lora.as_ref().map_or(Ok(()), |lora| lora.num_parameters(config).map(|_| ()))
    }
}

/// Whether the base can become what the method makes, and whether the versions of the new model are for that.
///
/// # Errors
/// [`Error::WrongType`].
pub fn check_models(train: &Train, base: &ModelInfo, registry: &Registry) -> Result<()> {
    let makes = if train.method == TrainMethod::Prm { ModelTask::Rerank } else { ModelTask::Generate };
    let wrong = |what: String, found: ModelTask, expected: String| {
        Err(Error::WrongType { what, found: format!("a model with task = '{found}'"), expected })
    };
    if base.task != ModelTask::Generate && !(makes == ModelTask::Rerank && base.has_score()) {
        let or = if makes == ModelTask::Rerank { ", or a reward model that is a decoder" } else { "" };
        let what = format!("model {}, the base of TRAIN {},", base.reference(), train.method);
        return wrong(what, base.task, format!("a policy (task = 'generate'){or}"));
    }
    match registry.get(&train.model) {
        Ok(before) if before.task != makes => {
            let expected = format!("one with task = '{makes}', which TRAIN {} makes; give the new model a name of its own", train.method);
            wrong(format!("model \"{}\", which would get a new version,", train.model), before.task, expected)
        }
        _ => Ok(()),
    }
}

/// Options that ask for evaluations need rows to evaluate on, which is found before any row is read.
///
/// # Errors
/// [`Error::InvalidParameter`].
pub fn check_validation(run: &RunOptions, has_validation: bool) -> Result<()> {
    let asked = [("evaluate_every", run.evaluate_every), ("early_stopping", run.early_stopping)];
    let needs = |name: &str, value: usize, expected: &str| {
        Err(Error::InvalidParameter { name: name.to_owned(), found: value.to_string(), expected: expected.to_owned() })
    };
    match asked.into_iter().find_map(|(name, value)| Some((name, value?))) {
        Some((name, value)) if !has_validation => needs(name, value, "VALIDATE USING (query) with it, which gives the rows to evaluate on"),
        Some((name @ "early_stopping", value)) => needs(name, value, "evaluate_every beside it"),
        _ => match run.early_stopping_metric {
            Some(metric) if run.early_stopping.is_none() => Err(refused_metric(metric, "early_stopping beside it")),
            _ => Ok(()),
        },
    }
}

/// Early stopping compares what the method measures.
///
/// # Errors
/// [`Error::InvalidParameter`].
pub fn check_stopping_metric(run: &RunOptions, measured: &[&str]) -> Result<()> {
    match run.early_stopping_metric {
        Some(metric) if !measured.contains(&metric.name()) => {
            let names: Vec<String> = measured.iter().map(|name| format!("'{name}'")).collect();
            Err(refused_metric(metric, &format!("one of {}, which the validation measures here", names.join(", "))))
        }
        _ => Ok(()),
    }
}

fn refused_metric(metric: StoppingMetric, expected: &str) -> Error {
    let found = format!("'{}'", metric.name());
    Error::InvalidParameter { name: "early_stopping_metric".to_owned(), found, expected: expected.to_owned() }
}

/// Adapters that are to be kept need to be there, which is found before any row is read.
///
/// # Errors
/// [`Error::InvalidParameter`]; [`Error::WrongType`] for what is neither true nor false.
pub fn check_adapters(options: &Options, run: &RunOptions) -> Result<()> {
    if !options::boolean(options, LORA_KEEP, false)? || run.lora.is_some() {
        return Ok(());
    }
    let expected = "lora_rank or another lora_ option beside it: there are no adapters to keep".to_owned();
    Err(Error::InvalidParameter { name: LORA_KEEP.to_owned(), found: "true".to_owned(), expected })
}

/// The options of the statement are among those that it has.
fn with_own_names(error: Error) -> Error {
    match error {
        Error::UnknownOption { kind, name, of, mut known } => {
            known.extend(STATEMENT_OPTIONS.iter().map(|&name| name.to_owned()));
            Error::UnknownOption { kind, name, of, known }
        }
        other => other,
    }
}

impl Method {
    fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match self {
            Self::Sft(sft) => sft.set(name, value),
            Self::Rft(rft) => rft.set(name, value),
            Self::Dpo(dpo) => dpo.set(name, value),
            Self::Prm(prm) => prm.set(name, value),
        }
    }

    pub fn run(&self) -> &RunOptions {
        match self {
            Self::Sft(sft) => &sft.run,
            Self::Rft(rft) => &rft.sft.run,
            Self::Dpo(dpo) => &dpo.run,
            Self::Prm(prm) => &prm.run,
        }
    }

    pub fn run_mut(&mut self) -> &mut RunOptions {
        match self {
            Self::Sft(sft) => &mut sft.run,
            Self::Rft(rft) => &mut rft.sft.run,
            Self::Dpo(dpo) => &mut dpo.run,
            Self::Prm(prm) => &mut prm.run,
        }
    }

    /// Of a prompt's tokens in the loss.
    pub fn prompt_weight(&self) -> f64 {
        match self {
            Self::Sft(sft) => sft.prompt_weight,
            Self::Rft(rft) => rft.sft.prompt_weight,
            Self::Dpo(_) | Self::Prm(_) => 0.0,
        }
    }

    /// Examples per batch; `None`: as many as fit.
    pub fn batch_size(&self) -> Option<usize> {
        match self {
            Self::Sft(sft) => sft.batch_size,
            Self::Rft(rft) => rft.sft.batch_size,
            Self::Dpo(dpo) => Some(dpo.batch_size),
            Self::Prm(prm) => Some(prm.batch_size),
        }
    }

    /// Takes the loss that the rows are for, where no option names one.
    ///
    /// # Errors
    /// As [`PrmOptions::loss_of`] and [`check_stopping_metric`].
    pub fn settle(&mut self, rows: &[Row]) -> Result<()> {
        if let Self::Prm(prm) = self {
            prm.loss = Some(prm.loss_of(rows.first().is_some_and(|row| row.completions.len() == 2))?);
        }
        self.check_stopping_metric()
    }

    /// Before the rows of a reward model are read, whose kind decides, any of its metrics will do.
    fn check_stopping_metric(&self) -> Result<()> {
        let measured: &[&str] = match self {
            Self::Sft(_) | Self::Rft(_) => &["loss", "token_accuracy"],
            Self::Dpo(dpo) if dpo.preference.sft_weight > 0.0 => {
                &["loss", "reward_accuracy", "reward_margin", "chosen_reward", "chosen_logps", "sft_loss"]
            }
            Self::Dpo(_) => &["loss", "reward_accuracy", "reward_margin", "chosen_reward", "chosen_logps"],
            Self::Prm(prm) => match prm.loss.map(RewardLoss::needs_pairs) {
                Some(true) => &["loss", "reward_accuracy", "reward_margin"],
                Some(false) => &["loss", "accuracy"],
                None => &["loss", "reward_accuracy", "reward_margin", "accuracy"],
            },
        };
        check_stopping_metric(self.run(), measured)
    }

    /// The shape of what is trained. `base`: that of the base.
    pub fn shape(&self, base: &DecoderConfig) -> DecoderConfig {
        match self {
            Self::Prm(_) => base.clone().with_score(ScoreConfig::default()),
            _ => base.clone(),
        }
    }

    /// What is trained, as it begins: the base in `directory`, or its blocks under a score. `scored`: how that reads texts.
    ///
    /// # Errors
    /// As [`Decoder::load`].
    pub fn decoder(&self, directory: &Path, scored: ScoredText) -> Result<Decoder> {
        let Self::Prm(prm) = self else { return Decoder::load_trainable(directory) };
        let score = ScoreConfig { pad_token_id: scored.padding(), is_value: prm.loss == Some(RewardLoss::SquaredError) };
        Decoder::load_with_score(directory, score, prm.run.seed)
    }

    /// The options in force by name, defaults too; those that say nothing are left out.
    pub fn in_force(&self) -> Json {
        let mut all = of_run(self.run());
        let mut set = |name: &str, value: Json| all.insert(name.to_owned(), value);
        if let Some(batch_size) = self.batch_size() {
            set("batch_size", json!(batch_size));
        }
        match self {
            Self::Sft(sft) => {
                set("prompt_weight", json!(sft.prompt_weight));
            }
            Self::Rft(rft) => {
                set("prompt_weight", json!(rft.sft.prompt_weight));
                set("min_reward", json!(rft.min_reward));
                if let Some(per_prompt) = rft.per_prompt {
                    set("per_prompt", json!(per_prompt));
                }
                if let Some(min_score) = rft.min_score {
                    set("min_score", json!(min_score));
                }
            }
            Self::Dpo(DpoOptions { preference, .. }) => {
                set("loss", json!(preference.loss.name()));
                set("beta", json!(preference.beta));
                set("length_normalization", json!(preference.normalization.name()));
                set("sft_weight", json!(preference.sft_weight));
                let (name, value) = match preference.loss {
                    PreferenceLoss::Sigmoid { label_smoothing } | PreferenceLoss::Robust { label_smoothing } => {
                        ("label_smoothing", label_smoothing)
                    }
                    PreferenceLoss::SimPo { gamma } => ("gamma", gamma),
                    PreferenceLoss::Hinge | PreferenceLoss::Ipo | PreferenceLoss::Orpo => return Json::Object(all),
                };
                set(name, json!(value));
            }
            Self::Prm(prm) => {
                if let Some(loss) = prm.loss {
                    set("loss", json!(loss.name()));
                }
                set("margin", json!(prm.margin));
            }
        }
        Json::Object(all)
    }
}

/// The options that all methods share, by name.
pub fn of_run(run: &RunOptions) -> Map<String, Json> {
    let schedule = match run.schedule {
        Schedule::Cosine => "cosine",
        Schedule::Linear => "linear",
        Schedule::Constant => "constant",
    };
    let mut all = Map::new();
    let mut set = |name: &str, value: Json| all.insert(name.to_owned(), value);
    set("epochs", json!(run.epochs));
    set("learning_rate", json!(run.learning_rate));
    set("schedule", json!(schedule));
    set("warmup_ratio", json!(run.warmup_ratio));
    set("weight_decay", json!(run.weight_decay));
    set("adam_beta1", json!(run.adam_betas[0]));
    set("adam_beta2", json!(run.adam_betas[1]));
    set("max_grad_norm", json!(run.max_grad_norm));
    set("batch_tokens", json!(run.batch_tokens));
    set("gradient_accumulation", json!(run.gradient_accumulation));
    set("max_length", json!(run.max_length));
    set("long_prompts", json!(run.long_prompts.name()));
    set("shuffle", json!(run.shuffle));
    set("group_by_prefix", json!(run.group_by_prefix));
    set("tree_packing", json!(run.tree_packing));
    set("seed", json!(run.seed));
    set("checkpoint_every", json!(run.checkpoint_every));
    let counts = [
        ("max_steps", run.max_steps),
        ("step_tokens", run.step_tokens),
        ("evaluate_every", run.evaluate_every),
        ("early_stopping", run.early_stopping),
    ];
    for (name, value) in counts {
        if let Some(value) = value {
            set(name, json!(value));
        }
    }
    if let Some(metric) = run.early_stopping_metric {
        set("early_stopping_metric", json!(metric.name()));
    }
    if !run.token_weights.is_empty() {
        set("token_weights", run.token_weights.to_json());
    }
    // With the name of a GPU: another one may round otherwise.
    set("device", json!(run.device.of_training().description()));
    if let Some(recompute) = run.recompute {
        set("recompute", json!(recompute));
    }
    if let Some(lora) = &run.lora {
        set("lora_rank", json!(lora.rank));
        set("lora_alpha", json!(lora.alpha));
        set("lora_targets", json!(lora.targets.join(",")));
        set("lora_rslora", json!(lora.is_rank_stabilized));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::fixture;
    use crate::models::lora::LoraOptions;

    #[test]
    fn adapters_that_the_model_cannot_have_are_refused_before_any_row_is_read() {
        let config = DecoderConfig::load(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model has one");
        let fit = |lora: LoraOptions| {
            let run = RunOptions { lora: Some(lora), max_length: usize::MAX, ..RunOptions::default() };
            let method = Method::Sft(SftOptions { run, ..SftOptions::default() });
            let mut task = Task { method, resume: true, on_divergence: OnDivergence::default() };
            task.fit(&config).map(|()| task.method.run().max_length)
        };
        assert_eq!(fit(LoraOptions::default()).expect("any model has them"), config.max_position_embeddings);
        let targets = ["q_proj", "z_proj"].map(ToOwned::to_owned).into();
        for lora in
            [LoraOptions { rank: config.hidden_size + 1, ..LoraOptions::default() }, LoraOptions { targets, ..LoraOptions::default() }]
        {
            assert!(matches!(fit(lora.clone()), Err(Error::InvalidParameter { .. })), "{lora:?}");
        }
    }
}
