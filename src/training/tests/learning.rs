//! Small real training runs, and what must not change them.

use super::*;
use crate::training::example::sft_sequences;
use crate::training::sft::Sft;

fn sft_options(epochs: f64) -> SftOptions {
    let run = RunOptions { epochs, learning_rate: 1e-2, ..RunOptions::default() };
    SftOptions { run, batch_size: Some(16), prompt_weight: 0.0 }
}

/// Trains and returns what was reported.
fn sft_steps(decoder: &mut Decoder, examples: &[SftExample], options: &SftOptions) -> Result<Vec<StepMetrics>> {
    let mut steps = Vec::new();
    train_sft(decoder, examples, options, &mut |metrics| {
        steps.push(metrics.clone());
        Ok(())
    })?;
    Ok(steps)
}

fn metric(steps: &[StepMetrics], index: usize, name: &str) -> f64 {
    steps[index].get(name).expect(name)
}

#[test]
fn sft_learns_to_copy() {
    let mut decoder = tiny_decoder(VOCAB, 1);
    let steps = sft_steps(&mut decoder, &copy_task(16), &sft_options(120.0)).expect("finite numbers");
    let (first, last) = (metric(&steps, 0, "loss"), metric(&steps, steps.len() - 1, "loss"));
    assert!((first - (VOCAB as f64).ln()).abs() < 0.3, "random weights know nothing: the loss starts at ln {VOCAB}, not {first}");
    assert!(last < 0.1 * first, "the loss went from {first} to {last}");
    assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), (1..=120).collect::<Vec<_>>());
}

#[test]
fn dpo_moves_the_policy_from_rejected_to_chosen() {
    let mut decoder = tiny_decoder(VOCAB, 2);
    let examples = copy_pairs(16);
    let run = RunOptions { epochs: 10.0, learning_rate: 2e-3, ..RunOptions::default() };
    let options = DpoOptions { run, batch_size: 8, preference: Preference::sigmoid(0.3) };
    let reference = reference_logps(&decoder, &examples, &options, &mut |_, _| Ok(())).expect("the pairs fit");
    let mut steps = Vec::new();
    let mut observer = |metrics: &StepMetrics| {
        steps.push(metrics.clone());
        Ok(())
    };
    train_dpo(&mut decoder, &reference, &examples, &options, &mut observer).expect("finite numbers");
    let last = steps.len() - 1;
    assert!((metric(&steps, 0, "loss") - std::f64::consts::LN_2).abs() < 1e-6, "policy = reference at the start");
    assert!(metric(&steps, 0, "grad_norm") > 0.0);
    assert!(metric(&steps, last, "loss") < 0.5, "{:?}", steps[last]);
    assert_eq!(metric(&steps, last, "reward_accuracy"), 1.0);
    let margin = metric(&steps, last, "chosen_reward") - metric(&steps, last, "rejected_reward");
    assert!((metric(&steps, last, "reward_margin") - margin).abs() < 1e-9 && margin > 0.5);
}

/// Both cuts of one step give the same gradients and metrics.
fn assert_same(decoder: &Decoder, objective: &impl Objective, one: &[&[usize]], other: &[&[usize]]) {
    let one = step_gradients(decoder, objective, one).expect("finite numbers");
    let other = step_gradients(decoder, objective, other).expect("finite numbers");
    assert_eq!(one.num_tokens, other.num_tokens);
    for ((name, one), (_, other)) in one.metrics.iter().zip(&other.metrics) {
        assert!((one - other).abs() < 1e-5 * one.abs().max(1.0), "{name}: {one} against {other}");
    }
    for name in decoder.parameters().keys() {
        let (one, other) = (one.gradients.get(name).expect(name), other.gradients.get(name).expect(name));
        assert!(relative_error(one, other) < 1e-4, "{name}: relative error {}", relative_error(one, other));
    }
}

#[test]
fn how_a_step_is_cut_into_batches_does_not_matter() {
    let decoder = checkpoint("policy");
    let mut examples = copy_task(5);
    examples[1].weight = 3.0;
    examples[2].completion.truncate(1);
    let run = RunOptions::default();
    let sft = Sft { sequences: sft_sequences(&examples, 0.3, &run).expect("they fit"), tree_packing: true };
    assert_same(&decoder, &sft, &[&[0, 1, 2, 3, 4]], &[&[3, 0], &[2], &[4, 1]]);

    let pairs = copy_pairs(5);
    let options = DpoOptions::default();
    let reference = reference_logps(&checkpoint("reference"), &pairs, &options, &mut |_, _| Ok(())).expect("the pairs fit");
    let pairs = dpo_sequences(&pairs, &run).expect("they fit");
    let dpo = Dpo { pairs, reference: &reference, preference: options.preference, tree_packing: true };
    assert_same(&decoder, &dpo, &[&[0, 1, 2, 3, 4]], &[&[3, 0], &[2], &[4, 1]]);
}

