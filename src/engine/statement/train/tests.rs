//! A training publishes what its role may publish when it ends; a dry run counts what the training does; a checkpoint belongs to one run.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use futures::TryStreamExt;
use rolloutdb_sql::Statement;

use super::checkpoints::Identity;
use super::examples::Examples;
use super::input::Given;
use super::*;
use crate::Database;
use crate::engine::privileges::Object;
use crate::models::Device;
use crate::training::{DpoExample, Estimate, PrmExamples, ReferenceLogps, STATEMENT_OPTIONS, SftExample, StepExample};

const BASE: &str = "CREATE MODEL base FROM 'random://qwen2' \
    USING (SELECT completion FROM hopworld_demonstrations(worlds => 1, questions_per_world => 20)) \
    WITH (task = 'generate', vocab_size = 400, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 4, \
    num_key_value_heads = 2, seed = 1)";

async fn run(session: &Session, text: &str) -> Result<()> {
    session.sql(text).await?.try_collect::<Vec<_>>().await?;
    Ok(())
}

/// The name was free when the training began; its query, which runs after that, sees another role take it.
#[tokio::test(flavor = "multi_thread")]
async fn a_training_adds_no_version_to_a_model_that_another_role_made_meanwhile() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let database = Database::open(data.path()).await?;
    let (owner, ann) = (database.session(), database.session());
    run(&owner, BASE).await?;
    run(&owner, "CREATE ROLE ann; CREATE ROLE bob; GRANT USAGE ON MODEL base TO ann; GRANT CREATE ON DATABASE rolloutdb TO ann").await?;
    ann.set_user("ann");
    let made = database.clone();
    let take_name = move |_: &[ColumnarValue]| -> DataFusionResult<ColumnarValue> {
        let shared = &made.shared;
        if !shared.knows(&Object::model("m")) {
            let base = shared.registry.get("base")?;
            let staged = shared.registry.stage()?;
            for file in std::fs::read_dir(&base.directory).expect("a model is a folder") {
                let file = file.expect("its files are readable");
                std::fs::copy(file.path(), staged.path().join(file.file_name())).expect("a copy");
            }
            shared.registry.publish("m", staged, &base, serde_json::Value::Null)?;
            shared.privileges.own(Object::model("m"), "bob")?;
        }
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some("Who?".to_owned()))))
    };
    ann.context().register_udf(create_udf("take_name", vec![], DataType::Utf8, Volatility::Volatile, Arc::new(take_name)));
    let train = |model: &str, prompt: &str| {
        format!("TRAIN SFT MODEL {model} FROM base USING (SELECT {prompt} AS prompt, 'He.' AS completion) WITH (max_steps = 1)")
    };
    let refused = run(&ann, &train("m", "take_name()")).await;
    assert!(matches!(refused, Err(Error::InsufficientPrivilege(_))), "{refused:?}");
    let versions = || database.shared.registry.list().map(|models| models.iter().map(ModelInfo::reference).collect::<Vec<_>>());
    assert_eq!(versions()?, ["base@1", "m@1"]);
    assert_eq!(database.shared.privileges.acl(&Object::model("m")).owner.as_deref(), Some("bob"));
    for version in [1, 2] {
        run(&ann, &train("own", "'Who?'")).await?;
        assert_eq!(database.shared.registry.get("own")?.version, version);
    }
    assert_eq!(database.shared.privileges.acl(&Object::model("own")).owner.as_deref(), Some("ann"));
    Ok(())
}

/// The properties that a dry run gives.
async fn properties(session: &Session, text: &str) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for batch in session.sql(text).await?.try_collect::<Vec<RecordBatch>>().await? {
        let (names, values) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        found.extend((0..batch.num_rows()).map(|row| (names.value(row).to_owned(), values.value(row).to_owned())));
    }
    Ok(found)
}

fn parsed(text: &str) -> Train {
    match rolloutdb_sql::parse(text).map(|mut statements| statements.pop()) {
        Ok(Some(Statement::Train(train))) => train,
        other => panic!("{text} is read as {other:?}"),
    }
}

