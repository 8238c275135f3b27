//! The functions as a user meets them: SQL through a DataFusion session, with the planners and a small deterministic runtime.

mod metrics;
mod model;
mod vectors;

use std::sync::{Arc, Mutex};

use arrow::array::{Array, FixedSizeListArray, Float64Array, StringArray};
use arrow::util::display::array_value_to_string;
use async_trait::async_trait;
use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::{ast, dialect::PostgreSqlDialect, parser::Parser};
use expect_test::{Expect, expect};

use crate::metrics::{Formats, KeptFormat, WrittenStep};
use crate::model::{EmbedKind, GenerateOptions, JudgeOptions, JudgedAnswer, JudgedStep, ModelJudge, ModelRuntime, Ruling};
use crate::vector::{ColumnTypePlanner, VectorOperatorPlanner, vector_literal};
use crate::{Error, aggregate_functions, complete_named_arguments, documentation, format_functions, model_functions, scalar_functions};

/// Embeds as (length, number of vowels), turned for queries; generates the prompt in reverse with its options. Notes each call.
#[derive(Debug, Default)]
struct Letters {
    calls: Mutex<Vec<String>>,
}

impl Letters {
    fn note(&self, call: String) {
        self.calls.lock().expect("no test panics while it holds the lock").push(call);
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("no test panics while it holds the lock").clone()
    }
}

#[async_trait]
impl ModelRuntime for Letters {
    fn embedding_dim(&self, model: &str) -> Result<usize> {
        if model == "letters" { Ok(2) } else { exec_err!("unknown model \"{model}\"") }
    }

    async fn embed(&self, _model: &str, texts: &StringArray, kind: EmbedKind) -> Result<FixedSizeListArray> {
        self.note(format!("embed {kind:?} {:?}", texts.iter().flatten().collect::<Vec<_>>()));
        let vowels = |text: &str| text.chars().filter(|c| "aeiou".contains(*c)).count() as f32;
        let vectors = texts.iter().map(|text| match (text, kind) {
            (None, _) => ScalarValue::try_from(&crate::vector::vector_type(2)).expect("a NULL vector"),
            (Some(text), EmbedKind::Passage) => vector_literal(&[text.len() as f32, vowels(text)]),
            (Some(text), EmbedKind::Query) => vector_literal(&[vowels(text), text.len() as f32]),
        });
        let array = ScalarValue::iter_to_array(vectors)?;
        Ok(datafusion::common::cast::as_fixed_size_list_array(&array)?.clone())
    }

    async fn generate(&self, _model: &str, prompts: &StringArray, options: GenerateOptions) -> Result<StringArray> {
        self.note(format!("generate seed {} {:?}", options.seed, prompts.iter().flatten().collect::<Vec<_>>()));
        tokio::task::yield_now().await;
        self.note(format!("done with seed {}", options.seed));
        let GenerateOptions { max_tokens, temperature, top_p, seed, stop, top_k, min_p, repetition_penalty } = options;
        let narrowed = if top_k > 0 { format!(" k={top_k} m={min_p} r={repetition_penalty}") } else { String::new() };
        let reverse = |text: &str| text.chars().rev().take(max_tokens).collect::<String>();
        let complete = |text| format!("{} t={temperature} p={top_p} s={seed} {stop:?}{narrowed}", reverse(text));
        Ok(prompts.iter().map(|text| text.map(complete)).collect())
    }

    async fn apply_chat_template(&self, _model: &str, conversations: &StringArray, add_generation_prompt: bool) -> Result<StringArray> {
        self.note(format!("chat {add_generation_prompt} {:?}", conversations.iter().flatten().collect::<Vec<_>>()));
        let ending = if add_generation_prompt { " answer:" } else { "" };
        Ok(conversations.iter().map(|text| text.map(|text| format!("{text}{ending}"))).collect())
    }

