use super::*;
use crate::models::lora::LoraOptions;

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// A value that the option takes and that is not its default.
fn example(name: &str) -> Value {
    match name {
        "schedule" => text("linear"),
        "early_stopping_metric" => text("loss"),
        "token_weights" => text("prorag"),
        "long_prompts" => text("drop"),
        "loss" => text("ipo"),
        "length_normalization" => text("mean"),
        "lora_targets" => text("q_proj"),
        "device" => text("cpu"),
        "shuffle" | "tree_packing" => Value::Bool(false),
        "group_by_prefix" | "recompute" | "lora_rslora" => Value::Bool(true),
        "epochs" | "max_grad_norm" => Value::Int(2),
        "label_smoothing" | "warmup_ratio" | "prompt_weight" | "adam_beta1" | "adam_beta2" => Value::Float(0.25),
        _ => Value::Int(3),
    }
}

/// Each name is an option, and changes more than the record of what was set.
#[test]
fn every_name_is_an_option() {
    for name in SftOptions::NAMES {
        let mut options = SftOptions::default();
        options.set(name, &example(name)).expect(name);
        assert_eq!(options.run.given.keys().collect::<Vec<_>>(), [name]);
        options.run.given.clear();
        assert_ne!(options, SftOptions::default(), "{name}");
    }
    for name in RftOptions::NAMES {
        let mut options = RftOptions::default();
        options.set(name, &example(name)).expect(name);
        assert_eq!(options.sft.run.given.keys().collect::<Vec<_>>(), [name]);
        options.sft.run.given.clear();
        assert_ne!(options, RftOptions::default(), "{name}");
    }
    for name in PrmOptions::NAMES {
        let mut options = PrmOptions::default();
        let value = if *name == "loss" { text("squared_error") } else { example(name) };
        options.set(name, &value).expect(name);
        assert_eq!(options.run.given.keys().collect::<Vec<_>>(), [name]);
        options.run.given.clear();
        assert_ne!(options, PrmOptions::default(), "{name}");
    }
    for name in DpoOptions::NAMES {
        let mut options = DpoOptions::default();
        if *name == "gamma" {
            options.preference.loss = PreferenceLoss::SimPo { gamma: 0.5 };
            options.preference.normalization = LengthNormalization::Mean;
        }
        let before = options.clone();
        options.set(name, &example(name)).expect(name);
        options.finish().expect(name);
        assert_eq!(options.run.given.keys().collect::<Vec<_>>(), [name]);
        options.run.given.clear();
        assert_ne!(options, before, "{name}");
    }
}

#[test]
fn values_arrive() {
    let mut options = SftOptions::default();
    let values = [
        ("learning_rate", Value::Float(2e-3)),
        ("epochs", Value::Int(3)),
        ("batch_size", Value::Int(4)),
        ("prompt_weight", Value::Float(0.3)),
        ("schedule", text("constant")),
        ("shuffle", Value::Bool(false)),
        ("step_tokens", Value::Int(9000)),
        ("long_prompts", text("error")),
        ("checkpoint_every", Value::Int(0)),
        ("evaluate_every", Value::Int(5)),
        ("early_stopping", Value::Int(2)),
        ("recompute", Value::Bool(true)),
    ];
    values.iter().for_each(|(name, value)| options.set(name, value).expect(name));
    let run = RunOptions {
        learning_rate: 2e-3,
        epochs: 3.0,
        schedule: Schedule::Constant,
        shuffle: false,
        step_tokens: Some(9000),
        long_prompts: LongPrompts::Error,
        checkpoint_every: 0,
        evaluate_every: Some(5),
        early_stopping: Some(2),
        recompute: Some(true),
        given: values.map(|(name, value)| (name.to_owned(), value)).into(),
        ..RunOptions::default()
    };
    assert_eq!(options, SftOptions { run, batch_size: Some(4), prompt_weight: 0.3 });
}

