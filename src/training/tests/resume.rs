//! A run that was ended goes on from its checkpoint, and ends as if nothing had happened.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::*;
use crate::training::batch::Batch;
use crate::training::checkpoint;
use crate::training::example::sft_sequences;
use crate::training::head::{Head, HeadGradients};
use crate::training::metrics::{MEMORY_MB, TOKENS_PER_S};
use crate::training::sft::Sft;
use crate::training::trainer::train;

const NUM_STEPS: usize = 10;
const PROMPT_WEIGHT: f64 = 0.1;
const BATCH_SIZE: usize = 4;
/// Examples that are learned from; those behind them validate.
const NUM_LEARNED: usize = 20;
const NUM_EXAMPLES: usize = 26;

#[derive(Debug, Clone, Copy)]
enum Method {
    Sft,
    Dpo,
    Prm,
}

/// What a run gave, whether it was ended or not.
struct Ended {
    result: Result<Trained>,
    steps: Vec<StepMetrics>,
    weights: Vec<f64>,
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn checkpoints(directory: &Path) -> Checkpoints {
    Checkpoints { directory: directory.to_owned(), fingerprint: "copying".into() }
}

/// Ten steps with all that a checkpoint must remember: a shuffled order, two epochs, warm-up, decay, several batches a step,
/// validation and early stopping. The last step leaves a checkpoint, to look at.
fn run_options(directory: &Path) -> RunOptions {
    RunOptions {
        epochs: 2.0,
        learning_rate: 5e-3,
        weight_decay: 0.1,
        batch_tokens: 16,
        max_length: 8,
        seed: 3,
        checkpoint_every: NUM_STEPS,
        evaluate_every: Some(2),
        early_stopping: Some(NUM_STEPS),
        checkpoints: Some(checkpoints(directory)),
        ..RunOptions::default()
    }
}

fn run(method: Method, options: RunOptions, observe: &mut dyn FnMut(&StepMetrics) -> Result<()>) -> Ended {
    let mut decoder = match method {
        Method::Prm => tiny_reward_model(VOCAB, 7),
        Method::Sft | Method::Dpo => tiny_decoder(VOCAB, 7),
    };
    let mut steps = Vec::new();
    let mut observer = |metrics: &StepMetrics| {
        steps.push(metrics.clone());
        observe(metrics)
    };
    let result = match method {
        Method::Sft => {
            let options = SftOptions { run: options, batch_size: Some(BATCH_SIZE), prompt_weight: PROMPT_WEIGHT };
            let examples = copy_task(NUM_EXAMPLES);
            let (learned, validation) = examples.split_at(NUM_LEARNED);
            train_sft_validated(&mut decoder, learned, validation, &options, &mut observer)
        }
        Method::Dpo => {
            let options = DpoOptions { run: options, batch_size: BATCH_SIZE, preference: Preference::sigmoid(0.3) };
            let pairs = copy_pairs(NUM_EXAMPLES);
            let reference = reference_logps(&decoder, &pairs, &options, &mut |_, _| Ok(())).expect("the pairs fit");
            let ((learned, validation), (of_learned, of_validation)) = (pairs.split_at(NUM_LEARNED), reference.split_at(NUM_LEARNED));
            train_dpo_validated(&mut decoder, of_learned, learned, (of_validation, validation), &options, &mut observer)
        }
        Method::Prm => {
            let options = PrmOptions { run: options, batch_size: BATCH_SIZE, ..PrmOptions::default() };
            let mut learned = copy_pairs(NUM_EXAMPLES);
            let validation = PrmExamples::Pairs(learned.split_off(NUM_LEARNED));
            train_prm_validated(&mut decoder, &PrmExamples::Pairs(learned), &validation, &options, &mut observer)
        }
    };
    Ended { result, steps, weights: weights(&decoder) }
}

fn run_to_end(method: Method, options: RunOptions) -> Ended {
    run(method, options, &mut |_| Ok(()))
}

/// Ends a run after this step, as a cancelled statement does, and leaves its checkpoint.
fn run_until(step: usize, method: Method, directory: &Path) -> Ended {
    let ended = run(method, run_options(directory), &mut |metrics| {
        if metrics.step == step { Err(Error::Cancelled("TRAIN")) } else { Ok(()) }
    });
    assert!(matches!(ended.result, Err(Error::Cancelled("TRAIN"))), "{:?}", ended.result);
    assert_eq!(names(directory), ["metrics.jsonl".to_owned(), format!("step-{step}")]);
    ended
}

/// Steps and metrics, but for those that tell of the machine.
fn repeatable(steps: &[StepMetrics]) -> Vec<(usize, Metrics)> {
    let kept = |metrics: &Metrics| metrics.iter().copied().filter(|(name, _)| ![TOKENS_PER_S, MEMORY_MB].contains(name)).collect();
    steps.iter().map(|step| (step.step, kept(&step.metrics))).collect()
}

/// `found` went on after the step `at` and gave what `whole` gave, bit for bit.
fn assert_went_on(found: &Ended, at: usize, whole: &Ended) {
    let trained = found.result.as_ref().expect("a run that goes on");
    let expected = whole.result.as_ref().expect("a run that was not ended");
    assert_eq!(*trained, Trained { resumed_at: at, ..expected.clone() });
    assert_eq!(
        found.steps.iter().map(|step| step.is_replayed).collect::<Vec<_>>(),
        (1..=NUM_STEPS).map(|step| step <= at).collect::<Vec<_>>()
    );
    assert_eq!(repeatable(&found.steps), repeatable(&whole.steps));
    assert!(found.weights == whole.weights, "the weights differ");
}

/// Warnings, and what was said so far.
fn heard() -> (Warnings, Arc<Mutex<Vec<String>>>) {
    let all = Arc::new(Mutex::new(Vec::new()));
    let said = Arc::clone(&all);
    (Warnings::new(move |warning| said.lock().expect("no panic").push(warning)), all)
}

/// What is in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a readable directory");
    let mut names: Vec<String> = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a writable directory");
    for name in names(from) {
        if from.join(&name).is_dir() {
            copy(&from.join(&name), &to.join(&name));
        } else {
            fs::copy(from.join(&name), to.join(&name)).expect("a readable file");
        }
    }
}

