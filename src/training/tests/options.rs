use super::*;

#[test]
fn every_name_is_an_option_and_every_option_has_a_name() {
    let value = |name: &str| match name {
        "schedule" => Value::Text("linear".into()),
        "shuffle" => Value::Bool(false),
        _ => Value::Int(1),
    };
    for name in SftOptions::NAMES {
        SftOptions::default().set(name, &value(name)).expect(name);
    }
    for name in DpoOptions::NAMES {
        DpoOptions::default().set(name, &value(name)).expect(name);
    }
}

#[test]
fn values_arrive() {
    let mut options = SftOptions::default();
    options.set("learning_rate", &Value::Float(2e-3)).expect("in range");
    options.set("epochs", &Value::Int(3)).expect("in range");
    options.set("batch_size", &Value::Int(4)).expect("in range");
    options.set("prompt_weight", &Value::Float(0.3)).expect("in range");
    options.set("schedule", &Value::Text("constant".into())).expect("in range");
    options.set("shuffle", &Value::Bool(false)).expect("in range");
    let run = RunOptions { learning_rate: 2e-3, epochs: 3.0, schedule: Schedule::Constant, shuffle: false, ..RunOptions::default() };
    assert_eq!(options, SftOptions { run, batch_size: Some(4), prompt_weight: 0.3 });
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
        ("max_grad_norm", Value::Int(0)),
        ("schedule", Value::Text("cosinus".into())),
        ("shuffle", Value::Int(1)),
        ("seed", Value::Int(-1)),
        ("max_steps", Value::Int(0)),
    ];
    for (name, value) in refused {
        let error = DpoOptions::default().set(name, &value);
        assert!(matches!(error, Err(Error::InvalidParameter { .. })), "{name} = {value}: {error:?}");
    }
    assert!(matches!(DpoOptions::default().set("beta", &Value::Int(0)), Err(Error::InvalidParameter { .. })));
    assert!(matches!(SftOptions::default().set("prompt_weight", &Value::Int(2)), Err(Error::InvalidParameter { .. })));
}

#[test]
fn an_unknown_option_names_the_nearest() {
    let error = SftOptions::default().set("learning_rte", &Value::Float(1e-3)).expect_err("there is no such option");
    assert!(error.to_string().starts_with(r#"unknown option "learning_rte" of TRAIN SFT; did you mean "learning_rate"?"#), "{error}");
    assert!(matches!(SftOptions::default().set("beta", &Value::Float(0.3)), Err(Error::UnknownOption { .. })));
}
