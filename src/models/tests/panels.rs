//! The panel product equals the plain one, and a row's bits do not depend on the other rows.

use crate::models::panels::PackedMatrix;
use crate::models::random::CounterRng;

fn random(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64).map(|i| CounterRng::new(seed).normal(i) as f32).collect()
}

#[test]
fn rows_are_right_and_independent() {
    for (rows, input, output) in [(0, 5, 40), (1, 5, 3), (2, 33, 32), (17, 64, 100), (100, 200, 1500), (200, 128, 1500)] {
        let (x, weight, bias) = (random(rows * input, 1), random(output * input, 2), random(output, 3));
        let packed = PackedMatrix::new(input, &[&weight], &[&bias]);
        let out = packed.multiply(&x);
        for threads in [1, 2, 3, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            assert_eq!(pool.install(|| packed.multiply(&x)), out, "{rows} rows on {threads} threads");
        }
        for (row, x) in x.chunks_exact(input).enumerate() {
            let alone = packed.multiply(x);
            assert_eq!(alone, out[row * output..][..output], "row {row} of {rows}");
            for (column, weight) in weight.chunks_exact(input).enumerate() {
                let expected: f64 = x.iter().zip(weight).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() + f64::from(bias[column]);
                assert!((f64::from(alone[column]) - expected).abs() < 1e-4);
            }
        }
    }
}

#[test]
fn weights_in_bf16_are_the_same_numbers() {
    // So large that few rows are shared out by panels.
    let (input, output) = (700, 801);
    let weight: Vec<f32> = random(output * input, 2).into_iter().map(|value| f32::from_bits(value.to_bits() & 0xffff_0000)).collect();
    let mut other = weight.clone();
    // A number that bf16 has not got: these stay in single precision.
    other[0] = f32::from_bits(other[0].to_bits() | 1);
    let (halves, single) = (PackedMatrix::new(input, &[&weight], &[]), PackedMatrix::new(input, &[&other], &[]));
    assert!(halves.is_halves() && !single.is_halves());
    let mut row = vec![0.0; input];
    halves.copy_row(41, &mut row);
    assert_eq!(row, weight[41 * input..][..input]);
    for rows in [1, 13, 40, 200] {
        let x = random(rows * input, 1);
        let (found, expected) = (halves.multiply(&x), single.multiply(&x));
        for (found, expected) in found.chunks_exact(output).zip(expected.chunks_exact(output)) {
            assert_eq!(found[1..], expected[1..], "{rows} rows");
        }
    }
}
