//! Fused operations equal the plain candle operations in value and gradient, over random shapes.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor, Var};
use proptest::prelude::*;

use crate::models::config::RopeConfig;
use crate::models::ops::{self, AttentionShape, RopeTable, reference};
use crate::models::random::CounterRng;

const TOLERANCE: f32 = 1e-5;

fn random(shape: &[usize], seed: u64) -> Var {
    let rng = CounterRng::new(seed);
    let values: Vec<f32> = (0..shape.iter().product::<usize>() as u64).map(|i| rng.normal(i) as f32).collect();
    Var::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn difference(a: &Tensor, b: &Tensor) -> f32 {
    let scale = b.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap().max(1.0);
    (a - b).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap() / scale
}

/// Both functions give the same value, and the same gradient of a random projection of it in every input.
fn check(inputs: &[Var], fused: impl Fn(&[Var]) -> Result<Tensor>, plain: impl Fn(&[Var]) -> Result<Tensor>) {
    let (fused, plain) = (fused(inputs).unwrap(), plain(inputs).unwrap());
    assert!(difference(&fused, &plain) < TOLERANCE, "values differ by {}", difference(&fused, &plain));
    let direction = random(plain.dims(), 99);
    let gradients = |out: &Tensor| (out * direction.as_detached_tensor()).unwrap().sum_all().unwrap().backward().unwrap();
    let (fused, plain) = (gradients(&fused), gradients(&plain));
    for (index, input) in inputs.iter().enumerate() {
        let found = fused.get(input).unwrap_or_else(|| panic!("the graph is cut: input {index} has no gradient"));
        let expected = plain.get(input).unwrap();
        let difference = difference(found, expected);
        assert!(difference < TOLERANCE, "gradients of input {index} differ by {difference}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn linear(rows in 1_usize..40, input in 1_usize..70, output in 1_usize..50, seed: u64) {
        let inputs = [random(&[rows, input], seed), random(&[output, input], seed ^ 1), random(&[output], seed ^ 2)];
        check(&inputs, |v| ops::linear(&v[0], &v[1], Some(&v[2])), |v| reference::linear(&v[0], &v[1], Some(&v[2])));
        check(&inputs[..2], |v| ops::linear(&v[0], &v[1], None), |v| reference::linear(&v[0], &v[1], None));
    }

    #[test]
    fn embedding(rows in 1_usize..60, vocab in 1_usize..20, width in 1_usize..40, seed: u64) {
        let rng = CounterRng::new(seed);
        let ids: Vec<u32> = (0..rows as u64).map(|i| (rng.bits(i) % vocab as u64) as u32).collect();
        check(&[random(&[vocab, width], seed)], |v| ops::embedding(&v[0], &ids), |v| reference::embedding(&v[0], &ids));
    }

    #[test]
    fn rms_norm(rows in 1_usize..300, width in 8_usize..70, seed: u64) {
        let inputs = [random(&[rows, width], seed), random(&[width], seed ^ 1)];
        check(&inputs, |v| ops::rms_norm(&v[0], &v[1], 1e-6), |v| reference::rms_norm(&v[0], &v[1], 1e-6));
    }

    #[test]
    fn silu_mul(rows in 1_usize..50, width in 1_usize..70, seed: u64) {
        let inputs = [random(&[rows, width], seed), random(&[rows, width], seed ^ 1)];
        check(&inputs, |v| ops::silu_mul(&v[0], &v[1]), |v| reference::silu_mul(&v[0], &v[1]));
    }

    #[test]
    fn rope(rows in 1_usize..50, heads in 1_usize..4, half in 1_usize..20, seed: u64) {
        let table = Arc::new(RopeTable::new(&RopeConfig::plain(1e6).frequencies(2 * half), 1000));
        let rng = CounterRng::new(seed);
        let positions: Arc<[u32]> = (0..rows as u64).map(|i| (rng.bits(i) % 1000) as u32).collect();
        let inputs = [random(&[rows, heads * half * 2], seed)];
        check(&inputs, |v| ops::rope(&v[0], &positions, &table), |v| reference::rope(&v[0], &positions, &table));
    }

    #[test]
    fn causal_attention(
        lengths in prop::collection::vec(1_usize..90, 1..4), kv_heads in 1_usize..3, group in 1_usize..4, width in 1_usize..20, seed: u64,
    ) {
        let shape = AttentionShape {
            lengths: lengths.clone().into(), num_heads: kv_heads * group, num_key_value_heads: kv_heads, head_dim: 2 * width,
        };
        let rows = lengths.iter().sum();
        let (query, key) = (shape.num_heads * shape.head_dim, kv_heads * shape.head_dim);
        let inputs = [random(&[rows, query], seed), random(&[rows, key], seed ^ 1), random(&[rows, key], seed ^ 2)];
        check(
            &inputs,
            |v| ops::causal_attention(&v[0], &v[1], &v[2], &shape),
            |v| reference::causal_attention(&v[0], &v[1], &v[2], &shape),
        );
    }
}