#[test]
fn five_steps_and_five_more_equal_ten() {
    for method in [Method::Sft, Method::Dpo, Method::Prm] {
        let (one, other) = (directory(), directory());
        let whole = run_to_end(method, run_options(one.path()));
        assert_eq!(whole.steps.len(), NUM_STEPS);
        let validated: Vec<_> = whole.steps.iter().filter(|step| step.get("validation_loss").is_some()).map(|step| step.step).collect();
        assert_eq!(validated, [2, 4, 6, 8, 10]);
        let half = run_until(5, method, other.path());
        assert!(half.weights != whole.weights, "the second half learns something");
        let resumed = run_to_end(method, run_options(other.path()));
        assert_went_on(&resumed, 5, &whole);
        for name in ["parameters.safetensors", "optimizer.safetensors", "best.safetensors"] {
            let bytes = |directory: &TempDir| fs::read(directory.path().join("step-10").join(name)).expect("a checkpoint of the last step");
            assert!(bytes(&one) == bytes(&other), "{name} of {method:?}");
        }
    }
}

#[test]
fn a_finished_run_only_repeats_what_it_said() {
    let directory = directory();
    let whole = run_to_end(Method::Sft, run_options(directory.path()));
    assert_went_on(&run_to_end(Method::Sft, run_options(directory.path())), NUM_STEPS, &whole);
}

/// Demonstrations that set the flag at one of their batches, or whose loss is no number there.
struct StopWithin<'a> {
    inner: Sft<'a>,
    stop: Stop,
    spoils: bool,
    /// The number of the batch, counted from 1, among those that are learned from ...
    learned: AtomicUsize,
    /// ... and among those of evaluations.
    measured: AtomicUsize,
}

impl StopWithin<'_> {
    /// Whether it is this batch.
    fn count(&self, left: &AtomicUsize) -> bool {
        let is_it = left.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_it && !self.spoils {
            self.stop.stop();
        }
        is_it
    }
}

