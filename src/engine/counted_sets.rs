//! EXCEPT ALL and INTERSECT ALL count how often a row comes, as in PostgreSQL: of a row that the left side has m times and the right one n times, m - n or the smaller
//! of both are left.
//!
//! DataFusion joins both sides by all columns, which keeps a row as often as the left side has it, or not at all. So equal rows are numbered on each side, and the
//! number is one more column to join by: the third of the left side meets the third of the right one.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullEquality};
use datafusion::error::Result as DataFusionResult;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder};

use crate::error::Result;

/// The column of the numbers.
const OCCURRENCE: &str = "__occurrence";

/// The plan, before anything else is changed in it, with rows that are counted.
pub fn counted(plan: LogicalPlan) -> Result<LogicalPlan> {
    let counted = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if is_of_all(&join) => with_occurrences(join).map(Transformed::yes),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(counted.data)
}

/// Whether the planner made the join of EXCEPT or INTERSECT, in which alone NULL equals NULL, and the left side may have a row several times.
fn is_of_all(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
}

fn with_occurrences(join: Join) -> DataFusionResult<LogicalPlan> {
    let columns: Vec<Expr> = join.left.schema().columns().into_iter().map(Expr::Column).collect();
    let (left, left_number) = numbered(join.left.as_ref().clone())?;
    let (right, right_number) = numbered(join.right.as_ref().clone())?;
    let mut on = join.on;
    on.push((Expr::Column(left_number), Expr::Column(right_number)));
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        join.filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
}

/// The rows with their numbers among those that equal them, from 1, and the column of these.
fn numbered(plan: LogicalPlan) -> DataFusionResult<(LogicalPlan, Column)> {
    let mut columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let number = row_number().partition_by(columns.clone()).build()?;
    let plan = LogicalPlanBuilder::from(plan).window([number])?.build()?;
    let number = Column::from(plan.schema().qualified_field(columns.len()));
    columns.push(Expr::Column(number).alias(OCCURRENCE));
    let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
    let number = Column::from(plan.schema().qualified_field(plan.schema().fields().len() - 1));
    Ok((plan, number))
}
