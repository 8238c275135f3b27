//! What a GPU computes, beside what the CPU computes: `make cuda`'s features, on a machine with a GPU; elsewhere they say that they are skipped.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::fixtures::fixture;
use crate::models::config::EncoderConfig;
use crate::models::device::{Device, Gpu};
use crate::models::encoder::{Batch, CpuEncoder, GpuEncoder, Pooling, Source};
use crate::models::random::CounterRng;

/// Half precision keeps some three digits.
const COSINE_MIN: f32 = 0.9995;

fn gpu() -> Option<Arc<Gpu>> {
    let gpu = Device::Auto.gpu().unwrap();
    if gpu.is_none() {
        // Past the test harness, which keeps what a passing test prints.
        let _ = writeln!(std::io::stderr(), "skipped: there is no GPU");
    }
    gpu
}

fn encoders(gpu: Arc<Gpu>, directory: &Path) -> (CpuEncoder, GpuEncoder) {
    let load = || (EncoderConfig::load(directory).unwrap(), Source::load(directory).unwrap());
    let ((config, source), (same_config, same_source)) = (load(), load());
    (CpuEncoder::new(config, &source).unwrap(), GpuEncoder::new(gpu, same_config, &same_source).unwrap())
}

/// Texts of these lengths, of random tokens and segments.
fn assert_equal(cpu: &CpuEncoder, gpu: &GpuEncoder, lengths: &[usize]) {
    let (config, rng) = (cpu.config(), CounterRng::new(7));
    let count = lengths.iter().sum::<usize>() as u64;
    let below = |limit: usize, stream: u64| (0..count).map(move |i| (rng.stream(stream).uniform(i) * limit as f64) as u32);
    let tokens: Vec<u32> = below(config.vocab_size, 1).collect();
    let segments: Vec<u32> = below(config.type_vocab_size.max(1), 2).collect();
    let batch = Batch { tokens: &tokens, segments: &segments, lengths };
    for pooling in [Pooling::Mean, Pooling::Cls, Pooling::Last, Pooling::Max] {
        let (ours, expected) = (gpu.vectors(batch, pooling, true).unwrap(), cpu.vectors(batch, pooling, true).unwrap());
        let width = config.hidden_size;
        for (index, (ours, expected)) in ours.chunks_exact(width).zip(expected.chunks_exact(width)).enumerate() {
            let cosine: f32 = ours.iter().zip(expected).map(|(a, b)| a * b).sum();
            assert!(cosine >= COSINE_MIN, "text {index} of {} tokens, {pooling:?}: cosine {cosine}", lengths[index]);
        }
    }
}

#[test]
fn vectors_equal_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    for name in ["bert", "roberta"] {
        let (cpu, gpu) = encoders(Arc::clone(&gpu), &fixture(&format!("models/{name}")));
        let longest = cpu.config().max_tokens();
        assert_equal(&cpu, &gpu, &[1, 2, 3, 15, 16, 17, longest - 1, longest, 1]);
        // Fewer rows than before, in buffers that held others; then none.
        assert_equal(&cpu, &gpu, &[5]);
        assert!(gpu.vectors(Batch { tokens: &[], segments: &[], lengths: &[] }, Pooling::Mean, true).unwrap().is_empty());
    }
}

#[test]
fn tokens_out_of_range_are_refused() {
    let Some(gpu) = gpu() else { return };
    let (cpu, gpu) = encoders(gpu, &fixture("models/bert"));
    let beyond = cpu.config().vocab_size as u32;
    for (tokens, segments, lengths) in [(vec![beyond], vec![0], vec![1]), (vec![0], vec![9], vec![1]), (vec![0], vec![0], vec![2])] {
        assert!(gpu.vectors(Batch { tokens: &tokens, segments: &segments, lengths: &lengths }, Pooling::Mean, true).is_err());
    }
}

/// Policies: the same code as `device_decoder.rs` tests on the CPU, which is why a few numbers are enough here.
#[cfg(feature = "cuda-policies")]
mod policies {
    use std::io::Write;
    use std::time::Instant;

    use candle_core::DType;

    use super::super::goldens::{DECODERS, fixture};
    use super::gpu;
    use crate::models::decoder::Decoder;
    use crate::models::device::candle_gpu;
    use crate::models::device_decoder::DeviceDecoder;
    use crate::models::packed::{PackedDecoder, Segment};
    use crate::models::tests::tiny_config;
    use crate::models::{DecoderConfig, random::CounterRng};

    /// Sums of some hundred products in another order.
    const F32_ERROR_MAX: f32 = 1e-3;
    /// bf16 keeps eight bits: a product of two rounded numbers is wrong by up to 2^-8, a sum of many, some of which are too large and some too small, by
    /// less, and a handful of sums lie between a token and its logits.
    const BF16_RELATIVE_ERROR_MAX: f32 = 2e-2;

