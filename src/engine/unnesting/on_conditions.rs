//! Subqueries in the condition of a JOIN.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder};

use super::names::Names;
use super::references::{is_correlated, is_subquery, outer_columns};
use super::{Rows, of_one_input};
use crate::error::Error;

/// The join without such subqueries as name columns of queries round them.
pub fn unnested(join: Join, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let (mut with_subqueries, mut others) = (Vec::new(), Vec::new());
    for conjunct in join.filter.clone().map(split_conjunction_owned).unwrap_or_default() {
        let is_correlated = conjunct.exists(|inner| Ok(is_correlated(inner)));
        if is_correlated? { with_subqueries.push(conjunct) } else { others.push(conjunct) }
    }
    if with_subqueries.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    if join.join_type == JoinType::Inner {
        let joined = LogicalPlan::Join(Join { filter: conjunction(others), ..join });
        let Some(condition) = conjunction(with_subqueries) else { return Ok(Transformed::yes(joined)) };
        return of_one_input(LogicalPlan::Filter(Filter::try_new(condition, Arc::new(joined))?), names);
    }
    let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let mut sides = [Rows::new(join.left.as_ref().clone(), names), Rows::new(join.right.as_ref().clone(), names)];
    for conjunct in with_subqueries {
        others.push(read(conjunct, &mut sides)?);
    }
    let [left, right] = sides.map(|side| Arc::new(side.plan));
    let Join { on, join_type, join_constraint, null_equality, null_aware, .. } = join;
    let joined = Join::try_new(left, right, on, conjunction(others), join_type, join_constraint, null_equality, null_aware)?;
    Ok(Transformed::yes(LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()?))
}

/// A subquery is computed for the side whose columns it names.
fn read(condition: Expr, sides: &mut [Rows<'_>; 2]) -> Result<Expr> {
    let read = condition.transform_up(|inner| {
        let Some(subquery) = is_subquery(&inner) else { return Ok(Transformed::no(inner)) };
        let named = outer_columns(&subquery.subquery)?;
        let values = inner.column_refs();
        let reads = |side: &Rows<'_>| {
            let schema = side.source.schema();
            named.iter().chain(values.iter().copied()).any(|column| schema.has_column(column))
        };
        let (left, right) = (reads(&sides[0]), reads(&sides[1]));
        if left && right {
            return Err(Error::NotSupported(
                "a subquery in the condition of an outer join that names columns of both sides is not supported; compute it in a subquery of one side"
                    .to_owned(),
            )
            .into());
        }
        Ok(Transformed::yes(sides[usize::from(right)].read(inner)?))
    });
    Ok(read?.data)
}
