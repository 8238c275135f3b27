//! What a run would take, from its plan and the shape of its model: for a dry run, before hours are spent.
//!
//! The figures are those of this trainer: AdamW, one block's graph at a time where activations are computed again; f32 on the CPU, and on a GPU what is trained
//! in f32 and the rest in the type of the products. They leave out what does not grow with the run: the program, the rows, a few buffers of a batch.

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};

use super::backward::activation_bytes;
use super::example::{DpoExample, SftExample};
use super::online::{Learner, OnlineOptions};
use super::options::RunOptions;
use super::plan::{Plan, all_in_batches, packing};
use super::sharing::{Sharing, Size};
use super::trainer::ACTIVATION_BYTES_MAX;
use crate::error::Result;
use crate::models::config::OutputHead;
use crate::models::ops::{self, Arithmetic};
use crate::models::{DecoderConfig, TrainingGpu};

const F32_BYTES: u64 = 4;
/// AdamW's moments, and the sum of the gradients of a step.
const STATES: u64 = 3;
/// AdamW's moments.
const SAVED_STATES: u64 = 2;

/// How long a product is repeated to measure its speed, and its sizes, which are those of a small model.
const MEASURED: Duration = Duration::from_millis(50);
const SIZE: usize = 512;
/// A GPU is fast at large ones alone.
const SIZE_ON_GPU: usize = 4096;

/// What a run would take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub num_examples: usize,
    /// Optimiser steps; early stopping may end a run sooner.
    pub num_steps: usize,
    /// Of the sequences of all steps.
    pub num_tokens: usize,
    /// That go through the model in all steps: with tree packing a beginning that sequences of a batch share counts once.
    pub num_distinct_tokens: usize,
    pub parameters: u64,
    /// Fewer with adapters.
    pub trainable_parameters: u64,
    /// In bytes on the device that computes, like the ones below; with those of adapters.
    pub weight_bytes: u64,
    /// Moments of AdamW and the gradients of a step.
    pub optimizer_bytes: u64,
    /// Of the largest batch.
    pub activation_bytes: u64,
    /// One checkpoint; while the next one is written there are two.
    pub checkpoint_bytes: u64,
    /// Floating-point operations of all steps.
    pub flops: f64,
    pub seconds: f64,
}

/// What a run over examples of so many tokens (`costs`) takes, at `flops_per_second`: the speed of matrix products, so that a run takes somewhat longer.
///
/// `sharing`: of these examples. Without it, or without tree packing, a pair counts as one sequence of its tokens. Adapters count as none where [`num_parameters`](crate::models::lora::LoraOptions::num_parameters) refuses them: ask that first.
pub fn estimate(
    config: &DecoderConfig,
    costs: &[usize],
    sharing: Option<&Sharing>,
    run: &RunOptions,
    batch_size: Option<usize>,
    flops_per_second: f64,
) -> Estimate {
    let plan = Plan::new(costs, run, batch_size).with_sharing(sharing);
    let (num_steps, full_batch) = (plan.num_steps(), plan.full_batch());
    let (mut largest_batch, mut work) = (0_usize, Work::default());
    for batch in plan.take(num_steps).flatten() {
        let num_distinct_tokens = work.add(&batch, costs, packing(sharing, run));
        largest_batch = largest_batch.max(num_distinct_tokens);
    }
    let (lora, arithmetic) = (run.lora.as_ref(), run.device.arithmetic_of_training());
    let kept = activation_bytes(config, lora, arithmetic, largest_batch);
    let is_recomputed = run.recompute.unwrap_or_else(|| activation_bytes(config, lora, arithmetic, full_batch) > ACTIVATION_BYTES_MAX);
    let flops = work.forward_flops(config) * passes(lora.is_some(), is_recomputed);
    let parameters = count(config.tensor_shapes().iter().map(|(_, shape)| shape.as_slice()));
    let adapters = lora.map_or(0, |lora| lora.num_parameters(config).unwrap_or(0));
    // A score learns beside adapters.
    let score = if let OutputHead::Score(_) = config.head { config.hidden_size as u64 } else { 0 };
    let trainable = if lora.is_some() { adapters + score } else { parameters };
    let frozen = parameters + adapters - trainable;
    let best = u64::from(run.early_stopping.is_some());
    Estimate {
        num_examples: costs.len(),
        num_steps,
        num_tokens: work.num_tokens,
        num_distinct_tokens: work.num_distinct_tokens,
        parameters,
        trainable_parameters: trainable,
        weight_bytes: trainable * F32_BYTES + frozen * bytes_of_frozen(arithmetic),
        optimizer_bytes: trainable * STATES * F32_BYTES,
        activation_bytes: if is_recomputed { recomputed_bytes(config, largest_batch, kept) } else { kept as u64 },
        checkpoint_bytes: trainable * (1 + SAVED_STATES + best) * F32_BYTES,
        flops,
        seconds: flops / flops_per_second.max(1.0),
    }
}