    fn norm(values: impl Iterator<Item = f32>) -> f32 {
        values.map(|value| value * value).sum::<f32>().sqrt()
    }

    /// Logits after prompts of these lengths that are read in one forward, and after one more token of each.
    fn logits(mut forward: impl FnMut(&[Vec<u32>]) -> Vec<f32>, vocabulary: usize) -> Vec<f32> {
        let token = |seed: u64, place: u64| (CounterRng::new(seed).bits(place) % vocabulary as u64) as u32;
        let prompts: Vec<Vec<u32>> =
            (0..).zip([1, 31, 32, 33, 300]).map(|(seed, len)| (0..len).map(|place| token(seed, place)).collect()).collect();
        let first = forward(&prompts);
        [first, forward(&vec![vec![7]; prompts.len()])].concat()
    }

    #[test]
    fn logits_equal_those_of_the_cpu() {
        if gpu().is_none() {
            return;
        }
        for name in DECODERS {
            let packed = PackedDecoder::load(&fixture(name)).unwrap();
            let vocabulary = packed.config().vocab_size;
            let mut caches: Vec<_> = (0..5).map(|_| packed.new_cache()).collect();
            let on_cpu = |tokens: &[Vec<u32>]| {
                let mut segments: Vec<_> = caches.iter_mut().zip(tokens).map(|(cache, tokens)| Segment { cache, tokens }).collect();
                packed.forward(&mut segments)
            };
            let expected = logits(on_cpu, vocabulary);
            for dtype in [DType::F32, DType::BF16] {
                let decoder = DeviceDecoder::load(&fixture(name), &candle_gpu(0).unwrap(), dtype).unwrap();
                let mut caches: Vec<_> = (0..5).map(|_| decoder.new_cache()).collect();
                let on_gpu = |tokens: &[Vec<u32>]| {
                    let mut segments: Vec<_> = caches.iter_mut().zip(tokens).map(|(cache, tokens)| Segment { cache, tokens }).collect();
                    decoder.forward(&mut segments).unwrap()
                };
                let found = logits(on_gpu, vocabulary);
                for (index, (found, expected)) in found.chunks_exact(vocabulary).zip(expected.chunks_exact(vocabulary)).enumerate() {
                    assert!(
                        found.iter().chain(expected).all(|logit| logit.is_finite()),
                        "{name}, {dtype:?}, row {index}: a NaN would be no difference"
                    );
                    let differences = || found.iter().zip(expected).map(|(a, b)| (a - b).abs());
                    let (largest, relative) = (differences().fold(0.0, f32::max), norm(differences()) / norm(expected.iter().copied()));
                    let is_close = if dtype == DType::F32 { largest < F32_ERROR_MAX } else { relative < BF16_RELATIVE_ERROR_MAX };
                    assert!(is_close, "{name}, {dtype:?}, row {index}: a logit differs by {largest}, all by {relative} of their norm");
                }
            }
        }
    }

    /// Prints tokens per second of 64 sequences; what it checks is that all of them are the same, as their prompts are: logits are below 1 here.
    #[test]
    fn many_sequences_decode_together() {
        if gpu().is_none() {
            return;
        }
        let config = DecoderConfig {
            vocab_size: 8192,
            hidden_size: 512,
            intermediate_size: 1536,
            num_hidden_layers: 8,
            num_attention_heads: 8,
            num_key_value_heads: 2,
            head_dim: 64,
            ..tiny_config()
        };
        let device = candle_gpu(0).unwrap();
        let decoder = DeviceDecoder::of(&Decoder::random(config.clone(), 1).unwrap(), &device, DType::BF16).unwrap();
        let mut caches: Vec<_> = (0..64).map(|_| decoder.new_cache()).collect();
        let mut step = |tokens: &[u32]| {
            let mut segments: Vec<_> = caches.iter_mut().map(|cache| Segment { cache, tokens }).collect();
            decoder.forward(&mut segments).unwrap()
        };
        step(&[5; 128]);
        let start = Instant::now();
        for token in 0..64 {
            let logits = step(&[token]);
            let (first, last) = (&logits[..config.vocab_size], &logits[logits.len() - config.vocab_size..]);
            assert!(first.iter().zip(last).all(|(a, b)| (a - b).abs() < BF16_RELATIVE_ERROR_MAX), "token {token}");
        }
        let rate = 64.0 * 64.0 / start.elapsed().as_secs_f64();
        // Past the test harness, which keeps what a passing test prints.
        let _ = writeln!(std::io::stderr(), "64 sequences of a policy of 0.03 B parameters: {rate:.0} tokens/s");
    }
}
