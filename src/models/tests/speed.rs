//! Timings on the size of the built-in policy; ignored by default, run with `--ignored --nocapture --test-threads 1`.
//!
//! They count the processor time of all threads, which other processes disturb less than the clock on the wall.

use std::time::Duration;

use super::tiny_config;
use crate::models::{Decoder, DecoderConfig};

/// A point in this process's processor time (Linux only).
#[derive(Clone, Copy)]
struct Cpu(u64);

impl Cpu {
    fn now() -> Self {
        let of_thread = |entry: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        Self(std::fs::read_dir("/proc/self/task").unwrap().filter_map(of_thread).sum())
    }

    fn elapsed(self) -> Duration {
        Duration::from_nanos(Self::now().0 - self.0)
    }
}

fn small_config() -> DecoderConfig {
    DecoderConfig {
        vocab_size: 1500,
        hidden_size: 128,
        intermediate_size: 384,
        num_hidden_layers: 4,
        head_dim: 32,
        max_position_embeddings: 1024,
        ..tiny_config()
    }
}

#[test]
#[ignore = "a timing, not a check"]
fn training_step() {
    let decoder = Decoder::random(small_config(), 1).unwrap();
    let lengths = [200_usize; 15];
    let tokens: Vec<u32> = (0..3000).map(|i| (i * 7919) % 1500).collect();
    for _ in 0..3 {
        let start = Cpu::now();
        let hidden = decoder.hidden(&tokens, &lengths).unwrap();
        let forward = start.elapsed();
        let direction = hidden.detach();
        let loss = (&hidden * &direction).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        assert!(gradients.get(decoder.head_weight()).is_some());
        println!("forward {forward:?}, forward and backward {:?}", start.elapsed());
    }
}

#[test]
#[ignore = "a timing, not a check"]
fn panel_product() {
    use crate::models::panels::PackedMatrix;
    for (rows, input, output) in [(1, 128, 1500), (32, 128, 768), (256, 128, 768), (256, 384, 1536), (256, 1536, 384)] {
        let (x, weight) = (vec![0.5_f32; rows * input], vec![0.25_f32; input * output]);
        let packed = PackedMatrix::new(input, &[&weight], &[]);
        let repeat = 1 + 200_000_000 / (rows * input * output);
        let rate = |start: Cpu| 2e-9 * (repeat * rows * input * output) as f64 / start.elapsed().as_secs_f64();
        let start = Cpu::now();
        (0..repeat).for_each(|_| drop(std::hint::black_box(packed.multiply(&x))));
        let panels = rate(start);
        let tensor = |values: &[f32], shape| candle_core::Tensor::from_slice(values, shape, &candle_core::Device::Cpu).unwrap();
        let (x, weight) = (tensor(&x, (rows, input)), tensor(&weight, (output, input)));
        let start = Cpu::now();
        (0..repeat).for_each(|_| drop(std::hint::black_box(crate::models::ops::linear(&x, &weight, None).unwrap())));
        let linear = rate(start);
        let start = Cpu::now();
        (0..repeat).for_each(|_| drop(std::hint::black_box(x.matmul(&weight.t().unwrap()).unwrap())));
        println!("[{rows}, {input}] x [{input}, {output}]: packed {panels:.0}, linear {linear:.0}, candle {:.0} GFLOP/s", rate(start));
    }
}