impl Objective for StopWithin<'_> {
    type Head = Head;

    fn costs(&self) -> Vec<usize> {
        self.inner.costs()
    }

    fn sharing(&self) -> Option<Sharing> {
        self.inner.sharing()
    }

    fn batch(&self, examples: &[usize]) -> Batch {
        self.inner.batch(examples)
    }

    fn normalizer(&self, examples: &[usize]) -> f64 {
        self.inner.normalizer(examples)
    }

    fn differentiate(
        &self,
        head: &Head,
        hidden: &Tensor,
        batch: &Batch,
        examples: &[usize],
        normalizer: f64,
    ) -> Result<(HeadGradients, Metrics)> {
        let is_spoilt = self.count(&self.learned) && self.spoils;
        let (gradients, mut metrics) = self.inner.differentiate(head, hidden, batch, examples, normalizer)?;
        if is_spoilt {
            metrics[0].1 = f64::NAN;
        }
        Ok((gradients, metrics))
    }

    fn measure(&self, head: &Head, hidden: &Tensor, batch: &Batch, examples: &[usize], normalizer: f64) -> Result<Metrics> {
        self.count(&self.measured);
        self.inner.measure(head, hidden, batch, examples, normalizer)
    }
}

fn stop_within<'a>(examples: &'a [SftExample], options: &RunOptions, learned: usize, measured: usize) -> StopWithin<'a> {
    StopWithin {
        inner: Sft { sequences: sft_sequences(examples, PROMPT_WEIGHT, options).expect("they fit"), tree_packing: options.tree_packing },
        stop: options.stop.clone(),
        spoils: false,
        learned: AtomicUsize::new(learned),
        measured: AtomicUsize::new(measured),
    }
}

/// The run of [`Method::Sft`], ended at these batches.
fn run_within(directory: &Path, learned: usize, measured: usize) -> Ended {
    let mut decoder = tiny_decoder(VOCAB, 7);
    let options = run_options(directory);
    let examples = copy_task(NUM_EXAMPLES);
    let objective = |examples| stop_within(examples, &options, learned, measured);
    let (to_learn, validation) = (objective(&examples[..NUM_LEARNED]), objective(&examples[NUM_LEARNED..]));
    let mut steps = Vec::new();
    let mut observer = |metrics: &StepMetrics| {
        steps.push(metrics.clone());
        Ok(())
    };
    let result = train(&mut decoder, &to_learn, Some(&validation), &options, Some(BATCH_SIZE), &mut observer);
    Ended { result, steps, weights: weights(&decoder) }
}

#[test]
fn a_run_that_is_stopped_within_a_step_loses_that_step_alone() {
    let (one, other) = (directory(), directory());
    let whole = run_to_end(Method::Sft, run_options(one.path()));
    // Two batches a step: the seventh is the first of step 4.
    let ended = run_within(other.path(), 7, usize::MAX);
    assert!(matches!(ended.result, Err(Error::Cancelled("TRAIN"))), "{:?}", ended.result);
    assert_eq!(ended.steps.len(), 3);
    assert_went_on(&run_within(other.path(), usize::MAX, usize::MAX), 3, &whole);
}

#[test]
fn a_run_that_is_stopped_within_an_evaluation_does_it_again() {
    let (one, other) = (directory(), directory());
    let whole = run_to_end(Method::Sft, run_options(one.path()));
    // Three batches an evaluation: the fifth is the second of the evaluation after step 4.
    let ended = run_within(other.path(), usize::MAX, 5);
    assert!(matches!(ended.result, Err(Error::Cancelled("TRAIN"))), "{:?}", ended.result);
    assert_eq!(ended.steps.len(), 3, "step 4 is not reported before it is evaluated");
    assert_went_on(&run_within(other.path(), usize::MAX, usize::MAX), 4, &whole);
}

