//! Derivatives by central differences: the backward of each operation, which computes in f32, against differences of its formula, written plainly in f64.
//!
//! The tests of the decoder compare values and gradients with candle's own operations, over random shapes; these know no other derivative.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, Var};

use super::tiles::{Limits, Tiles};
use super::*;

/// Where a central difference in f64 of numbers about 1 loses fewest digits.
const STEP: f64 = 1e-5;
/// Relative L2; what f32 leaves is about 1e-6.
const TOLERANCE: f64 = 1e-5;

/// Numbers that f32 holds, and their shape.
#[derive(Clone)]
struct Input {
    values: Vec<f64>,
    shape: Vec<usize>,
}

impl Input {
    /// Between -2 and 2, the same for the same seed.
    fn random(shape: &[usize], seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
        let mut next = || {
            // xorshift64*, whose upper bits are good enough for this.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            f64::from((state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as u32) / f64::from(1 << 22) - 2.0
        };
        Self { values: (0..shape.iter().product()).map(|_| next()).collect(), shape: shape.to_vec() }
    }

    fn variable(&self) -> Var {
        let values: Vec<f32> = self.values.iter().map(|value| *value as f32).collect();
        Var::from_vec(values, self.shape.as_slice(), &Device::Cpu).expect("the shape fits")
    }
}

fn values(tensor: &Tensor) -> Vec<f64> {
    let values = tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("f32 on the CPU");
    values.into_iter().map(f64::from).collect()
}

/// `‖found − expected‖ / ‖expected‖`. What is to be zero, as the gradient of a query that sees one key, is measured beside a thousandth.
fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    norm(&mut found.iter().zip(expected).map(|(found, expected)| found - expected)) / norm(&mut expected.iter().copied()).max(1e-3)
}

/// The operation has the values of the formula, and the gradient of a random projection of them by each number of each input is the formula's difference.
fn check(what: &str, inputs: &[Input], operation: impl Fn(&[Var]) -> Result<Tensor>, formula: impl Fn(&[Vec<f64>]) -> Vec<f64>) {
    let variables: Vec<Var> = inputs.iter().map(Input::variable).collect();
    let mut numbers: Vec<Vec<f64>> = inputs.iter().map(|input| input.values.clone()).collect();
    let out = operation(&variables).expect("the shapes fit");
    let error = relative_error(&values(&out), &formula(&numbers));
    assert!(error < TOLERANCE, "{what}: values differ by {error}");
    let direction = Input::random(out.dims(), 99);
    let projection = (out * direction.variable().as_detached_tensor()).and_then(|product| product.sum_all()).expect("one shape");
    let gradients = projection.backward().expect("a graph");
    let project = |numbers: &[Vec<f64>]| formula(numbers).iter().zip(&direction.values).map(|(value, by)| value * by).sum::<f64>();
    for (index, variable) in variables.iter().enumerate() {
        let gradient = gradients.get(variable).unwrap_or_else(|| panic!("{what}: input {index} has no gradient"));
        let mut differences = Vec::with_capacity(numbers[index].len());
        for at in 0..numbers[index].len() {
            let value = numbers[index][at];
            let mut moved = |by: f64| {
                numbers[index][at] = value + by;
                project(&numbers)
            };
            let difference = moved(STEP) - moved(-STEP);
            numbers[index][at] = value;
            differences.push(difference / (2.0 * STEP));
        }
        let error = relative_error(&values(gradient), &differences);
        assert!(error < TOLERANCE, "{what}: the gradient of input {index} is off by {error}");
    }
}

/// `x[N, I] · weight[O, I]ᵀ + bias[O]`.
fn linear_in_f64(x: &[f64], weight: &[f64], bias: Option<&[f64]>, input: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks_exact(input) {
        for (column, weight) in weight.chunks_exact(input).enumerate() {
            let product: f64 = row.iter().zip(weight).map(|(x, weight)| x * weight).sum();
            out.push(product + bias.map_or(0.0, |bias| bias[column]));
        }
    }
    out
}

