use proptest::prelude::*;

use super::*;
use crate::training::score_head::ScoreHead;

const WIDTH: usize = 5;

fn matrix(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, (values.len() / WIDTH, WIDTH), &Device::Cpu).expect("whole rows")
}

/// `Σ_r d_r · score_r`, of which `d` are the derivatives by the scores.
fn weighted(weight: &[f32], hidden: &[f32], d_scores: &[f64]) -> f64 {
    let scores = ScoreHead::new(&matrix(weight)).and_then(|head| head.scores(&matrix(hidden))).expect("one row of weights");
    scores.iter().zip(d_scores).map(|(score, d_score)| score * d_score).sum()
}

fn numbers(len: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-3.0_f32..3.0, len)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Scores are linear, so that a difference of width 1 is the derivative.
    #[test]
    fn derivatives_are_those_of_differences(
        weight in numbers(WIDTH),
        hidden in numbers(3 * WIDTH),
        d_scores in prop::collection::vec(-2.0_f64..2.0, 3),
    ) {
        let head = ScoreHead::new(&matrix(&weight)).expect("one row of weights");
        let found = head.gradients(&matrix(&hidden), &d_scores).expect("three rows");
        let difference = |at: &dyn Fn(f32) -> f64| at(0.5) - at(-0.5);
        let moved = |values: &[f32], index: usize, step: f32| {
            let mut moved = values.to_vec();
            moved[index] += step;
            moved
        };
        for (index, derivative) in values(&found.d_weight.expect("it is not frozen")).into_iter().enumerate() {
            let slope = difference(&|step| weighted(&moved(&weight, index, step), &hidden, &d_scores));
            prop_assert!((slope - derivative).abs() < 1e-4, "weight {index}: {slope} and {derivative}");
        }
        for (index, derivative) in values(&found.d_hidden).into_iter().enumerate() {
            let slope = difference(&|step| weighted(&weight, &moved(&hidden, index, step), &d_scores));
            prop_assert!((slope - derivative).abs() < 1e-4, "hidden {index}: {slope} and {derivative}");
        }
        prop_assert_eq!(found.outputs, head.scores(&matrix(&hidden)).expect("three rows"));
    }
}

#[test]
fn a_score_is_a_product() {
    let head = ScoreHead::new(&matrix(&[1.0, -2.0, 0.0, 0.5, 0.0])).expect("one row of weights");
    let hidden = matrix(&[3.0, 1.0, 7.0, -2.0, 9.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    let found = head.gradients(&hidden, &[2.0, -1.0]).expect("two rows");
    assert_eq!(found.outputs, [0.0, 0.0]);
    assert_eq!(values(&found.d_hidden), [2.0, -4.0, 0.0, 1.0, 0.0, -1.0, 2.0, 0.0, -0.5, 0.0]);
    assert_eq!(values(&found.d_weight.expect("it is not frozen")), [6.0, 2.0, 13.0, -4.0, 18.0]);
}

#[test]
fn what_is_no_score_is_refused() {
    assert!(matches!(ScoreHead::new(&matrix(&[1.0; 2 * WIDTH])), Err(Error::Internal(_))), "a vocabulary of two");
    let head = ScoreHead::new(&matrix(&[1.0; WIDTH])).expect("one row of weights");
    let narrow = Tensor::from_slice(&[1.0_f32; 4], (1, 4), &Device::Cpu).expect("a row");
    assert!(head.scores(&narrow).is_err());
    assert!(matches!(head.gradients(&matrix(&[1.0; WIDTH]), &[1.0, 1.0]), Err(Error::Internal(_))), "one row, two derivatives");
}
