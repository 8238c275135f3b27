//! Fused operations equal the plain candle operations in value and gradient, over random shapes.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, Var};
use proptest::prelude::*;

use crate::models::config::RopeConfig;
use crate::models::ops::tiles::{self, Limits, Tiles};
use crate::models::ops::{self, AttentionShape, Forest, RopeTable, reference};
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
        let f32 = DType::F32;
        check(&inputs, |v| ops::linear(&v[0], &v[1], Some(&v[2])), |v| reference::linear(&v[0], &v[1], Some(&v[2])));
        check(&inputs, |v| ops::plain::linear(&v[0], &v[1], Some(&v[2]), f32), |v| reference::linear(&v[0], &v[1], Some(&v[2])));
        check(&inputs[..2], |v| ops::linear(&v[0], &v[1], None), |v| reference::linear(&v[0], &v[1], None));
        check(&inputs[..2], |v| ops::plain::linear(&v[0], &v[1], None, f32), |v| reference::linear(&v[0], &v[1], None));
    }

    #[test]
    fn embedding(rows in 1_usize..60, vocab in 1_usize..20, width in 1_usize..40, seed: u64) {
        let rng = CounterRng::new(seed);
        let ids: Vec<u32> = (0..rows as u64).map(|i| (rng.bits(i) % vocab as u64) as u32).collect();
        check(&[random(&[vocab, width], seed)], |v| ops::embedding(&v[0], &ids), |v| reference::embedding(&v[0], &ids));
        check(&[random(&[vocab, width], seed)], |v| ops::plain::embedding(&v[0], &ids), |v| reference::embedding(&v[0], &ids));
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
        let table = Arc::new(RopeTable::new(&RopeConfig::plain(1e6).frequencies(2 * half), 1.25, 1000));
        let rng = CounterRng::new(seed);
        let positions: Arc<[u32]> = (0..rows as u64).map(|i| (rng.bits(i) % 1000) as u32).collect();
        let inputs = [random(&[rows, heads * half * 2], seed)];
        check(&inputs, |v| ops::rope(&v[0], &positions, &table), |v| reference::rope(&v[0], &positions, &table));
    }

    #[test]
    fn causal_attention(lengths in prop::collection::vec(1_usize..90, 1..4), heads in heads(), seed: u64) {
        let shape = heads.shape(Forest::sequences(&lengths));
        check(&attention_inputs(&shape, seed), |v| fused(v, &shape), |v| plain(v, &shape));
    }

    #[test]
    fn attention_over_trees(forest in forest(40), heads in heads(), seed: u64) {
        let shape = heads.shape(forest);
        check(&attention_inputs(&shape, seed), |v| fused(v, &shape), |v| plain(v, &shape));
    }

    #[test]
    fn attention_in_tiles(forest in forest(40), heads in heads(), rows in 1_usize..50, scores in 1_usize..20_000, seed: u64) {
        let shape = heads.shape(forest);
        for limits in [Limits { rows, scores }, Limits::DEFAULT] {
            let tiles = Arc::new(Tiles::new(shape.clone(), limits, &Device::Cpu).unwrap());
            check(&attention_inputs(&shape, seed), |v| tiles::causal_attention(&v[0], &v[1], &v[2], &tiles), |v| plain(v, &shape));
        }
    }

    #[test]
    fn a_branch_attends_as_if_it_were_alone(forest in forest(30), heads in heads(), seed: u64) {
        let paths = paths(&forest);
        let mut num_paths = vec![0.0_f32; forest.num_tokens()];
        paths.iter().flatten().for_each(|&row| num_paths[row as usize] += 1.0);
        let shape = heads.shape(forest);
        // Every branch runs alone; a row that several of them have counts as their mean, so that its gradient counts once.
        let alone = |v: &[Var]| -> Result<Tensor> {
            let rows = shape.forest.num_tokens();
            let shares: Vec<f32> = num_paths.iter().map(|paths| 1.0 / paths).collect();
            let shares = Tensor::from_vec(shares, (rows, 1), &Device::Cpu)?;
            let mut sum = Tensor::zeros((rows, shape.num_heads * shape.head_dim), DType::F32, &Device::Cpu)?;
            for path in &paths {
                let shape = AttentionShape { forest: Forest::sequences(&[path.len()]), ..shape.clone() };
                let path = Tensor::new(path.as_slice(), &Device::Cpu)?;
                let of_path = |input: &Var| input.index_select(&path, 0);
                let out = reference::causal_attention(&of_path(&v[0])?, &of_path(&v[1])?, &of_path(&v[2])?, &shape)?;
                sum = sum.index_add(&path, &out.broadcast_mul(&shares.index_select(&path, 0)?)?, 0)?;
            }
            Ok(sum)
        };
        check(&attention_inputs(&shape, seed), |v| fused(v, &shape), alone);
    }

    #[test]
    fn threads_and_neighbours_change_no_bit_of_attention(forest in forest(60), alone in 1_usize..150, heads in heads(), seed: u64) {
        let shape = heads.shape(forest);
        let inputs = attention_inputs(&shape, seed);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| bits(&inputs, &shape))
        };
        let expected = on(1);
        for threads in [2, 3, 16] {
            prop_assert!(on(threads) == expected, "{threads} threads");
        }
        // So many lone sequences that each is one task, and one of them by itself, whose heads are tasks.
        let (many, one) = ([alone; 8], [alone]);
        let (many, one) = (heads.shape(Forest::sequences(&many)), heads.shape(Forest::sequences(&one)));
        let inputs = attention_inputs(&one, seed);
        let repeated = inputs.each_ref().map(|input| Var::from_tensor(&input.as_detached_tensor().repeat((8, 1)).unwrap()).unwrap());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        pool.install(|| {
            for (found, expected) in bits(&repeated, &many).into_iter().zip(bits(&inputs, &one)) {
                assert!(found.chunks_exact(expected.len()).all(|found| found == expected), "a sequence among others has other bits");
            }
        });
    }
}

