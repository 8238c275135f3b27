//! Encoded weights: their values equal those of llama.cpp's own package and of candle, their products those of the values.

use std::borrow::Cow;

use candle_core::quantized::GgmlDType;
use candle_core::safetensors::load;
use candle_core::{CpuStorage, DType, Device, Tensor};

use super::kernel::available;
use crate::models::decoding::{decode, decode_with};
use crate::models::dots::dots_with;
use crate::models::encoded::EncodedMatrix;
use crate::models::encoding::Encoding;
use crate::models::linear::{Linear, Matrix};
use crate::models::ops::Threads;
use crate::models::random::CounterRng;

fn random(len: usize, seed: u64) -> Vec<f32> {
    (0..len as u64).map(|i| CounterRng::new(seed).normal(i) as f32).collect()
}

/// Random blocks of `rows * width` values: bytes as they come, but numbers of half precision, the scales among them, are small.
fn random_bytes(encoding: Encoding, rows: usize, width: usize, seed: u64) -> Vec<u8> {
    let rng = CounterRng::new(seed);
    let len = encoding.bytes(rows * width).expect("whole blocks");
    let mut bytes: Vec<u8> = (0..len as u64).map(|i| rng.bits(i) as u8).collect();
    for block in bytes.chunks_exact_mut(encoding.block_bytes()) {
        let scales: &[usize] = match encoding {
            Encoding::F16 | Encoding::Bf16 | Encoding::Q4_0 | Encoding::Q5_0 | Encoding::Q8_0 => &[0],
            Encoding::Q4_1 | Encoding::Q5_1 | Encoding::Q4K | Encoding::Q5K => &[0, 2],
            Encoding::Q6K => &[208],
        };
        // Their second byte has the exponent: these are below 2^-6 in half precision.
        scales.iter().for_each(|at| block[at + 1] &= 0xa3);
    }
    bytes
}

fn values(encoding: Encoding, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / encoding.block_bytes() * encoding.block_values()];
    decode(encoding, bytes, &mut values);
    values
}

/// `tests/fixtures/make_gguf_goldens.py` made them.
#[test]
fn values_equal_llama_cpp() {
    let tensors = load(crate::fixtures::fixture("gguf/encodings.safetensors"), &Device::Cpu).unwrap();
    for encoding in Encoding::ALL {
        let tensor = |of: &str| tensors[&format!("{}.{of}", encoding.name())].flatten_all().unwrap();
        let (bytes, expected) = (tensor("bytes").to_vec1::<u8>().unwrap(), tensor("values").to_vec1::<f32>().unwrap());
        assert_eq!(values(encoding, &bytes), expected, "{}", encoding.name());
    }
}

#[test]
fn every_instruction_set_gives_the_same_values() {
    for encoding in Encoding::ALL {
        let bytes = random_bytes(encoding, 3, 512, 7);
        let expected = values(encoding, &bytes);
        for instructions in available() {
            let mut found = vec![f32::NAN; expected.len()];
            // SAFETY: only instructions that the processor has are listed.
            unsafe { decode_with(instructions, encoding, &bytes, &mut found) };
            assert_eq!(found, expected, "{}", encoding.name());
        }
    }
}

#[test]
fn values_equal_candle() {
    for (encoding, peer) in [
        (Encoding::Q4_0, GgmlDType::Q4_0),
        (Encoding::Q4_1, GgmlDType::Q4_1),
        (Encoding::Q5_0, GgmlDType::Q5_0),
        (Encoding::Q5_1, GgmlDType::Q5_1),
        (Encoding::Q8_0, GgmlDType::Q8_0),
        (Encoding::Q4K, GgmlDType::Q4K),
        (Encoding::Q5K, GgmlDType::Q5K),
        (Encoding::Q6K, GgmlDType::Q6K),
    ] {
        let (rows, width) = (3, 512);
        let bytes = random_bytes(encoding, rows, width, 5);
        assert_eq!((encoding.block_values(), encoding.block_bytes()), (peer.block_size(), peer.type_size()));
        let CpuStorage::F32(expected) = peer.from_data(Cow::Borrowed(bytes.as_slice())).dequantize(rows * width).unwrap() else {
            panic!("candle's values are f32");
        };
        let found = values(encoding, &bytes);
        let difference = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-6, "{}: {difference}", encoding.name());
    }
}

#[test]
fn every_number_of_16_bits_is_read() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for (encoding, dtype) in [(Encoding::F16, DType::F16), (Encoding::Bf16, DType::BF16)] {
        let peer = Tensor::from_raw_buffer(&bytes, dtype, &[1 << 16], &Device::Cpu).unwrap();
        let expected = peer.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap();
        for (index, (found, expected)) in values(encoding, &bytes).iter().zip(&expected).enumerate() {
            let is_same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(is_same, "{} {index:#x}: {found} instead of {expected}", encoding.name());
        }
    }
}