#[test]
fn a_run_that_was_killed_goes_on_from_the_last_whole_checkpoint() {
    let (one, other, killed) = (directory(), directory(), directory());
    let every = |directory: &TempDir| RunOptions { checkpoint_every: 3, ..run_options(directory.path()) };
    let whole = run(Method::Sft, every(&one), &mut |metrics| {
        if metrics.step == 8 {
            // What a kill at this moment would leave.
            copy(one.path(), killed.path());
        }
        Ok(())
    });
    assert_eq!(names(one.path()), ["metrics.jsonl", "step-9"], "the older ones go");
    assert_eq!(names(killed.path()), ["metrics.jsonl", "step-6"]);
    // What a kill within the next checkpoint would leave beside it.
    copy(&killed.path().join("step-6"), &killed.path().join(".step-9"));
    fs::remove_file(killed.path().join(".step-9/SHA256SUMS")).expect("it was just copied");
    assert_went_on(&run_to_end(Method::Sft, every(&killed)), 6, &whole);
    assert_eq!(names(killed.path()), ["metrics.jsonl", "step-9"]);

    let only_on_cancel = RunOptions { checkpoint_every: 0, ..run_options(other.path()) };
    assert!(run_to_end(Method::Sft, only_on_cancel).result.is_ok());
    assert!(names(other.path()).is_empty());
}

/// The step of the checkpoint that a run would go on from.
fn found(checkpoints: &Checkpoints, decoder: &Decoder, num_steps: usize) -> Option<usize> {
    found_and_said(checkpoints, decoder, num_steps).0
}

/// It, and what is said of others.
fn found_and_said(checkpoints: &Checkpoints, decoder: &Decoder, num_steps: usize) -> (Option<usize>, Vec<String>) {
    let (warnings, said) = heard();
    let restored = checkpoint::load(checkpoints, AdamWOptions::default(), decoder.parameters(), num_steps, &warnings);
    let step = restored.expect("a readable disk").map(|restored| restored.progress.steps.len());
    (step, said.lock().expect("no panic").clone())
}

#[test]
fn a_damaged_or_foreign_checkpoint_is_passed_over() {
    let (one, older) = (directory(), directory());
    run_until(5, Method::Sft, one.path());
    run_until(3, Method::Sft, older.path());
    let decoder = tiny_decoder(VOCAB, 7);
    let own = checkpoints(one.path());
    assert_eq!(found_and_said(&own, &decoder, NUM_STEPS), (Some(5), vec![]));
    assert_eq!(found(&Checkpoints { fingerprint: "another".into(), ..own.clone() }, &decoder, NUM_STEPS), None);
    assert_eq!(found(&own, &tiny_decoder(VOCAB + 1, 7), NUM_STEPS), None, "other parameters");
    assert_eq!(found(&own, &decoder, 4), None, "a run of four steps");
    assert_eq!(found(&checkpoints(&one.path().join("none")), &decoder, NUM_STEPS), None);

    let mut files = names(&one.path().join("step-5"));
    assert_eq!(files, ["SHA256SUMS", "best.safetensors", "optimizer.safetensors", "parameters.safetensors", "state.json"]);
    files.push("../metrics.jsonl".to_owned());
    for name in files {
        let damaged = directory();
        copy(one.path(), damaged.path());
        let path = damaged.path().join("step-5").join(&name);
        let mut bytes = fs::read(&path).expect("a file of the checkpoint");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).expect("a writable file");
        let own = checkpoints(damaged.path());
        assert_eq!(found(&own, &decoder, NUM_STEPS), None, "another bit in {name}");
        fs::write(&path, &bytes[..middle]).expect("a writable file");
        assert_eq!(found(&own, &decoder, NUM_STEPS), None, "half of {name}");
        fs::remove_file(&path).expect("it is there");
        let (step, said) = found_and_said(&own, &decoder, NUM_STEPS);
        assert_eq!((step, said.len()), (None, 1), "no {name}: {said:?}");
        assert!(said[0].starts_with("the checkpoint of step 5 is not used") && said[0].contains("damaged"), "{said:?}");
        copy(older.path(), damaged.path());
        let (step, said) = found_and_said(&own, &decoder, NUM_STEPS);
        assert_eq!((step, said.len()), (Some(3), 1), "the older one, without {name}: {said:?}");
    }
}

