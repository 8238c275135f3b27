//! The subqueries that DataFusion joins by itself, and without a detour over the values of the rows round them.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Join, JoinType, LogicalPlan, Operator};

use super::references::outer_columns;
use crate::engine::equal_floats::depends_on_outer_form;

/// `(SELECT aggregates FROM .. WHERE column = outer column AND ..)`
pub fn is_joined_value(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::Projection(projection) if !plan.contains_outer_reference() => is_joined_value(&projection.input),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() && !plan.contains_outer_reference() => {
            is_filtered(&aggregate.input, is_equality)
        }
        _ => Ok(false),
    }
}

/// `(SELECT .. FROM .. WHERE conditions)`
pub fn is_joined_exists(plan: &LogicalPlan) -> Result<bool> {
    is_filtered(plan, names_both)
}

/// `(SELECT .. FROM .. WHERE column = outer column AND ..)`
pub fn is_marked_exists(plan: &LogicalPlan) -> Result<bool> {
    is_filtered(plan, is_equality)
}

/// Whether outer columns stand in conditions of a WHERE alone, all of a kind. In a subquery of FROM none may: DataFusion looks for the column beside an
/// outer one under the alias, where the subquery may not give it.
fn is_filtered(plan: &LogicalPlan, is_of_kind: fn(&Expr) -> bool) -> Result<bool> {
    match plan {
        LogicalPlan::Projection(projection) if !plan.contains_outer_reference() => is_filtered(&projection.input, is_of_kind),
        LogicalPlan::Filter(filter) => {
            for condition in split_conjunction(&filter.predicate) {
                if condition.contains_outer() && (!is_of_kind(condition) || depends_on_outer_form(condition, filter.input.schema())?) {
                    return Ok(false);
                }
            }
            is_filtered(&filter.input, is_of_kind)
        }
        LogicalPlan::Join(Join { join_type: JoinType::Inner, left, right, .. }) if !plan.contains_outer_reference() => {
            Ok(is_filtered(left, is_of_kind)? && is_filtered(right, is_of_kind)?)
        }
        other => Ok(outer_columns(other)?.is_empty()),
    }
}

/// `expression of the subquery = outer column`
fn is_equality(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return false };
    let is_outer = |side: &Expr| matches!(side, Expr::OuterReferenceColumn(..));
    let is_inner = |side: &Expr| !side.contains_outer() && !side.column_refs().is_empty() && !has_subquery(side);
    (is_outer(left) && is_inner(right)) || (is_outer(right) && is_inner(left))
}

fn names_both(condition: &Expr) -> bool {
    !condition.column_refs().is_empty() && !has_subquery(condition)
}

pub fn has_subquery(expression: &Expr) -> bool {
    let mut found = false;
    let visited = expression.apply(|inner| {
        found |= super::is_subquery(inner).is_some();
        Ok(TreeNodeRecursion::Continue)
    });
    found || visited.is_err()
}
