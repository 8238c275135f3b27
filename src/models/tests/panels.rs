//! The panel product equals the plain one, and a row's bits do not depend on the other rows.

use crate::models::kernel::has_amx;
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

/// Numbers that bf16 has, a random matrix rounded towards zero.
fn in_bf16(len: usize, seed: u64) -> Vec<f32> {
    random(len, seed).into_iter().map(|value| f32::from_bits(value.to_bits() & 0xffff_0000)).collect()
}

#[test]
fn weights_in_bf16_are_the_same_numbers() {
    // So large that few rows are shared out by panels.
    let (input, output) = (700, 801);
    let weight = in_bf16(output * input, 2);
    let mut other = weight.clone();
    // A number that bf16 has not got: these stay in single precision.
    other[0] = f32::from_bits(other[0].to_bits() | 1);
    let (halves, single) = (PackedMatrix::without_tiles(input, &[&weight], &[]), PackedMatrix::new(input, &[&other], &[]));
    assert_eq!((halves.has_tiles(), single.has_tiles()), (Some(false), None));
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
    let mut endless = weight;
    endless[7] = f32::INFINITY;
    assert_eq!(PackedMatrix::new(input, &[&endless], &[]).has_tiles(), Some(false), "a tile would make NaN of infinity and zero");
}

#[test]
fn tiles_are_as_precise_as_single_precision() {
    if !has_amx() {
        eprintln!("skipped: this processor has no AMX");
        return;
    }
    let shapes = [
        (0, 5, 40),
        (1, 5, 3),
        (2, 33, 32),
        (16, 31, 33),
        (17, 64, 100),
        (32, 96, 64),
        (33, 700, 800),
        (48, 700, 801),
        (47, 200, 1500),
        (200, 129, 1500),
    ];
    for (rows, input, output) in shapes {
        // What an earlier product left behind shorter rows must not be read.
        let spoilt = PackedMatrix::new(700, &[&in_bf16(700 * 40, 4)], &[]).multiply(&[f32::NAN; 700 * 40]);
        assert!(spoilt.iter().all(|value| value.is_nan()));
        let (x, weight, bias) = (random(rows * input, 1), in_bf16(output * input, 2), random(output, 3));
        let (packed, other) = (PackedMatrix::new(input, &[&weight], &[&bias]), PackedMatrix::without_tiles(input, &[&weight], &[&bias]));
        assert_eq!((packed.has_tiles(), other.has_tiles()), (Some(true), Some(false)));
        let mut row = vec![0.0; input];
        (0..output).for_each(|index| {
            packed.copy_row(index, &mut row);
            assert_eq!(row, weight[index * input..][..input]);
        });
        let out = packed.multiply(&x);
        for threads in [1, 2, 3, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            assert_eq!(pool.install(|| packed.multiply(&x)), out, "{rows} rows on {threads} threads");
        }
        // The root of the squared errors: that of sums in single precision, in whichever order.
        let (mut error, mut error_of_other, mut size) = (0.0_f64, 0.0_f64, 0.0_f64);
        for ((row, x), of_other) in x.chunks_exact(input).enumerate().zip(other.multiply(&x).chunks_exact(output)) {
            assert_eq!(packed.multiply(x), out[row * output..][..output], "row {row} of {rows}");
            for (column, weight) in weight.chunks_exact(input).enumerate() {
                let expected: f64 = x.iter().zip(weight).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() + f64::from(bias[column]);
                error += (f64::from(out[row * output + column]) - expected).powi(2);
                error_of_other += (f64::from(of_other[column]) - expected).powi(2);
                size += expected * expected;
            }
        }
        assert!(
            error.sqrt() <= 2.0 * error_of_other.sqrt() + 1e-8 * size.sqrt(),
            "{rows}, {input}, {output}: {error:e} beside {error_of_other:e}"
        );
    }
}

#[test]
fn a_row_that_is_no_number_spoils_no_other() {
    let (input, output, rows) = (100, 70, 20);
    let weight = in_bf16(output * input, 2);
    let (packed, mut x) = (PackedMatrix::new(input, &[&weight], &[]), random(rows * input, 1));
    let expected = packed.multiply(&x);
    x[3 * input + 5] = f32::INFINITY;
    x[7 * input] = f32::NAN;
    for (row, (found, expected)) in packed.multiply(&x).chunks_exact(output).zip(expected.chunks_exact(output)).enumerate() {
        match row {
            3 | 7 => assert!(found.iter().all(|value| !value.is_finite()), "row {row}"),
            _ => assert_eq!(found, expected, "row {row}"),
        }
    }
}