#[test]
fn linear_has_the_derivatives_of_its_formula() {
    // The second product is longer than what is summed at once.
    for [rows, input, output] in [[9, 7, 20], [3, 270, 5], [1, 1, 1]] {
        let inputs = [Input::random(&[rows, input], 1), Input::random(&[output, input], 2), Input::random(&[output], 3)];
        let what = format!("{rows} rows from {input} to {output}");
        check(&what, &inputs, |v| linear(&v[0], &v[1], Some(&v[2])), |v| linear_in_f64(&v[0], &v[1], Some(&v[2]), input));
        check(&what, &inputs[..2], |v| linear(&v[0], &v[1], None), |v| linear_in_f64(&v[0], &v[1], None, input));
        let formula = |v: &[Vec<f64>]| linear_in_f64(&v[0], &v[1], Some(&v[2]), input);
        check(&format!("{what}, plain"), &inputs, |v| plain::linear(&v[0], &v[1], Some(&v[2]), DType::F32), formula);
    }
}

#[test]
fn embedding_has_the_derivatives_of_its_formula() {
    let (ids, width) = ([3_u32, 0, 3, 3, 6, 1], 5);
    let rows = |table: &[f64]| ids.iter().flat_map(|id| table[*id as usize * width..][..width].to_vec()).collect();
    check("embedding", &[Input::random(&[7, width], 4)], |v| embedding(&v[0], &ids), |v| rows(&v[0]));
}

#[test]
fn rms_norm_has_the_derivatives_of_its_formula() {
    let formula = |x: &[f64], weight: &[f64], eps: f64| {
        let norm = |row: &[f64]| (row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64 + eps).sqrt();
        let row = |row: &[f64]| row.iter().zip(weight).map(|(x, weight)| x / norm(row) * weight).collect::<Vec<f64>>();
        x.chunks_exact(weight.len()).flat_map(row).collect::<Vec<f64>>()
    };
    // More rows than one task has; widths beside and beyond a register; an eps that counts.
    for (rows, width, eps) in [(131, 8, 1e-6), (3, 37, 1e-5), (4, 16, 0.5)] {
        let inputs = [Input::random(&[rows, width], 5), Input::random(&[width], 6)];
        check(&format!("{rows} rows of {width}"), &inputs, |v| rms_norm(&v[0], &v[1], eps), |v| formula(&v[0], &v[1], eps));
    }
}

#[test]
fn silu_mul_has_the_derivatives_of_its_formula() {
    let silu = |gate: f64| gate / (1.0 + (-gate).exp());
    let inputs = [Input::random(&[5, 19], 7), Input::random(&[5, 19], 8)];
    let formula = |v: &[Vec<f64>]| v[0].iter().zip(&v[1]).map(|(gate, up)| silu(*gate) * up).collect();
    check("silu_mul", &inputs, |v| silu_mul(&v[0], &v[1]), formula);
    // Where the sigmoid is all but 0 or 1.
    let mut far = inputs;
    far[0].values.iter_mut().for_each(|gate| *gate *= 8.0);
    check("silu_mul far away", &far, |v| silu_mul(&v[0], &v[1]), formula);
}

