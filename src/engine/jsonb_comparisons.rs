//! Values of jsonb that are compared, or by which rows are ordered: by what they are, and not by the text in which they are kept.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan};
use rolloutdb_udfs::{is_unknown, kept_type};

use super::mixed_times::is_comparison;
use super::typing::call;
use crate::error::Result;

/// The plan in which such operands are calls of `jsonb_order`.
pub fn typed(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let typed = plan.transform_up_with_subqueries(|node| {
        let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
        let is_sort = matches!(node, LogicalPlan::Sort(_));
        let may_compare = |expression: &Expr| expression.exists(|inner| Ok(is_compared(inner))).unwrap_or(true);
        if !is_sort && !node.expressions().iter().any(may_compare) {
            return Ok(Transformed::no(node));
        }
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let compared = expression.transform_up(|inner| Ok(compared(inner, &schema, state)?))?;
            let ordered = if is_sort && is_jsonb(&compared.data, &schema) {
                Transformed::yes(call(state, ORDER, vec![compared.data])?)
            } else {
                compared
            };
            Ok(if ordered.transformed { Transformed::yes(name.restore(ordered.data)) } else { ordered })
        })
    })?;
    Ok(typed.data)
}

const ORDER: &str = "jsonb_order";

fn is_compared(expression: &Expr) -> bool {
    match expression {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => is_comparison(*op),
        Expr::InList(_) => true,
        _ => false,
    }
}

fn compared(expression: Expr, schema: &DFSchema, state: &SessionState) -> Result<Transformed<Expr>> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) && are_jsonb(&[&left, &right], schema) => {
            let [left, right] = [call(state, ORDER, vec![*left])?, call(state, ORDER, vec![*right])?];
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))))
        }
        Expr::InList(InList { expr, list, negated })
            if are_jsonb(&std::iter::once(expr.as_ref()).chain(&list).collect::<Vec<_>>(), schema) =>
        {
            let list = list.into_iter().map(|item| call(state, ORDER, vec![item])).collect::<Result<Vec<_>>>()?;
            let expr = Box::new(call(state, ORDER, vec![*expr])?);
            Ok(Transformed::yes(Expr::InList(InList { expr, list, negated })))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether one operand is of jsonb, and the others are or take its type.
fn are_jsonb(operands: &[&Expr], schema: &DFSchema) -> bool {
    operands.iter().any(|operand| is_jsonb(operand, schema))
        && operands.iter().all(|operand| is_jsonb(operand, schema) || is_unknown(operand, schema))
}

fn is_jsonb(expression: &Expr, schema: &DFSchema) -> bool {
    kept_type(expression, schema).is_some_and(|named| named.is_jsonb())
}
