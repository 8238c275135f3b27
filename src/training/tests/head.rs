use super::*;
use crate::models::random::CounterRng;
use crate::training::head::Head;

const ROWS: usize = 23;
const WIDTH: usize = 8;
const VOCAB: usize = 301;

fn random(shape: (usize, usize), scale: f64, seed: u64) -> Tensor {
    let rng = CounterRng::new(seed);
    let values = (0..(shape.0 * shape.1) as u64).map(|index| (scale * rng.normal(index)) as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("the shape fits")
}

fn targets() -> Vec<u32> {
    (0..ROWS as u32).map(|row| (row * 97) % VOCAB as u32).collect()
}

fn d_logps() -> Vec<f64> {
    (0..ROWS).map(|row| (row as f64 - 9.0) / 7.0).collect()
}

/// The same sums in f64, by their definition: logps `[R]`, d_hidden `[R, H]`, d_weight `[V, H]`.
fn by_definition(hidden: &Tensor, weight: &Tensor) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (hidden, weight, targets, d_logps) = (values(hidden), values(weight), targets(), d_logps());
    let (mut logps, mut d_hidden, mut d_weight) = (vec![], vec![0.0; ROWS * WIDTH], vec![0.0; VOCAB * WIDTH]);
    for row in 0..ROWS {
        let logit = |token: usize| (0..WIDTH).map(|i| hidden[row * WIDTH + i] * weight[token * WIDTH + i]).sum::<f64>();
        let logits: Vec<f64> = (0..VOCAB).map(logit).collect();
        let log_sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        let target = targets[row] as usize;
        logps.push(logits[target] - log_sum);
        for token in 0..VOCAB {
            let d_logit = d_logps[row] * (f64::from(u8::from(token == target)) - (logits[token] - log_sum).exp());
            for i in 0..WIDTH {
                d_hidden[row * WIDTH + i] += d_logit * weight[token * WIDTH + i];
                d_weight[token * WIDTH + i] += d_logit * hidden[row * WIDTH + i];
            }
        }
    }
    (logps, d_hidden, d_weight)
}

/// `[R]`, in nats.
fn entropies(hidden: &Tensor, weight: &Tensor) -> Vec<f64> {
    let (hidden, weight) = (values(hidden), values(weight));
    let of_row = |row: &[f64]| {
        let logits: Vec<f64> =
            weight.chunks_exact(WIDTH).map(|token| token.iter().zip(row).map(|(token, hidden)| token * hidden).sum()).collect();
        let log_sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        logits.iter().map(|logit| (log_sum - logit) * (logit - log_sum).exp()).sum()
    };
    hidden.chunks_exact(WIDTH).map(of_row).collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 2e-5 * expected.abs().max(1.0), "{what}: {found}, expected {expected}");
    }
}

#[test]
fn head_equals_its_definition_for_any_chunk_size() {
    let (hidden, weight) = (random((ROWS, WIDTH), 1.5, 1), random((VOCAB, WIDTH), 1.0, 2));
    let (logps, d_hidden, d_weight) = by_definition(&hidden, &weight);
    for chunk_rows in [1, 5, ROWS, 1000] {
        let head = Head::new(&weight).expect("a matrix").with_chunk_rows(chunk_rows);
        assert_close(&head.logps(&hidden, &targets()).expect("targets in range"), &logps, "logps");
        let found = head.gradients(&hidden, &targets(), &d_logps()).expect("targets in range");
        assert_close(&found.outputs, &logps, "logps with gradients");
        assert_close(&found.entropies, &entropies(&hidden, &weight), "entropies");
        assert_close(&values(&found.d_hidden), &d_hidden, "d_hidden");
        assert_close(&values(found.d_weight.as_ref().expect("the head is not frozen")), &d_weight, "d_weight");
    }
}

/// By every number of the states and of the weight: the definition in f64, moved both ways, and no derivative but that.
#[test]
fn gradients_are_central_differences() {
    const STEP: f64 = 1e-5;
    let (rows, vocab, targets, d_logps) = (4, 19, [3_u32, 18, 3, 0], [0.7, -1.3, 2.0, -0.1]);
    let (hidden, weight) = (random((rows, WIDTH), 1.5, 11), random((vocab, WIDTH), 1.0, 12));
    let loss = |[hidden, weight]: &[Vec<f64>; 2]| -> f64 {
        let logp = |(hidden, target): (&[f64], u32)| {
            let logits: Vec<f64> = weight.chunks_exact(WIDTH).map(|row| row.iter().zip(hidden).map(|(w, h)| w * h).sum()).collect();
            logits[target as usize] - logits.iter().map(|logit| logit.exp()).sum::<f64>().ln()
        };
        hidden.chunks_exact(WIDTH).zip(targets).map(logp).zip(d_logps).map(|(logp, d_logp)| d_logp * logp).sum()
    };
    let found = Head::new(&weight).expect("a matrix").with_chunk_rows(3).gradients(&hidden, &targets, &d_logps).expect("targets in range");
    let mut numbers = [values(&hidden), values(&weight)];
    for (index, gradient) in [found.d_hidden, found.d_weight.expect("it is not frozen")].into_iter().enumerate() {
        let mut differences = Vec::new();
        for at in 0..numbers[index].len() {
            let value = numbers[index][at];
            let mut moved = |by: f64| {
                numbers[index][at] = value + by;
                loss(&numbers)
            };
            let difference = moved(STEP) - moved(-STEP);
            numbers[index][at] = value;
            differences.push((difference / (2.0 * STEP)) as f32);
        }
        let error = relative_error(&gradient, &Tensor::from_vec(differences, gradient.shape(), &Device::Cpu).expect("the same shape"));
        assert!(error < 1e-5, "input {index}: {error}");
    }
}

#[test]
fn a_frozen_head_gives_the_same_but_no_gradient_of_its_weight() {
    let (hidden, weight) = (random((ROWS, WIDTH), 1.5, 1), random((VOCAB, WIDTH), 1.0, 2));
    let gradients = |head: Head| head.with_chunk_rows(5).gradients(&hidden, &targets(), &d_logps()).expect("targets in range");
    let found = gradients(Head::new(&weight).expect("a matrix").with_frozen_weight());
    let expected = gradients(Head::new(&weight).expect("a matrix"));
    assert!(found.d_weight.is_none() && expected.d_weight.is_some());
    assert_eq!((found.outputs, values(&found.d_hidden)), (expected.outputs, values(&expected.d_hidden)));
}

#[test]
fn a_batch_without_a_row_is_refused() {
    let head = Head::new(&random((VOCAB, WIDTH), 1.0, 7)).expect("a matrix");
    let result = head.gradients(&random((1, WIDTH), 1.0, 8), &[], &[]);
    assert!(matches!(result, Err(Error::Internal(_))), "{result:?}");
}

#[test]
fn large_logits_do_not_overflow() {
    let head = Head::new(&random((VOCAB, WIDTH), 300.0, 3)).expect("a matrix");
    let found = head.gradients(&random((ROWS, WIDTH), 30.0, 4), &targets(), &d_logps()).expect("targets in range");
    assert!(found.outputs.iter().all(|logp| logp.is_finite() && *logp <= 0.0));
    assert!(values(&found.d_hidden).iter().all(|value| value.is_finite()));
}

#[test]
fn a_target_outside_the_vocabulary_is_refused() {
    let head = Head::new(&random((VOCAB, WIDTH), 1.0, 5)).expect("a matrix");
    let error = head.logps(&random((1, WIDTH), 1.0, 6), &[VOCAB as u32]);
    assert!(matches!(error, Err(Error::InvalidParameter { .. })), "{error:?}");
}
