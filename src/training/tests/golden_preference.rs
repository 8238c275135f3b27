//! The losses of preference pairs, through a policy, against PyTorch in float64: `tests/fixtures/make_preference_goldens.py`.

use serde_json::Value as Json;

use super::golden::{ALL, Place, assert_gradients, assert_relative, here, number, pairs};
use super::*;

/// The golden's name of each loss.
const NAMES: [&str; 9] = ["sigmoid_smoothed", "hinge", "ipo", "ipo_sum", "robust", "orpo", "simpo", "sigmoid_mean", "sigmoid_sft"];

pub fn golden() -> Json {
    let text = std::fs::read_to_string(fixture("preference.json")).expect("the fixture is committed");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

/// The options of a golden as a statement would give them: only those that the loss has.
fn options(golden: &Json) -> DpoOptions {
    let loss = golden["preference"].as_str().expect("a name");
    let mut options = DpoOptions::default();
    let mut set = |name: &str, value: Value| options.set(name, &value).expect(name);
    for name in ["beta", "sft_weight"] {
        set(name, Value::Float(number(&golden[name])));
    }
    match loss {
        "sigmoid" | "robust" => set("label_smoothing", Value::Float(number(&golden["label_smoothing"]))),
        "simpo" => set("gamma", Value::Float(number(&golden["gamma"]))),
        _ => {}
    }
    set("loss", Value::Text(loss.into()));
    set("length_normalization", Value::Text(golden["length_normalization"].as_str().expect("a name").into()));
    options.finish().expect("in range");
    options
}

/// Of the fixtures' reference, and these are torch's.
fn reference(golden: &Json, examples: &[DpoExample], place: Place) -> Vec<ReferenceLogps> {
    let logps = reference_logps(&place(checkpoint("reference")), examples, &DpoOptions::default(), &mut |_, _| Ok(()));
    let logps = logps.expect("the pairs fit");
    for (found, expected) in logps.iter().zip(golden["reference_logps"].as_array().expect("a list")) {
        assert_relative(found.chosen, number(&expected[0]), 1e-5, "reference_chosen_logps");
        assert_relative(found.rejected, number(&expected[1]), 1e-5, "reference_rejected_logps");
    }
    logps
}

/// Means over the pairs of what the golden has for each: chosen and rejected.
fn means(rows: &Json) -> [f64; 2] {
    let rows = rows.as_array().expect("a list");
    [0_usize, 1].map(|column| rows.iter().map(|row| number(&row[column])).sum::<f64>() / rows.len() as f64)
}

#[test]
fn every_loss_and_its_gradients_equal_torch() {
    check_every_loss(here);
}

pub fn check_every_loss(place: Place) {
    let golden = golden();
    let policy = place(checkpoint("policy"));
    let examples = pairs(&golden);
    let reference = reference(&golden, &examples, place);
    for name in NAMES {
        let expected = &golden[name];
        let DpoOptions { run, preference, .. } = options(expected);
        let given = if preference.loss.needs_reference() { &reference[..] } else { &[] };
        let pairs = dpo_sequences(&examples, &run).expect("the pairs fit");
        let objective = Dpo { pairs, reference: given, preference, tree_packing: true };
        let step = step_gradients(&policy, &objective, ALL).expect("finite numbers");
        let metric = |metric: &str| {
            let found = step.metrics.iter().find(|(known, _)| *known == metric);
            found.unwrap_or_else(|| panic!("{name} has no {metric}")).1
        };
        assert_relative(metric("loss"), number(&expected["loss"]), 1e-5, name);
        let [chosen, rejected] = means(&expected["rewards"]);
        for (reward, expected) in [("chosen_reward", chosen), ("rejected_reward", rejected), ("reward_margin", chosen - rejected)] {
            assert!((metric(reward) - expected).abs() < 1e-4, "{name}: {reward} {}, expected {expected}", metric(reward));
        }
        let [chosen, rejected] = means(&expected["policy_logps"]);
        assert_relative(metric("chosen_logps"), chosen, 1e-5, name);
        assert_relative(metric("rejected_logps"), rejected, 1e-5, name);
        assert_gradients(&policy, &step.gradients, &format!("preference_{name}_gradients.safetensors"));
    }
}

/// A pair behind the hinge's margin must not move the policy, and one before it must.
#[test]
fn the_hinge_lets_go_of_a_pair_that_is_far_enough_ahead() {
    let golden = golden();
    let policy = checkpoint("policy");
    let examples = pairs(&golden);
    let reference = reference(&golden, &examples, here);
    let DpoOptions { run, preference, .. } = options(&golden["hinge"]);
    let pairs = dpo_sequences(&examples, &run).expect("the pairs fit");
    let objective = Dpo { pairs, reference: &reference, preference, tree_packing: true };
    let rewards = golden["hinge"]["rewards"].as_array().expect("a list");
    let mut num_ahead = 0;
    for (index, rewards) in rewards.iter().enumerate() {
        let is_ahead = number(&rewards[0]) - number(&rewards[1]) > 1.0;
        let step = step_gradients(&policy, &objective, &[&[index]]).expect("finite numbers");
        let norm = step.gradients.norm().expect("gradients");
        assert_eq!((step.metrics[0].1 == 0.0, norm == 0.0), (is_ahead, is_ahead), "pair {index}: gradient norm {norm}");
        num_ahead += usize::from(is_ahead);
    }
    assert!((1..rewards.len()).contains(&num_ahead), "the goldens have pairs of both kinds");
}

#[test]
fn at_the_reference_each_loss_has_its_known_value() {
    let examples = pairs(&golden());
    let policy = checkpoint("policy");
    let logps = reference_logps(&policy, &examples, &DpoOptions::default(), &mut |_, _| Ok(())).expect("the pairs fit");
    let known = [
        ("sigmoid", 0.0, std::f64::consts::LN_2),
        ("sigmoid", 0.1, std::f64::consts::LN_2),
        ("robust", 0.1, std::f64::consts::LN_2),
        ("hinge", 0.0, 1.0),
        ("ipo", 0.0, 1.0 / (4.0 * 0.5 * 0.5)),
    ];
    for (loss, label_smoothing, expected) in known {
        let mut options = DpoOptions::default();
        options.set("loss", &Value::Text(loss.into())).expect("a loss");
        options.set("beta", &Value::Float(0.5)).expect("in range");
        if label_smoothing > 0.0 {
            options.set("label_smoothing", &Value::Float(label_smoothing)).expect("in range");
        }
        options.finish().expect("in range");
        let pairs = dpo_sequences(&examples, &options.run).expect("the pairs fit");
        let objective = Dpo { pairs, reference: &logps, preference: options.preference, tree_packing: true };
        let step = step_gradients(&policy, &objective, ALL).expect("finite numbers");
        assert_relative(step.metrics[0].1, expected, 1e-5, loss);
        assert!(step.gradients.norm().expect("gradients") > 0.0, "{loss} moves the policy");
    }
}

/// A loss without a reference is trained without one; one with a reference is not.
#[test]
fn only_a_loss_with_a_reference_asks_for_one() {
    let examples = pairs(&golden());
    let train = |loss: &str| {
        let mut options = DpoOptions { run: RunOptions { max_steps: Some(2), ..RunOptions::default() }, ..DpoOptions::default() };
        options.set("loss", &Value::Text(loss.into())).expect("a loss");
        options.set("epochs", &Value::Int(2)).expect("in range");
        options.finish().expect("in range");
        train_dpo(&mut checkpoint("policy"), &[], &examples, &options, &mut |_| Ok(()))
    };
    for loss in ["simpo", "orpo"] {
        assert_eq!(train(loss).expect("it needs none").num_steps, 2, "{loss}");
    }
    assert!(matches!(train("ipo"), Err(Error::Internal(_))));
}
