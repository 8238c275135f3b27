use std::collections::BTreeMap;

use candle_core::{DType, Var};

use super::golden::golden;
use super::*;
use crate::models::ops::Arithmetic;
use crate::models::random::CounterRng;
use crate::training::adamw::CHUNK;

const OPTIONS: AdamWOptions =
    AdamWOptions { mean_decay: 0.9, square_decay: 0.999, epsilon: 1e-8, weight_decay: 0.1, arithmetic: Arithmetic::Fused };
/// By candle's operations, as on a GPU.
const PLAIN: AdamWOptions = AdamWOptions { arithmetic: Arithmetic::Plain(DType::BF16), ..OPTIONS };
const SHAPES: [(&str, &[usize]); 2] = [("matrix", &[2, 3]), ("vector", &[3])];

fn tensors(values: &serde_json::Value) -> BTreeMap<String, Tensor> {
    let tensor = |(index, (name, shape)): (usize, (&str, &[usize]))| {
        let values: Vec<f32> = serde_json::from_value(values[index].clone()).expect("a list of numbers");
        (name.to_string(), Tensor::from_vec(values, shape, &Device::Cpu).expect("the shape fits"))
    };
    SHAPES.into_iter().enumerate().map(tensor).collect()
}

fn parameters(values: &serde_json::Value) -> BTreeMap<String, Var> {
    tensors(values).into_iter().map(|(name, tensor)| (name, Var::from_tensor(&tensor).expect("memory"))).collect()
}

fn gradients(values: &serde_json::Value) -> Gradients {
    Gradients::from_tensors(tensors(values))
}

#[test]
fn five_steps_equal_torch() {
    let golden = &golden()["adamw_small"];
    for options in [OPTIONS, PLAIN] {
        let parameters = parameters(&golden["start"]);
        let mut optimizer = AdamW::new(options);
        for step in 0..5 {
            optimizer.step(&parameters, &gradients(&golden["gradients"][step]), 0.01, 1.0).expect("the shapes fit");
        }
        for (name, expected) in tensors(&golden["end"]) {
            for (found, expected) in values(&parameters[&name]).into_iter().zip(values(&expected)) {
                assert!((found - expected).abs() < 1e-6, "{options:?}, {name}: {found}, expected {expected}");
            }
        }
    }
}

#[test]
fn a_saved_state_goes_on_bit_by_bit() {
    let golden = &golden()["adamw_small"];
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("optimizer.safetensors");
    for options in [OPTIONS, PLAIN] {
        let (whole, resumed) = (parameters(&golden["start"]), parameters(&golden["start"]));
        let (mut one, mut first) = (AdamW::new(options), AdamW::new(options));
        for step in 0..3 {
            one.step(&whole, &gradients(&golden["gradients"][step]), 0.01, 0.5).expect("the shapes fit");
            first.step(&resumed, &gradients(&golden["gradients"][step]), 0.01, 0.5).expect("the shapes fit");
        }
        first.save(&path).expect("a writable directory");
        let mut second = AdamW::load(&path, options, &resumed).expect("it was just saved");
        for step in 3..5 {
            one.step(&whole, &gradients(&golden["gradients"][step]), 0.01, 0.5).expect("the shapes fit");
            second.step(&resumed, &gradients(&golden["gradients"][step]), 0.01, 0.5).expect("the shapes fit");
        }
        for name in whole.keys() {
            assert_eq!(values(&whole[name]), values(&resumed[name]), "{options:?}, {name}");
        }
    }
}

#[test]
fn a_damaged_state_is_refused() {
    let parameters = parameters(&golden()["adamw_small"]["start"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("optimizer.safetensors");
    assert!(matches!(AdamW::load(&path, OPTIONS, &parameters), Err(Error::Io { .. })));
    AdamW::new(OPTIONS).save(&path).expect("a writable directory");
    assert!(matches!(AdamW::load(&path, OPTIONS, &parameters), Err(Error::Damaged { .. })), "it lacks the moments");
    std::fs::write(&path, b"not a checkpoint").expect("a writable directory");
    assert!(matches!(AdamW::load(&path, OPTIONS, &parameters), Err(Error::Damaged { .. })));
}

#[test]
fn how_the_update_is_cut_among_threads_does_not_matter() {
    let len = 2 * CHUNK + 7;
    let numbers = |seed: u64| (0..len as u64).map(|index| CounterRng::new(seed).normal(index) as f32).collect::<Vec<_>>();
    let vector = |values: &[f32]| Tensor::from_slice(values, values.len(), &Device::Cpu).expect("memory");
    let (start, gradient) = (numbers(1), numbers(2));
    // The same elements as one parameter and as parameters that one thread updates each.
    let (mut whole, mut parts) = ((BTreeMap::new(), BTreeMap::new()), (BTreeMap::new(), BTreeMap::new()));
    whole.0.insert("whole".to_string(), Var::from_tensor(&vector(&start)).expect("memory"));
    whole.1.insert("whole".to_string(), vector(&gradient));
    for (index, (start, gradient)) in start.chunks(CHUNK / 3).zip(gradient.chunks(CHUNK / 3)).enumerate() {
        parts.0.insert(format!("part {index:02}"), Var::from_tensor(&vector(start)).expect("memory"));
        parts.1.insert(format!("part {index:02}"), vector(gradient));
    }
    let (mut one, mut other) = (AdamW::new(OPTIONS), AdamW::new(OPTIONS));
    let (whole_gradients, parts_gradients) = (Gradients::from_tensors(whole.1), Gradients::from_tensors(parts.1));
    for _ in 0..3 {
        one.step(&whole.0, &whole_gradients, 0.01, 0.5).expect("the shapes fit");
        other.step(&parts.0, &parts_gradients, 0.01, 0.5).expect("the shapes fit");
    }
    let all = |parameters: &BTreeMap<String, Var>| parameters.values().flat_map(|parameter| values(parameter)).collect::<Vec<_>>();
    assert!(all(&whole.0) == all(&parts.0), "the bits differ");
}

#[test]
fn clipping_only_shrinks() {
    assert_eq!(clip_scale(0.5, 1.0), 1.0);
    assert!((clip_scale(4.0, 1.0) - 0.25).abs() < 1e-6);
    let gradients = gradients(&serde_json::json!([[3.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0]]));
    assert_eq!(gradients.norm().expect("f32 tensors"), 5.0);
}