#[test]
fn products_are_those_of_the_values_and_rows_are_independent() {
    for encoding in Encoding::ALL {
        for (rows, input, output) in [(0, 256, 3), (1, 512, 3), (2, 256, 40), (5, 256, 33), (40, 512, 100)] {
            let bytes = random_bytes(encoding, output, input, 1);
            let weights = values(encoding, &bytes);
            let matrix = EncodedMatrix::new(encoding, input, bytes).unwrap();
            let x = random(rows * input, 2);
            let out = matrix.multiply(&x);
            assert_eq!((out.len(), matrix.output()), (rows * output, output));
            for (row, x) in x.chunks_exact(input).enumerate() {
                let alone = matrix.multiply(x);
                assert_eq!(alone, out[row * output..][..output], "{}: row {row} of {rows}", encoding.name());
                for (column, weight) in weights.chunks_exact(input).enumerate() {
                    let terms = x.iter().zip(weight).map(|(a, b)| f64::from(*a) * f64::from(*b));
                    let (expected, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + f64::abs(term)));
                    assert!((f64::from(alone[column]) - expected).abs() <= 2e-6 * size, "{}: column {column}", encoding.name());
                }
            }
        }
    }
}

#[test]
fn rows_are_decoded_one_by_one() {
    let bytes = random_bytes(Encoding::Q6K, 5, 512, 3);
    let all = values(Encoding::Q6K, &bytes);
    let matrix = EncodedMatrix::new(Encoding::Q6K, 512, bytes).unwrap();
    let mut row = vec![0.0; 512];
    for index in 0..5 {
        matrix.copy_row(index, &mut row);
        assert_eq!(row, all[index * 512..][..512]);
    }
    for (input, len) in [(512, 420 * 5 - 1), (300, 210), (512, 421)] {
        assert!(EncodedMatrix::new(Encoding::Q6K, input, vec![0; len]).is_none(), "{input} values, {len} bytes");
    }
}

#[test]
fn parts_of_a_layer_stand_side_by_side() {
    let (input, rows) = (256, 3);
    let (dense, x) = (random(20 * input, 4), random(rows * input, 5));
    let biases: Vec<Vec<f32>> = [40, 20, 33].map(|len| random(len, len as u64)).into();
    let [first, last] =
        [(Encoding::Q4K, 40), (Encoding::Q8_0, 33)].map(|(encoding, output)| (encoding, random_bytes(encoding, output, input, 6)));
    let encoded =
        |(encoding, bytes): &(Encoding, Vec<u8>)| EncodedMatrix::new(*encoding, input, bytes.clone()).map(Matrix::Encoded).unwrap();
    let layer = Linear::new(input, vec![encoded(&first), Matrix::Values(dense.clone()), encoded(&last)], &biases);
    let alone: Vec<Vec<f32>> = [encoded(&first), Matrix::Values(dense.clone()), encoded(&last)]
        .into_iter()
        .zip(&biases)
        .map(|(matrix, bias)| Linear::new(input, vec![matrix], std::slice::from_ref(bias)).multiply(&x, Threads::All).to_vec())
        .collect();
    for (row, out) in layer.multiply(&x, Threads::All).chunks_exact(93).enumerate() {
        let expected: Vec<f32> = alone.iter().zip([40, 20, 33]).flat_map(|(part, width)| part[row * width..][..width].to_vec()).collect();
        assert_eq!(out, expected);
    }
    let mut weights = vec![0.0; input];
    layer.copy_row(41, &mut weights);
    assert_eq!(weights, dense[input..][..input]);
}

#[test]
fn every_instruction_set_gives_the_products() {
    for (num_left, num_right, width) in [(1, 1, 1), (8, 1, 32), (9, 5, 33), (13, 7, 100), (3, 0, 16)] {
        let (left, right) = (random(num_left * width, 1), random(num_right * width, 2));
        for instructions in available() {
            let mut found = vec![f32::NAN; num_left * num_right];
            // SAFETY: only instructions that the processor has are listed.
            unsafe { dots_with(instructions, &left, &right, width, &mut found) };
            for (index, found) in found.iter().enumerate() {
                let (left, right) = (&left[index / num_right * width..][..width], &right[index % num_right * width..][..width]);
                let expected: f64 = left.iter().zip(right).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                assert!((f64::from(*found) - expected).abs() < 1e-4, "{index} of {num_left} x {num_right}, {width} wide");
            }
        }
    }
}

#[test]
fn broken_scales_are_seen() {
    // A scale that is not a number makes every product with its block none: it must not pass for a zero.
    let mut bytes = vec![0; 34];
    bytes[..2].copy_from_slice(&0x7e00_u16.to_le_bytes());
    let matrix = EncodedMatrix::new(Encoding::Q8_0, 32, bytes).unwrap();
    assert!(matrix.multiply(&[1.0; 32])[0].is_nan());
}