/// candle's product rounds x to eight bits; with `RAYON_NUM_THREADS=1 CANDLE_NUM_THREADS=1` its threads do not spin.
#[test]
#[ignore = "a timing, not a check"]
fn encoded_product() {
    use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
    use candle_core::{Device, Module, Tensor};

    use crate::models::encoded::EncodedMatrix;
    use crate::models::encoding::Encoding;
    use crate::models::panels::PackedMatrix;
    let (input, output) = (1024, 4096);
    let weight: Vec<f32> = (0..input * output).map(|i| ((i * 7919 % 2003) as f32 - 1001.0) / 1001.0).collect();
    let packed = PackedMatrix::new(input, &[&weight], &[]);
    let weight = Tensor::from_vec(weight, (output, input), &Device::Cpu).unwrap();
    for (encoding, peer) in [(Encoding::Q8_0, GgmlDType::Q8_0), (Encoding::Q4K, GgmlDType::Q4K), (Encoding::Q6K, GgmlDType::Q6K)] {
        let quantized = QTensor::quantize(&weight, peer).unwrap();
        let matrix = EncodedMatrix::new(encoding, input, quantized.data().unwrap().into_owned()).unwrap();
        let quantized = QMatMul::from_qtensor(quantized).unwrap();
        for rows in [1, 8, 32, 256] {
            let x = vec![0.5_f32; rows * input];
            let tensor = Tensor::from_slice(&x, (rows, input), &Device::Cpu).unwrap();
            let repeat = 2 + 2_000_000_000 / (rows * input * output);
            let rate = |product: &dyn Fn()| {
                product();
                let start = Cpu::now();
                (0..repeat).for_each(|_| product());
                2e-9 * (repeat * rows * input * output) as f64 / start.elapsed().as_secs_f64()
            };
            let ours = rate(&|| drop(std::hint::black_box(matrix.multiply(&x))));
            let candle = rate(&|| drop(std::hint::black_box(quantized.forward(&tensor).unwrap())));
            let single = rate(&|| drop(std::hint::black_box(packed.multiply(&x))));
            let name = encoding.name();
            println!("[{rows}, {input}] x {name} [{input}, {output}]: {ours:.0}, candle {candle:.0}, in f32 {single:.0} GFLOP/s");
        }
    }
}

#[test]
#[ignore = "a timing, not a check"]
fn generation() {
    use crate::models::packed::{PackedDecoder, Segment};
    let decoder = PackedDecoder::new(&Decoder::random(small_config(), 1).unwrap()).unwrap();
    let prompt: Vec<u32> = (0..300).map(|i| (i * 7919) % 1500).collect();
    let start = Cpu::now();
    let caches: Vec<_> = (0..64)
        .map(|_| {
            let mut cache = decoder.new_cache();
            decoder.forward(&mut [Segment { cache: &mut cache, tokens: &prompt }]);
            cache
        })
        .collect();
    println!("prefill of 300 tokens: {:.0} tokens/s", 64.0 * 300.0 / start.elapsed().as_secs_f64());
    for rows in [1, 32, 64] {
        let mut caches = caches[..rows].to_vec();
        let start = Cpu::now();
        for step in 0..60 {
            let tokens = [step];
            let mut segments: Vec<_> = caches.iter_mut().map(|cache| Segment { cache, tokens: &tokens }).collect();
            std::hint::black_box(decoder.forward(&mut segments));
        }
        println!("decode of {rows} rows after 300 tokens: {:.0} tokens/s", 60.0 * rows as f64 / start.elapsed().as_secs_f64());
    }
}

#[test]
#[ignore = "a timing, not a check; needs ROLLOUTDB_MINILM"]
fn embedding() {
    use crate::models::embedder::LoadedEmbedder;
    let directory = std::env::var_os("ROLLOUTDB_MINILM").expect("the directory of all-MiniLM-L6-v2");
    let directory = std::path::Path::new(&directory);
    let settings = crate::models::EmbedderSettings::load(directory).unwrap();
    let model = LoadedEmbedder::load(directory, crate::models::Device::Auto, settings).unwrap();
    for length in [16, 64, 128] {
        let texts: Vec<Vec<u32>> = (0..1024 / length).map(|i| (0..length).map(|j| 1000 + (i * 31 + j * 7) % 20_000).collect()).collect();
        let start = Cpu::now();
        for _ in 0..4 {
            std::hint::black_box(model.embed_tokens(&texts).unwrap());
        }
        println!("texts of {length} tokens: {:.0} tokens/s", 4.0 * 1024.0 / start.elapsed().as_secs_f64());
    }
}