/// Whatever is said first, the adapters get the seed of the run.
#[test]
fn adapters_are_on_once_one_of_their_options_is_set() {
    let lora = |options: &[(&str, Value)]| {
        let mut dpo = DpoOptions::default();
        options.iter().for_each(|(name, value)| dpo.set(name, value).expect(name));
        dpo.run.lora
    };
    assert_eq!(lora(&[("seed", Value::Int(7))]), None);
    let rank_8 = LoraOptions { rank: 8, seed: 7, ..LoraOptions::default() };
    assert_eq!(lora(&[("seed", Value::Int(7)), ("lora_rank", Value::Int(8))]), Some(rank_8.clone()));
    assert_eq!(lora(&[("lora_rank", Value::Int(8)), ("seed", Value::Int(7))]), Some(rank_8));
    let of_two = LoraOptions {
        alpha: 4.0,
        is_rank_stabilized: true,
        targets: vec!["q_proj".into(), "model.layers.0.mlp.up_proj".into()],
        ..LoraOptions::default()
    };
    let targets = text(" q_proj,model.layers.0.mlp.up_proj ");
    let options = [("lora_targets", targets), ("lora_alpha", Value::Int(4)), ("lora_rslora", Value::Bool(true))];
    assert_eq!(lora(&options), Some(of_two));
}

fn finished(options: &[(&str, Value)]) -> Result<Preference> {
    let mut dpo = DpoOptions::default();
    options.iter().for_each(|(name, value)| dpo.set(name, value).expect(name));
    dpo.finish().map(|()| dpo.preference)
}

#[test]
fn a_loss_has_its_own_normalization_unless_another_is_given() {
    let of = |loss: &str| finished(&[("loss", text(loss))]).expect("no other option is needed");
    let names = ["sigmoid", "hinge", "ipo", "robust", "orpo", "simpo"];
    for name in names {
        assert_eq!(of(name).loss.name(), name);
        assert_eq!((of(name).beta, of(name).sft_weight), (0.3, 0.0));
        assert_eq!(of(name).normalization, of(name).loss.default_normalization(), "{name}");
    }
    assert_eq!(of("sigmoid"), Preference::sigmoid(0.3));
    assert_eq!(finished(&[]).expect("the defaults fit"), Preference::sigmoid(0.3));
    let ipo_sum = finished(&[("length_normalization", text("sum")), ("loss", text("ipo"))]).expect("ipo takes both");
    assert_eq!(ipo_sum.normalization, LengthNormalization::Sum);
    let sigmoid_mean = finished(&[("length_normalization", text("mean"))]).expect("sigmoid takes both");
    assert_eq!(sigmoid_mean, Preference { normalization: LengthNormalization::Mean, ..Preference::sigmoid(0.3) });
}

#[test]
fn options_of_a_loss_come_before_or_after_it() {
    let forth = [("loss", text("robust")), ("label_smoothing", Value::Float(0.1)), ("beta", Value::Float(0.5))];
    let mut back = forth.clone();
    back.reverse();
    let preference = finished(&forth).expect("in range");
    assert_eq!(preference, finished(&back).expect("in range"));
    assert_eq!((preference.loss, preference.beta), (PreferenceLoss::Robust { label_smoothing: 0.1 }, 0.5));
    let smoothed = finished(&[("label_smoothing", Value::Float(0.2))]).expect("of the default loss");
    assert_eq!(smoothed.loss, PreferenceLoss::Sigmoid { label_smoothing: 0.2 });
    let simpo = finished(&[("gamma", Value::Int(1)), ("loss", text("simpo")), ("sft_weight", Value::Float(0.2))]).expect("in range");
    assert_eq!((simpo.loss, simpo.sft_weight), (PreferenceLoss::SimPo { gamma: 1.0 }, 0.2));
    // Finished twice is finished.
    let mut options = DpoOptions::default();
    options.set("loss", &text("ipo")).expect("a loss");
    options.finish().expect("in range");
    let once = options.clone();
    options.finish().expect("in range");
    assert_eq!(options, once);
}

#[test]
fn options_of_another_loss_are_refused() {
    let refused = [
        ("hinge", "label_smoothing", Value::Float(0.1)),
        ("simpo", "label_smoothing", Value::Int(0)),
        ("sigmoid", "gamma", Value::Float(0.5)),
        ("ipo", "gamma", Value::Float(0.5)),
        ("simpo", "length_normalization", text("sum")),
        ("orpo", "length_normalization", text("sum")),
    ];
    for (loss, name, value) in refused {
        let error = finished(&[("loss", text(loss)), (name, value)]).expect_err(name);
        assert!(matches!(&error, Error::InvalidParameter { name: found, .. } if found == name), "{loss}, {name}: {error}");
    }
    let error = finished(&[("gamma", Value::Float(0.5))]).expect_err("the default loss has none").to_string();
    assert_eq!(error, "gamma = 0.5: expected the loss 'simpo' for it, not 'sigmoid'");
}

