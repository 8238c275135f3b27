//! Rows that are not learned from: what they are measured with, and what they decide.

use super::*;
use crate::training::example::sft_sequences;
use crate::training::metrics::known;
use crate::training::sft::Sft;
use crate::training::validation::evaluate;

/// The same prompts with other tokens behind them: what is learned of [`copy_task`] by heart is wrong here.
fn contradictions(num_examples: usize) -> Vec<SftExample> {
    let other = |token: &u32| if *token == EOS { EOS } else { 2 + (token - 2 + 7) % (VOCAB as u32 - 2) };
    let contradict = |example: SftExample| SftExample { completion: example.completion.iter().map(other).collect(), ..example };
    copy_task(num_examples).into_iter().map(contradict).collect()
}

fn options(run: RunOptions) -> SftOptions {
    SftOptions { run, batch_size: Some(8), prompt_weight: 0.0 }
}

fn train(decoder: &mut Decoder, validation: &[SftExample], options: &SftOptions) -> (Trained, Vec<StepMetrics>) {
    let mut steps = Vec::new();
    let mut observer = |metrics: &StepMetrics| {
        steps.push(metrics.clone());
        Ok(())
    };
    let trained = train_sft_validated(decoder, &copy_task(8), validation, options, &mut observer).expect("finite numbers");
    (trained, steps)
}

/// The loss of these examples, and of no step.
fn loss(decoder: &Decoder, examples: &[SftExample], options: &SftOptions) -> f64 {
    let sequences = sft_sequences(examples, options.prompt_weight, &options.run).expect("they fit");
    let objective = Sft { sequences, tree_packing: options.run.tree_packing };
    evaluate(decoder, &objective, &options.run).expect("finite numbers")[0].1
}

#[test]
fn validation_measures_the_weights_after_the_step_and_changes_nothing() {
    let (mut one, mut other) = (tiny_decoder(VOCAB, 1), tiny_decoder(VOCAB, 1));
    let validation = contradictions(8);
    let validated = options(RunOptions {
        epochs: 7.0,
        learning_rate: 1e-2,
        evaluate_every: Some(3),
        batch_tokens: 16,
        max_length: 8,
        ..RunOptions::default()
    });
    let (trained, steps) = train(&mut one, &validation, &validated);
    assert_eq!(trained, Trained { num_steps: 7, resumed_at: 0, best_step: None, stopped_early: false });
    let found: Vec<usize> = steps.iter().filter(|step| step.get("validation_loss").is_some()).map(|step| step.step).collect();
    assert_eq!(found, [3, 6, 7], "every third step and the last one");
    assert_eq!(steps[6].get("validation_loss"), Some(loss(&one, &validation, &validated)));

    let plain = options(RunOptions { evaluate_every: None, ..validated.run.clone() });
    let (_, plain_steps) = train(&mut other, &[], &plain);
    assert!(plain_steps.iter().all(|step| step.get("validation_loss").is_none()));
    assert!(weights(&one) == weights(&other), "validation does not learn");
}

#[test]
fn the_validation_loss_is_one_mean_however_it_is_cut_into_batches() {
    let decoder = tiny_decoder(VOCAB, 1);
    let examples = copy_task(5);
    let whole = options(RunOptions::default());
    let parts = options(RunOptions {
        batch_tokens: 8,
        max_length: 8,
        epochs: 3.0,
        max_steps: Some(1),
        step_tokens: Some(1),
        ..RunOptions::default()
    });
    let (whole, parts) = (loss(&decoder, &examples, &whole), loss(&decoder, &examples, &parts));
    assert!((whole - parts).abs() < 1e-5 * whole, "{whole} against {parts}");
}

#[test]
fn early_stopping_ends_with_the_best_weights() {
    let mut decoder = tiny_decoder(VOCAB, 1);
    let validation = contradictions(8);
    let run = RunOptions {
        epochs: 200.0,
        learning_rate: 1e-2,
        schedule: Schedule::Constant,
        evaluate_every: Some(5),
        early_stopping: Some(3),
        ..RunOptions::default()
    };
    let options = options(run);
    let (trained, steps) = train(&mut decoder, &validation, &options);
    let losses: Vec<(usize, f64)> = steps.iter().filter_map(|step| Some((step.step, step.get("validation_loss")?))).collect();
    let (best_step, best) = losses.iter().copied().min_by(|(_, a), (_, b)| a.total_cmp(b)).expect("it was evaluated");
    let (last_step, last) = losses.last().copied().expect("it was evaluated");
    assert!(last > best, "the run learns by heart: {losses:?}");
    assert_eq!(last_step, best_step + 15, "three evaluations without a better one");
    assert_eq!(trained, Trained { num_steps: last_step, resumed_at: 0, best_step: Some(best_step), stopped_early: true });
    assert_eq!(loss(&decoder, &validation, &options), best, "the weights are those of the best step");
}

