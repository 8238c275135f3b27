//! A run that was ended goes on from its checkpoint, and ends as if nothing had happened.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::*;
use crate::training::Checkpoints;
use crate::training::metrics::{MEMORY_MB, ROLLOUT_S, TOKENS_PER_S};

const NUM_STEPS: usize = 8;
const WORLD: Parity = Parity { num_questions: 5, num_validation_questions: 3 };

#[derive(Debug, Clone, Copy)]
enum Method {
    Grpo,
    Ppo,
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

/// Eight steps with all that a checkpoint must remember: a shuffled order, epochs whose last step is smaller, warm-up, decay, several updates, validation and early
/// stopping. The last step leaves a checkpoint.
fn options(method: Method, directory: &Path, stop: &Stop) -> OnlineOptions {
    let options = match method {
        Method::Grpo => OnlineOptions { kl_weight: 0.01, ..OnlineOptions::grpo() },
        Method::Ppo => OnlineOptions::ppo(),
    };
    let run = RunOptions {
        epochs: 4.0,
        max_steps: Some(NUM_STEPS),
        learning_rate: 5e-3,
        warmup_ratio: 0.2,
        weight_decay: 0.1,
        batch_tokens: 16,
        seed: 3,
        checkpoint_every: NUM_STEPS,
        evaluate_every: Some(2),
        early_stopping: Some(NUM_STEPS),
        checkpoints: Some(Checkpoints { directory: directory.to_owned(), fingerprint: "parity".to_owned() }),
        stop: stop.clone(),
        ..options.run
    };
    OnlineOptions { run, batch_size: 3, group_size: 4, updates_per_batch: 2, mini_batches: 2, ..options }
}

fn run(
    method: Method,
    directory: &Path,
    world: &dyn RolloutSource,
    stop: &Stop,
    observe: &mut dyn FnMut(&StepMetrics) -> Result<()>,
) -> Ended {
    let options = options(method, directory, stop);
    let mut policy = tiny_decoder(VOCAB, 7);
    let (reference, critic) = match method {
        Method::Grpo => (Some(tiny_decoder(VOCAB, 7)), None),
        Method::Ppo => (None, Some(Critic::new(tiny_decoder(VOCAB, 7)).expect("a score"))),
    };
    let mut steps = Vec::new();
    let mut observer = |step: &StepMetrics| {
        steps.push(step.clone());
        observe(step)
    };
    let beside = Beside { reference: reference.as_ref(), critic: critic.as_ref() };
    let result = train_online(&mut policy, beside, world, &options, &mut observer);
    Ended { result, steps, weights: weights(&policy) }
}

fn run_to_end(method: Method, directory: &Path) -> Ended {
    run(method, directory, &WORLD, &Stop::default(), &mut |_| Ok(()))
}

/// Steps and metrics, but for those that tell of the machine.
fn repeatable(steps: &[StepMetrics]) -> Vec<(usize, Metrics)> {
    let is_kept = |name: &&str| ![TOKENS_PER_S, MEMORY_MB, ROLLOUT_S].contains(name);
    let kept = |metrics: &Metrics| metrics.iter().copied().filter(|(name, _)| is_kept(name)).collect();
    steps.iter().map(|step| (step.step, kept(&step.metrics))).collect()
}

/// `found` went on after the step `at` and gave what `whole` gave, bit for bit.
fn assert_went_on(found: &Ended, at: usize, whole: &Ended) {
    let trained = found.result.as_ref().expect("a run that goes on");
    let expected = whole.result.as_ref().expect("a run that was not ended");
    assert_eq!(*trained, Trained { resumed_at: at, ..expected.clone() });
    let replayed: Vec<bool> = found.steps.iter().map(|step| step.is_replayed).collect();
    assert_eq!(replayed, (1..=NUM_STEPS).map(|step| step <= at).collect::<Vec<_>>());
    assert_eq!(repeatable(&found.steps), repeatable(&whole.steps));
    assert!(found.weights == whole.weights, "the weights differ");
}

#[test]
fn four_steps_and_four_more_equal_eight() {
    for method in [Method::Grpo, Method::Ppo] {
        let (one, other) = (directory(), directory());
        let whole = run_to_end(method, one.path());
        assert_eq!(whole.steps.len(), NUM_STEPS);
        let validated = whole.steps.iter().filter(|step| step.get("validation_reward").is_some()).map(|step| step.step);
        assert_eq!(validated.collect::<Vec<_>>(), [2, 4, 6, 8]);
        let half = run(method, other.path(), &WORLD, &Stop::default(), &mut |step| {
            if step.step == 4 { Err(Error::Cancelled("TRAIN")) } else { Ok(()) }
        });
        assert!(matches!(half.result, Err(Error::Cancelled("TRAIN"))), "{:?}", half.result);
        assert!(half.weights != whole.weights, "the second half learns something");
        assert_went_on(&run_to_end(method, other.path()), 4, &whole);
        for name in ["parameters.safetensors", "optimizer.safetensors", "best.safetensors"] {
            let [one, other] = [&one, &other]
                .map(|directory| std::fs::read(directory.path().join("step-8").join(name)).expect("a checkpoint of the last step"));
            assert!(one == other, "{name} of {method:?}");
        }
    }
}

/// Samples until it has been asked so often, and then what `end` says.
struct EndsWithin<F> {
    left: AtomicUsize,
    end: F,
}

impl<F: Fn() -> Result<()> + Sync> RolloutSource for EndsWithin<F> {
    fn num_questions(&self) -> usize {
        WORLD.num_questions()
    }