/// Numbers of heads and their width.
#[derive(Debug, Clone, Copy)]
struct Heads {
    key: usize,
    group: usize,
    dim: usize,
}

impl Heads {
    fn shape(self, forest: Forest) -> AttentionShape {
        AttentionShape { forest, num_heads: self.key * self.group, num_key_value_heads: self.key, head_dim: self.dim }
    }
}

fn heads() -> impl Strategy<Value = Heads> {
    (1_usize..3, 1_usize..4, 1_usize..20).prop_map(|(key, group, half)| Heads { key, group, dim: 2 * half })
}

/// Trees of up to ten segments, whose lengths are below `longest`, most of them short.
fn forest(longest: usize) -> impl Strategy<Value = Forest> {
    let length = prop_oneof![1_usize..8, 1..longest];
    prop::collection::vec((0_usize..5, length), 1..10).prop_map(Forest::depth_first)
}

/// The rows from the root to each leaf, found by the positions alone: a token follows the nearest one before it whose position is lower
/// by one.
fn paths(forest: &Forest) -> Vec<Vec<u32>> {
    let mut paths = Vec::new();
    let mut path: Vec<u32> = Vec::new();
    for (row, position) in forest.positions().enumerate() {
        if (position as usize) < path.len() {
            paths.push(path.clone());
            path.truncate(position as usize);
        }
        path.push(row as u32);
    }
    paths.push(path);
    paths
}

fn attention_inputs(shape: &AttentionShape, seed: u64) -> [Var; 3] {
    let rows = shape.forest.num_tokens();
    let (query, key) = (shape.num_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim);
    [random(&[rows, query], seed), random(&[rows, key], seed ^ 1), random(&[rows, key], seed ^ 2)]
}

