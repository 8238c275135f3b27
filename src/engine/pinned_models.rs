//! Generated columns name the version of the model that computes them: `embed('m', text)` is stored as `embed('m@1', text)`.
//!
//! So every row of the column comes from one version, whatever becomes of the model's name, and a search by text embeds its query with the same one.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Value, VisitMut, VisitorMut,
};
use rolloutdb_catalogs::Table;

use super::session::Session;
use super::statement::expression;
use super::with_names::folded;
use crate::error::{Error, Result};

/// The argument that names the model, when it is named itself.
const MODEL_ARGUMENT: &str = "model";

/// The expression with every constant name of a model as `name@version`, the newest there is.
///
/// # Errors
/// [`Error::UnknownObject`].
pub fn pin(session: &Session, expression: &SqlExpr) -> Result<SqlExpr> {
    let mut pinned = expression.clone();
    let registry = &session.database().shared.registry;
    for_each_model(&session.context().state(), &mut pinned, |reference| {
        session.access().require_model(reference)?;
        if !reference.contains('@') {
            *reference = registry.get(reference)?.reference();
        }
        Ok(())
    })?;
    Ok(pinned)
}

/// Whether the expression calls a model.
pub fn calls_model(session: &Session, expression: &SqlExpr) -> Result<bool> {
    let mut calls = false;
    for_each_model(&session.context().state(), &mut expression.clone(), |_| {
        calls = true;
        Ok(())
    })?;
    Ok(calls)
}

/// The generated columns of a table that call models.
///
/// # Errors
/// Of an expression that cannot be read, which the table would not have taken.
pub fn columns(session: &Session, table: &Table) -> Result<Vec<String>> {
    columns_of(session, table, &|_| true)
}

/// Those that call a model that `is_one` knows by its reference.
///
/// # Errors
/// As [`columns`].
pub fn columns_of(session: &Session, table: &Table, is_one: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
    let generated = &table.definition().generated;
    let mut columns = Vec::new();
    if generated.is_empty() {
        return Ok(columns);
    }
    let state = session.context().state();
    for (column, text) in generated {
        let mut calls = false;
        for_each_model(&state, &mut expression(text)?, |reference| {
            calls |= is_one(reference);
            Ok(())
        })?;
        if calls {
            columns.push(column.clone());
        }
    }
    Ok(columns)
}

/// Before rows are written: that the models of generated columns are there, and, once per session, that there is a newer version of one.
///
/// # Errors
/// [`Error::NotReady`] when a version was dropped, with what can be done; [`Error::InsufficientPrivilege`] (42501) if the role may not run one.
pub fn check(session: &Session, table: &Table) -> Result<()> {
    let access = session.access();
    let registry = &session.database().shared.registry;
    let state = session.context().state();
    for (column, text) in &table.definition().generated {
        let anew = || anew(table, column, text);
        for_each_model(&state, &mut expression(text)?, |reference| {
            access.require_model(reference)?;
            let Some((name, _)) = reference.split_once('@') else { return Ok(()) };
            match (registry.get(reference), registry.get(name)) {
                (Err(Error::UnknownObject { .. }), newest) => {
                    let newest = newest.map(|newest| format!(" There is {} now.", newest.reference())).unwrap_or_default();
                    Err(Error::NotReady(format!(
                        "column \"{column}\" of table \"{}\" is computed by model {reference}, which was dropped.{newest} Compute the column anew by another \
                         model: {}",
                        table.name(),
                        anew()
                    )))
                }
                (Ok(_), Ok(newest)) if newest.reference() != *reference => {
                    session.notice_once(&format!(
                        "column \"{column}\" of table \"{}\" is still computed by model {reference}; there is {}. To compute it anew: {}",
                        table.name(),
                        newest.reference(),
                        anew()
                    ));
                    Ok(())
                }
                (found, _) => found.map(|_| ()),
            }
        })?;
    }
    Ok(())
}

/// The statements that compute a column by the newest version of its models.
fn anew(table: &Table, column: &str, text: &str) -> String {
    let names = super::statement::quoted_name(&[table.schema_name(), table.name()]);
    let column_type = table.definition().schema.field_with_name(column).map(super::typing::sql_type_of);
    let column = super::statement::quoted_name(&[column]);
    let unpinned = expression(text).and_then(|mut expression| unpin(&mut expression).map(|()| expression.to_string()));
    format!(
        "ALTER TABLE {names} DROP COLUMN {column}; ALTER TABLE {names} ADD COLUMN {column} {} GENERATED ALWAYS AS ({}) STORED",
        column_type.unwrap_or_default(),
        unpinned.unwrap_or_else(|_| text.to_owned())
    )
}

fn unpin(expression: &mut SqlExpr) -> Result<()> {
    for_each_literal(
        expression,
        |_| true,
        |reference| {
            if let Some((name, version)) = reference.split_once('@')
                && version.bytes().all(|byte| byte.is_ascii_digit())
            {
                *reference = name.to_owned();
            }
            Ok(())
        },
    )
}

/// Visits the constant model of every call of a model function.
fn for_each_model(state: &SessionState, expression: &mut SqlExpr, visit: impl FnMut(&mut String) -> Result<()>) -> Result<()> {
    let is_model_function = |name: &str| state.scalar_functions().get(name).is_some_and(|function| function.as_async().is_some());
    for_each_literal(expression, is_model_function, visit)
}

/// Visits the first argument, or the one named `model`, of the calls of some functions, where it is a constant text.
fn for_each_literal(expression: &mut SqlExpr, is_meant: impl Fn(&str) -> bool, visit: impl FnMut(&mut String) -> Result<()>) -> Result<()> {
    struct Models<F, V>(F, V);
    impl<F: Fn(&str) -> bool, V: FnMut(&mut String) -> Result<()>> VisitorMut for Models<F, V> {
        type Break = Error;
        fn post_visit_expr(&mut self, expression: &mut SqlExpr) -> ControlFlow<Error> {
            let SqlExpr::Function(function) = expression else { return ControlFlow::Continue(()) };
            if !self.0(&function_name(&function.name)) {
                return ControlFlow::Continue(());
            }
            let FunctionArguments::List(arguments) = &mut function.args else { return ControlFlow::Continue(()) };
            let model = arguments.args.iter_mut().enumerate().find_map(|(position, argument)| model_argument(position, argument));
            match model.map(&mut self.1) {
                Some(Err(error)) => ControlFlow::Break(error),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match expression.visit(&mut Models(is_meant, visit)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Folded as the planner does it; empty for a name of several parts, which no function of ours has.
fn function_name(name: &ObjectName) -> String {
    match name.0.as_slice() {
        [part] => part.as_ident().map(folded).unwrap_or_default(),
        _ => String::new(),
    }
}

fn model_argument(position: usize, argument: &mut FunctionArg) -> Option<&mut String> {
    let value = match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if position == 0 => value,
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. }
        | FunctionArg::ExprNamed { name: SqlExpr::Identifier(name), arg: FunctionArgExpr::Expr(value), .. }
            if name.value.eq_ignore_ascii_case(MODEL_ARGUMENT) =>
        {
            value
        }
        _ => return None,
    };
    let SqlExpr::Value(value) = value else { return None };
    let Value::SingleQuotedString(text) = &mut value.value else { return None };
    Some(text)
}
