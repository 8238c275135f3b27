//! The thread of a training: tokens, adapters, the reference's log-probabilities, the steps. It goes on for a moment when its statement is cancelled, and
//! leaves a checkpoint.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value as Json;

use super::checkpoints::{Claim, Identity, Trainings};
use super::examples::{BaseTokenizer, Cut, Examples};
use super::input::Row;
use super::reference::Reference;
use super::task::{Method, OnDivergence};
use crate::error::{Error, Result};
use crate::models::training_device::of_training;
use crate::models::{Decoder, TrainingGpu};
use crate::training::{
    Critic, DROPPED_EXAMPLES, Recovered, RunOptions, StepMetrics, Stop, TRUNCATED_DOCUMENTS, TRUNCATED_PROMPTS, Trained, Warnings, recover,
    train_dpo_validated, train_prm_validated, train_sft_validated,
};

/// A training that is ready to run.
pub struct Training {
    /// Of the base.
    pub directory: PathBuf,
    pub method: Method,
    /// Take up the checkpoint of an earlier run.
    pub resume: bool,
    pub on_divergence: OnDivergence,
    pub rows: Vec<Row>,
    pub validation: Vec<Row>,
    /// What it hangs on beside its examples.
    pub identity: Json,
    pub trainings: Arc<Trainings>,
    /// Told here, since an event of a statement that was cancelled reaches nobody.
    pub warnings: Warnings,
}

/// What the thread tells while it runs.
pub enum Event {
    /// Of the rows of both queries, once, before the first step.
    Prepared(Counts),
    /// The run is known by its examples now, and nobody else is at work on it. Without this its metrics are stored when the model is there.
    Claimed(Claim),
    /// Reference log-probabilities: pairs done, pairs in all.
    Reference(usize, usize),
    Step(StepMetrics),
}

/// The weights of a training that is done, with adapters if these were trained.
pub struct Made {
    pub decoder: Decoder,
    pub trained: Trained,
    /// Where it diverged; the weights are those of a checkpoint before.
    pub divergence: Option<Divergence>,
    pub counts: Counts,
    /// Held until the model is there, so that its checkpoints go with nobody at work on them.
    pub claim: Claim,
}

/// Where a run met what is no number, and where it was put back to.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence {
    pub step: usize,
    /// The loss or the like, and its value.
    pub what: String,
    /// The step of the checkpoint.
    pub checkpoint: usize,
}

/// Examples by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// That were learned from.
    pub examples: usize,
    pub validation_examples: usize,
    /// Of both kinds, whose prompts lost their beginning.
    pub truncated: usize,
    /// Of both kinds, whose prompts lost the beginning of their documents.
    pub documents_truncated: usize,
    pub dropped: usize,
    /// Pairs of both kinds for which the query gave what the reference says, where it gave that for some.
    pub references_taken: Option<usize>,
}

/// The examples of both queries.
pub struct Prepared {
    pub examples: Examples,
    pub validation: Examples,
    /// Of the examples.
    pub cut: Cut,
    pub counts: Counts,
}

impl Prepared {
    /// # Errors
    /// As [`Examples::of`].
    pub fn of(rows: &[Row], validation: &[Row], method: &Method, base: &BaseTokenizer, stop: &Stop) -> Result<Self> {
        let gives_reference = rows.iter().chain(validation).any(|row| row.reference.is_some());
        let (examples, cut) = Examples::of(rows, method, base, stop)?;
        let (validation, cut_too) = Examples::of(validation, method, base, stop).map_err(of_validation)?;
        let counts = Counts {
            examples: examples.len(),
            validation_examples: validation.len(),
            truncated: cut.truncated + cut_too.truncated,
            documents_truncated: cut.documents + cut_too.documents,
            dropped: cut.dropped + cut_too.dropped,
            references_taken: gives_reference.then(|| examples.num_references() + validation.num_references()),
        };
        Ok(Self { examples, validation, cut, counts })
    }
}

/// What a query as a whole lacks names no row: the one that is meant is named here.
fn of_validation(error: Error) -> Error {
    match error {
        Error::NotReady(message) => Error::NotReady(format!("VALIDATE: {message}")),
        other => other,
    }
}

impl Training {
    /// Blocks until the training is done. `stop` ends it between two batches.
    ///
    /// # Errors
    /// Of rows that cannot be learned and of the training; [`Error::Cancelled`]; [`Error::InUse`] if another run of the same is at work.
    pub fn run(self, stop: &Stop, tell: &dyn Fn(Event)) -> Result<Made> {
        let gpu = TrainingGpu::open(self.method.run().device)?;
        self.run_on(gpu.as_ref(), stop, tell)
    }

