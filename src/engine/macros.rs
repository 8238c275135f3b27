//! Table functions that are plain SQL: `preference_pairs(run1)` is replaced by the query it stands for, before planning.

mod call;
mod needed_columns;
mod paths;
mod preference_pairs;
mod step_labels;
mod trajectories;
mod transcripts;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType as SqlType, Expr, FunctionArg, Ident, ObjectName, Query, Statement, TableAlias, TableFactor, VisitMut,
    VisitorMut,
};

use self::call::Call;
use self::needed_columns::Expanded;
use super::apply::arguments::{Parameter, ParameterKind, assign};
use super::apply::planner::{split_table_name, table_name};
use super::function::interval_times::{OVER, TIMES};
use crate::error::{Error, Result};

pub use self::needed_columns::explained;

/// A table function over a table of rollouts, its first argument, and the query it stands for.
struct Macro {
    name: &'static str,
    parameters: &'static [Parameter],
    sql: fn(&Call) -> Result<String>,
}

const MACROS: &[Macro] = &[preference_pairs::MACRO, step_labels::MACRO, trajectories::MACRO];

/// The names of all.
pub fn names() -> impl Iterator<Item = &'static str> {
    MACROS.iter().map(|known| known.name)
}

impl Macro {
    fn of(name: &ObjectName) -> Option<&'static Self> {
        let name = name.to_string();
        MACROS.iter().find(|known| name.eq_ignore_ascii_case(known.name))
    }

    fn query(&self, arguments: &[FunctionArg]) -> Result<Query> {
        let sql = (self.sql)(&Call::new(self.name, self.parameters, arguments)?)?;
        match rolloutdb_sql::parse(&sql)?.pop() {
            Some(rolloutdb_sql::Statement::Query(query)) => Ok(*query),
            _ => Err(Error::Internal(format!("not a query: {sql}"))),
        }
    }
}

/// Replaces every macro in the statement by its query, and completes calls with named arguments; gives what was replaced.
pub fn expand(statement: &mut Statement, functions: &HashMap<String, Arc<ScalarUDF>>) -> Result<Vec<Expanded>> {
    let mut expander = Expander { functions, expanded: Vec::new() };
    match statement.visit(&mut expander) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(expander.expanded),
    }
}

/// The table that a macro reads, as written; `None` for any other relation.
pub fn table_of(relation: &TableFactor) -> Option<String> {
    table_argument(relation).and_then(table_name)
}

/// The argument that names it.
pub fn table_argument(relation: &TableFactor) -> Option<&Expr> {
    let TableFactor::Table { name, args: Some(arguments), .. } = relation else { return None };
    let called = Macro::of(name)?;
    let assigned = assign(called.name, called.parameters, &arguments.args).ok()?;
    let nodes = assigned.into_iter().find(|(parameter, _)| parameter.kind == ParameterKind::Table);
    nodes.map(|(_, argument)| argument)
}

struct Expander<'a> {
    functions: &'a HashMap<String, Arc<ScalarUDF>>,
    expanded: Vec<Expanded>,
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
        let nodes = table_of(relation);
        let TableFactor::Table { name, args: Some(arguments), alias, .. } = relation else { return ControlFlow::Continue(()) };
        let Some(called) = Macro::of(name) else { return ControlFlow::Continue(()) };
        match called.query(&arguments.args) {
            Ok(query) => {
                self.expanded.extend(nodes.map(|nodes| Expanded::new(called.name, split_table_name(&nodes), &query)));
                let own_name = || TableAlias { explicit: true, name: Ident::new(called.name), columns: vec![], at: None };
                let alias = alias.take().unwrap_or_else(own_name);
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
