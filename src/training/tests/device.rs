//! Training as on a GPU, on candle's CPU device: the same goldens as the fused operations in f32, and what bf16 changes.

use candle_core::DType;

use super::backward::{check_methods, check_scores, decoder_of};
use super::every_gradient::{architectures, check_policy, check_reward_model, reward_model_of};
use super::golden::Place;
use super::*;
use crate::models::decoder::Keep;
use crate::models::ops::{Arithmetic, Forest};
use crate::training::backward::activation_bytes;
use crate::training::example::sft_sequences;
use crate::training::sft::Sft;

/// The relative L2 error of the whole gradient of a step in bf16, which keeps eight bits: a product of two rounded numbers is wrong by up to 2^-8, and a few of them
/// lie between a token and a weight.
const BF16_GRADIENT_ERROR_MAX: f64 = 5e-2;

pub fn in_f32(decoder: Decoder) -> Decoder {
    decoder.on(&Device::Cpu, DType::F32).expect("the CPU has room")
}

fn in_bf16(decoder: Decoder) -> Decoder {
    decoder.on(&Device::Cpu, DType::BF16).expect("the CPU has room")
}

/// Of its own memory.
fn copy_of(decoder: &Decoder) -> Decoder {
    decoder.on(&Device::Cpu, DType::F32).expect("the CPU has room")
}

const PLACES: [(&str, Place); 2] = [("f32", in_f32), ("bf16", in_bf16)];

#[test]
fn losses_and_gradients_equal_torch() {
    golden::check_sft("sft_tied", "policy", in_f32);
    golden::check_sft("sft_untied", "reference", in_f32);
    golden::check_dpo("dpo", "reference", in_f32);
    golden::check_dpo("dpo_at_reference", "policy", in_f32);
    golden::check_weighted_sft(in_f32);
    golden::check_architecture("qwen3", in_f32);
    golden::check_architecture("llama3", in_f32);
}

#[test]
fn every_loss_of_pairs_equals_torch() {
    golden_preference::check_every_loss(in_f32);
}

#[test]
fn reward_models_equal_trl_and_torch() {
    prm::check_pairs(in_f32);
    prm::check_labelled_steps(in_f32);
}

#[test]
fn five_clipped_steps_equal_torch() {
    golden::check_steps(in_f32);
    prm::check_training(in_f32);
}

#[test]
fn adapters_equal_peft() {
    golden_lora::check_gradients(in_f32);
    golden_lora::check_steps(in_f32);
    golden_lora::check_preferences(in_f32);
}

/// Of all architectures, with all weights and with adapters, by all methods; no graph is cut in silence.
#[test]
fn every_weight_learns() {
    for architecture in architectures() {
        let (mut policy, mut reward_model) = (decoder_of(architecture, 2), reward_model_of(architecture));
        for what in ["", " with adapters"] {
            for (dtype, place) in PLACES {
                let what = format!("{architecture:?} in {dtype}{what}");
                check_policy(&place(copy_of(&policy)), &what);
                check_reward_model(&place(copy_of(&reward_model)), &what);
            }
            attach_trained_lora(&mut policy, &["all-linear"]);
            attach_trained_lora(&mut reward_model, &["all-linear"]);
        }
    }
}

#[test]
fn blocks_that_are_computed_again_give_the_same_bits() {
    for (dtype, place) in PLACES {
        check_methods(&place(checkpoint("policy")), &format!("policy in {dtype}"));
        check_scores(&place(checkpoint("prm")), &format!("prm in {dtype}"));
        let mut adapted = checkpoint("reference");
        attach_trained_lora(&mut adapted, &["q_proj", "down_proj"]);
        check_methods(&place(adapted), &format!("reference with adapters in {dtype}"));
    }
}