    fn num_validation_questions(&self) -> usize {
        WORLD.num_validation_questions()
    }

    fn completion_tokens_max(&self) -> usize {
        WORLD.completion_tokens_max()
    }

    fn sample(&self, policy: &Decoder, draw: &Draw<'_>, stop: &Stop) -> Result<Vec<Vec<SampledTrajectory>>> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            (self.end)()?;
        }
        WORLD.sample(policy, draw, stop)
    }

    fn measure(&self, policy: &Decoder, stop: &Stop) -> Result<Vec<SampledTrajectory>> {
        WORLD.measure(policy, stop)
    }
}

/// In the middle of rollouts the weights are those of the last whole step: a run that is stopped there, or whose corpus fails, loses nothing but the rollouts.
#[test]
fn a_run_that_ends_while_it_samples_goes_on_at_its_last_whole_step() {
    for method in [Method::Grpo, Method::Ppo] {
        let whole_directory = directory();
        let whole = run_to_end(method, whole_directory.path());
        let stop = Stop::default();
        let flag = stop.clone();
        let set_flag = move || {
            flag.stop();
            Ok(())
        };
        let stopped = EndsWithin { left: AtomicUsize::new(4), end: set_flag };
        let failed = EndsWithin { left: AtomicUsize::new(4), end: || Err(Error::NotReady("the corpus is gone".to_owned())) };
        let worlds: [&dyn RolloutSource; 2] = [&stopped, &failed];
        for (world, stop) in worlds.into_iter().zip([stop, Stop::default()]) {
            let directory = directory();
            let ended = run(method, directory.path(), world, &stop, &mut |_| Ok(()));
            assert!(ended.result.is_err() && ended.steps.len() == 3, "{:?} after {} steps", ended.result, ended.steps.len());
            assert_went_on(&run_to_end(method, directory.path()), 3, &whole);
        }
    }
}

/// The optimiser has nothing to remember then, and the checkpoint is whole all the same.
#[test]
fn steps_that_taught_nothing_are_remembered_too() {
    let directory = directory();
    let mut options = options(Method::Grpo, directory.path(), &Stop::default());
    (options.kl_weight, options.run.early_stopping) = (0.0, None);
    let train = |last: usize| {
        let mut policy = tiny_decoder(VOCAB, 7);
        train_online(&mut policy, Beside::default(), &Flat, &options, &mut |step| {
            if step.step == last { Err(Error::Cancelled("TRAIN")) } else { Ok(()) }
        })
    };
    assert!(matches!(train(3), Err(Error::Cancelled(_))));
    assert_eq!(train(NUM_STEPS + 1).expect("it goes on").resumed_at, 3);
}

#[test]
fn a_finished_run_only_repeats_what_it_said() {
    let directory = directory();
    let whole = run_to_end(Method::Ppo, directory.path());
    assert_went_on(&run_to_end(Method::Ppo, directory.path()), NUM_STEPS, &whole);
}

/// The mean reward of greedy answers decides, and the run ends with the weights that had the best.
#[test]
fn early_stopping_keeps_the_weights_of_the_largest_reward() {
    let directory = directory();
    let mut options = options(Method::Grpo, directory.path(), &Stop::default());
    options.kl_weight = 0.0;
    let run = RunOptions { max_steps: None, epochs: 100.0, checkpoints: None, ..options.run };
    options.run = RunOptions { evaluate_every: Some(1), early_stopping: Some(3), ..run };
    let mut policy = tiny_decoder(VOCAB, 7);
    let mut rewards = Vec::new();
    let trained = train_online(&mut policy, Beside::default(), &WORLD, &options, &mut |step| {
        rewards.push(step.get("validation_reward").expect("every step is measured"));
        Ok(())
    });
    let trained = trained.expect("finite numbers");
    let best = rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let at = rewards.iter().position(|reward| *reward == best).expect("it is one of them") + 1;
    assert_eq!((trained.best_step, trained.stopped_early, rewards.len()), (Some(at), true, at + 3));
    let measured = WORLD.measure(&policy, &Stop::default()).expect("finite numbers");
    let reward = measured.iter().map(|trajectory| trajectory.reward).sum::<f64>() / measured.len() as f64;
    assert_eq!(reward, best);
}