#[test]
fn early_stopping_needs_evaluations() {
    let mut decoder = tiny_decoder(8, 1);
    let examples = [SftExample { prompt: vec![1], completion: vec![2, 0], weight: 1.0, mask: vec![] }];
    let mut options = SftOptions {
        run: RunOptions { early_stopping: Some(2), evaluate_every: Some(1), ..RunOptions::default() },
        ..SftOptions::default()
    };
    let mut train = |options: &SftOptions, validation: &[SftExample]| {
        train_sft_validated(&mut decoder, &examples, validation, options, &mut |_| Ok(()))
    };
    let refused = |result: Result<Trained>| {
        assert!(matches!(&result, Err(Error::InvalidParameter { name, .. }) if name == "early_stopping"), "{result:?}");
    };
    assert_eq!(train(&options, &examples).expect("one step").num_steps, 1);
    refused(train(&options, &[]));
    options.run.evaluate_every = None;
    refused(train(&options, &examples));
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = [
        ("epochs", Value::Int(0)),
        ("epochs", Value::Float(f64::NAN)),
        ("epochs", Value::Float(1e12)),
        ("learning_rate", Value::Float(-1e-3)),
        ("learning_rate", Value::Text("fast".into())),
        ("batch_size", Value::Float(1.5)),
        ("batch_tokens", Value::Int(0)),
        ("gradient_accumulation", Value::Int(-1)),
        ("warmup_ratio", Value::Float(1.5)),
        ("weight_decay", Value::Float(-0.1)),
        ("adam_beta1", Value::Int(1)),
        ("adam_beta2", Value::Float(-0.1)),
        ("max_grad_norm", Value::Int(0)),
        ("schedule", Value::Text("cosinus".into())),
        ("shuffle", Value::Int(1)),
        ("group_by_prefix", text("prompt")),
        ("tree_packing", Value::Int(1)),
        ("seed", Value::Int(-1)),
        ("max_steps", Value::Int(0)),
        ("step_tokens", Value::Int(0)),
        ("long_prompts", text("cut")),
        ("long_prompts", Value::Bool(true)),
        ("checkpoint_every", Value::Int(-1)),
        ("checkpoint_every", Value::Float(0.5)),
        ("evaluate_every", Value::Int(0)),
        ("early_stopping", Value::Int(0)),
        ("recompute", Value::Int(1)),
        ("lora_rank", Value::Int(0)),
        ("lora_alpha", Value::Int(0)),
        ("lora_targets", text("q_proj,")),
        ("lora_targets", text("")),
        ("lora_rslora", text("on")),
        ("loss", text("sigmoid_norm")),
        ("beta", Value::Int(0)),
        ("label_smoothing", Value::Float(0.5)),
        ("label_smoothing", Value::Float(-0.1)),
        ("gamma", Value::Int(-1)),
        ("length_normalization", text("median")),
        ("sft_weight", Value::Float(-0.1)),
    ];
    for (name, value) in refused {
        let error = DpoOptions::default().set(name, &value);
        assert!(matches!(error, Err(Error::InvalidParameter { .. })), "{name} = {value}: {error:?}");
    }
    for (name, value) in [("min_reward", Value::Float(f64::INFINITY)), ("per_prompt", Value::Int(0)), ("min_score", text("high"))] {
        let error = RftOptions::default().set(name, &value);
        assert!(matches!(error, Err(Error::InvalidParameter { .. })), "{name} = {value}: {error:?}");
    }
    assert!(matches!(SftOptions::default().set("prompt_weight", &Value::Int(2)), Err(Error::InvalidParameter { .. })));
}

#[test]
fn an_unknown_option_names_the_nearest() {
    let error = SftOptions::default().set("learning_rte", &Value::Float(1e-3)).expect_err("there is no such option");
    assert!(error.to_string().starts_with(r#"unknown option "learning_rte" of TRAIN SFT; did you mean "learning_rate"?"#), "{error}");
    assert!(matches!(SftOptions::default().set("beta", &Value::Float(0.3)), Err(Error::UnknownOption { .. })));
    let error = RftOptions::default().set("min_rewards", &Value::Int(1)).expect_err("there is no such option").to_string();
    assert!(error.starts_with(r#"unknown option "min_rewards" of TRAIN RFT; did you mean "min_reward"?"#), "{error}");
    assert!(error.contains("prompt_weight") && error.contains("lora_rank"), "{error}");
}
