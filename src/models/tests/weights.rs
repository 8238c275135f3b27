//! Safetensors are read tensor by tensor, whatever the type of their numbers and the file that they are in.

use std::path::Path;

use candle_core::{DType, Device};
use safetensors::tensor::{Dtype, TensorView};

use crate::error::Error;
use crate::models::weights::{Weights, num_halves, read_shapes};

/// Writes tensors `(name, type, shape, bytes)` to a file.
fn write(path: &Path, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

#[test]
fn every_type_of_float_is_read_from_its_shard() {
    let directory = tempfile::tempdir().unwrap();
    let values = [1.0_f32, -0.5, 3.0, 0.25, -2.0, 96.0];
    let upper_halves: Vec<u8> = values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect();
    let halves: Vec<u8> = [0x3c00_u16, 0xb800, 0x4200, 0x3400, 0xc000, 0x5600].into_iter().flat_map(u16::to_le_bytes).collect();
    let singles: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let doubles: Vec<u8> = values.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect();
    write(
        &directory.path().join("one.safetensors"),
        &[
            ("bf16", Dtype::BF16, &[2, 3], upper_halves.clone()),
            ("bias", Dtype::BF16, &[6], upper_halves),
            ("ids", Dtype::I64, &[1], vec![0; 8]),
            ("f32", Dtype::F32, &[3, 2], singles),
        ],
    );
    write(&directory.path().join("two.safetensors"), &[("f16", Dtype::F16, &[6], halves), ("f64", Dtype::F64, &[1, 6], doubles)]);
    let index = r#"{"weight_map": {"bf16": "one.safetensors", "f16": "two.safetensors"}}"#;
    std::fs::write(directory.path().join("model.safetensors.index.json"), index).unwrap();

    let mut weights = Weights::open(directory.path()).unwrap();
    let shapes: [(&str, &[usize]); 5] = [("bf16", &[2, 3]), ("bias", &[6]), ("f32", &[3, 2]), ("f16", &[6]), ("f64", &[1, 6])];
    for (name, shape) in shapes {
        assert_eq!(weights.values(name, shape).unwrap(), values, "{name}");
        let tensor = weights.take(name, shape, &Device::Cpu).unwrap();
        assert_eq!((tensor.dims(), tensor.dtype()), (shape, DType::F32));
        assert_eq!(tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap(), values, "{name}");
        assert!(matches!(weights.values(name, shape), Err(Error::Damaged { .. })), "{name} was taken");
    }
    assert_eq!(weights.names().count(), 0, "whole numbers are no weights");
    assert_eq!(read_shapes(directory.path()).unwrap().into_keys().collect::<Vec<_>>(), ["bf16", "bias", "f16", "f32", "f64"]);
    assert_eq!(num_halves(directory.path()).unwrap(), 6, "a vector is kept in single precision");
}

#[test]
fn what_is_not_there_as_it_should_be_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    write(&path, &[("w", Dtype::F32, &[2, 2], vec![0; 16])]);
    let weights = Weights::open(directory.path()).unwrap();
    for (name, shape, message) in [("v", &[2_usize, 2], "is missing"), ("w", &[4, 1], "has shape [2, 2], the configuration says [4, 1]")] {
        let error = weights.values(name, shape).expect_err(name).to_string();
        assert!(error.contains(message), "{error}");
    }
    // What is cut off while the file is open is seen when it is read, and before it is opened at once.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(std::fs::metadata(&path).unwrap().len() - 1).unwrap();
    assert!(matches!(weights.values("w", &[2, 2]), Err(Error::Io { .. })));
    assert!(matches!(Weights::open(directory.path()), Err(Error::Damaged { .. })));
}