#[test]
fn reference_logps_do_not_depend_on_the_batches_and_report_progress() {
    let reference = checkpoint("reference");
    let pairs = copy_pairs(6);
    let whole = reference_logps(&reference, &pairs, &DpoOptions::default(), &mut |_, _| Ok(())).expect("they fit");
    // A pair has 11 tokens, of which 7 are distinct; the first four pairs share the first of them two by two.
    for (tree_packing, batches) in [(false, [1, 2, 3, 4, 5, 6].as_slice()), (true, [3, 5, 6].as_slice())] {
        let run = RunOptions { batch_tokens: 20, tree_packing, ..RunOptions::default() };
        let narrow = DpoOptions { run, ..DpoOptions::default() };
        let mut progress = Vec::new();
        let mut observer = |done, total| {
            progress.push((done, total));
            Ok(())
        };
        let parts = reference_logps(&reference, &pairs, &narrow, &mut observer).expect("they fit");
        assert_eq!(progress, batches.iter().map(|&done| (done, 6)).collect::<Vec<_>>());
        for (one, other) in whole.iter().zip(&parts) {
            assert!((one.chosen - other.chosen).abs() < 1e-4 && (one.rejected - other.rejected).abs() < 1e-4);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_weights() {
    let train = |seed| {
        let mut decoder = tiny_decoder(VOCAB, 3);
        let mut options = sft_options(2.0);
        options.batch_size = Some(4);
        options.run.seed = seed;
        sft_steps(&mut decoder, &copy_task(16), &options).expect("finite numbers");
        weights(&decoder)
    };
    let five = train(5);
    assert_eq!(five, train(5));
    assert_ne!(five, train(6), "another order");
}

#[test]
fn the_observer_can_stop_a_run() {
    let mut decoder = tiny_decoder(VOCAB, 4);
    let mut num_seen = 0;
    let result = train_sft(&mut decoder, &copy_task(16), &sft_options(50.0), &mut |metrics| {
        num_seen = metrics.step;
        if metrics.step == 2 { Err(Error::Cancelled("TRAIN SFT")) } else { Ok(()) }
    });
    assert!(matches!(result, Err(Error::Cancelled("TRAIN SFT"))), "{result:?}");
    assert_eq!(num_seen, 2);
}

#[test]
fn a_run_stops_between_two_batches_of_a_step() {
    let mut decoder = tiny_decoder(VOCAB, 4);
    let mut options = sft_options(50.0);
    let stop = options.run.stop.clone();
    let mut num_seen = 0;
    let result = train_sft(&mut decoder, &copy_task(16), &options, &mut |metrics| {
        num_seen = metrics.step;
        stop.stop();
        Ok(())
    });
    assert!(matches!(result, Err(Error::Cancelled("TRAIN"))), "{result:?}");
    assert_eq!(num_seen, 1);
    options.run.stop = crate::training::Stop::default();
    assert!(options.run.stop.check().is_ok());
}

#[test]
fn a_run_that_diverges_stops_and_names_the_step() {
    let mut decoder = tiny_decoder(VOCAB, 5);
    let mut options = sft_options(20.0);
    options.run.learning_rate = 1e30;
    options.run.warmup_ratio = 0.0;
    let result = sft_steps(&mut decoder, &copy_task(16), &options);
    assert!(matches!(result, Err(Error::Diverged { step: 1, .. })), "{result:?}");
}

#[test]
fn a_token_that_the_policy_does_not_have_is_refused() {
    let mut decoder = tiny_decoder(VOCAB, 6);
    let examples = [SftExample { prompt: vec![2], completion: vec![VOCAB as u32], weight: 1.0, mask: vec![] }];
    let result = sft_steps(&mut decoder, &examples, &sft_options(1.0));
    assert!(matches!(result, Err(Error::InvalidParameter { .. })), "{result:?}");
}

#[test]
fn a_decoder_loaded_for_inference_is_refused() {
    let mut decoder = Decoder::load(&fixture("policy"), &Device::Cpu, false).expect("the checkpoint is committed");
    assert!(sft_steps(&mut decoder, &copy_task(1), &sft_options(1.0)).is_err());
}
