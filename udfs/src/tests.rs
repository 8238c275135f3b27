//! The functions as a user meets them: SQL through a DataFusion session, with the planners and a small deterministic runtime.

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

#[tokio::test]
async fn equal_conversations_are_rendered_once() {
    let runtime = Arc::new(Letters::default());
    let sql = "SELECT apply_chat_template('m', c, add_generation_prompt => e) FROM (VALUES ('a', true), ('b', false), ('a', true), ('a', false), (NULL, true), \
               ('c', NULL)) t(c, e)";
    let found = rows(&session(Arc::clone(&runtime)), sql).await.expect("texts");
    assert_eq!(found, ["a answer:", "b", "a answer:", "a", "NULL", "c answer:"]);
    assert_eq!(runtime.calls(), [r#"chat true ["a", "c"]"#, r#"chat false ["b", "a"]"#]);
}

#[test]
fn syntax_shows_what_is_optional() {
    let entry = |name: &str| documentation().into_iter().find(|(found, _)| found == name).expect("registered").1;
    assert_eq!(entry("embed").syntax_example, "embed(model, input[, kind])");
    assert_eq!(entry("mrr").syntax_example, "mrr(passage_ids, gold_ids)");
}

#[tokio::test]
async fn answer_metrics_over_columns_and_nulls() {
    check(
        "SELECT exact_match(p, g), f1_score(p, g), precision_score(p, g), recall_score(p, g), accuracy(p, g) FROM (VALUES
            (1, 'Paris', ARRAY['Lyon', 'paris']), (2, NULL, ARRAY['Lyon']), (3, 'Paris', NULL), (4, 'Paris', ARRAY[NULL]::text[]),
            (5, 'in Paris', ARRAY[NULL, 'Paris'])) t(id, p, g) ORDER BY id",
        expect![[r#"
            1.0 | 1.0 | 1.0 | 1.0 | 1.0
            0.0 | 0.0 | 0.0 | 0.0 | 0.0
            NULL | NULL | NULL | NULL | NULL
            NULL | NULL | NULL | NULL | NULL
            0.0 | 0.6666666666666666 | 0.5 | 1.0 | 1.0"#]],
    )
    .await;
    check(
        "SELECT exact_match(p, 'the Paris') FROM (VALUES ('paris'), (NULL), ('Lyon')) t(p)",
        expect![[r#"
        1.0
        0.0
        0.0"#]],
    )
    .await;
    check("SELECT exact_match('x', NULL), f1_score(NULL, 'x'), exact_match(golds => 'x', prediction => 'X')", expect!["NULL | 0.0 | 1.0"])
        .await;
    check("SELECT exact_match('x')", expect!["error: wrong number of arguments: exact_match(prediction, golds[, variant]) was given 1"])
        .await;
    check(
        "SELECT exact_match(arrow_cast(p, 'Dictionary(Int32, Utf8)'), arrow_cast('Paris', 'LargeUtf8')) FROM (VALUES ('paris')) t(p)",
        expect!["1.0"],
    )
    .await;
    check("SELECT exact_match(1, 'x')", expect!["error: exact_match: prediction is of type bigint, expected text"]).await;
}

#[tokio::test]
async fn passage_metrics() {
    check(
        "SELECT recall_at_k(ARRAY[3, 1, 2], ARRAY[1, 9], k) FROM (VALUES (1), (2), (NULL)) t(k)",
        expect![[r#"
        0.0
        0.5
        NULL"#]],
    )
    .await;
    check("SELECT recall_at_k(NULL, ARRAY['a'], 3), recall_at_k(ARRAY['a'], NULL, 3), mrr(NULL, ARRAY['a']), mrr(ARRAY['a'], ARRAY[]::text[])", expect!["0.0 | NULL | 0.0 | NULL"])
        .await;
    check("SELECT recall_at_k(ARRAY['a'], ARRAY['a'], 0)", expect!["error: recall_at_k: k is 0, expected 1 or more"]).await;
    check(
        "SELECT recall_at_k(ARRAY['a'], ARRAY['a'], 1.5)",
        expect!["error: recall_at_k: k is of type double precision, expected an integer"],
    )
    .await;
}

#[tokio::test]
async fn ci95_by_group() {
    check("SELECT g, round(ci95(x), 4) FROM (VALUES (1, 0.0), (1, 1.0), (2, 1.0), (3, 2.0), (3, 2.0), (3, NULL)) t(g, x) GROUP BY g ORDER BY g", expect![[r#"
        1 | 0.98
        2 | NULL
        3 | 0.0"#]])
        .await;
    check("SELECT ci95(DISTINCT x) FROM (VALUES (1.0), (2.0), (2.0)) t(x)", expect!["0.979981992270027"]).await;
}

#[tokio::test]
async fn search_scores() {
    check(
        "SELECT uct_score(0.5, v, 4, 1.0) FROM (VALUES (1, 0), (2, 4), (3, NULL)) t(id, v) ORDER BY id",
        expect![[r#"
        inf
        1.0887050112577374
        NULL"#]],
    )
    .await;
    check("SELECT uct_score(0.5, -1, 4, 1.0)", expect!["error: uct_score: visits is -1, expected 0 or more"]).await;
    check("SELECT puct_score(0.5, 1.5, 1, 4, 1.0)", expect!["error: puct_score: prior is 1.5, expected 0 to 1"]).await;
    check("SELECT spre(1.0, 2, alpha => 1.1)", expect!["error: spre: alpha is 1.1, expected above 0 and at most 1"]).await;
}

#[tokio::test]
async fn vectors_from_text() {
    check(
        "SELECT vector_in(v, 2) FROM (VALUES ('[1,2]'), (NULL)) t(v)",
        expect![[r#"
        [1.0, 2.0]
        NULL"#]],
    )
    .await;
    check("SELECT arrow_typeof(vector_in('[1,2,3]')), vector_dims(vector_in('[1,2,3]'))", expect!["FixedSizeList(3 x Float32) | 3"]).await;
    check("SELECT arrow_typeof(ARRAY[1, 2]::vector(2))", expect!["FixedSizeList(2 x Float32)"]).await;
    check("SELECT vector_in('[1,2,3]', 2)", expect!["error: expected 2 dimensions, found 3"]).await;
    check(
        "SELECT vector_in('[1,x]')",
        expect![[
            r#"error: invalid input for type vector: "[1,x]": "x" is not a number; expected numbers in brackets, for example [1,2,3]"#
        ]],
    )
    .await;
    check("SELECT vector_in('[1]', 0)", expect!["error: vector_in: n is 0, expected 1 to 16000"]).await;
    check(
        "SELECT vector_in(v), halfvec_in(v), vector_dims(vector_in(v)), vector_in(v) <-> '[1,1]' FROM (VALUES ('[1,2]'), (NULL)) t(v)",
        expect![[r#"
        [1.0, 2.0] | [1, 2] | 2 | 1.0
        NULL | NULL | NULL | NULL"#]],
    )
    .await;
    check("SELECT vector_in(NULL), vector_dims(vector_in(ARRAY[1, 2, 3]))", expect!["NULL | 3"]).await;
    check(
        "SELECT vector_in(v) FROM (VALUES ('[1]'), ('[1,x]')) t(v)",
        expect![[
            r#"error: invalid input for type vector: "[1,x]": "x" is not a number; expected numbers in brackets, for example [1,2,3]"#
        ]],
    )
    .await;
    check(
        "SELECT vector_in(v) FROM (VALUES (ARRAY[]::real[])) t(v)",
        expect!["error: vector_in: value is a list of 0, expected 1 to 16000 numbers"],
    )
    .await;
    check(
        "SELECT vector_in('[1,2]', n) FROM (VALUES (2)) t(n)",
        expect!["error: vector_in: n must be a constant, because it decides the type of the result: vector_in(text, 384)"],
    )
    .await;
}

#[tokio::test]
async fn distances_of_every_layout() {
    check(
        "SELECT l2_distance(v, '[0,0]'), l2_distance(ARRAY[0, 0], v), cosine_distance(v, ARRAY[1.5, 0.0]), inner_product(v, v),
            negative_inner_product(v, v), l1_distance(v, vector_in('[1,1]')), vector_norm(v), l2_normalize(v)
            FROM (SELECT vector_in(t, 2) AS v FROM (VALUES ('[3,4]'), ('[0,0]'), (NULL)) u(t))",
        expect![[r#"
            5.0 | 5.0 | 0.4 | 25.0 | -25.0 | 5.0 | 5.0 | [0.6, 0.8]
            0.0 | 0.0 | NaN | 0.0 | -0.0 | 2.0 | 0.0 | [0.0, 0.0]
            NULL | NULL | NULL | NULL | NULL | NULL | NULL | NULL"#]],
    )
    .await;
    check("SELECT l2_distance('[1,2,3]', '[1,2,3,4]')", expect!["error: different vector dimensions 3 and 4"]).await;
    check(
        "SELECT l2_distance(vector_in('[1,2,3]'), v) FROM (SELECT vector_in(t, 4) AS v FROM (VALUES ('[1,2,3,4]')) u(t)) WHERE false",
        expect!["error: different vector dimensions 3 and 4"],
    )
    .await;
    check("SELECT vector_norm(ARRAY[1, NULL, 3])", expect!["error: a vector must not contain NULL, found one at position 2 of 3"]).await;
    check("SELECT l2_distance(1, '[1]')", expect!["error: l2_distance: left is of type bigint, expected a vector or a list of numbers"])
        .await;
    check(
        "SELECT l2_normalize(NULL), vector_dims(NULL), l2_distance(NULL, '[1]'), l2_normalize(ARRAY[0, 5])",
        expect!["NULL | NULL | NULL | [0.0, 1.0]"],
    )
    .await;
}

#[tokio::test]
async fn vector_operators() {
    check(
        "SELECT t <-> '[0,0]', '[2,0]' <=> t, t <#> ARRAY[1, 1], t <-> NULL FROM (SELECT vector_in('[3,4]', 2) AS t)",
        expect!["5.0 | 0.4 | -7.0 | NULL"],
    )
    .await;
    check(
        "SELECT t FROM (SELECT vector_in(v, 1) AS t FROM (VALUES ('[5]'), ('[1]'), ('[3]')) u(v)) ORDER BY t <-> '[2.5]' LIMIT 2",
        expect![[r#"
        [3.0]
        [1.0]"#]],
    )
    .await;
    check("SELECT ARRAY[1, 2] <=> '[1,2,3]'", expect!["error: different vector dimensions 2 and 3"]).await;
    check(
        "SELECT vector_in('[1,2]') <-> '[1;2]'",
        expect![[
            r#"error: invalid input for type vector: "[1;2]": "1;2" is not a number; expected numbers in brackets, for example [1,2,3]"#
        ]],
    )
    .await;
    check("SELECT 1 <=> 1", expect!["error: operator does not exist: bigint <=> bigint; it is the cosine distance of two vectors; for null-safe equality write IS NOT DISTINCT FROM"]).await;
    check(
        "SELECT 'a' <-> 'b'",
        expect!["error: operator does not exist: text <-> text; at least one side must be a vector, for example '[1,2,3]'::vector(3)"],
    )
    .await;
    check(
        "SELECT ARRAY['a'] <#> '[1]'",
        expect!["error: operator does not exist: text[] <#> text; at least one side must be a vector, for example '[1,2,3]'::vector(3)"],
    )
    .await;
    check("SELECT 1 + 1, ARRAY[1] @> ARRAY[1]", expect!["2 | true"]).await;
}

#[tokio::test]
async fn a_parameter_beside_an_operator_is_a_vector_or_its_text() {
    let context = session(Arc::new(Letters::default()));
    let plan = context.state().create_logical_plan("SELECT vector_in('[3,4]') <-> $1").await.expect("planned");
    let types = plan.get_parameter_types().expect("typed");
    assert_eq!(types.get("$1"), Some(&Some(crate::vector::vector_type(2))));
    let frame = context.execute_logical_plan(plan).await.expect("a frame");
    let frame = frame.with_param_values(vec![ScalarValue::from("[0,0]")]).expect("bound");
    let batches = frame.collect().await.expect("rows");
    assert_eq!(array_value_to_string(batches[0].column(0), 0).expect("a number"), "5.0");
    let plan = context.state().create_logical_plan("SELECT ARRAY[3.0, 4.0] <-> $1").await.expect("planned");
    assert_eq!(plan.get_parameter_types().expect("typed").get("$1"), Some(&Some(arrow::datatypes::DataType::Utf8)));
}

#[tokio::test]
async fn embed_once_per_distinct_text() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT embed('letters', t) FROM (VALUES ('jaws'), ('shark'), (NULL), ('jaws')) u(t)";
    expect![[r#"
        [4.0, 1.0]
        [5.0, 1.0]
        NULL
        [4.0, 1.0]"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"embed Passage ["jaws", "shark"]"#]].assert_eq(&runtime.calls().join("\n"));
}

#[tokio::test]
async fn embed_arguments() {
    check("SELECT embed('letters', 'jaws', kind => 'query')", expect!["[1.0, 4.0]"]).await;
    check(
        "SELECT embed(input => 'jaws', model => 'letters'), embed('letters', NULL), embed('letters', 'jaws', NULL)",
        expect!["[4.0, 1.0] | NULL | [4.0, 1.0]"],
    )
    .await;
    check("SELECT t <=> embed('letters', 'jaws') FROM (SELECT vector_in('[4,1]') AS t)", expect!["0.0"]).await;
    check("SELECT embed('letters', 'jaws', 'question')", expect!["error: embed: kind is 'question', expected 'query' or 'passage'"]).await;
    check(
        "SELECT embed('letters', 'jaws', k) FROM (VALUES ('query'), ('passage')) t(k)",
        expect!["error: embed: kind must be a constant, but its rows differ"],
    )
    .await;
    check("SELECT embed('nobody', 'jaws')", expect![[r#"error: Execution error: unknown model "nobody""#]]).await;
    check(
        "SELECT embed(m, 'jaws') FROM (VALUES ('letters')) t(m)",
        expect!["error: embed: model must be a constant, such as 'policy', because a statement is planned for one model"],
    )
    .await;
    check("SELECT embed(NULL, 'jaws')", expect!["error: embed: model is NULL, expected the name of a model"]).await;
    check("SELECT embed('letters', 5)", expect!["error: embed: input is of type bigint, expected text"]).await;
    check(
        "SELECT embed('letters', 'jaws', 'query', 1)",
        expect!["error: wrong number of arguments: embed(model, input[, kind]) was given 4"],
    )
    .await;
    check(
        "SELECT embed('letters', 'jaws', type => 'query')",
        expect!["error: Error during planning: Unknown parameter name 'type'. Valid parameters are: [model, input, kind]"],
    )
    .await;
    check("SELECT embed('letters')", expect!["error: wrong number of arguments: embed(model, input[, kind]) was given 1"]).await;
}

#[tokio::test]
async fn generate_once_per_prompt_and_options_and_all_at_once() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT generate('letters', t, max_tokens => 3, temperature => 0.5, top_p => 0.9, seed => s, stop => ARRAY['x'])
        FROM (VALUES ('jaws', 1), ('jaws', 2), ('emma', 1), ('jaws', 1), (NULL, 3)) u(t, s)";
    expect![[r#"
        swa t=0.5 p=0.9 s=1 ["x"]
        swa t=0.5 p=0.9 s=2 ["x"]
        amm t=0.5 p=0.9 s=1 ["x"]
        swa t=0.5 p=0.9 s=1 ["x"]
        NULL"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"
        generate seed 1 ["jaws", "emma"]
        generate seed 2 ["jaws"]
        done with seed 1
        done with seed 2"#]]
    .assert_eq(&runtime.calls().join("\n"));
}

#[tokio::test]
async fn rerank_once_per_distinct_pair() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT rerank('letters', q, p) FROM (VALUES ('a b', 'b a'), ('a b', 'c'), (NULL, 'c'), ('a b', 'b a'), ('a', NULL)) u(q, p)";
    expect![[r#"
        2.0
        0.0
        NULL
        2.0
        NULL"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"rerank [("a b", "b a"), ("a b", "c")]"#]].assert_eq(&runtime.calls().join("\n"));
    check("SELECT rerank('letters', passage => 'a', query => 'a')", expect!["1.0"]).await;
    check("SELECT rerank('letters', NULL, 'a')", expect!["NULL"]).await;
    check("SELECT rerank('letters', 'a')", expect!["error: wrong number of arguments: rerank(model, query, passage) was given 2"]).await;
}

#[tokio::test]
async fn judge_once_per_distinct_case() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT judge('letters', q, g, a, max_tokens => 9, prompts => NULL) FROM (VALUES ('q', ARRAY['a', 'b'], 'b'), ('q', ARRAY['a', 'b'], 'c'),
        ('q', ARRAY['a', 'b'], 'b'), ('q', ARRAY['a'], 'b?'), ('q', ARRAY['a'], NULL), ('q', ARRAY['a'], ' '), (NULL, ARRAY['a'], 'a'), ('q', NULL, 'a')) u(q, g, a)";
    expect![[r#"
        1.0
        0.0
        1.0
        NULL
        0.0
        0.0
        NULL
        NULL"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"judge letters default 9 ["q [\"a\", \"b\"] b", "q [\"a\", \"b\"] c", "q [\"a\"] b?"]"#]]
        .assert_eq(&runtime.calls().join("\n"));
}

#[tokio::test]
async fn judge_arguments() {
    check(
        "SELECT judge('letters', 'q', 'a', 'a'), judge_reply('letters', 'q', 'a', 'b', 'mine'), judge_reply('letters', 'q', 'a', NULL)",
        expect!["1.0 | Some(false) | NULL"],
    )
    .await;
    check("SELECT judge(answer => 'a', golds => ARRAY['b', 'a'], question => 'q', model => 'letters')", expect!["1.0"]).await;
    check("SELECT judge('letters', 'q', ARRAY[]::text[], 'a')", expect!["NULL"]).await;
    check("SELECT judge('letters', 'q', 'a', 'a', 'mine', 0)", expect!["error: judge: max_tokens is 0, expected 1 or more"]).await;
    check(
        "SELECT judge('letters', 'q', 'a', 'a', 'mine', n) FROM (VALUES (1), (2)) t(n)",
        expect!["error: judge: max_tokens must be a constant, but its rows differ"],
    )
    .await;
    check("SELECT judge(NULL, 'q', 'a', 'a')", expect!["error: judge: model is NULL, expected the name of a model"]).await;
    check("SELECT judge('letters', 'q', 'a', 5)", expect!["error: judge: answer is of type bigint, expected text"]).await;
    check(
        "SELECT judge('letters', 'q', 'a')",
        expect!["error: wrong number of arguments: judge(model, question, golds, answer[, prompts[, max_tokens]]) was given 3"],
    )
    .await;
}

#[tokio::test]
async fn judge_relevance_once_per_distinct_case() {
    let runtime = Arc::new(Letters::default());
    let context = session(Arc::clone(&runtime));
    let sql = "SELECT judge_relevance('letters', q, s, p, max_tokens => 9, prompts => NULL) FROM (VALUES ('q', 'a b', ARRAY['a', 'c']),
        ('q', 'a b', ARRAY['a', 'c']), ('q', 'why?', ARRAY['a']), ('q', 'a', ARRAY[]::text[]), ('q', 'a', NULL), (NULL, 'a', ARRAY['a']), (NULL, 'a', ARRAY[]::text[]),
        ('q', NULL, ARRAY['a'])) u(q, s, p)";
    expect![[r#"
        0.5
        0.5
        NULL
        0.0
        NULL
        NULL
        NULL
        NULL"#]]
    .assert_eq(&show(rows(&context, sql).await));
    expect![[r#"grade letters default 9 ["q a b [\"a\", \"c\"]", "q why? [\"a\"]"]"#]].assert_eq(&runtime.calls().join("\n"));
    check("SELECT judge_relevance('letters', 'q', 'a', 'a')", expect!["1.0"]).await;
    check(
        "SELECT judge_relevance('letters', 'q', 'a', 'a', 'mine', 0)",
        expect!["error: judge_relevance: max_tokens is 0, expected 1 or more"],
    )
    .await;
    check(
        "SELECT judge_relevance('letters', 'q', 'a')",
        expect!["error: wrong number of arguments: judge_relevance(model, question, step, passages[, prompts[, max_tokens]]) was given 3"],
    )
    .await;
}

#[tokio::test]
async fn formats_are_those_of_the_protocol() {
    check(
        "SELECT well_formed('letters', s, r), steps_well_formed('letters', s, r), format_reward('prorag', s, r), format_reward('r3rag', s, r)
            FROM (VALUES (1, ARRAY['go', 'end'], ARRAY['go on', 'end it']), (2, ARRAY['go', 'end'], ARRAY['x go on', 'end it']),
            (3, ARRAY['go'], ARRAY['go on']), (4, NULL, ARRAY['end']), (5, ARRAY['end'], NULL), (6, ARRAY[]::text[], ARRAY[]::text[])) t(id, s, r) ORDER BY id",
        expect![[r#"
            true | true | 1.0 | 0.0
            false | false | -1.0 | -0.9
            false | true | -1.0 | 0.0
            NULL | NULL | NULL | NULL
            NULL | NULL | NULL | NULL
            false | true | -1.0 | 0.0"#]],
    )
    .await;
    check(
        "SELECT steps_well_formed('letters', 'go', 'go on'), well_formed('letters', 'go', r), well_formed(NULL, 'end', 'end') FROM (VALUES ('end')) t(r)",
        expect!["true | false | NULL"],
    )
    .await;
    check(
        "SELECT well_formed('letters', ARRAY['go', 'end'], ARRAY['go on'])",
        expect!["error: well_formed: responses is an array of 1, expected 2, one for each of the states"],
    )
    .await;
    check(
        "SELECT well_formed('letters', ARRAY['go', 'go', 'end'], ARRAY[NULL, 'go on', 'end it']), steps_well_formed('letters', ARRAY['go', NULL], ARRAY['go on', NULL])",
        expect!["true | true"],
    )
    .await;
    check(
        "SELECT well_formed('letters', ARRAY[NULL, 'go', 'end'], ARRAY['go on', NULL, 'end'])",
        expect!["error: well_formed: states is an array with NULL beside a response, expected the state of each response"],
    )
    .await;
    check(
        "SELECT well_formed('lettres', s, 'go on') FROM (VALUES ('go')) t(s)",
        expect![[r#"error: Execution error: unknown protocol "lettres""#]],
    )
    .await;
    check(
        "SELECT format_reward('letters', 'go', 'go on')",
        expect!["error: format_reward: protocol is 'letters', expected one of 'prorag', 'search_r1', 'r3rag'"],
    )
    .await;
    check(
        "SELECT well_formed('letters', ARRAY['answer_generation'])",
        expect!["error: wrong number of arguments: well_formed(protocol, states, responses) was given 2"],
    )
    .await;
}

#[tokio::test]
async fn step_rewards() {
    check(
        "SELECT step_reward(s, 'prorag'), step_reward(s, 'prorag', f), step_reward(0.25, 'prorag', f, 'probability')
            FROM (VALUES (1, 0.0, true), (2, 0.0, false), (3, 0.0, NULL), (4, NULL, true)) t(id, s, f) ORDER BY id",
        expect![[r#"
            0.5 | 1.5 | 1.25
            0.5 | -1.5 | -1.75
            0.5 | 0.5 | 0.25
            NULL | NULL | 1.25"#]],
    )
    .await;
    check("SELECT step_reward(0.5, NULL, true)", expect!["NULL"]).await;
    check(
        "SELECT step_reward(1.5, 'prorag', true, 'probability')",
        expect!["error: step_reward: score is 1.5, expected 0 to 1, or scale => 'logit'"],
    )
    .await;
    check(
        "SELECT step_reward(1.5, 'prorag', true, 'logits')",
        expect!["error: step_reward: scale is 'logits', expected one of 'logit', 'probability'; did you mean 'logit'?"],
    )
    .await;
}

#[tokio::test]
async fn generate_arguments() {
    check(
        "SELECT generate('letters', 'jaws'), generate('letters', 'jaws', 2, NULL, 0.5, NULL, 'end')",
        expect![[r#"swaj t=0 p=1 s=0 [] | sw t=0 p=0.5 s=0 ["end"]"#]],
    )
    .await;
    check("SELECT generate('letters', 'jaws', 0)", expect!["error: generate: max_tokens is 0, expected 1 or more"]).await;
    check("SELECT generate('letters', 'jaws', 1, -0.5)", expect!["error: generate: temperature is -0.5, expected 0 or more"]).await;
    check("SELECT generate('letters', 'jaws', 1, 1.0, 0.0)", expect!["error: generate: top_p is 0, expected above 0 and at most 1"]).await;
    check("SELECT generate('letters', 'jaws', 1, 1.0, 0.5, -7)", expect!["error: generate: seed is -7, expected 0 or more"]).await;
    check(
        "SELECT generate('letters', 'jaws', 1, 1.0, 0.5, 7, '')",
        expect!["error: generate: stop is '', expected texts of at least one character"],
    )
    .await;
    check(
        "SELECT generate('letters', 'jaws', 2, NULL, NULL, NULL, NULL, k, 0.25, 1.5) FROM (VALUES (0), (5)) t(k)",
        expect![[r#"
            sw t=0 p=1 s=0 []
            sw t=0 p=1 s=0 [] k=5 m=0.25 r=1.5"#]],
    )
    .await;
    let narrowed = |argument: &str| format!("SELECT generate('letters', 'jaws', NULL, NULL, NULL, NULL, NULL, {argument})");
    check(&narrowed("-1"), expect!["error: generate: top_k is -1, expected 0 or more"]).await;
    check(&narrowed("0, 1.5"), expect!["error: generate: min_p is 1.5, expected from 0 to 1"]).await;
    check(&narrowed("0, 0, 0"), expect!["error: generate: repetition_penalty is 0, expected above 0"]).await;
    check("SELECT generate('letters', 'jaws', 'many')", expect!["error: generate: max_tokens is of type text, expected an integer"]).await;
    check(
        "SELECT generate('letters', 'jaws', temperature => 1.0)",
        expect!["error: Error during planning: Missing required parameter 'max_tokens'"],
    )
    .await;
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
