//! As few model calls as the result needs.
//!
//! A call whose answer nobody reads is left out. And under `ORDER BY x LIMIT k`, where x does not depend on a model, rows are chosen before a model sees
//! them: DataFusion leaves the sort above the expressions of the SELECT list, and so above the calls. The sort above stays, over k rows: it says the
//! order to what is above it.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, SortExpr};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::Apply;

#[derive(Debug)]
pub struct FewerModelCalls;

impl OptimizerRule for FewerModelCalls {
    fn name(&self) -> &str {
        "fewer_model_calls"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let rewritten = match &plan {
            LogicalPlan::Sort(sort) => chosen_first(sort)?,
            LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => without_unread_call(&plan)?,
            _ => None,
        };
        Ok(rewritten.map_or_else(|| Transformed::no(plan), Transformed::yes))
    }
}

/// The call, if a plan is one that gives one row for each of its input.
fn row_by_row(plan: &LogicalPlan) -> Option<&Apply> {
    let LogicalPlan::Extension(extension) = plan else { return None };
    let apply = extension.node.as_any().downcast_ref::<Apply>()?;
    (apply.function.is_row_preserving() && !apply.is_outer).then_some(apply)
}

fn without_unread_call(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let Some(apply) = plan.inputs().first().and_then(|input| row_by_row(input)) else { return Ok(None) };
    let expressions = plan.expressions();
    let is_read = |expression: &Expr| expression.column_refs().into_iter().any(|column| !apply.input.schema().has_column(column));
    match expressions.iter().any(is_read) {
        true => Ok(None),
        false => plan.with_new_exprs(expressions, vec![apply.input.clone()]).map(Some),
    }
}

/// The sort over a plan that sorts and limits below its calls.
fn chosen_first(sort: &Sort) -> Result<Option<LogicalPlan>> {
    let Some(fetch) = sort.fetch else { return Ok(None) };
    let Some(input) = sort_below(&sort.input, sort.expr.clone(), fetch)? else { return Ok(None) };
    Ok(Some(LogicalPlan::Sort(Sort { expr: sort.expr.clone(), input: Arc::new(input), fetch: sort.fetch })))
}

/// `None` when there is no call to sort below, or when the keys depend on it.
fn sort_below(plan: &LogicalPlan, keys: Vec<SortExpr>, fetch: usize) -> Result<Option<LogicalPlan>> {
    let (input, keys) = match plan {
        LogicalPlan::Projection(projection) => {
            let below = |position: usize| projection.expr.get(position).cloned().map(Expr::unalias);
            (projection.input.as_ref(), in_terms_of(plan, keys, below)?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let below = |position: usize| Some(Expr::Column(Column::from(alias.input.schema().qualified_field(position))));
            (alias.input.as_ref(), in_terms_of(plan, keys, below)?)
        }
        _ => {
            let Some(apply) = row_by_row(plan) else { return Ok(None) };
            let is_known = |key: &SortExpr| key.expr.column_refs().into_iter().all(|column| apply.input.schema().has_column(column));
            (&apply.input, keys.iter().all(is_known).then_some(keys))
        }
    };
    let Some(keys) = keys else { return Ok(None) };
    let sorted = match sort_below(input, keys.clone(), fetch)? {
        Some(sorted) => sorted,
        None if row_by_row(plan).is_none() || is_chosen(input, fetch) => return Ok(None),
        None => LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(input.clone()), fetch: Some(fetch) }),
    };
    plan.with_new_exprs(plan.expressions(), vec![sorted]).map(Some)
}

/// Whether there are few enough rows already.
fn is_chosen(plan: &LogicalPlan, fetch: usize) -> bool {
    plan.max_rows().is_some_and(|rows| rows <= fetch)
}

/// The keys with each column of `plan` as what is below it; `None` if one is not known there.
fn in_terms_of(plan: &LogicalPlan, keys: Vec<SortExpr>, below: impl Fn(usize) -> Option<Expr>) -> Result<Option<Vec<SortExpr>>> {
    let mut is_known = true;
    let mut replaced = Vec::with_capacity(keys.len());
    for key in keys {
        let expr = key.expr.clone().transform_up(|inner| match &inner {
            Expr::Column(column) => match plan.schema().maybe_index_of_column(column).and_then(&below) {
                Some(expression) => Ok(Transformed::yes(expression)),
                None => {
                    is_known = false;
                    Ok(Transformed::no(inner))
                }
            },
            _ => Ok(Transformed::no(inner)),
        })?;
        replaced.push(key.with_expr(expr.data));
    }
    Ok(is_known.then_some(replaced))
}