    async fn rerank(&self, _model: &str, queries: &StringArray, passages: &StringArray) -> Result<Float64Array> {
        let pairs: Vec<_> = queries.iter().flatten().zip(passages.iter().flatten()).collect();
        self.note(format!("rerank {pairs:?}"));
        Ok(pairs.into_iter().map(|(query, passage)| Some(shared_words(query, passage))).collect())
    }
}

/// Says yes to answers that are a gold one, nothing to those with a question mark, and no to the others. Of passages, the share that the step names.
#[async_trait]
impl ModelJudge for Letters {
    async fn rule(&self, model: &str, cases: &[JudgedAnswer<'_>], options: &JudgeOptions) -> Result<Vec<Ruling>> {
        let asked: Vec<String> = cases.iter().map(|case| format!("{} {:?} {}", case.question, case.golds, case.answer)).collect();
        self.note(format!("judge {model} {} {} {asked:?}", options.prompts, options.max_tokens));
        let ruling = |case: &JudgedAnswer<'_>| {
            let is_correct = (!case.answer.contains('?')).then(|| case.golds.contains(&case.answer));
            Ruling { verdict: is_correct.map(f64::from), reply: Some(format!("{is_correct:?}")) }
        };
        Ok(cases.iter().map(ruling).collect())
    }

    async fn grade(&self, model: &str, cases: &[JudgedStep<'_>], options: &JudgeOptions) -> Result<Vec<Ruling>> {
        let asked: Vec<String> = cases.iter().map(|case| format!("{} {} {:?}", case.question, case.step, case.passages)).collect();
        self.note(format!("grade {model} {} {} {asked:?}", options.prompts, options.max_tokens));
        let ruling = |case: &JudgedStep<'_>| {
            let named = case.passages.iter().filter(|passage| case.step.contains(**passage)).count();
            let grade = named as f64 / case.passages.len() as f64;
            Ruling { verdict: (!case.step.contains('?')).then_some(grade), reply: None }
        };
        Ok(cases.iter().map(ruling).collect())
    }
}

/// One protocol, in which a response begins with its state, and the last state is `end`.
impl Formats for Letters {
    fn kept(&self, protocol: &str, trajectories: &[Vec<WrittenStep<'_>>]) -> Result<Vec<KeptFormat>> {
        if !["letters", "prorag", "r3rag"].contains(&protocol) {
            return exec_err!("unknown protocol \"{protocol}\"");
        }
        let kept = |steps: &Vec<WrittenStep<'_>>| {
            let of_steps = steps.iter().all(|step| step.response.starts_with(step.state));
            KeptFormat { steps: of_steps, trajectory: of_steps && steps.last().is_some_and(|last| last.state == "end") }
        };
        Ok(trajectories.iter().map(kept).collect())
    }
}

/// Words that a query and a passage share.
fn shared_words(query: &str, passage: &str) -> f64 {
    query.split(' ').filter(|word| passage.split(' ').any(|other| other == *word)).count() as f64
}

fn session(runtime: Arc<Letters>) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(1).set_str("datafusion.sql_parser.dialect", "PostgreSQL");
    let state = SessionStateBuilder::new_with_default_features().with_config(config).with_type_planner(Arc::new(ColumnTypePlanner));
    let mut state = state.build();
    state.register_expr_planner(Arc::new(VectorOperatorPlanner)).expect("a session takes planners");
    let context = SessionContext::new_with_state(state);
    scalar_functions().into_iter().chain(functions_of(runtime)).for_each(|function| context.register_udf(function));
    aggregate_functions().into_iter().for_each(|function| context.register_udaf(function));
    context
}

fn functions_of(runtime: Arc<Letters>) -> Vec<ScalarUDF> {
    let formats = format_functions(&(Arc::clone(&runtime) as _));
    model_functions(&(Arc::clone(&runtime) as _), &(runtime as _)).into_iter().chain(formats).collect()
}