#[test]
fn a_run_that_was_ended_stops_early_where_it_would_have() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let validation = contradictions(8);
    let checkpoints = Checkpoints { directory: directory.path().join("training/run"), fingerprint: "copying".into() };
    let run = RunOptions {
        epochs: 200.0,
        learning_rate: 1e-2,
        schedule: Schedule::Constant,
        evaluate_every: Some(5),
        early_stopping: Some(3),
        checkpoint_every: 0,
        ..RunOptions::default()
    };
    let (mut whole, mut ended, mut resumed) = (tiny_decoder(VOCAB, 1), tiny_decoder(VOCAB, 1), tiny_decoder(VOCAB, 1));
    let (trained, steps) = train(&mut whole, &validation, &options(run.clone()));
    let options = options(RunOptions { checkpoints: Some(checkpoints), ..run });
    // The best weights are in no later step's: they must be in the checkpoint.
    let end = trained.num_steps - 2;
    let result = train_sft_validated(&mut ended, &copy_task(8), &validation, &options, &mut |metrics| {
        if metrics.step == end { Err(Error::Cancelled("TRAIN")) } else { Ok(()) }
    });
    assert!(matches!(result, Err(Error::Cancelled("TRAIN"))), "{result:?}");
    let (resumed_trained, resumed_steps) = train(&mut resumed, &validation, &options);
    assert_eq!(resumed_trained, Trained { resumed_at: end, ..trained });
    assert_eq!(resumed_steps.len(), steps.len());
    assert!(weights(&resumed) == weights(&whole), "the weights differ");
}

#[test]
fn the_first_step_of_a_warm_up_is_not_a_worse_one() {
    let mut decoder = tiny_decoder(VOCAB, 1);
    let examples = copy_task(8);
    let run = RunOptions { epochs: 3.0, learning_rate: 1e-3, evaluate_every: Some(1), early_stopping: Some(1), ..RunOptions::default() };
    let options = options(run);
    let before = loss(&decoder, &examples, &options);
    let (trained, steps) = train(&mut decoder, &examples, &options);
    assert_eq!(steps[0].get("learning_rate"), Some(0.0));
    assert_eq!(steps[0].get("validation_loss"), Some(before), "nothing was learned yet");
    assert_eq!(trained, Trained { num_steps: 3, resumed_at: 0, best_step: Some(3), stopped_early: false }, "{steps:?}");
}

/// A checkpoint can only give back metrics that `metrics.rs` knows.
#[test]
fn every_metric_of_every_method_has_a_known_name() {
    let run = RunOptions { evaluate_every: Some(1), ..RunOptions::default() };
    let mut decoder = tiny_decoder(VOCAB, 1);
    let (_, mut steps) = train(&mut decoder, &copy_task(2), &options(run.clone()));
    for loss in [
        PreferenceLoss::Sigmoid { label_smoothing: 0.1 },
        PreferenceLoss::Hinge,
        PreferenceLoss::Ipo,
        PreferenceLoss::Robust { label_smoothing: 0.1 },
        PreferenceLoss::Orpo,
        PreferenceLoss::SimPo { gamma: 0.5 },
    ] {
        let normalization = loss.default_normalization();
        let preference = Preference { loss, normalization, sft_weight: 0.2, ..Preference::sigmoid(0.3) };
        let options = DpoOptions { run: run.clone(), batch_size: 4, preference };
        let pairs = copy_pairs(4);
        let reference = reference_logps(&decoder, &pairs, &options, &mut |_, _| Ok(())).expect("the pairs fit");
        let mut observer = |metrics: &StepMetrics| {
            steps.push(metrics.clone());
            Ok(())
        };
        let trained = train_dpo_validated(&mut decoder, &reference, &pairs, (&reference[..], &pairs[..]), &options, &mut observer);
        assert!(trained.is_ok(), "{trained:?}");
    }
    for examples in
        [PrmExamples::Pairs(copy_pairs(4)), PrmExamples::Steps(vec![StepExample { prompt: vec![2], step: vec![3], label: 0.5 }])]
    {
        let mut decoder = tiny_reward_model(VOCAB, 1);
        let options = PrmOptions { run: run.clone(), ..PrmOptions::default() };
        let mut observer = |metrics: &StepMetrics| {
            steps.push(metrics.clone());
            Ok(())
        };
        let trained = train_prm_validated(&mut decoder, &examples, &examples, &options, &mut observer);
        assert!(trained.is_ok(), "{trained:?}");
    }
    let names: std::collections::BTreeSet<&str> = steps.iter().flat_map(|step| step.metrics.iter().map(|(name, _)| *name)).collect();
    for expected in
        ["loss", "sft_loss", "mean_score", "grad_norm", "tokens_per_s", "validation_loss", "validation_sft_loss", "validation_accuracy"]
    {
        assert!(names.contains(expected), "{expected} is not among {names:?}");
    }
    for name in names {
        assert_eq!(known(name), Some(name), "metrics.rs does not know {name}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn memory_is_that_of_this_process() {
    let memory = crate::training::metrics::memory_mb().expect("Linux tells it");
    assert!(memory > 1.0 && memory < 1e7, "{memory} MiB");
}
