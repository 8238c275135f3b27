//! Training on a GPU, of a build with `cuda-policies`, on a machine with one; elsewhere these say that they are skipped. The code is that of `device.rs`, which runs
//! everywhere: a few numbers are enough here.

use std::io::Write;

use super::*;
use crate::models::{Device as Place, TrainingGpu};

fn gpu() -> Option<TrainingGpu> {
    let gpu = TrainingGpu::open(Place::Auto).expect("a GPU that is there can be used");
    if gpu.is_none() {
        // Past the test harness, which keeps what a passing test prints.
        let _ = writeln!(std::io::stderr(), "skipped: there is no GPU");
    }
    gpu
}

fn in_f32(decoder: Decoder) -> Decoder {
    let gpu = gpu().expect("it was asked for before");
    decoder.on(gpu.device(), candle_core::DType::F32).expect("the GPU has room")
}

#[test]
fn goldens_are_those_of_the_cpu() {
    if gpu().is_none() {
        return;
    }
    golden::check_sft("sft_tied", "policy", in_f32);
    golden::check_sft("sft_untied", "reference", in_f32);
    golden::check_dpo("dpo", "reference", in_f32);
    golden::check_steps(in_f32);
    golden_lora::check_gradients(in_f32);
    golden_lora::check_steps(in_f32);
    golden_lora::check_preferences(in_f32);
}

#[test]
fn a_policy_learns_in_bf16() {
    let Some(gpu) = gpu() else { return };
    let host = tiny_decoder(VOCAB, 1);
    let mut copy = gpu.copy_of(&host).expect("the GPU has room");
    let run = RunOptions { epochs: 60.0, learning_rate: 1e-2, ..RunOptions::default() };
    let options = SftOptions { run, batch_size: Some(8), prompt_weight: 0.0 };
    let mut losses = Vec::new();
    let mut observer = |step: &StepMetrics| {
        losses.push(step.get("loss").expect("of every step"));
        Ok(())
    };
    train_sft(&mut copy, &copy_task(16), &options, &mut observer).expect("finite numbers");
    assert!(losses[losses.len() - 1] < 0.2 * losses[0], "{losses:?}");
    host.take_parameters(&copy).expect("they are the same");
    assert_eq!(weights(&host), weights(&copy));
}