/// Of a weight that does not learn. Vectors stay f32 anywhere, and are few.
fn bytes_of_frozen(arithmetic: Arithmetic) -> u64 {
    match arithmetic {
        Arithmetic::Fused => F32_BYTES,
        Arithmetic::Plain(dtype) => dtype.size_in_bytes() as u64,
    }
}

impl Estimate {
    /// Tokens of each demonstration that go through the model, after its prompt is cut.
    pub fn costs_of_examples(examples: &[SftExample], run: &RunOptions) -> Vec<usize> {
        let longest = run.max_length.min(run.batch_tokens);
        // Those of weight 0 are left out.
        let learned = examples.iter().filter(|example| example.weight > 0.0);
        learned.map(|example| (example.prompt.len() + example.completion.len()).min(longest).saturating_sub(1)).collect()
    }

    /// Tokens of both sequences of each pair, after its prompt is cut.
    pub fn costs_of_pairs(pairs: &[DpoExample], run: &RunOptions) -> Vec<usize> {
        let longest = run.max_length.min(run.batch_tokens / 2);
        let cost = |pair: &DpoExample| {
            let prompt = pair.prompt.len().min(longest.saturating_sub(pair.chosen.len().max(pair.rejected.len())));
            (2 * prompt + pair.chosen.len() + pair.rejected.len()).saturating_sub(2)
        };
        pairs.iter().map(cost).collect()
    }

    /// Floating-point operations of one forward pass over examples of so many tokens, in batches as training has them.
    pub fn forward_flops(config: &DecoderConfig, costs: &[usize], sharing: Option<&Sharing>, run: &RunOptions) -> f64 {
        let mut work = Work::default();
        for batch in all_in_batches(costs, sharing, run) {
            work.add(&batch, costs, packing(sharing, run));
        }
        work.forward_flops(config)
    }

    /// Work of the updates on the trajectories of a step, in forward passes over these: each update, and what is computed before the first one of
    /// several: probabilities, values, and those of the reference.
    pub fn passes_of_update(options: &OnlineOptions, config: &DecoderConfig) -> f64 {
        let run = &options.run;
        let kept = activation_bytes(config, run.lora.as_ref(), run.device.arithmetic_of_training(), run.batch_tokens);
        let of_update = passes(run.lora.is_some(), run.recompute.unwrap_or(kept > ACTIVATION_BYTES_MAX));
        let num_learners = if let Learner::Critic(_) = options.learner { 2.0 } else { 1.0 };
        let before = if options.updates_per_batch > 1 || options.mini_batches > 1 || num_learners > 1.0 { num_learners } else { 0.0 };
        let reference = if options.kl_weight > 0.0 { 1.0 } else { 0.0 };
        options.updates_per_batch as f64 * of_update * num_learners + before + reference
    }

