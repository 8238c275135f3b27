//! The thread of an online training: the policy, what is beside it, the steps. It goes on for a moment when its statement is cancelled, and leaves a checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use serde_json::Value as Json;

use super::super::checkpoints::{Identity, Trainings};
use super::super::run::{Counts, Event, Made, on_gpu, recovered};
use super::super::task::OnDivergence;
use super::source::Rollouts;
use crate::error::Result;
use crate::models::{Decoder, LoraOptions, TrainingGpu};
use crate::training::{Beside, Critic, Learner, OnlineOptions, StepMetrics, Stop, Warnings, train_online};

/// An online training that is ready to run.
pub struct OnlineTraining {
    /// Of the base.
    pub directory: PathBuf,
    pub options: OnlineOptions,
    /// Take up the checkpoint of an earlier run.
    pub resume: bool,
    pub on_divergence: OnDivergence,
    /// All that it hangs on.
    pub identity: Json,
    pub rollouts: Rollouts,
    pub counts: Counts,
    pub trainings: Arc<Trainings>,
    /// Told here, since an event of a statement that was cancelled reaches nobody.
    pub warnings: Warnings,
}

impl OnlineTraining {
    /// Blocks until the training is done. `stop` ends it between two tokens or batches.
    ///
    /// # Errors
    /// Of the rollouts and of the training; [`Error::Cancelled`](crate::Error::Cancelled); [`Error::InUse`](crate::Error::InUse) if another run of the same is at work.
    pub fn run(self, stop: &Stop, tell: &dyn Fn(Event)) -> Result<Made> {
        let Self { directory, mut options, resume, on_divergence, identity, rollouts, counts, trainings, warnings } = self;
        let claim = trainings.claim(Identity::new(&identity).fingerprint(), stop)?;
        if !resume {
            claim.clear()?;
        }
        tell(Event::Claimed(claim.clone()));
        let run = &mut options.run;
        (run.stop, run.checkpoints, run.warnings) = (stop.clone(), Some(claim.checkpoints()), warnings);

        let mut decoder = Decoder::load_trainable(&directory)?;
        if let Some(lora) = &options.run.lora {
            decoder.attach_lora(lora)?;
        }
        let gpu = TrainingGpu::open(options.run.device)?;
        // Ended by the flag, here or between two batches, a run leaves a checkpoint of its whole steps.
        let mut observe = |step: &StepMetrics| {
            tell(Event::Step(step.clone()));
            stop.check()
        };
        let resumed_at = claim.checkpoints().last_step().unwrap_or(0);
        let mut critic = None;
        let result = on_gpu(gpu.as_ref(), &mut decoder, |policy| {
            let reference = reference(policy, &directory, &options, gpu.as_ref())?;
            critic = self::critic(policy, &directory, &options, gpu.as_ref())?;
            let beside = Beside { reference: reference.as_ref(), critic: critic.as_ref() };
            train_online(policy, beside, &rollouts, &options, &mut observe)
        });
        let (trained, divergence) = recovered(result, on_divergence, resumed_at, &decoder, critic.as_ref(), &options.run)?;
        Ok(Made { decoder, trained, divergence, counts, claim })
    }
}

/// The base as it is, where a KL penalty compares with it: a second copy of its weights, but under adapters, which stand beside the only one.
fn reference(policy: &Decoder, directory: &Path, options: &OnlineOptions, gpu: Option<&TrainingGpu>) -> Result<Option<Decoder>> {
    match (options.kl_weight > 0.0, &options.run.lora) {
        (false, _) => Ok(None),
        (true, Some(_)) => policy.without_adapters().map(Some),
        (true, None) => placed(Decoder::load(directory, &Device::Cpu, false)?, gpu).map(Some),
    }
}

/// The critic of PPO, which begins as the base: weights of its own, or adapters of its own.
fn critic(policy: &Decoder, directory: &Path, options: &OnlineOptions, gpu: Option<&TrainingGpu>) -> Result<Option<Critic>> {
    match (&options.learner, &options.run.lora) {
        (Learner::Group(_), _) => Ok(None),
        (Learner::Critic(_), Some(lora)) => Critic::beside(policy, &of_critic(lora)).map(Some),
        (Learner::Critic(_), None) => Critic::new(placed(Decoder::load_trainable(directory)?, gpu)?).map(Some),
    }
}

/// The decoder where the policy is.
fn placed(decoder: Decoder, gpu: Option<&TrainingGpu>) -> Result<Decoder> {
    match gpu {
        Some(gpu) => gpu.copy_of(&decoder),
        None => Ok(decoder),
    }
}

/// Other random numbers than the policy's.
fn of_critic(lora: &LoraOptions) -> LoraOptions {
    LoraOptions { seed: lora.seed.wrapping_add(1), ..lora.clone() }
}
