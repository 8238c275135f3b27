//! Quoted constants that are compared with bytes or a uuid take that type, as in PostgreSQL: `mark = '\x0a'` is about one byte, not four letters.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use rolloutdb_udfs::{NamedType, kept_type};

use super::typing::call;
use crate::error::Result;

/// The plan with such constants read by the function of their type, which is an error for one that is none of it.
pub fn typed(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let typed = plan.transform_up_with_subqueries(|node| {
        if !node.expressions().iter().any(|expression| expression.exists(|inner| Ok(is_quoted(inner))).unwrap_or(true)) {
            return Ok(Transformed::no(node));
        }
        let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let typed = expression.transform_up(|inner| Ok(comparison(inner, &schema, state)?))?;
            Ok(if typed.transformed { Transformed::yes(name.restore(typed.data)) } else { typed })
        })
    })?;
    Ok(typed.data)
}

fn comparison(expression: Expr, schema: &DFSchema, state: &SessionState) -> Result<Transformed<Expr>> {
    let read = |value: Box<Expr>, function: Option<&'static str>| match function {
        Some(function) if is_quoted(&value) => call(state, function, vec![*value]).map(Box::new),
        _ => Ok(value),
    };
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let (of_left, of_right) = (reader(&left, schema), reader(&right, schema));
            if of_left.or(of_right).is_none() {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            }
            let (left, right) = (read(left, of_right)?, read(right, of_left)?);
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let function = reader(&expr, schema);
            let list = list.into_iter().map(|value| read(Box::new(value), function).map(|value| *value)).collect::<Result<Vec<_>>>()?;
            Ok(Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), function.is_some()))
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let function = reader(&expr, schema);
            let (low, high) = (read(low, function)?, read(high, function)?);
            Ok(Transformed::new_transformed(Expr::Between(Between { expr, negated, low, high }), function.is_some()))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// The function that reads a text as a value of an expression's type.
fn reader(expression: &Expr, schema: &DFSchema) -> Option<&'static str> {
    if is_quoted(expression) {
        return None;
    }
    match expression.get_type(schema).ok()? {
        DataType::Binary => Some("bytea_in"),
        _ => kept_type(expression, schema).is_some_and(NamedType::is_uuid).then_some("uuid_in"),
    }
}

fn is_quoted(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}