    /// The speed of the matrix products that training consists of, where it computes, as it is now: it takes a twentieth of a second.
    ///
    /// # Errors
    /// Those of [`TrainingGpu::open`]; [`Error::Tensor`](crate::Error::Tensor).
    pub fn measured_flops_per_second(device: crate::models::Device) -> Result<f64> {
        let gpu = TrainingGpu::open(device)?;
        let (place, size) = gpu.as_ref().map_or((&Device::Cpu, SIZE), |gpu| (gpu.device(), SIZE_ON_GPU));
        let ones = Tensor::ones((size, size), DType::F32, place)?;
        let multiply = || match device.arithmetic_of_training() {
            Arithmetic::Fused => ops::linear(&ones, &ones, None),
            Arithmetic::Plain(dtype) => ops::plain::linear(&ones, &ones, None, dtype),
        };
        // The first one wakes the threads, or compiles.
        multiply()?;
        place.synchronize()?;
        let (started, mut count) = (Instant::now(), 0);
        while started.elapsed() < MEASURED {
            multiply()?;
            // A GPU takes work before it has done it.
            place.synchronize()?;
            count += 1;
        }
        Ok(f64::from(count) * 2.0 * (size as f64).powi(3) / started.elapsed().as_secs_f64())
    }
}

/// What goes through a model.
#[derive(Debug, Default)]
struct Work {
    /// Of all sequences.
    num_tokens: usize,
    num_distinct_tokens: usize,
    /// Twice the sum over the distinct tokens of how many tokens each sees.
    squares: f64,
}

impl Work {
    /// Adds a batch and gives its distinct tokens.
    fn add(&mut self, batch: &[usize], costs: &[usize], packing: Option<&Sharing>) -> usize {
        let lengths = || batch.iter().map(|&example| costs[example]);
        let num_tokens: usize = lengths().sum();
        let end_to_end = || Size { num_tokens, squares: lengths().map(|length| length as f64 * length as f64).sum() };
        let size = packing.map_or_else(end_to_end, |sharing| sharing.size(batch));
        self.num_tokens += num_tokens;
        self.num_distinct_tokens += size.num_tokens;
        self.squares += size.squares;
        size.num_tokens
    }

    fn forward_flops(&self, config: &DecoderConfig) -> f64 {
        let shapes = config.tensor_shapes();
        let in_blocks = shapes.iter().filter(|(name, shape)| shape.len() == 2 && name.starts_with("model.layers."));
        let blocks = count(in_blocks.map(|(_, shape)| shape.as_slice()));
        let head = (config.num_outputs() * config.hidden_size) as u64;
        // Queries with keys, and weights with values, each over half of a square.
        let attention = self.squares * (config.query_width() * config.num_hidden_layers) as f64;
        2.0 * (self.num_distinct_tokens as f64 * (blocks + head) as f64 + attention)
    }
}

/// Work of a step, in forward passes: a backward pass has two products for each one of the forward pass, and one where the weights are frozen.
fn passes(is_frozen: bool, is_recomputed: bool) -> f64 {
    let backward = if is_frozen { 1.0 } else { 2.0 };
    1.0 + backward + if is_recomputed { 1.0 } else { 0.0 }
}

/// The input of every block, and the graph of one.
fn recomputed_bytes(config: &DecoderConfig, num_tokens: usize, kept: usize) -> u64 {
    let inputs = (num_tokens * config.hidden_size * (config.num_hidden_layers + 1)) as u64 * F32_BYTES;
    inputs + (kept / config.num_hidden_layers.max(1)) as u64
}

