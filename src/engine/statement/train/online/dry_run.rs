//! `TRAIN GRPO ... DRY RUN`: what an online training would take, without its first step.
//!
//! How many tokens the policy will write nobody knows before: they are bounded by the limits of the agent. Memory is known, and time is that of a trial with the
//! base, whose answers become longer or shorter as it learns.

use arrow::array::RecordBatch;

use super::super::dry_run::table;
use super::completion_tokens_max;
use super::task::OnlineTask;
use super::trial::Trial;
use crate::agent::AgentOptions;
use crate::error::Result;
use crate::models::{DecoderConfig, Device};
use crate::training::{Estimate, Learner, RunOptions, estimate};

/// What the figures hang on.
pub struct DryRun {
    pub config: DecoderConfig,
    pub task: OnlineTask,
    pub agent: AgentOptions,
    pub num_questions: usize,
    /// Of VALIDATE USING.
    pub num_measured: usize,
    pub trial: Trial,
    /// Of matrix products, on this machine as it is now.
    pub flops_per_second: f64,
}

impl DryRun {
    /// One row for each figure.
    ///
    /// # Errors
    /// As [`table`].
    pub fn run(&self) -> Result<RecordBatch> {
        table(&self.properties())
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        let Self { config, task, agent, num_questions, num_measured, trial, flops_per_second } = self;
        let options = &task.options;
        let (num_steps, num_draws) = options.num_steps_and_draws(*num_questions);
        let num_trajectories = num_draws * options.group_size;
        // Of one model and a full batch; its time says nothing here.
        let one_batch = RunOptions { epochs: 1.0, max_steps: Some(1), ..options.run.clone() };
        let one = estimate(config, &[options.run.batch_tokens], None, &one_batch, None, 1.0);
        let (is_ppo, has_adapters) = (matches!(options.learner, Learner::Critic(_)), options.run.lora.is_some());
        let num_learners = 1 + u64::from(is_ppo);
        let host_bytes = one.parameters * size_of::<f32>() as u64;
        let adapter_bytes = if has_adapters { one.trainable_parameters * size_of::<f32>() as u64 } else { 0 };
        let base_bytes = one.weight_bytes - adapter_bytes;
        // Under adapters what is compared with, and the critic, share the base's weights.
        let num_bases = 1 + if has_adapters { 0 } else { u64::from(options.kl_weight > 0.0) + u64::from(is_ppo) };
        let device = options.run.device.of_training();
        // The copy that generates is in host memory.
        let copy_bytes = if device == Device::Cpu { host_bytes } else { 0 };
        let properties = [
            ("questions", *num_questions as u64),
            ("validation_questions", *num_measured as u64),
            ("steps", num_steps as u64),
            ("trajectories", num_trajectories as u64),
            ("completion_tokens_max", num_trajectories.saturating_mul(completion_tokens_max(agent)) as u64),
            ("sequence_tokens_max", task.tokens_max() as u64),
            ("parameters", one.parameters),
            ("trainable_parameters", one.trainable_parameters * num_learners),
            ("weight_bytes", base_bytes * num_bases + copy_bytes + adapter_bytes * num_learners),
            ("optimizer_bytes", one.optimizer_bytes * num_learners),
            ("activation_bytes", one.activation_bytes),
            ("checkpoint_bytes", one.checkpoint_bytes * num_learners),
        ];
        let num_evaluations = match (*num_measured > 0, options.run.evaluate_every) {
            (false, _) => 0,
            (true, None) => 1,
            (true, Some(every)) => num_steps.div_ceil(every.max(1)),
        };
        let rollout_seconds = trial.seconds * (num_trajectories + num_evaluations * num_measured) as f64;
        let passes = Estimate::passes_of_update(options, config);
        let update_seconds = trial.forward_flops * passes * num_trajectories as f64 / flops_per_second.max(1.0);
        let seconds =
            [("rollout_seconds", rollout_seconds), ("update_seconds", update_seconds), ("seconds", rollout_seconds + update_seconds)];
        let figures = properties.into_iter().chain([("sampled_trajectories", trial.num_sampled as u64)]);
        let figures = figures.map(|(name, value)| (name, value.to_string())).chain([("device", device.description())]);
        figures.chain(seconds.map(|(name, seconds)| (name, format!("{seconds:.1}")))).collect()
    }
}