#[test]
fn rope_has_the_derivatives_of_its_formula() {
    const MAGNITUDE: f64 = 1.25;
    let (frequencies, positions) = ([1.0, 0.3, 0.01], [0_u32, 1, 7, 250]);
    let half = frequencies.len();
    let formula = |x: &[f64]| {
        let mut out = x.to_vec();
        for (row, position) in out.chunks_exact_mut(2 * 2 * half).zip(positions) {
            for head in row.chunks_exact_mut(2 * half) {
                for (pair, frequency) in frequencies.iter().enumerate() {
                    let (sin, cos) = (f64::from(position) * frequency).sin_cos();
                    let (sin, cos) = (MAGNITUDE * sin, MAGNITUDE * cos);
                    let (a, b) = (head[pair], head[pair + half]);
                    (head[pair], head[pair + half]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
        }
        out
    };
    let (table, places) = (Arc::new(RopeTable::new(&frequencies, MAGNITUDE, 300)), Arc::from(positions));
    check("rope", &[Input::random(&[4, 2 * 2 * half], 9)], |v| rope(&v[0], &places, &table), |v| formula(&v[0]));
}

/// The rows that each row sees. In the order of the rows, which is depth first, a row of position p follows the last one of position p - 1.
fn seen(forest: &Forest) -> Vec<Vec<usize>> {
    let mut path = Vec::new();
    let sees = |(row, position): (usize, u32)| {
        path.truncate(position as usize);
        path.push(row);
        path.clone()
    };
    forest.positions().enumerate().map(sees).collect()
}

fn attention_in_f64(query: &[f64], key: &[f64], value: &[f64], shape: &AttentionShape, seen: &[Vec<usize>]) -> Vec<f64> {
    let AttentionShape { num_heads, num_key_value_heads, head_dim, .. } = *shape;
    let of_key = |values: &[f64], row: usize, head: usize| {
        let start = (row * num_key_value_heads + head * num_key_value_heads / num_heads) * head_dim;
        values[start..start + head_dim].to_vec()
    };
    let mut out = Vec::new();
    for (row, seen) in seen.iter().enumerate() {
        for head in 0..num_heads {
            let query = &query[(row * num_heads + head) * head_dim..][..head_dim];
            let score =
                |other: &usize| query.iter().zip(of_key(key, *other, head)).map(|(q, k)| q * k).sum::<f64>() / (head_dim as f64).sqrt();
            let weights: Vec<f64> = seen.iter().map(|other| score(other).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mut mixed = vec![0.0; head_dim];
            for (weight, other) in weights.iter().zip(seen) {
                mixed.iter_mut().zip(of_key(value, *other, head)).for_each(|(mixed, value)| *mixed += weight / sum * value);
            }
            out.extend(mixed);
        }
    }
    out
}

fn check_attention(what: &str, forest: Forest, [num_heads, num_key_value_heads, head_dim]: [usize; 3]) {
    let (rows, seen) = (forest.num_tokens(), seen(&forest));
    let shape = AttentionShape { forest, num_heads, num_key_value_heads, head_dim };
    let (query, key) = ([rows, num_heads * head_dim], [rows, num_key_value_heads * head_dim]);
    let inputs = [Input::random(&query, 10), Input::random(&key, 11), Input::random(&key, 12)];
    let formula = |v: &[Vec<f64>]| attention_in_f64(&v[0], &v[1], &v[2], &shape, &seen);
    check(what, &inputs, |v| causal_attention(&v[0], &v[1], &v[2], &shape), formula);
    // As a device computes it, in several tiles.
    let limits = Limits { rows: 7, ..Limits::DEFAULT };
    let tiles = Arc::new(Tiles::new(shape.clone(), limits, &Device::Cpu).expect("the CPU has room"));
    check(&format!("{what}, in tiles"), &inputs, |v| tiles::causal_attention(&v[0], &v[1], &v[2], &tiles), formula);
}

#[test]
fn attention_has_the_derivatives_of_its_formula() {
    check_attention("three sequences", Forest::sequences(&[5, 1, 9]), [4, 2, 4]);
    check_attention("a token alone", Forest::sequences(&[1]), [2, 1, 2]);
    // Longer than a block of query rows.
    check_attention("two blocks", Forest::sequences(&[70]), [1, 1, 2]);
}

#[test]
fn attention_over_trees_has_the_derivatives_of_its_formula() {
    let levels = [(0, 3), (1, 2), (2, 1), (2, 2), (1, 1), (1, 4), (0, 2), (1, 1), (1, 2)];
    check_attention("two trees", Forest::depth_first(levels), [4, 2, 2]);
    // Branches of more than one block behind a beginning of more than one.
    check_attention("long branches", Forest::depth_first([(0, 66), (1, 3), (1, 65)]), [1, 1, 2]);
}

#[test]
fn a_wrong_derivative_is_found() {
    /// `silu_mul` whose formula lets the gate alone.
    fn wrong() {
        let inputs = [Input::random(&[2, 3], 13), Input::random(&[2, 3], 14)];
        let formula =
            |v: &[Vec<f64>]| v[0].iter().zip(&v[1]).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up * (1.0 + 1e-3 * gate)).collect();
        check("wrong", &inputs, |v| silu_mul(&v[0], &v[1]), formula);
    }
    assert!(std::panic::catch_unwind(wrong).is_err());
}