#[test]
fn a_run_does_not_take_up_the_checkpoint_of_another() {
    let (one, other) = (directory(), directory());
    let whole = run_to_end(Method::Sft, run_options(one.path()));
    run_until(5, Method::Sft, other.path());
    let foreign = Checkpoints { fingerprint: "another".into(), ..checkpoints(other.path()) };
    assert_went_on(&run_to_end(Method::Sft, RunOptions { checkpoints: Some(foreign), ..run_options(other.path()) }), 0, &whole);
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_older_one_and_no_half_one() {
    let one = directory();
    let every_two = || RunOptions { checkpoint_every: 2, ..run_options(one.path()) };
    let blocked = run(Method::Sft, every_two(), &mut |metrics| {
        if metrics.step == 3 {
            fs::write(one.path().join("step-4"), "a file in the way").expect("a writable directory");
        }
        Ok(())
    });
    let told = "there is no checkpoint of step 4, and the same training goes on at that of step 2";
    assert!(matches!(&blocked.result, Err(Error::Io { source, .. }) if source.to_string().ends_with(told)), "{:?}", blocked.result);
    assert_eq!(names(one.path()), ["metrics.jsonl", "step-2", "step-4"]);
    assert_eq!(checkpoints(one.path()).last_step(), Some(2));
    assert_eq!(found(&checkpoints(one.path()), &tiny_decoder(VOCAB, 7), NUM_STEPS), Some(2), "a file is no checkpoint");
    fs::remove_file(one.path().join("step-4")).expect("it is there");
    let whole = run_to_end(Method::Sft, RunOptions { checkpoints: None, ..run_options(one.path()) });
    assert_went_on(&run_to_end(Method::Sft, every_two()), 2, &whole);
}

#[test]
fn a_checkpoint_that_cannot_be_written_on_cancel_is_told() {
    let one = directory();
    let (warnings, said) = heard();
    let ended = run(Method::Sft, RunOptions { warnings, ..run_options(one.path()) }, &mut |metrics| {
        if metrics.step < 3 {
            return Ok(());
        }
        fs::write(one.path().join("step-3"), "a file in the way").expect("a writable directory");
        Err(Error::Cancelled("TRAIN"))
    });
    assert!(matches!(ended.result, Err(Error::Cancelled("TRAIN"))), "{:?}", ended.result);
    let said = said.lock().expect("no panic");
    assert!(said.len() == 1 && said[0].starts_with("no checkpoint could be written at step 3"), "{said:?}");
}

#[test]
fn a_checkpoint_is_one_though_older_ones_cannot_be_removed() {
    let one = directory();
    fs::write(one.path().join("step-1"), "a file that is no directory").expect("a writable directory");
    let (warnings, said) = heard();
    let run = RunOptions { warnings, checkpoint_every: 5, ..run_options(one.path()) };
    assert!(run_to_end(Method::Sft, run).result.is_ok());
    assert_eq!(found(&checkpoints(one.path()), &tiny_decoder(VOCAB, 7), NUM_STEPS), Some(10));
    let said = said.lock().expect("no panic");
    let kinds = ["the checkpoint of step 1 is not used", "older checkpoints stay", "older checkpoints stay"];
    assert!(said.len() == 3 && said.iter().zip(kinds).all(|(found, kind)| found.starts_with(kind)), "{said:?}");
}

/// Else a run of many steps would write those of all before it again and again.
#[test]
fn a_checkpoint_adds_the_metrics_of_its_own_steps_alone() {
    let (one, earlier) = (directory(), directory());
    let every_two = RunOptions { checkpoint_every: 2, ..run_options(one.path()) };
    let whole = run(Method::Sft, every_two, &mut |metrics| {
        if metrics.step == 5 {
            copy(one.path(), earlier.path());
        }
        Ok(())
    });
    assert_eq!(whole.steps.len(), NUM_STEPS);
    let read = |directory: &TempDir, name: &str| fs::read_to_string(directory.path().join(name)).expect("it was written");
    let (before, after) = (read(&earlier, "metrics.jsonl"), read(&one, "metrics.jsonl"));
    assert!(after.starts_with(&before), "what was written stays");
    // All but the last step, to which an evaluation may still add.
    assert_eq!((before.lines().count(), after.lines().count()), (3, NUM_STEPS - 1));
    let num_metrics = |name: &str, directory: &TempDir| read(directory, &format!("{name}/state.json")).matches("grad_norm").count();
    assert_eq!((num_metrics("step-4", &earlier), num_metrics("step-10", &one)), (1, 1));

    // Somebody takes the file away while the run goes on.
    let without = directory();
    let every_two = RunOptions { checkpoint_every: 2, ..run_options(without.path()) };
    let ended = run(Method::Sft, every_two, &mut |metrics| {
        if metrics.step == 5 {
            fs::remove_file(without.path().join("metrics.jsonl")).expect("it is there");
        }
        Ok(())
    });
    assert!(ended.result.is_ok(), "{:?}", ended.result);
    assert_went_on(&run_to_end(Method::Sft, run_options(without.path())), NUM_STEPS, &whole);
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let one = directory();
    fs::write(one.path().join("file"), "not a directory").expect("a writable directory");
    let ended = run_to_end(Method::Sft, run_options(&one.path().join("file/checkpoints")));
    assert!(matches!(ended.result, Err(Error::Io { .. })), "{:?}", ended.result);
    assert_eq!(names(one.path()), ["file"]);
}

/// A run of one checkpoint after each step, whose first step is of the warm-up if there is one.
fn diverging(directory: &Path, learning_rate: f64, warmup_ratio: f64) -> RunOptions {
    let run = run_options(directory);
    RunOptions { learning_rate, warmup_ratio, checkpoint_every: 1, evaluate_every: None, early_stopping: None, ..run }
}

#[test]
fn a_run_whose_weights_are_spoilt_goes_back_to_its_last_good_checkpoint() {
    for (learning_rate, warmup_ratio, diverged_at, good) in [(1e30, 0.0, 1, None), (1e30, 0.1, 2, Some(1)), (1e8, 0.1, 2, Some(1))] {
        let one = directory();
        let result = run_to_end(Method::Sft, diverging(one.path(), learning_rate, warmup_ratio)).result;
        let Err(Error::Diverged { step, checkpoint, .. }) = result else { panic!("{learning_rate}: {result:?}") };
        assert_eq!((step, checkpoint), (diverged_at, good), "{learning_rate} after a warm-up of {warmup_ratio}");
        assert_eq!(found(&checkpoints(one.path()), &tiny_decoder(VOCAB, 7), NUM_STEPS), good);
        let decoder = tiny_decoder(VOCAB, 5);
        let recovered = recover(&decoder, None, &diverging(one.path(), learning_rate, warmup_ratio)).expect("a readable disk");
        assert_eq!(recovered.map(|recovered| recovered.step), good);
        assert_eq!(weights(&decoder) == weights(&tiny_decoder(VOCAB, 7)), good.is_some(), "the first step has the learning rate 0");
    }
}

/// Weights are good when a step has a loss with them: the checkpoint before a loss that is no number is spoilt, and the one before that is still there.
#[test]
fn a_loss_that_is_no_number_takes_the_checkpoint_before_it() {
    let one = directory();
    let run = diverging(one.path(), 5e-3, 0.1);
    let mut decoder = tiny_decoder(VOCAB, 7);
    let examples = copy_task(NUM_LEARNED);
    // Two batches a step: the seventh is the first of step 4.
    let objective = StopWithin { spoils: true, ..stop_within(&examples, &run, 7, usize::MAX) };
    let result = train(&mut decoder, &objective, None, &run, Some(BATCH_SIZE), &mut |_| Ok(()));
    assert!(matches!(result, Err(Error::Diverged { step: 4, what: "loss", checkpoint: Some(2), .. })), "{result:?}");
    assert_eq!(names(one.path()), ["metrics.jsonl", "step-2"]);
    let whole = run_to_end(Method::Sft, RunOptions { checkpoints: None, ..diverging(one.path(), 5e-3, 0.1) });
    let again = run_to_end(Method::Sft, diverging(one.path(), 5e-3, 0.1));
    assert_eq!(again.result.expect("its losses are numbers").resumed_at, 2);
    assert!(again.weights == whole.weights, "it went on as if nothing had happened");
}