async fn rows(context: &SessionContext, sql: &str) -> Result<Vec<String>> {
    let mut rows = Vec::new();
    for batch in context.sql(sql).await?.collect().await? {
        for row in 0..batch.num_rows() {
            let cell = |column: &Arc<dyn Array>| match column.is_null(row) {
                true => Ok("NULL".to_owned()),
                false => array_value_to_string(column, row),
            };
            rows.push(batch.columns().iter().map(cell).collect::<std::result::Result<Vec<_>, _>>()?.join(" | "));
        }
    }
    Ok(rows)
}

/// One row per line; an error of ours as such, without DataFusion's words round it.
fn show(result: Result<Vec<String>>) -> String {
    match result {
        Ok(rows) => rows.join("\n"),
        Err(error) => format!("error: {}", ours(&error).map_or_else(|| error.strip_backtrace(), ToString::to_string)),
    }
}

fn ours(error: &DataFusionError) -> Option<&Error> {
    match error.find_root() {
        DataFusionError::External(inner) => inner.downcast_ref(),
        _ => None,
    }
}

async fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&show(rows(&session(Arc::new(Letters::default())), sql).await));
}

#[tokio::test]
async fn every_function_has_an_entry_and_its_example_is_true() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let entries = documentation();
    // Models, and the formats of protocols, are the engine's.
    let of_engine: Vec<String> = functions_of(runtime).iter().map(|function| function.name().to_owned()).collect();
    let registered = scalar_functions().len() + aggregate_functions().len() + of_engine.len();
    assert_eq!(entries.len(), registered);
    for (name, entry) in entries {
        assert!(entry.arguments.is_some_and(|arguments| !arguments.is_empty()), "{name} has no arguments");
        let example = entry.sql_example.unwrap_or_else(|| panic!("{name} has no example"));
        let (statement, result) = example.trim_start_matches("```sql\n").split_once(";\n-- ").expect("statement and result");
        if !of_engine.contains(&name) {
            assert_eq!(show(rows(&context, statement).await), result.trim_end_matches("\n```"), "{name}");
        }
    }
}

#[test]
fn syntax_shows_what_is_optional() {
    let entry = |name: &str| documentation().into_iter().find(|(found, _)| found == name).expect("registered").1;
    assert_eq!(entry("embed").syntax_example, "embed(model, input[, kind])");
    assert_eq!(entry("mrr").syntax_example, "mrr(passage_ids, gold_ids)");
}

fn completed(call: &str) -> String {
    let functions = functions_of(Arc::new(Letters::default()));
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(call).expect("tokens").parse_expr().expect("an expression");
    let ast::Expr::Function(mut call) = parsed else { panic!("{call} is not a call") };
    let function = functions.iter().find(|f| f.name() == call.name.to_string()).expect("a model function");
    match complete_named_arguments(&mut call, function.signature()) {
        Ok(()) => call.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn gaps_between_named_arguments_become_null() {
    let check = |call: &str, expected: Expect| expected.assert_eq(&completed(call));
    check("generate('m', 'p', temperature => 1.0)", expect!["generate('m', 'p', temperature => 1.0, max_tokens => NULL)"]);
    check("generate('m', 'p', 9, SEED => 4)", expect!["generate('m', 'p', 9, SEED => 4, temperature => NULL, top_p => NULL)"]);
    check(
        "generate('m', 'p', seed => 4, max_tokens => 9)",
        expect!["generate('m', 'p', seed => 4, max_tokens => 9, temperature => NULL, top_p => NULL)"],
    );
    check("generate('m', seed => 4)", expect!["generate('m', seed => 4, max_tokens => NULL, temperature => NULL, top_p => NULL)"]);
    check("generate('m', 'p', 9)", expect!["generate('m', 'p', 9)"]);
    check(
        "generate('m', 'p', temprature => 1.0)",
        expect![[
            r#"error: generate has no argument "temprature"; did you mean "temperature"?; it has: model, prompt, max_tokens, temperature, top_p, seed, stop, top_k, min_p, repetition_penalty"#
        ]],
    );
    check(
        "embed('m', 'p', \"Kind\" => 'query')",
        expect![[r#"error: embed has no argument "Kind"; did you mean "kind"?; it has: model, input, kind"#]],
    );
}