/// What a dry run rounds before it shows it.
async fn estimated(session: &Session, text: &str) -> Result<Estimate> {
    let train = parsed(text);
    let base = session.database().shared.registry.get(&train.base)?;
    let (config, method) = (DecoderConfig::load(&base.directory)?, Task::of(&train)?.method);
    let input = Box::pin(input::read(session, &train, &[], &method, config.vocab_size, &Chat::of(&base))).await?;
    let dry_run = DryRun { directory: base.directory, config, method, rows: input.rows, validation: input.validation };
    dry_run.figures(&Stop::default()).map(|(_, estimate)| estimate)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_what_the_training_does() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(&session, BASE).await?;
    let train = "TRAIN SFT MODEL m FROM base USING (SELECT 'Who? ' || value AS prompt, 'He.' AS completion FROM generate_series(1, 10) s(value)) \
        VALIDATE USING (SELECT 'Who?' AS prompt, 'She.' AS completion) WITH (epochs = 3, batch_size = 4)";
    let dry = properties(&session, &format!("{train} DRY RUN")).await?;
    assert!(session.database().shared.registry.get("m").is_err(), "a dry run makes no model");
    assert_eq!(session.database().shared.catalog.table("rollout", "training_metrics").await?.row_count().await?, 0);
    assert!(!data.path().join("training").exists(), "nor a checkpoint");

    run(&session, train).await?;
    let asked = "SELECT max(step)::bigint, sum(value) FROM rollout.training_metrics WHERE metric = 'tokens'";
    let batches: Vec<RecordBatch> = session.sql(asked).await?.try_collect().await?;
    let (steps, tokens) =
        (batches[0].column(0).as_primitive::<Int64Type>().value(0), batches[0].column(1).as_primitive::<Float64Type>().value(0));
    let parameters = session.database().shared.registry.get("m")?.parameter_count;
    assert_eq!(dry["steps"], steps.to_string());
    assert_eq!(dry["tokens"], tokens.to_string());
    assert_eq!(dry["parameters"], parameters.to_string());
    assert_eq!(dry["trainable_parameters"], parameters.to_string());
    assert_eq!(dry["weight_bytes"], (4 * parameters).to_string());
    assert_eq!((dry["examples"].as_str(), dry["validation_examples"].as_str()), ("10", "1"));
    let seconds: f64 = dry["seconds"].parse().expect("a number");
    let estimate = estimated(&session, train).await?;
    assert_eq!(estimate.num_steps.to_string(), dry["steps"]);
    assert!(estimate.seconds > 0.0 && estimate.seconds.max(seconds) < 60.0, "{estimate:?}, shown as {seconds}");

    let adapters =
        "TRAIN DPO MODEL m FROM base USING (SELECT 'Who?' AS prompt, 'He.' AS chosen, 'She.' AS rejected) WITH (lora_rank = 2) DRY RUN";
    let adapters = properties(&session, adapters).await?;
    let trainable: u64 = adapters["trainable_parameters"].parse().expect("a number");
    assert!((1..parameters).contains(&trainable), "{trainable}");
    assert_eq!(adapters["checkpoint_bytes"], (12 * trainable).to_string());
    Ok(())
}

/// Rows of text.
async fn texts(session: &Session, text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for batch in session.sql(text).await?.try_collect::<Vec<RecordBatch>>().await? {
        let column = arrow::compute::cast(batch.column(0), &DataType::Utf8).expect("any value is a text");
        found.extend(column.as_string::<i32>().iter().map(|text| text.unwrap_or("NULL").to_owned()));
    }
    Ok(found)
}

const PAIRS: &str = "SELECT 'Who? ' || value AS prompt, 'He.' AS chosen, 'She did.' AS rejected FROM generate_series(1, 6) s(value)";