fn count<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> u64 {
    shapes.map(|shape| shape.iter().map(|size| *size as u64).product::<u64>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::fixture;
    use crate::models::lora::LoraOptions;

    fn config() -> DecoderConfig {
        let config = DecoderConfig::load(&fixture("models/qwen2_untied")).expect("the fixture has a configuration");
        DecoderConfig { num_hidden_layers: 8, ..config }
    }

    #[test]
    fn figures_follow_the_plan() {
        let (config, run) = (config(), RunOptions { epochs: 2.0, batch_tokens: 30, ..RunOptions::default() });
        let costs = [10, 20, 30];
        let full = estimate(&config, &costs, None, &run, Some(1), 1e9);
        assert_eq!((full.num_examples, full.num_steps, full.num_tokens, full.num_distinct_tokens), (3, 6, 120, 120));
        assert_eq!(full.trainable_parameters, full.parameters);
        assert_eq!(full.weight_bytes, 4 * full.parameters);
        assert_eq!(full.optimizer_bytes, 12 * full.parameters);
        assert_eq!(full.checkpoint_bytes, 12 * full.parameters);
        let forward = 2.0 * Estimate::forward_flops(&config, &costs, None, &run);
        assert!((full.flops / (3.0 * forward) - 1.0).abs() < 1e-12, "{full:?}");
        assert!((full.seconds * 1e9 / full.flops - 1.0).abs() < 1e-12);

        let again = estimate(&config, &costs, None, &RunOptions { recompute: Some(true), ..run.clone() }, Some(1), 1e9);
        assert!(again.flops > full.flops && again.activation_bytes < full.activation_bytes, "{again:?} beside {full:?}");
        let one_step = estimate(&config, &costs, None, &RunOptions { max_steps: Some(1), shuffle: false, ..run }, Some(1), 1e9);
        assert_eq!((one_step.num_steps, one_step.num_tokens), (1, 10));
    }

    #[test]
    fn adapters_train_two_narrow_matrices_for_each_target() {
        let config = config();
        let lora = |targets: &[&str]| LoraOptions {
            rank: 4,
            alpha: 8.0,
            is_rank_stabilized: false,
            targets: targets.iter().map(|target| (*target).to_owned()).collect(),
            seed: 0,
        };
        let trainable = |targets: &[&str]| {
            let run = RunOptions { lora: Some(lora(targets)), ..RunOptions::default() };
            estimate(&config, &[10], None, &run, None, 1e9).trainable_parameters
        };
        let of_query = (config.num_hidden_layers * 4 * (config.query_width() + config.hidden_size)) as u64;
        assert_eq!(trainable(&["q_proj"]), of_query);
        assert_eq!(trainable(&["self_attn.q_proj"]), of_query);
        assert_eq!(trainable(&["proj"]), 0, "a part of a name is none");
        assert_eq!(trainable(&["lm_head", "embed_tokens"]), 0);
        assert!(trainable(&["all-linear"]) > of_query);
        let run = RunOptions { lora: Some(lora(&["q_proj"])), ..RunOptions::default() };
        let [adapters, full] = [run, RunOptions::default()].map(|run| estimate(&config, &[10], None, &run, None, 1e9));
        assert_eq!(adapters.weight_bytes, full.weight_bytes + 4 * of_query);
        assert!(adapters.optimizer_bytes < full.optimizer_bytes && adapters.flops < full.flops);
        // Of each of ten tokens, both parts of the output of every query, and the narrow product twice.
        let kept = 10 * config.num_hidden_layers * 2 * (config.query_width() + 4);
        assert_eq!(adapters.activation_bytes - full.activation_bytes, 4 * kept as u64);
    }

    /// Of 7 B parameters 14 GB where they are frozen; 16 bytes each where they are trained.
    #[test]
    fn a_gpu_holds_what_is_frozen_in_half_of_the_bytes() {
        let (config, device) = (config(), crate::models::Device::Cuda(0));
        let estimated = |lora: Option<LoraOptions>| {
            let run = RunOptions { device, lora, ..RunOptions::default() };
            estimate(&config, &[10], None, &run, None, 1e9)
        };
        let (full, adapters) = (estimated(None), estimated(Some(LoraOptions { rank: 4, ..LoraOptions::default() })));
        assert_eq!(full.weight_bytes + full.optimizer_bytes, 16 * full.parameters);
        assert_eq!(adapters.weight_bytes, 2 * adapters.parameters + 4 * adapters.trainable_parameters);
        assert_eq!(adapters.optimizer_bytes, 12 * adapters.trainable_parameters);
        assert_eq!(adapters.checkpoint_bytes, 12 * adapters.trainable_parameters);
    }

    #[test]
    fn costs_are_those_of_cut_prompts() {
        let run = RunOptions { max_length: 8, batch_tokens: 14, ..RunOptions::default() };
        let example =
            |prompt, completion| SftExample { prompt: vec![1; prompt], completion: vec![2; completion], weight: 1.0, mask: vec![] };
        let unweighted = SftExample { weight: 0.0, ..example(5, 5) };
        assert_eq!(Estimate::costs_of_examples(&[example(3, 2), unweighted, example(30, 2)], &run), [4, 7]);
        let pair = |prompt, chosen, rejected| DpoExample { prompt: vec![1; prompt], chosen: vec![2; chosen], rejected: vec![3; rejected] };
        // Seven tokens for each sequence, because both have to fit into a batch.
        assert_eq!(Estimate::costs_of_pairs(&[pair(2, 3, 1), pair(30, 3, 1)], &run), [6, 10]);
    }

    #[test]
    fn what_examples_share_counts_once_where_batches_are_trees() {
        let config = config();
        let pair = |last: u32| DpoExample { prompt: vec![1; 10], chosen: vec![2, last, 4], rejected: vec![3] };
        let pairs = [pair(5), pair(6)];
        let run = RunOptions::default();
        let costs = Estimate::costs_of_pairs(&pairs, &run);
        assert_eq!(costs, [22, 22]);
        let sharing = Sharing::of_pairs(&pairs, &run).expect("they fit").expect("the default packs trees");
        let apart = RunOptions { tree_packing: false, ..RunOptions::default() };
        assert!(Sharing::of_pairs(&pairs, &apart).expect("they fit").is_none());
        let [packed, apart] = [run, apart].map(|run| estimate(&config, &costs, Some(&sharing), &run, Some(2), 1e9));
        assert_eq!((packed.num_tokens, packed.num_distinct_tokens), (44, 13), "ten of the prompt, the 2 behind it, a 5 and a 6");
        assert_eq!((apart.num_tokens, apart.num_distinct_tokens), (44, 44));
        assert_eq!(packed.activation_bytes, activation_bytes(&config, None, Arithmetic::Fused, 13) as u64);
        assert!(packed.flops < 0.4 * apart.flops, "{packed:?} beside {apart:?}");
    }

    #[test]
    fn an_update_takes_a_backward_pass_of_each_learner_and_what_comes_before_it() {
        let passes = |options: OnlineOptions| Estimate::passes_of_update(&options, &config());
        let grpo = OnlineOptions { run: RunOptions { recompute: Some(false), ..RunOptions::default() }, ..OnlineOptions::grpo() };
        assert_eq!(passes(grpo.clone()), 3.0, "forward, and two products for each of it backward");
        assert_eq!(passes(OnlineOptions { kl_weight: 0.1, ..grpo.clone() }), 4.0);
        assert_eq!(passes(OnlineOptions { updates_per_batch: 2, ..grpo.clone() }), 7.0);
        assert_eq!(passes(OnlineOptions { mini_batches: 2, ..grpo.clone() }), 4.0);
        let again = OnlineOptions { run: RunOptions { recompute: Some(true), ..RunOptions::default() }, ..grpo.clone() };
        assert_eq!(passes(again), 4.0);
        let ppo = OnlineOptions { run: grpo.run, updates_per_batch: 1, ..OnlineOptions::ppo() };
        assert_eq!(passes(ppo), 8.0, "of policy and critic");
    }

    #[test]
    fn the_speed_of_products_is_measured() {
        let speed = Estimate::measured_flops_per_second(crate::models::Device::Cpu).expect("a product");
        assert!((1e7..1e15).contains(&speed), "{speed}");
    }
}
