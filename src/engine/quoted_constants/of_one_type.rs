//! Constants in quotes among the arguments of `coalesce` and its kin, which are values of the type of the others.

use arrow::datatypes::Field;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use rolloutdb_udfs::inner_of;

use crate::engine::typing::{assign, is_text, sql_type_of};
use crate::error::{Error, Result};

/// The plan with such constants read, and with DataFusion's own functions in the place of those that took them.
///
/// # Errors
/// [`Error::WrongType`] for a text that is no constant.
pub fn read(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let read = plan.transform_up_with_subqueries(|node| {
        if !node.expressions().iter().any(|expression| expression.exists(|inner| Ok(is_meant(inner))).unwrap_or(true)) {
            return Ok(Transformed::no(node));
        }
        let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
        let read = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let read = expression.transform_up(|inner| Ok(call(inner, &schema, state)?))?;
            Ok(if read.transformed { Transformed::yes(name.restore(read.data)) } else { read })
        })?;
        read.map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(read.data)
}

fn is_meant(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(call) if inner_of(&call.func).is_some())
}

fn call(expression: Expr, schema: &DFSchema, state: &SessionState) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = expression else { return Ok(Transformed::no(expression)) };
    let Some(inner) = inner_of(&call.func).cloned() else { return Ok(Transformed::no(Expr::ScalarFunction(call))) };
    let (_, result) = Expr::ScalarFunction(call.clone()).to_field(schema)?;
    let mut args = Vec::with_capacity(call.args.len());
    for argument in call.args {
        let (_, found) = argument.to_field(schema)?;
        let is_read = is_text(found.data_type()) && !is_text(result.data_type());
        args.push(match &argument {
            Expr::Literal(..) if is_read => assign(state, argument, schema, &result)?,
            _ if is_read && !result.data_type().is_numeric() => return Err(mismatch(inner.name(), &found, &result)),
            _ => argument,
        });
    }
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(inner, args))))
}

fn mismatch(function: &str, found: &Field, expected: &Field) -> Error {
    Error::WrongType {
        what: format!("an argument of {function}, whose arguments are of one type,"),
        found: sql_type_of(found),
        expected: sql_type_of(expected),
    }
}
