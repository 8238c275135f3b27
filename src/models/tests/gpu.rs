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
    let ((config, mut source), (same_config, mut same_source)) = (load(), load());
    (CpuEncoder::new(config, &mut source).unwrap(), GpuEncoder::new(gpu, same_config, &mut same_source).unwrap())
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
