//! The thread of a training: tokens, adapters, the reference's log-probabilities, the steps. It goes on for a moment when its statement is cancelled, and
//! leaves a checkpoint.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value as Json;

use super::checkpoints::{Claim, Identity, Trainings};
use super::examples::{BaseTokenizer, Examples};
use super::input::Row;
use super::task::Method;
use crate::error::{Error, Result};
use crate::models::Decoder;
use crate::training::{
    DpoExample, DpoOptions, Kept, ReferenceLogps, StepMetrics, Stop, Trained, Warnings, reference_logps, train_dpo_validated,
    train_prm_validated, train_sft_validated,
};

/// A training that is ready to run.
pub struct Training {
    /// Of the base.
    pub directory: PathBuf,
    pub method: Method,
    /// Take up the checkpoint of an earlier run.
    pub resume: bool,
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
    Kept(Kept),
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
    pub counts: Counts,
    /// Held until the model is there, so that its checkpoints go with nobody at work on them.
    pub claim: Claim,
}

/// Examples by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// That were learned from.
    pub examples: usize,
    pub validation_examples: usize,
    /// Of both kinds.
    pub truncated: usize,
    pub dropped: usize,
}

/// The examples of both queries.
pub struct Prepared {
    pub examples: Examples,
    pub validation: Examples,
    pub counts: Counts,
}

impl Prepared {
    /// # Errors
    /// As [`Examples::of`].
    pub fn of(rows: &[Row], validation: &[Row], method: &Method, base: &BaseTokenizer, stop: &Stop) -> Result<Self> {
        let (examples, kept) = Examples::of(rows, method, base, stop)?;
        let (validation, kept_too) = Examples::of(validation, method, base, stop).map_err(of_validation)?;
        let counts = Counts {
            examples: examples.len(),
            validation_examples: validation.len(),
            truncated: kept.num_truncated + kept_too.num_truncated,
            dropped: kept.num_dropped + kept_too.num_dropped,
        };
        Ok(Self { examples, validation, counts })
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
        let Self { directory, mut method, resume, rows, validation: measured, identity, trainings, warnings } = self;
        let base = BaseTokenizer::load(&directory)?;
        let Prepared { examples, validation, counts } = Prepared::of(&rows, &measured, &method, &base, stop)?;
        drop((rows, measured));
        tell(Event::Kept(Kept { num_truncated: counts.truncated, num_dropped: counts.dropped }));

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

        let mut decoder = method.decoder(&directory, base.scored)?;
        if let Some(lora) = &method.run().lora {
            decoder.attach_lora(lora)?;
        }
        let trained = train(&mut decoder, &method, examples, validation, stop, tell).inspect_err(|error| {
            if matches!(error, Error::Diverged { .. }) {
                // The same run would diverge again, and one with other options has another folder. What cannot be removed goes when it is old.
                let _ = claim.clear();
            }
        })?;
        Ok(Made { decoder, trained, counts, claim })
    }
}

fn train(
    decoder: &mut Decoder,
    method: &Method,
    examples: Examples,
    validation: Examples,
    stop: &Stop,
    tell: &dyn Fn(Event),
) -> Result<Trained> {
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
            let reference = Reference { options, num_pairs: pairs.len() + validation.len(), stop, tell };
            // Both before the first step: they are of the base.
            let of_pairs = reference.logps(decoder, &pairs, given, 0)?;
            let of_validation = reference.logps(decoder, &validation, validation_given, pairs.len())?;
            train_dpo_validated(decoder, &of_pairs, &pairs, (of_validation.as_slice(), validation.as_slice()), options, &mut observe)
        }
        (Method::Prm(options), Examples::Prm(examples), Examples::Prm(validation)) => {
            train_prm_validated(decoder, &examples, &validation, options, &mut observe)
        }
        _ => Err(Error::Internal("a training has examples of another method".to_owned())),
    }
}

/// The reference of a DPO: the base, before its first step.
struct Reference<'a> {
    options: &'a DpoOptions,
    /// In both queries.
    num_pairs: usize,
    stop: &'a Stop,
    tell: &'a dyn Fn(Event),
}

impl Reference<'_> {
    /// Those that the query gave, or else those of the decoder as it is. `num_before`: pairs that are done already.
    fn logps(
        &self,
        decoder: &Decoder,
        pairs: &[DpoExample],
        given: Option<Vec<ReferenceLogps>>,
        num_before: usize,
    ) -> Result<Vec<ReferenceLogps>> {
        if pairs.is_empty() || !self.options.preference.loss.needs_reference() {
            return Ok(vec![ReferenceLogps { chosen: 0.0, rejected: 0.0 }; pairs.len()]);
        }
        if let Some(given) = given {
            return Ok(given);
        }
        reference_logps(decoder, pairs, self.options, &mut |done, _| {
            (self.tell)(Event::Reference(num_before + done, self.num_pairs));
            self.stop.check()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use serde_json::json;

    use super::super::input::Content;
    use super::*;
    use crate::fixtures::fixture;
    use crate::training::{RunOptions, SftOptions};

    fn row(weight: f32) -> Row {
        let text = |text: &str| Content::Text(text.to_owned());
        Row { prompt: text("Who?"), completions: vec![text("He.")], weight, reward: 0.0, score: 0.0, label: 0.0, reference: None }
    }

    fn training(root: &Path, run: RunOptions, validation: Vec<Row>) -> Training {
        Training {
            directory: fixture("../../src/models/builtin/tinyhop"),
            method: Method::Sft(SftOptions { run, ..SftOptions::default() }),
            resume: true,
            rows: vec![row(1.0)],
            validation,
            identity: json!({}),
            trainings: Arc::new(Trainings::new(root)),
            warnings: Warnings::default(),
        }
    }

    #[test]
    fn a_run_that_diverges_leaves_no_checkpoints() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let run = RunOptions { epochs: 5.0, learning_rate: 1e30, warmup_ratio: 0.0, checkpoint_every: 1, ..RunOptions::default() };
        let left = || std::fs::read_dir(data.path()).expect("it is readable").count();
        let left_before = Cell::new(0);
        let made = training(data.path(), run, vec![]).run(&Stop::default(), &|event| {
            if let Event::Step(_) = event {
                left_before.set(left());
            }
        });
        assert!(matches!(made, Err(Error::Diverged { .. })), "it diverges");
        assert_eq!((left_before.get(), left()), (1, 0), "a folder while it ran, and none behind it");
    }

    #[test]
    fn a_validation_that_nothing_counts_of_is_refused_by_its_name() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let made = training(data.path(), RunOptions::default(), vec![row(0.0)]).run(&Stop::default(), &|_| {});
        let error = made.err().expect("its only row has no weight");
        assert!(matches!(&error, Error::NotReady(message) if message.starts_with("VALIDATE: at least one row")), "{error}");
    }
}
