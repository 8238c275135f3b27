//! LATERAL: `FROM q CROSS JOIN LATERAL answer(q.question, ...) a` becomes `Apply(q, answer)`.
//!
//! The SQL planner gives a join of `q` with a subquery that holds outer references; DataFusion has no execution for it (its issue #18121).
//! [`ResolveLateral`] runs before every other analyzer rule and replaces the join by one [`Apply`] over the left side. A subquery after LATERAL with such a
//! call in it is the concern of [`subquery`].

mod carried;
mod subquery;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, ScalarValue, TableReference, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, SubqueryAlias};
use datafusion::optimizer::AnalyzerRule;

use super::Apply;
use crate::error::Error;

#[derive(Debug)]
pub struct ResolveLateral;

impl AnalyzerRule for ResolveLateral {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(resolve)?.data)
    }

    fn name(&self) -> &str {
        "resolve_lateral"
    }
}

fn resolve(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = &plan else { return Ok(Transformed::no(plan)) };
    let call = lateral_apply(&join.right)
        .filter(|(apply, _)| apply.arguments.iter().any(|argument| subquery::refers_to(argument, join.left.schema())));
    let Some((apply, alias)) = call else {
        // With a condition, as without LATERAL, it is a join with what the subquery gives.
        let resolved = if condition_of(join).is_none() { subquery::resolved(join)? } else { None };
        return Ok(resolved.map_or_else(|| Transformed::no(plan.clone()), Transformed::yes));
    };
    let is_outer = is_outer(join, &format!("{}()", apply.function.name()))?;
    let condition = condition_of(join);
    if is_outer && condition.is_some() {
        return Ok(Transformed::no(plan));
    }
    // Columns of relations farther out stay what they are.
    let arguments = apply.arguments.iter().cloned().map(|argument| columns_of(join.left.schema(), argument));
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let resolved =
        Apply::try_new(join.left.as_ref().clone(), Arc::clone(&apply.function), arguments, alias, apply.column_names().to_vec(), is_outer)?;
    let rows = resolved.into_plan();
    Ok(Transformed::yes(match condition {
        Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::new(rows))?),
        None => rows,
    }))
}

/// A call that reads columns of a relation that it does not stand after.
pub fn check_calls(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Extension(extension) = node
            && let Some(apply) = extension.node.as_any().downcast_ref::<Apply>()
            && apply.arguments.iter().any(Expr::contains_outer)
        {
            let name = apply.function.name();
            return Err(Error::NotSupported(format!(
                "{name}() reads columns of a query around it; it can where it stands after LATERAL, or in a subquery after LATERAL: \
                 write FROM t CROSS JOIN LATERAL {name}(...)"
            ))
            .into());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether rows stay for which there is nothing on the right of LATERAL.
///
/// # Errors
/// A plan error for joins that have no such meaning; `what` stands after LATERAL.
pub fn is_outer(join: &Join, what: &str) -> Result<bool> {
    match join.join_type {
        JoinType::Inner => Ok(false),
        JoinType::Left => Ok(true),
        other => plan_err!("LATERAL {what} works after CROSS JOIN, JOIN or LEFT JOIN, not {other}"),
    }
}

/// The condition of a join, other than `true`.
pub fn condition_of(join: &Join) -> Option<Expr> {
    let is_true = |condition: &Expr| matches!(condition, Expr::Literal(ScalarValue::Boolean(Some(true)), _));
    let on = join.on.iter().cloned().map(|(left, right)| left.eq(right));
    conjunction(join.filter.iter().filter(|filter| !is_true(filter)).cloned().chain(on))
}

/// The call inside `[alias of] subquery of [alias of] Apply`, if this is one with outer references.
fn lateral_apply(plan: &LogicalPlan) -> Option<(&Apply, Option<TableReference>)> {
    match plan {
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
            lateral_apply(input).map(|(apply, _)| (apply, Some(alias.clone())))
        }
        LogicalPlan::Subquery(subquery) => lateral_apply(&subquery.subquery),
        LogicalPlan::Extension(extension) => {
            let apply = extension.node.as_any().downcast_ref::<Apply>()?;
            let is_alone = matches!(apply.input, LogicalPlan::EmptyRelation(_));
            (is_alone && apply.arguments.iter().any(Expr::contains_outer)).then_some((apply, None))
        }
        _ => None,
    }
}

/// The argument with references to columns of `input` as these columns.
fn columns_of(input: &DFSchema, argument: Expr) -> Result<Expr> {
    let columns = argument.transform(|expr| {
        Ok(match expr {
            Expr::OuterReferenceColumn(_, column) if input.has_column(&column) => Transformed::yes(Expr::Column(column)),
            other => Transformed::no(other),
        })
    })?;
    Ok(columns.data)
}

/// The outer query's columns are the input's columns once the call sits on top of it.
pub fn to_input_columns(argument: Expr) -> Result<Expr> {
    let transformed = argument.transform(|expr| {
        Ok(match expr {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            other => Transformed::no(other),
        })
    })?;
    Ok(transformed.data)
}
