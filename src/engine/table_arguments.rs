//! The arguments of a call in FROM that name tables, for what gives those names their schemas.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, TableFactor};

use super::apply::arguments::{ParameterKind, assign};
use super::apply::planner::{TableFunction, called_function, table_name};
use super::macros;

/// What is said by those arguments that name tables, each to be changed. A text that is spelled as a table is none: the parameter decides.
pub fn of<'a>(functions: &HashMap<&'static str, Arc<dyn TableFunction>>, relation: &'a mut TableFactor) -> Vec<&'a mut Expr> {
    let places: Vec<usize> = named(functions, relation).into_iter().map(|(place, _)| place).collect();
    let arguments = match relation {
        TableFactor::Table { args: Some(arguments), .. } => &mut arguments.args,
        TableFactor::Function { args, .. } => args,
        _ => return Vec::new(),
    };
    let expressions = arguments.iter_mut().filter_map(|argument| match argument {
        FunctionArg::Named { arg, .. } | FunctionArg::ExprNamed { arg, .. } | FunctionArg::Unnamed(arg) => match arg {
            FunctionArgExpr::Expr(expression) => Some(expression),
            _ => None,
        },
    });
    expressions.filter(|expression| places.contains(&place(expression))).collect()
}

/// The names that they say.
pub fn names(functions: &HashMap<&'static str, Arc<dyn TableFunction>>, relation: &TableFactor) -> Vec<String> {
    named(functions, relation).into_iter().map(|(_, name)| name).collect()
}

/// Their places in memory, and the names.
fn named(functions: &HashMap<&'static str, Arc<dyn TableFunction>>, relation: &TableFactor) -> Vec<(usize, String)> {
    let named = |expression: &Expr| table_name(expression).map(|name| (place(expression), name));
    match called_function(functions, relation) {
        Some((function, arguments)) => {
            let assigned = assign(function.name(), function.parameters(), arguments).unwrap_or_default();
            let tables = assigned.into_iter().filter(|(parameter, _)| parameter.kind == ParameterKind::Table);
            tables.filter_map(|(_, expression)| named(expression)).collect()
        }
        None => macros::table_argument(relation).and_then(named).into_iter().collect(),
    }
}

fn place(expression: &Expr) -> usize {
    std::ptr::from_ref(expression).addr()
}
