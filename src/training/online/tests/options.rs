//! Names, ranges, and what fits together.

use super::*;
use crate::value::Value;

fn error(options: &OnlineOptions, name: &str, value: Value) -> Error {
    let mut changed = options.clone();
    let error = changed.set(name, &value).expect_err(name);
    assert_eq!(changed, *options, "a refused option changes nothing");
    error
}

#[test]
fn every_listed_name_can_be_set() {
    let words = ["grpo", "group", "dapo", "trajectory", "constant", "q_proj", "reward", "cpu"].map(|word| Value::Text(word.to_owned()));
    let candidates = [vec![Value::Int(1), Value::Bool(true), Value::Float(0.5)], words.to_vec()].concat();
    for defaults in [OnlineOptions::grpo(), OnlineOptions::ppo()] {
        for name in defaults.names() {
            let mut options = defaults.clone();
            assert!(candidates.iter().any(|value| options.set(name, value).is_ok()), "{} {name}", defaults.statement());
            assert!(options.run.given.contains_key(*name), "{name} is remembered");
        }
        defaults.check().expect("the defaults fit together");
    }
}

#[test]
fn names_of_the_other_method_and_of_rows_are_unknown() {
    for (options, name) in [
        (OnlineOptions::grpo(), "value_clip"),
        (OnlineOptions::ppo(), "estimator"),
        (OnlineOptions::grpo(), "gradient_accumulation"),
        (OnlineOptions::ppo(), "step_tokens"),
        (OnlineOptions::grpo(), "group_by_prefix"),
    ] {
        let found = error(&options, name, Value::Int(1));
        assert!(matches!(&found, Error::UnknownOption { of, .. } if of == options.statement()), "{found}");
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let grpo = OnlineOptions::grpo();
    for (name, value) in [
        ("group_size", Value::Int(0)),
        ("temperature", Value::Int(0)),
        ("clip_low", Value::Int(1)),
        ("clip_high", Value::Float(-0.1)),
        ("kl_weight", Value::Float(-1.0)),
        ("updates_per_batch", Value::Int(0)),
        ("mini_batches", Value::Int(0)),
        ("entropy_weight", Value::Float(-0.1)),
        ("loss_normalization", Value::Text("mean".to_owned())),
        ("estimator", Value::Text("ppo".to_owned())),
        ("advantage_scaling", Value::Text("std".to_owned())),
    ] {
        assert!(matches!(error(&grpo, name, value), Error::InvalidParameter { .. }), "{name}");
    }
    let ppo = OnlineOptions::ppo();
    for (name, value) in [("gamma", Value::Float(1.5)), ("value_clip", Value::Int(0)), ("gae_scope", Value::Text("token".to_owned()))] {
        assert!(matches!(error(&ppo, name, value), Error::InvalidParameter { .. }), "{name}");
    }
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let with = |given: &[(&str, Value)]| {
        let mut options = OnlineOptions::grpo();
        given.iter().for_each(|(name, value)| options.set(name, value).expect(name));
        options.check()
    };
    let word = |word: &str| Value::Text(word.to_owned());
    for given in [
        &[("group_size", Value::Int(1))][..],
        &[("estimator", word("reinforce")), ("updates_per_batch", Value::Int(2))],
        &[("estimator", word("reinforce")), ("mini_batches", Value::Int(2))],
        &[("estimator", word("reinforce")), ("clip_high", Value::Float(0.3))],
        &[("estimator", word("reinforce")), ("advantage_scaling", word("none"))],
        &[("likelihood_guard", Value::Float(0.1))],
    ] {
        assert!(matches!(with(given), Err(Error::InvalidParameter { .. })), "{given:?}");
    }
    with(&[("likelihood_guard", Value::Float(0.1)), ("updates_per_batch", Value::Int(2))]).expect("they fit together");
    with(&[("estimator", word("reinforce")), ("kl_weight", Value::Float(0.1))]).expect("they fit together");
    let mut alone = OnlineOptions::ppo();
    alone.set("group_size", &Value::Int(1)).expect("a number");
    alone.check().expect("a critic needs no group");
}