/// Loss and gradients of one step are those of the fused operations.
fn assert_as_fused(decoder: &Decoder, what: &str) {
    let examples = copy_task(6);
    let step = |decoder: &Decoder, tree_packing| {
        let sequences = sft_sequences(&examples, 0.3, &RunOptions::default()).expect("they fit");
        step_gradients(decoder, &Sft { sequences, tree_packing }, &[&[0, 1, 2, 3], &[4, 5]]).expect("finite numbers")
    };
    let (fused, copy) = (step(decoder, true), copy_of(decoder));
    for tree_packing in [true, false] {
        let found = step(&copy, tree_packing);
        golden::assert_relative(found.metrics[0].1, fused.metrics[0].1, 1e-5, what);
        for name in decoder.parameters().keys() {
            let [found, expected] = [&found, &fused].map(|step| step.gradients.get(name).expect(name));
            let error = relative_error(found, expected);
            assert!(error < 1e-4, "{what}, trees {tree_packing}: gradient of {name}: relative error {error}");
        }
    }
}

#[test]
fn trees_and_sequences_are_as_with_fused_operations() {
    for architecture in architectures() {
        let mut decoder = decoder_of(architecture, 2);
        assert_as_fused(&decoder, &format!("{architecture:?}"));
        attach_trained_lora(&mut decoder, &["all-linear"]);
        assert_as_fused(&decoder, &format!("{architecture:?} with adapters"));
    }
}

fn run_options(seed: u64) -> SftOptions {
    let run = RunOptions { epochs: 80.0, learning_rate: 1e-2, weight_decay: 0.01, seed, ..RunOptions::default() };
    SftOptions { run, batch_size: Some(8), prompt_weight: 0.0 }
}

/// First and last loss.
fn learn(decoder: &mut Decoder, options: &SftOptions) -> (f64, f64) {
    let mut losses = Vec::new();
    let mut observer = |step: &StepMetrics| {
        losses.push(step.get("loss").expect("of every step"));
        Ok(())
    };
    let (examples, validation) = (copy_task(16), copy_task(4));
    train_sft_validated(decoder, &examples, &validation, options, &mut observer).expect("finite numbers");
    (losses[0], losses[losses.len() - 1])
}

#[test]
fn a_step_in_bf16_is_about_that_in_f32() {
    let examples = copy_task(6);
    let step = |place: Place| {
        let decoder = place(checkpoint("policy"));
        let sequences = sft_sequences(&examples, 0.3, &RunOptions::default()).expect("they fit");
        let step = step_gradients(&decoder, &Sft { sequences, tree_packing: true }, &[&[0, 1, 2, 3, 4, 5]]).expect("finite numbers");
        let gradients = decoder.parameters().keys().flat_map(|name| values(step.gradients.get(name).expect(name))).collect::<Vec<f64>>();
        (step.metrics[0].1, Tensor::new(gradients.iter().map(|value| *value as f32).collect::<Vec<f32>>(), &Device::Cpu).expect("memory"))
    };
    let ((loss, gradient), (loss_in_bf16, gradient_in_bf16)) = (step(in_f32), step(in_bf16));
    golden::assert_relative(loss_in_bf16, loss, 1e-2, "loss");
    let error = relative_error(&gradient_in_bf16, &gradient);
    println!("losses {loss} and {loss_in_bf16}, relative error of the gradient {error:.1e}");
    assert!(error < BF16_GRADIENT_ERROR_MAX, "relative error {error}");
}

#[test]
fn bf16_learns_what_f32_does() {
    let start = tiny_decoder(VOCAB, 1);
    for (dtype, place) in PLACES {
        let (first, last) = learn(&mut place(copy_of(&start)), &run_options(2));
        assert!((first - (VOCAB as f64).ln()).abs() < 0.3, "{dtype}: random weights know nothing, but the loss starts at {first}");
        assert!(last < 0.3 * first, "{dtype}: the loss went from {first} to {last}");
    }
}