    /// `gpu`: none is the CPU.
    fn run_on(self, gpu: Option<&TrainingGpu>, stop: &Stop, tell: &dyn Fn(Event)) -> Result<Made> {
        let Self { directory, mut method, resume, on_divergence, rows, validation: measured, identity, trainings, warnings } = self;
        let base = BaseTokenizer::load(&directory)?;
        let Prepared { examples, validation, cut, mut counts } = Prepared::of(&rows, &measured, &method, &base, stop)?;
        drop((rows, measured));
        tell(Event::Prepared(counts));

        let mut identity = Identity::new(&identity);
        examples.identify(&mut identity);
        validation.identify(&mut identity);
        let claim = trainings.claim(identity.fingerprint(), stop)?;
        if !resume {
            claim.clear()?;
        }
        tell(Event::Claimed(claim.clone()));
        let run = method.run_mut();
        (run.stop, run.checkpoints, run.warnings) = (stop.clone(), Some(claim.checkpoints()), warnings);
        run.first_metrics = metrics_of(cut);

        let (eos_token_id, num_set_aside) = (base.tokenizer.eos_token_id(), Cell::new(0));
        let mut decoder = method.decoder(&directory, base.scored)?;
        if let Some(lora) = &method.run().lora {
            decoder.attach_lora(lora)?;
        }
        let resumed_at = claim.checkpoints().last_step().unwrap_or(0);
        let told = Told { eos_token_id, num_set_aside: &num_set_aside, stop, tell };
        let result = on_gpu(gpu, &mut decoder, |decoder| train(decoder, &method, examples, validation, told));
        let (trained, divergence) = recovered(result, on_divergence, resumed_at, &decoder, None, method.run())?;
        counts.references_taken = counts.references_taken.map(|taken| taken.saturating_sub(num_set_aside.get()));
        Ok(Made { decoder, trained, divergence, counts, claim })
    }
}

/// What the first step tells of prompts that are too long; nothing, if there are none.
fn metrics_of(Cut { truncated, documents, dropped }: Cut) -> Vec<(&'static str, f64)> {
    let all = [(TRUNCATED_PROMPTS, truncated), (TRUNCATED_DOCUMENTS, documents), (DROPPED_EXAMPLES, dropped)];
    all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, count as f64)).collect()
}

/// What a run gave that began, or went on, after step `resumed_at`; where it diverged, and the statement wants that, the decoder as it was at the last good checkpoint.
///
/// # Errors
/// That of `result`; of a checkpoint that cannot be read.
pub fn recovered(
    result: Result<Trained>,
    on_divergence: OnDivergence,
    resumed_at: usize,
    decoder: &Decoder,
    critic: Option<&Critic>,
    run: &RunOptions,
) -> Result<(Trained, Option<Divergence>)> {
    let error = match result {
        Ok(trained) => return Ok((trained, None)),
        Err(error) => error,
    };
    let Error::Diverged { step, what, value, .. } = error else { return Err(error) };
    if on_divergence == OnDivergence::Error {
        return Err(error);
    }
    let Some(Recovered { step: checkpoint, best_step }) = recover(decoder, critic, run)? else { return Err(error) };
    let trained = Trained { num_steps: checkpoint, resumed_at, best_step, stopped_early: false };
    Ok((trained, Some(Divergence { step, what: format!("{what} is {value}"), checkpoint })))
}

/// Trains a copy of the decoder on the GPU, if there is one, and takes over what it has learned.
pub fn on_gpu<T>(gpu: Option<&TrainingGpu>, decoder: &mut Decoder, train: impl FnOnce(&mut Decoder) -> Result<T>) -> Result<T> {
    let Some(gpu) = gpu else { return train(decoder) };
    let mut copy = gpu.copy_of(decoder)?;
    let trained = train(&mut copy).map_err(of_training)?;
    decoder.take_parameters(&copy)?;
    Ok(trained)
}

/// What a run knows of its base, and whom it tells how it goes.
struct Told<'a> {
    eos_token_id: Option<u32>,
    num_set_aside: &'a Cell<usize>,
    stop: &'a Stop,
    tell: &'a dyn Fn(Event),
}