/// Its directory is a whole model, and so is a copy of it; what is made of a policy and of a reward model does not change places.
#[tokio::test(flavor = "multi_thread")]
async fn a_reward_model_is_a_model_of_its_own_kind() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(&session, BASE).await?;
    let train = format!("TRAIN PRM MODEL prm FROM base USING ({PAIRS}) WITH (epochs = 10, batch_size = 4, learning_rate = 1e-2)");
    let dry = properties(&session, &format!("{train} DRY RUN")).await?;
    run(&session, &train).await?;
    let registry = &session.database().shared.registry;
    let (base, info) = (registry.get("base")?, registry.get("prm")?);
    assert!(info.has_score() && info.architecture == "Qwen2ForSequenceClassification", "{info:?}");
    assert_eq!(info.parameter_count, base.parameter_count + 32, "the head was tied, and the score is 32 wide");
    assert_eq!(dry["parameters"], info.parameter_count.to_string());
    for (property, asked) in [("steps", "max(step)"), ("tokens", "sum(value)::bigint")] {
        let asked = format!("SELECT {asked} FROM rollout.training_metrics WHERE metric = 'tokens'");
        assert_eq!(texts(&session, &asked).await?, [dry[property].clone()], "{property}");
    }

    let copy = tempfile::tempdir().expect("a temporary directory");
    for file in std::fs::read_dir(&info.directory).expect("a model is a folder") {
        let file = file.expect("its files are readable");
        std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("a copy");
    }
    let source = copy.path().display().to_string();
    let create = |name: &str, source: String| crate::models::CreateModel {
        name: name.to_owned(),
        source,
        task: None,
        device: crate::models::Device::Auto,
        options: vec![],
        texts: vec![],
    };
    registry.create(create("copied", source))?;
    let score = |model: &str, step: &str| format!("rerank('{model}', 'Who? 1', '{step}')");
    let same = format!("SELECT {} = {}", score("prm", "He."), score("copied", "He."));
    assert_eq!(texts(&session, &same).await?, ["true"]);
    let learned = format!("SELECT {} > {}", score("prm", "He."), score("prm", "She did."));
    assert_eq!(texts(&session, &learned).await?, ["true"]);

    let adapters = "WITH (max_steps = 1, lora_rank = 2, lora_keep = true)";
    run(&session, &format!("TRAIN PRM MODEL further FROM copied USING ({PAIRS}) {adapters}")).await?;
    let further = registry.get("further")?;
    assert_eq!((further.parameter_count, further.adapter_directory().is_some()), (info.parameter_count, true));
    for refused in [
        format!("TRAIN DPO MODEL x FROM prm USING ({PAIRS}) WITH (max_steps = 1)"),
        format!("TRAIN PRM MODEL base FROM base USING ({PAIRS}) WITH (max_steps = 1)"),
        format!("TRAIN DPO MODEL prm FROM base USING ({PAIRS}) WITH (max_steps = 1)"),
    ] {
        let error = run(&session, &refused).await;
        assert!(matches!(error, Err(Error::WrongType { .. })), "{refused}: {error:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_an_online_training_tries_a_step() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(
        &session,
        "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate'); \
         CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3); CREATE INDEX wiki_text ON wiki USING bm25 (contents); \
         CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', k = 2, prompts = 'short', max_steps = 4, max_tokens = 32)",
    )
    .await?;
    for method in ["GRPO", "PPO"] {
        let train = format!(
            "TRAIN {method} MODEL m FROM policy USING (SELECT 'Who directed it?' AS question, 'Ann' AS golden_answers FROM generate_series(1, 3) s(value)) \
             VALIDATE USING (SELECT 'Who directed it?' AS question, 'Ann' AS golden_answers) WITH (agent = 'qa', batch_size = 2, group_size = 3)"
        );
        let dry = properties(&session, &format!("{train} DRY RUN")).await?;
        let number = |property: &str| dry[property].parse::<f64>().expect("a number");
        assert_eq!((number("steps"), number("trajectories"), number("sampled_trajectories")), (2.0, 9.0, 6.0), "{dry:?}");
        assert!(number("rollout_seconds") >= 0.0 && number("update_seconds") >= 0.0);
        assert!((number("seconds") - number("rollout_seconds") - number("update_seconds")).abs() < 0.2, "each is rounded: {dry:?}");
        assert!(session.database().shared.registry.get("m").is_err(), "a dry run makes no model");
    }
    Ok(())
}