fn fused(inputs: &[Var], shape: &AttentionShape) -> Result<Tensor> {
    ops::causal_attention(&inputs[0], &inputs[1], &inputs[2], shape)
}

fn plain(inputs: &[Var], shape: &AttentionShape) -> Result<Tensor> {
    reference::causal_attention(&inputs[0], &inputs[1], &inputs[2], shape)
}

/// The values of attention, and of its gradients for the direction that the values are.
fn bits(inputs: &[Var; 3], shape: &AttentionShape) -> [Vec<f32>; 4] {
    let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let out = fused(inputs, shape).unwrap();
    let gradients = (&out * out.detach()).unwrap().sum_all().unwrap().backward().unwrap();
    let [query, key, value] = inputs.each_ref().map(|input| values(gradients.get(input).unwrap()));
    [values(&out), query, key, value]
}

/// Central differences in f64 of a random projection of the output, by every number of every input.
#[test]
fn gradients_of_attention_over_trees_are_finite_differences() {
    /// Where the differences of a softmax of numbers about 1 lose fewest digits in f64.
    const STEP: f64 = 1e-5;
    let forest = Forest::depth_first([(0, 3), (1, 2), (2, 1), (2, 2), (1, 1), (1, 4), (0, 2), (1, 1), (1, 2)]);
    let shape = Heads { key: 2, group: 2, dim: 2 }.shape(forest);
    let inputs = attention_inputs(&shape, 7);
    let direction = random(&[shape.forest.num_tokens(), shape.num_heads * shape.head_dim], 99);
    let loss = (fused(&inputs, &shape).unwrap() * direction.as_detached_tensor()).unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();

    let exact = |tensor: &Tensor| tensor.detach().to_dtype(DType::F64).unwrap();
    let direction = exact(&direction);
    let loss = |inputs: &[Tensor; 3]| {
        let out = reference::causal_attention(&inputs[0], &inputs[1], &inputs[2], &shape).unwrap();
        (out * &direction).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
    };
    let exact_inputs = inputs.each_ref().map(|input| exact(input));
    for (index, input) in inputs.iter().enumerate() {
        let found = gradients.get(input).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let values = exact_inputs[index].flatten_all().unwrap().to_vec1::<f64>().unwrap();
        for (at, found) in found.into_iter().enumerate() {
            let moved = |by: f64| {
                let mut values = values.clone();
                values[at] += by;
                let mut inputs = exact_inputs.clone();
                inputs[index] = Tensor::from_vec(values, input.shape(), &Device::Cpu).unwrap();
                loss(&inputs)
            };
            let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let error = (f64::from(found) - expected).abs();
            assert!(error < 2e-5 * expected.abs().max(1.0), "number {at} of input {index}: {found}, expected {expected}");
        }
    }
}

/// A gradient that nobody asks for would cost a product, and one of a type that is not the variable's would not be added to others.
#[test]
fn products_in_half_precision_give_the_gradients_that_are_asked_for() {
    let [x, weight] = [random(&[5, 8], 1), random(&[3, 8], 2)];
    let frozen = weight.as_detached_tensor().to_dtype(DType::BF16).unwrap();
    for weight in [weight.as_tensor(), &frozen] {
        let out = ops::plain::linear(&x, weight, None, DType::BF16).unwrap();
        assert_eq!((out.dims(), out.dtype()), (&[5, 3][..], DType::BF16));
        let gradients = out.to_dtype(DType::F32).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().dtype(), DType::F32);
        assert_eq!(gradients.get(weight).map(Tensor::dtype), weight.is_variable().then_some(DType::F32));
    }
}

#[test]
fn a_token_beyond_a_table_is_refused_on_any_device() {
    let table = random(&[4, 3], 1);
    assert!(ops::plain::embedding(&table, &[0, 3]).is_ok());
    assert!(ops::plain::embedding(&table, &[0, 4]).is_err());
}
