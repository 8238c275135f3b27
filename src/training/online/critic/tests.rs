//! Derivatives of the values, by finite differences.

use super::*;
use crate::training::RunOptions;
use crate::training::tests::tiny_decoder;
use crate::training::thread::with_deep_stack;

const VOCAB: usize = 12;

/// A critic whose values are not zero.
fn critic() -> Critic {
    let decoder = tiny_decoder(VOCAB, 3);
    let width = decoder.config().hidden_size;
    let score = (0..width).map(|index| ((index * 7 % 5) as f32 - 2.0) * 0.1).collect::<Vec<f32>>();
    Critic::with_score(decoder, Var::from_vec(score, (1, width), &candle_core::Device::Cpu).expect("a vector"))
}

fn sequences() -> Vec<(Vec<u32>, Vec<u32>)> {
    vec![(vec![1, 2, 3], vec![4, 5]), (vec![1, 2, 3], vec![4, 6, 7]), (vec![8], vec![9])]
}

fn with_gradients(critic: &Critic, run: &RunOptions, recompute: bool) -> ValueGradients {
    let texts = sequences();
    let sequences: Vec<Sequence<'_>> = texts.iter().map(sequence).collect();
    let old_values: Vec<Vec<f64>> = texts.iter().map(|(_, completion)| vec![0.01; completion.len()]).collect();
    let returns: Vec<Vec<f64>> = texts.iter().map(|(_, completion)| vec![0.7; completion.len()]).collect();
    // Far enough that nothing is held.
    let weights = [0.1, 0.2, 0.3];
    let objective = ValueObjective { sequences: &sequences, old_values: &old_values, returns: &returns, weights: &weights, clip: 10.0 };
    let work = |_: &mut dyn FnMut(()) -> Result<()>| critic.gradients(&objective, Passes { run, recompute });
    with_deep_stack(work, &mut |()| Ok(())).expect("finite numbers")
}

fn sequence((prompt, completion): &(Vec<u32>, Vec<u32>)) -> Sequence<'_> {
    Sequence { prompt, completion, mask: &[], prompt_weight: 0.0, completion_weight: 1.0 }
}

#[test]
fn a_new_critic_says_nothing() {
    let critic = Critic::new(tiny_decoder(VOCAB, 3)).expect("a score");
    let texts = sequences();
    let sequences: Vec<Sequence<'_>> = texts.iter().map(sequence).collect();
    let run = RunOptions::default();
    let values = critic.values(&sequences, Passes { run: &run, recompute: false }).expect("finite numbers");
    assert_eq!(values, [vec![0.0; 2], vec![0.0; 3], vec![0.0; 1]]);
    assert!(critic.parameters().keys().all(|name| name.starts_with(PREFIX)));
}

#[test]
fn every_parameter_has_the_gradient_of_its_differences() {
    let (critic, run) = (critic(), RunOptions::default());
    let ValueGradients { gradients, loss, num_clipped } = with_gradients(&critic, &run, false);
    assert!(loss > 0.0 && num_clipped == 0);
    for (name, parameter) in critic.parameters() {
        let gradient = gradients.get(name).expect(name).flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("f32");
        assert!(gradient.iter().any(|value| *value != 0.0), "{name}");
        // Along its own direction the loss grows by the norm of the gradient.
        let norm = gradient.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let at = |step: f64| {
            let before = parameter.as_detached_tensor().copy().expect("a copy");
            let direction = (gradients.get(name).expect(name) * (step / norm)).expect("a product");
            parameter.set(&(&before + direction).expect("a sum")).expect("the same shape");
            let loss = with_gradients(&critic, &run, false).loss;
            parameter.set(&before).expect("the same shape");
            loss
        };
        let slope = (at(3e-3) - at(-3e-3)) / 6e-3;
        assert!((slope - norm).abs() < 3e-2 * norm + 5e-5, "{name}: {slope} beside {norm}");
    }
}

#[test]
fn batches_and_kept_graphs_change_nothing() {
    let critic = critic();
    let norm = |run: &RunOptions, recompute| with_gradients(&critic, run, recompute).gradients.norm().expect("finite numbers");
    let whole = norm(&RunOptions::default(), false);
    let narrow = RunOptions { batch_tokens: 4, ..RunOptions::default() };
    let unpacked = RunOptions { tree_packing: false, ..RunOptions::default() };
    for found in [norm(&RunOptions::default(), true), norm(&narrow, false), norm(&unpacked, false)] {
        assert!((found - whole).abs() < 1e-5 * whole, "{found} beside {whole}");
    }
}