/// Options as a statement may have them, each beside the defaults.
const OPTIONS: [&str; 28] = [
    "epochs = 2",
    "max_steps = 7",
    "learning_rate = 1e-3",
    "schedule = 'linear'",
    "warmup_ratio = 0.2",
    "weight_decay = 0.1",
    "adam_beta1 = 0.8",
    "adam_beta2 = 0.95",
    "max_grad_norm = 2",
    "batch_tokens = 100",
    "gradient_accumulation = 2",
    "step_tokens = 50",
    "max_length = 64",
    "long_prompts = 'drop'",
    "shuffle = false",
    "group_by_prefix = true",
    "tree_packing = false",
    "seed = 1",
    "checkpoint_every = 7",
    "evaluate_every = 3",
    "evaluate_every = 3, early_stopping = 2",
    "evaluate_every = 3, early_stopping = 2, early_stopping_metric = 'loss'",
    "recompute = true",
    "lora_rank = 4",
    "lora_alpha = 8",
    "lora_targets = 'q_proj'",
    "lora_rslora = true",
    "batch_size = 4",
];

/// Those of one method.
const OPTIONS_OF: [(&str, &[&str]); 4] = [
    ("SFT", &["prompt_weight = 0.5", "token_weights = 'prorag'"]),
    ("RFT", &["prompt_weight = 0.5", "token_weights = 'prorag'", "min_reward = 0.5", "per_prompt = 2", "min_score = 0.5"]),
    (
        "DPO",
        &[
            "loss = 'hinge'",
            "loss = 'ipo'",
            "loss = 'robust'",
            "loss = 'orpo'",
            "loss = 'simpo'",
            "loss = 'simpo', gamma = 0.1",
            "beta = 0.1",
            "label_smoothing = 0.1",
            "length_normalization = 'mean'",
            "sft_weight = 0.5",
        ],
    ),
    ("PRM", &["loss = 'bradley_terry'", "loss = 'cross_entropy'", "loss = 'squared_error'", "margin = 0.5"]),
];

fn with(method: &str, options: &str) -> String {
    format!("TRAIN {method} MODEL m FROM base USING (SELECT 1) VALIDATE USING (SELECT 1) WITH ({options})")
}

fn fingerprint(text: &str, base: &ModelInfo, examples: &Examples, validation: &Examples) -> String {
    let train = parsed(text);
    let method = match Task::of(&train) {
        Ok(task) => task.method,
        Err(error) => panic!("{text}: {error}"),
    };
    let mut identity = Identity::new(&lineage::identity(&train, base, &method));
    examples.identify(&mut identity);
    validation.identify(&mut identity);
    identity.fingerprint()
}

