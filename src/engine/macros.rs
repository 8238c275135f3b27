//! Table functions that are plain SQL: `preference_pairs(run1)` is replaced by the query it stands for, before planning.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType as SqlType, Expr, FunctionArg, Ident, Query, Statement, TableAlias, TableFactor, UnaryOperator, Value,
    VisitMut, VisitorMut,
};

use super::apply::arguments::{Parameter, ParameterKind, assign};
use super::apply::planner::{split_table_name, table_name};
use super::function::interval_times::{OVER, TIMES};
use crate::error::{Error, Result};

const PREFERENCE_PAIRS: &str = "preference_pairs";
const PARAMETERS: &[Parameter] =
    &[Parameter::table("nodes"), Parameter::constant("min_gap", DataType::Float64), Parameter::constant("format", DataType::Utf8)];

/// The least difference of process rewards that makes a pair, as in the published set (arXiv:2505.14069).
const DEFAULT_MIN_GAP: f64 = 0.01;

/// Replaces every macro in the statement by its query, and completes calls with named arguments.
pub fn expand(statement: &mut Statement, functions: &HashMap<String, Arc<ScalarUDF>>) -> Result<()> {
    match statement.visit(&mut Expander { functions }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The table that a macro reads, as written; `None` for any other relation.
pub fn table_of(relation: &TableFactor) -> Option<String> {
    table_argument(relation).and_then(table_name)
}

/// The argument that names it.
pub fn table_argument(relation: &TableFactor) -> Option<&Expr> {
    let TableFactor::Table { name, args: Some(arguments), .. } = relation else { return None };
    if !name.to_string().eq_ignore_ascii_case(PREFERENCE_PAIRS) {
        return None;
    }
    let assigned = assign(PREFERENCE_PAIRS, PARAMETERS, &arguments.args).ok()?;
    let nodes = assigned.into_iter().find(|(parameter, _)| parameter.kind == ParameterKind::Table);
    nodes.map(|(_, argument)| argument)
}

struct Expander<'a> {
    functions: &'a HashMap<String, Arc<ScalarUDF>>,
}

impl VisitorMut for Expander<'_> {
    type Break = Error;

    /// `generate('m', prompt, temperature => 1)` leaves out arguments in the middle, which DataFusion does not take: they become NULL.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let Some(function) = self.functions.get(&call.name.to_string().to_lowercase()) else { return ControlFlow::Continue(()) };
        match rolloutdb_udfs::complete_named_arguments(call, function.signature()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error.into()),
        }
    }

    /// Inner ones first, so that a product of a product is one too.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Some(product) = product_of_interval(expr) {
            match rolloutdb_sql::parse_expression(&product) {
                Ok(call) => *expr = call,
                Err(error) => return ControlFlow::Break(error.into()),
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<Error> {
        let TableFactor::Table { name, args: Some(arguments), alias, .. } = relation else { return ControlFlow::Continue(()) };
        if !name.to_string().eq_ignore_ascii_case(PREFERENCE_PAIRS) {
            return ControlFlow::Continue(());
        }
        match preference_pairs(&arguments.args) {
            Ok(query) => {
                let alias = alias.take().unwrap_or_else(|| TableAlias {
                    explicit: true,
                    name: Ident::new(PREFERENCE_PAIRS),
                    columns: vec![],
                    at: None,
                });
                *relation = TableFactor::Derived { lateral: false, subquery: Box::new(query), alias: Some(alias), sample: None };
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// `n * interval '1 day'` and `interval '1 day' / n` as calls.
fn product_of_interval(expr: &Expr) -> Option<String> {
    let Expr::BinaryOp { left, op, right } = expr else { return None };
    match (is_interval(left), op, is_interval(right)) {
        (true, BinaryOperator::Multiply, false) => Some(format!("{TIMES}({left}, {right})")),
        (false, BinaryOperator::Multiply, true) => Some(format!("{TIMES}({right}, {left})")),
        (true, BinaryOperator::Divide, false) => Some(format!("{OVER}({left}, {right})")),
        _ => None,
    }
}

fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) | Expr::Cast { data_type: SqlType::Interval { .. }, .. } => true,
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_interval(inner),
        Expr::BinaryOp { left, op: BinaryOperator::Plus | BinaryOperator::Minus, right } => is_interval(left) && is_interval(right),
        Expr::Function(call) => [TIMES, OVER].contains(&call.name.to_string().as_str()),
        _ => false,
    }
}

/// The layout of the pairs.
enum Format {
    RolloutDb,
    /// The names of the published RAG-ProGuide set; its `layer` counts from 0 at the root's children.
    RagProGuide,
}

/// Siblings under one parent whose process rewards differ by at least `min_gap` and whose contents differ; chosen is the better.
fn preference_pairs(arguments: &[FunctionArg]) -> Result<Query> {
    let (mut nodes, mut min_gap, mut format) = (None, DEFAULT_MIN_GAP, Format::RolloutDb);
    for (parameter, argument) in assign(PREFERENCE_PAIRS, PARAMETERS, arguments)? {
        match parameter.name {
            "nodes" => nodes = table_name(argument),
            "min_gap" => {
                min_gap = number(argument).filter(|gap| *gap > 0.0).ok_or_else(|| wrong("min_gap", argument, "a number above 0"))?
            }
            _ => {
                format = match text(argument) {
                    Some("rolloutdb") => Format::RolloutDb,
                    Some("rag_proguide") => Format::RagProGuide,
                    _ => return Err(wrong("format", argument, "'rolloutdb' or 'rag_proguide'")),
                };
            }
        }
    }
    let nodes = nodes.ok_or_else(|| Error::InvalidParameter {
        name: "nodes of preference_pairs()".to_owned(),
        found: "an expression".to_owned(),
        expected: "a table of rollouts".to_owned(),
    })?;
    let (schema, table) = split_table_name(&nodes);
    parse_query(&pairs_sql(&quoted(&schema), &quoted(&table), min_gap, &format))
}

fn pairs_sql(schema: &str, table: &str, min_gap: f64, format: &Format) -> String {
    let content = |side: &str| {
        format!(
            "CASE {side}.action WHEN 'query_generation' THEN {side}.query WHEN 'evidence_extraction' THEN coalesce({side}.evidence, 'None') \
             WHEN 'answer_generation' THEN {side}.answer ELSE {side}.response END"
        )
    };
    let (chosen_content, rejected_content) = (content("c"), content("r"));
    let columns = match format {
        Format::RolloutDb => format!(
            "c.question_id, c.depth, c.prompt, c.response AS chosen, r.response AS rejected, c.action AS chosen_action, \
             r.action AS rejected_action, {chosen_content} AS chosen_content, {rejected_content} AS rejected_content, \
             c.process_reward AS chosen_reward, r.process_reward AS rejected_reward"
        ),
        Format::RagProGuide => format!(
            "'' AS instruction, c.prompt AS input, c.prompt AS prompt, c.response AS chosen, r.response AS rejected, \
             c.action AS chosen_action_type, {chosen_content} AS chosen_content, r.action AS rejected_action_type, \
             {rejected_content} AS rejected_content, c.depth - 1 AS layer"
        ),
    };
    format!(
        "SELECT {columns} FROM {schema}.{table} c JOIN {schema}.{table} r \
         ON c.run = r.run AND c.question_id = r.question_id AND c.parent_id = r.parent_id \
         WHERE c.process_reward - r.process_reward >= {min_gap} \
         AND c.action IN ('query_generation', 'evidence_extraction', 'answer_generation') \
         AND ({chosen_content}) IS DISTINCT FROM ({rejected_content})"
    )
}

fn parse_query(sql: &str) -> Result<Query> {
    match rolloutdb_sql::parse(sql)?.pop() {
        Some(rolloutdb_sql::Statement::Query(query)) => Ok(*query),
        _ => Err(Error::Internal(format!("not a query: {sql}"))),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn number(argument: &Expr) -> Option<f64> {
    match argument {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number(expr).map(|value: f64| -value),
        _ => None,
    }
}

fn text(argument: &Expr) -> Option<&str> {
    match argument {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn wrong(name: &str, argument: &Expr, expected: &str) -> Error {
    Error::InvalidParameter { name: format!("{name} of {PREFERENCE_PAIRS}()"), found: argument.to_string(), expected: expected.to_owned() }
}