/// Of a LoRA on a GPU the frozen matrices are bf16, and what learns is f32; the decoder in host memory gets what was learned, and keeps its weights.
#[test]
fn what_learns_is_f32_and_goes_back_to_the_host() {
    let mut host = checkpoint("policy");
    attach_trained_lora(&mut host, &["q_proj", "up_proj"]);
    let (frozen, adapters): (Vec<_>, _) = (host.tensors().values().map(values).collect(), weights(&host));
    let mut copy = host.on(&Device::Cpu, DType::BF16).expect("the CPU has room");
    assert_eq!(copy.arithmetic(), Arithmetic::Plain(DType::BF16));
    for (name, tensor) in copy.tensors() {
        assert_eq!(tensor.dtype(), if tensor.rank() == 2 { DType::BF16 } else { DType::F32 }, "{name}");
    }
    assert!(copy.parameters().values().all(|parameter| parameter.dtype() == DType::F32));
    let options =
        SftOptions { run: RunOptions { learning_rate: 1e-2, ..RunOptions::default() }, batch_size: Some(4), ..SftOptions::default() };
    train_sft(&mut copy, &copy_task(8), &options, &mut |_| Ok(())).expect("finite numbers");
    assert_eq!(weights(&host), adapters, "a copy shares nothing");
    host.take_parameters(&copy).expect("they are the same");
    assert_eq!(weights(&host), weights(&copy));
    assert_ne!(weights(&host), adapters);
    assert!(host.tensors().values().map(values).eq(frozen), "frozen weights stay what they were");
    assert!(matches!(checkpoint("policy").take_parameters(&copy), Err(Error::Internal(_))), "of another kind");
}

/// As `resume.rs`: weights, moments and the best weights come back to the device as they were.
#[test]
fn a_run_goes_on_bit_by_bit() {
    let options = |directory: &std::path::Path| {
        let checkpoints = Some(Checkpoints { directory: directory.to_owned(), fingerprint: "a device".into() });
        let run = RunOptions { epochs: 4.0, evaluate_every: Some(3), early_stopping: Some(9), checkpoints, ..run_options(5).run };
        SftOptions { run, ..run_options(5) }
    };
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let mut whole = in_bf16(tiny_decoder(VOCAB, 3));
    learn(&mut whole, &options(directories[0].path()));
    let (examples, validation, options) = (copy_task(16), copy_task(4), options(directories[1].path()));
    let mut ended = |step: &StepMetrics| if step.step == 4 { Err(Error::Cancelled("TRAIN")) } else { Ok(()) };
    let result = train_sft_validated(&mut in_bf16(tiny_decoder(VOCAB, 3)), &examples, &validation, &options, &mut ended);
    assert!(matches!(result, Err(Error::Cancelled(_))), "{result:?}");
    let mut resumed = in_bf16(tiny_decoder(VOCAB, 4));
    let trained = train_sft_validated(&mut resumed, &examples, &validation, &options, &mut |_| Ok(())).expect("finite numbers");
    assert_eq!(trained.resumed_at, 4);
    assert!(weights(&resumed) == weights(&whole), "the weights differ");
}

/// Views of tensors count in what is kept, and take no memory.
#[test]
fn a_block_keeps_about_what_is_counted() {
    let tokens: Vec<u32> = (0..256).map(|index| (index * 7) % VOCAB as u32).collect();
    for architecture in architectures() {
        for dtype in [DType::F32, DType::BF16] {
            let decoder = decoder_of(architecture, 4).on(&Device::Cpu, dtype).expect("the CPU has room");
            let kept = |keep| decoder.forward_blocks(&tokens, &Forest::sequences(&[64; 4]), keep).expect("the tokens fit").kept_bytes();
            let (graphs, counted) = (kept(Keep::Graphs), activation_bytes(decoder.config(), None, Arithmetic::Plain(dtype), tokens.len()));
            println!("{architecture:?} {dtype:?}: {graphs} bytes with views, {counted} counted");
            assert!(
                (graphs / 2..=graphs + graphs / 4).contains(&counted),
                "{architecture:?} {dtype:?}: {graphs} bytes with views, {counted} counted"
            );
            assert!(kept(Keep::Inputs) < graphs / 4);
        }
    }
}