/// That no two runs have one folder of checkpoints.
fn check_different(runs: &[(String, String)]) {
    let mut seen = BTreeMap::new();
    for (what, fingerprint) in runs {
        if let Some(other) = seen.insert(fingerprint, what) {
            panic!("{what} takes up the checkpoints of {other}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_other_options_or_of_another_base_finds_no_checkpoint() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(&session, BASE).await?;
    let base = session.database().shared.registry.get("base")?;
    let none = Examples::Sft(vec![]);
    let of = |text: &str, base: &ModelInfo| fingerprint(text, base, &none, &none);
    let mut runs = Vec::new();
    for (method, own) in OPTIONS_OF {
        let all: Vec<&str> = OPTIONS.iter().chain(own).copied().collect();
        let Err(Error::UnknownOption { known, .. }) = Task::of(&parsed(&with(method, "no_such = 1"))) else {
            panic!("TRAIN {method} takes an option that there is none of");
        };
        // Where it computes changes the result by where that is, which the next test tries.
        for name in known.iter().filter(|name| !STATEMENT_OPTIONS.contains(&name.as_str()) && *name != "device") {
            assert!(all.iter().any(|options| options.contains(&format!("{name} = "))), "{name} of TRAIN {method} is not tried here");
        }
        let plain = with(method, "resume = true");
        for other in ["resume = false", "resume = true, tensorboard = 'runs'", "resume = true, on_divergence = 'last_checkpoint'"] {
            assert_eq!(of(&plain, &base), of(&with(method, other), &base), "{other} is no part of what it computes");
        }
        let [adapted, kept] = ["lora_rank = 2", "lora_rank = 2, lora_keep = true"].map(|options| of(&with(method, options), &base));
        assert_eq!(adapted, kept, "nor is what it leaves beside its model");
        runs.extend(all.iter().map(|options| (format!("{method} with {options}"), of(&with(method, options), &base))));
        runs.push((format!("another name of {method}"), of(&plain.replace("MODEL m", "MODEL n"), &base)));
        runs.push((method.to_owned(), of(&plain, &base)));
    }
    let plain = with("SFT", "resume = true");
    let version = ModelInfo { version: base.version + 1, ..base.clone() };
    let made_anew = ModelInfo { created_at_ms: base.created_at_ms + 1, ..base.clone() };
    let name = ModelInfo { name: "other".to_owned(), ..base.clone() };
    for (what, other) in [("another version", version), ("a base made anew", made_anew), ("another base", name)] {
        runs.push((what.to_owned(), of(&plain, &other)));
    }
    check_different(&runs);
    Ok(())
}

/// Another device rounds otherwise, so that its checkpoints are of another run, and lineage tells which it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_another_device_finds_no_checkpoint() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(&session, BASE).await?;
    let base = session.database().shared.registry.get("base")?;
    let train = parsed(&with("SFT", "device = 'cpu'"));
    let identity = |device: Device| {
        let mut method = Task::of(&train).expect("it is as it should be").method;
        method.run_mut().device = device;
        (lineage::identity(&train, &base, &method), method.in_force()["device"].clone())
    };
    let ((on_cpu, cpu), (on_gpu, gpu)) = (identity(Device::Cpu), identity(Device::Cuda(1)));
    assert_ne!(on_cpu, on_gpu);
    assert_eq!(cpu, "cpu");
    assert!(gpu.as_str().is_some_and(|gpu| gpu.starts_with("cuda:1")), "{gpu}");
    #[cfg(not(feature = "cuda-policies"))]
    {
        assert_eq!(identity(Device::Auto).0, on_cpu, "nothing else is there");
        let refused = Task::of(&parsed(&with("SFT", "device = 'cuda'"))).err();
        assert!(matches!(&refused, Some(Error::NotSupported(message)) if message.contains("'cpu'")), "{refused:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_over_other_examples_finds_no_checkpoint() -> Result<()> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let session = Database::open(data.path()).await?.session();
    run(&session, BASE).await?;
    let base = session.database().shared.registry.get("base")?;
    let of =
        |method: &str, examples: Examples, validation: Examples| fingerprint(&with(method, "resume = true"), &base, &examples, &validation);

    let first = SftExample { prompt: vec![1, 2], completion: vec![3, 4], weight: 1.0, mask: vec![] };
    let second = SftExample { prompt: vec![5], ..first.clone() };
    let changed = [
        ("the prompt", SftExample { prompt: vec![1, 9], ..first.clone() }),
        ("the completion", SftExample { completion: vec![3, 9], ..first.clone() }),
        ("a token on the other side", SftExample { prompt: vec![1], completion: vec![2, 3, 4], ..first.clone() }),
        ("the weight", SftExample { weight: 0.5, ..first.clone() }),
        ("the mask", SftExample { mask: vec![0.0, 1.0], ..first.clone() }),
        ("the weight of a token", SftExample { mask: vec![0.0, 2.0], ..first.clone() }),
        ("the other half of the mask", SftExample { mask: vec![1.0, 0.0], ..first.clone() }),
    ];
    let sft = |examples: &[&SftExample], validation: &[&SftExample]| {
        let examples_of = |examples: &[&SftExample]| Examples::Sft(examples.iter().map(|example| (*example).clone()).collect());
        of("SFT", examples_of(examples), examples_of(validation))
    };
    let mut runs = vec![
        ("all".to_owned(), sft(&[&first, &second], &[&first])),
        ("another order".to_owned(), sft(&[&second, &first], &[&first])),
        ("one less".to_owned(), sft(&[&first], &[&first])),
        ("one that is measured instead".to_owned(), sft(&[&first], &[&second, &first])),
        ("no validation".to_owned(), sft(&[&first, &second], &[])),
    ];
    for (what, other) in &changed {
        runs.push(((*what).to_owned(), sft(&[other, &second], &[&first])));
        runs.push((format!("{what} of the validation"), sft(&[&first, &second], &[other])));
    }

    let pair = DpoExample { prompt: vec![1], chosen: vec![2, 3], rejected: vec![4] };
    let logps = ReferenceLogps { chosen: -1.0, rejected: -2.0 };
    let none = || Examples::Dpo(vec![], vec![]);
    let given = |logps: ReferenceLogps| Given { logps, is_of_base: false, is_of_learned: true };
    let dpo = |pair: &DpoExample, reference: Option<ReferenceLogps>| {
        of("DPO", Examples::Dpo(vec![pair.clone()], vec![reference.map(given)]), none())
    };
    runs.extend([
        ("a pair".to_owned(), dpo(&pair, None)),
        ("its prompt".to_owned(), dpo(&DpoExample { prompt: vec![9], ..pair.clone() }, None)),
        ("its chosen completion".to_owned(), dpo(&DpoExample { chosen: vec![2, 9], ..pair.clone() }, None)),
        ("its rejected completion".to_owned(), dpo(&DpoExample { rejected: vec![9], ..pair.clone() }, None)),
        ("a token on the other side of it".to_owned(), dpo(&DpoExample { chosen: vec![2], rejected: vec![3, 4], ..pair.clone() }, None)),
        ("a reference".to_owned(), dpo(&pair, Some(logps))),
        ("another reference of chosen".to_owned(), dpo(&pair, Some(ReferenceLogps { chosen: -1.5, ..logps }))),
        ("another reference of rejected".to_owned(), dpo(&pair, Some(ReferenceLogps { rejected: -2.5, ..logps }))),
        (
            "a reference of nobody knows which tokens".to_owned(),
            of("DPO", Examples::Dpo(vec![pair.clone()], vec![Some(Given { is_of_learned: false, ..given(logps) })]), none()),
        ),
        ("a pair that is measured".to_owned(), of("DPO", none(), Examples::Dpo(vec![pair.clone()], vec![None]))),
    ]);

    let step = StepExample { prompt: vec![1], step: vec![2, 3], label: 1.0 };
    let prm = |examples: PrmExamples| of("PRM", Examples::Prm(examples), Examples::Prm(PrmExamples::Steps(vec![])));
    let steps = |step: &StepExample| prm(PrmExamples::Steps(vec![step.clone()]));
    runs.extend([
        ("a pair that is scored".to_owned(), prm(PrmExamples::Pairs(vec![pair]))),
        ("a step".to_owned(), steps(&step)),
        ("its label".to_owned(), steps(&StepExample { label: 0.5, ..step.clone() })),
        ("the step itself".to_owned(), steps(&StepExample { step: vec![2, 9], ..step.clone() })),
        ("a token on the other side of the step".to_owned(), steps(&StepExample { prompt: vec![1, 2], step: vec![3], ..step.clone() })),
        ("no step".to_owned(), prm(PrmExamples::Steps(vec![]))),
    ]);
    check_different(&runs);
    Ok(())
}
