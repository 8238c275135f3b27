//! Which columns of a plan are columns of tables, as they are stored there.

use datafusion::common::Column;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan};

/// Whether a column hands on what a table has: by name alone, through filters, joins, views and the like.
pub fn is_stored(column: &Column, plan: &LogicalPlan) -> bool {
    plan.schema().maybe_index_of_column(column).is_some_and(|position| hands_on(plan, position))
}

fn hands_on(plan: &LogicalPlan, position: usize) -> bool {
    match plan {
        // Searches give distances and scores, which have no NaN with a sign.
        LogicalPlan::TableScan(_) | LogicalPlan::Extension(_) => true,
        LogicalPlan::Projection(projection) => names_stored(&projection.expr[position], &projection.input),
        LogicalPlan::SubqueryAlias(alias) => hands_on(&alias.input, position),
        LogicalPlan::Filter(filter) => hands_on(&filter.input, position),
        LogicalPlan::Sort(sort) => hands_on(&sort.input, position),
        LogicalPlan::Limit(limit) => hands_on(&limit.input, position),
        LogicalPlan::Repartition(repartition) => hands_on(&repartition.input, position),
        LogicalPlan::Distinct(Distinct::All(input)) => hands_on(input, position),
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| hands_on(input, position)),
        LogicalPlan::Join(join) => {
            let of_left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => hands_on(&join.right, position),
                _ if position < of_left => hands_on(&join.left, position),
                JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => false,
                _ => hands_on(&join.right, position - of_left),
            }
        }
        _ => false,
    }
}

fn names_stored(expression: &Expr, input: &LogicalPlan) -> bool {
    match expression {
        Expr::Column(column) => is_stored(column, input),
        Expr::Alias(alias) => names_stored(&alias.expr, input),
        _ => false,
    }
}