fn train(decoder: &mut Decoder, method: &Method, examples: Examples, validation: Examples, told: Told<'_>) -> Result<Trained> {
    let Told { eos_token_id, num_set_aside, stop, tell } = told;
    // Ended by the flag, here or between two batches, a run leaves a checkpoint of its whole steps.
    let mut observe = |step: &StepMetrics| {
        tell(Event::Step(step.clone()));
        stop.check()
    };
    match (method, examples, validation) {
        (Method::Sft(options), Examples::Sft(examples), Examples::Sft(validation)) => {
            train_sft_validated(decoder, &examples, &validation, options, &mut observe)
        }
        (Method::Rft(options), Examples::Sft(examples), Examples::Sft(validation)) => {
            train_sft_validated(decoder, &examples, &validation, &options.sft, &mut observe)
        }
        (Method::Dpo(options), Examples::Dpo(pairs, given), Examples::Dpo(validation, validation_given)) => {
            // Of both before the first step: they are of the base.
            let num_pairs = pairs.len() + validation.len();
            let reference = Reference { options, num_pairs, eos_token_id, num_set_aside, stop, tell };
            let mut of_pairs = reference.of_run(decoder, (&pairs, given), (&validation, validation_given))?;
            let of_validation = of_pairs.split_off(pairs.len());
            train_dpo_validated(decoder, &of_pairs, &pairs, (of_validation.as_slice(), validation.as_slice()), options, &mut observe)
        }
        (Method::Prm(options), Examples::Prm(examples), Examples::Prm(validation)) => {
            train_prm_validated(decoder, &examples, &validation, options, &mut observe)
        }
        _ => Err(Error::Internal("a training has examples of another method".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use candle_core::DType;
    use serde_json::json;

    use super::super::input::Content;
    use super::*;
    use crate::fixtures::fixture;
    use crate::models::LoraOptions;
    use crate::models::ops::Arithmetic;
    use crate::training::{DpoOptions, SftOptions};

    fn row(weight: f32) -> Row {
        let text = |text: &str| Content::Text(text.to_owned());
        Row { prompt: text("Who?"), completions: vec![text("He.")], weight, reward: 0.0, score: 0.0, label: 0.0, reference: None }
    }

    fn training(root: &Path, run: RunOptions, validation: Vec<Row>) -> Training {
        Training {
            directory: fixture("../../src/models/builtin/tinyhop"),
            method: Method::Sft(SftOptions { run, ..SftOptions::default() }),
            resume: true,
            on_divergence: OnDivergence::Error,
            rows: vec![row(1.0)],
            validation,
            identity: json!({}),
            trainings: Arc::new(Trainings::new(root)),
            warnings: Warnings::default(),
        }
    }

    /// Its second step has the whole learning rate, which spoils the weights; the first one, of the warm-up, has none.
    fn diverging(checkpoint_every: usize) -> RunOptions {
        RunOptions { epochs: 5.0, learning_rate: 1e15, warmup_ratio: 0.2, checkpoint_every, ..RunOptions::default() }
    }

    #[test]
    fn a_run_that_diverges_leaves_its_last_good_checkpoint_and_may_be_made_a_model_of() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let steps = Cell::new(0);
        let count = |event: Event| {
            if let Event::Step(step) = event {
                steps.set(step.step);
            }
        };
        let failed = training(data.path(), diverging(1), vec![]).run(&Stop::default(), &count);
        let Err(Error::Diverged { step: 2, checkpoint: Some(1), .. }) = failed else { panic!("{:?}", failed.err()) };
        assert_eq!(steps.get(), 1, "the step that spoilt the weights is none");
        let again = Training { on_divergence: OnDivergence::LastCheckpoint, ..training(data.path(), diverging(1), vec![]) };
        let made = again.run(&Stop::default(), &|_| {}).expect("the checkpoint is there");
        assert_eq!(made.trained.num_steps, 1);
        assert!(matches!(&made.divergence, Some(Divergence { step: 2, checkpoint: 1, .. })), "{:?}", made.divergence);
        let base = Decoder::load_trainable(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model is one");
        for (name, weights) in made.decoder.parameters() {
            let difference =
                (weights.as_tensor() - base.parameters()[name].as_tensor()).and_then(|it| it.abs()?.max_all()?.to_scalar::<f32>());
            assert_eq!(difference.expect("of one shape"), 0.0, "{name}: a warm-up begins with the learning rate 0");
        }
    }

    /// As on a GPU: the copy that was trained is gone, and the decoder that becomes a model has what it learned.
    #[test]
    fn a_run_on_a_gpu_leaves_its_weights_in_host_memory() {
        let run = || RunOptions { epochs: 3.0, learning_rate: 1e-4, ..RunOptions::default() };
        let lora = |rank| LoraOptions { rank, ..LoraOptions::default() };
        for options in [run(), RunOptions { lora: Some(lora(2)), ..run() }] {
            let trained = |gpu: Option<TrainingGpu>| {
                let data = tempfile::tempdir().expect("a temporary directory");
                let training = training(data.path(), options.clone(), vec![row(1.0)]);
                training.run_on(gpu.as_ref(), &Stop::default(), &|_| {}).expect("finite numbers").decoder
            };
            let (expected, found) = (trained(None), trained(Some(TrainingGpu::on_cpu(DType::F32))));
            assert_eq!(found.arithmetic(), Arithmetic::Fused);
            let directory = tempfile::tempdir().expect("a temporary directory");
            found.save(directory.path()).expect("its weights are f32 in host memory");
            for (name, expected) in expected.parameters() {
                let found = found.parameters()[name].as_tensor();
                let difference = (found - expected.as_tensor()).and_then(|it| it.sqr()?.mean_all()?.sqrt()?.to_scalar::<f32>());
                // Three steps of 1e-4.
                assert!(difference.expect("of one shape") < 1e-5, "{name}");
            }
        }
    }

    #[test]
    fn a_run_that_diverges_before_its_first_good_checkpoint_makes_no_model() {
        let data = tempfile::tempdir().expect("a temporary directory");
        for checkpoint_every in [2, 0] {
            let run =
                Training { on_divergence: OnDivergence::LastCheckpoint, ..training(data.path(), diverging(checkpoint_every), vec![]) };
            let failed = run.run(&Stop::default(), &|_| {});
            assert!(matches!(failed, Err(Error::Diverged { step: 2, checkpoint: None, .. })), "{:?}", failed.err());
        }
    }

    /// Stopped after its first checkpoint, a DPO goes on with the reference that it had, and comes to the weights of a run in one go.
    #[test]
    fn a_run_that_goes_on_has_its_reference() {
        let pair = |prompt: &str| Row {
            completions: ["He.", "She."].map(|text| Content::Text(text.to_owned())).to_vec(),
            prompt: Content::Text(prompt.to_owned()),
            ..row(1.0)
        };
        let train = |root: &Path, stop_at: usize| {
            let run = RunOptions { epochs: 4.0, learning_rate: 1e-4, checkpoint_every: 1, ..RunOptions::default() };
            let method = Method::Dpo(DpoOptions { run: run.clone(), batch_size: 2, ..DpoOptions::default() });
            let rows = vec![pair("Who?"), pair("Who else?")];
            let training = Training { method, rows, validation: vec![pair("And who?")], ..training(root, run, vec![]) };
            let (stop, num_scored) = (Stop::default(), Cell::new(0));
            let made = training.run(&stop, &|event| match event {
                Event::Reference(done, of) => {
                    assert_eq!(of, 3);
                    num_scored.set(done);
                }
                Event::Step(step) if step.step == stop_at => stop.stop(),
                _ => {}
            });
            (made, num_scored.get())
        };
        let (stopped, whole) = (tempfile::tempdir().expect("a temporary directory"), tempfile::tempdir().expect("a temporary directory"));
        let (made, num_scored) = train(stopped.path(), 2);
        assert!(matches!(made, Err(Error::Cancelled(_))), "{:?}", made.err());
        assert_eq!(num_scored, 3);
        let (made, num_scored) = train(stopped.path(), usize::MAX);
        assert_eq!(num_scored, 0, "it is kept");
        let (resumed, (expected, num_scored)) = (made.expect("it goes on"), train(whole.path(), usize::MAX));
        let expected = expected.expect("nothing stops it");
        assert_eq!((resumed.trained.resumed_at, expected.trained.resumed_at, num_scored), (2, 0, 3));
        for (name, weights) in expected.decoder.parameters() {
            let numbers =
                |tensor: &candle_core::Tensor| tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("weights are f32");
            assert_eq!(numbers(weights.as_tensor()), numbers(resumed.decoder.parameters()[name].as_tensor()), "{name}");
        }
    }

    #[test]
    fn a_validation_that_nothing_counts_of_is_refused_by_its_name() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let made = training(data.path(), RunOptions::default(), vec![row(0.0)]).run(&Stop::default(), &|_| {});
        let error = made.err().expect("its only row has no weight");
        assert!(matches!(&error, Error::NotReady(message) if message.starts_with("VALIDATE: at least one row")), "{error}");
    }
}
