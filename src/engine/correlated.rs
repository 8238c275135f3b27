//! Correlated subqueries over joins whose sides have columns of the same name.
//!
//! DataFusion turns `EXISTS (SELECT 1 FROM x JOIN y ... WHERE x.id = p.id AND y.id = p.other)` into a join with the subquery under a new alias, in which
//! `x.id` and `y.id` are both `alias.id`: the second condition then silently compares the first column. [`DistinctSubqueryColumns`] runs before that and gives
//! every such column a name of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::AnalyzerRule;

#[derive(Debug)]
pub struct DistinctSubqueryColumns;

impl AnalyzerRule for DistinctSubqueryColumns {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rename_in_subqueries(plan)
    }

    fn name(&self) -> &str {
        "distinct_subquery_columns"
    }
}

fn rename_in_subqueries(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up(|node| node.map_expressions(|expression| expression.transform_up(rename_in_expression)));
    Ok(rewritten?.data)
}

fn rename_in_expression(expression: Expr) -> Result<Transformed<Expr>> {
    Ok(Transformed::yes(match expression {
        Expr::Exists(Exists { subquery, negated }) => Expr::Exists(Exists { subquery: renamed(subquery)?, negated }),
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            Expr::InSubquery(InSubquery { expr, subquery: renamed(subquery)?, negated })
        }
        Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(renamed(subquery)?),
        other => return Ok(Transformed::no(other)),
    }))
}

fn renamed(subquery: Subquery) -> Result<Subquery> {
    let plan = rename_in_subqueries(subquery.subquery.as_ref().clone())?;
    let plan = if subquery.outer_ref_columns.is_empty() { plan } else { rename_above_join(plan)?.0 };
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

/// The plan with the columns of its topmost join renamed, and what was renamed to what.
fn rename_above_join(plan: LogicalPlan) -> Result<(LogicalPlan, HashMap<Column, Column>)> {
    match plan {
        LogicalPlan::Join(_) => rename_join(plan),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Window(_) => {
            let input = plan.inputs()[0].clone();
            let (input, names) = rename_above_join(input)?;
            if names.is_empty() {
                return Ok((plan, names));
            }
            let expressions = plan.expressions().into_iter().map(|expression| replace(expression, &names)).collect::<Result<Vec<_>>>()?;
            Ok((plan.with_new_exprs(expressions, vec![input])?, names))
        }
        other => Ok((other, HashMap::new())),
    }
}

/// A projection over the join in which no two columns have the same name; the first of each keeps its own.
fn rename_join(join: LogicalPlan) -> Result<(LogicalPlan, HashMap<Column, Column>)> {
    let mut names = HashMap::new();
    let mut columns = Vec::new();
    let mut taken: HashSet<String> = HashSet::new();
    for column in join.schema().columns() {
        let expression = Expr::Column(column.clone());
        if taken.insert(column.name.clone()) {
            columns.push(expression);
            continue;
        }
        let relation = column.relation.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut name = format!("{relation}.{}", column.name);
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        columns.push(expression.alias(name.clone()));
        names.insert(column, Column::new_unqualified(name));
    }
    if names.is_empty() {
        return Ok((join, names));
    }
    Ok((LogicalPlanBuilder::from(join).project(columns)?.build()?, names))
}

/// `expression` over the renamed columns, in subqueries of its own too.
fn replace(expression: Expr, names: &HashMap<Column, Column>) -> Result<Expr> {
    let replaced = expression.transform_up(|inner| {
        Ok(Transformed::yes(match inner {
            Expr::Column(column) => Expr::Column(names.get(&column).cloned().unwrap_or(column)),
            Expr::Exists(Exists { subquery, negated }) => Expr::Exists(Exists { subquery: replace_outer(subquery, names)?, negated }),
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Expr::InSubquery(InSubquery { expr, subquery: replace_outer(subquery, names)?, negated })
            }
            Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(replace_outer(subquery, names)?),
            other => return Ok(Transformed::no(other)),
        }))
    });
    Ok(replaced?.data)
}

/// A subquery whose references to the plan round it follow the renaming; its own columns stay.
fn replace_outer(subquery: Subquery, names: &HashMap<Column, Column>) -> Result<Subquery> {
    let rename = |expression: Expr| {
        expression.transform_up(|inner| match inner {
            Expr::OuterReferenceColumn(field, column) => {
                let column = names.get(&column).cloned().unwrap_or(column);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        })
    };
    let plan = subquery.subquery.as_ref().clone().transform_up_with_subqueries(|node| node.map_expressions(rename))?.data;
    let outer_ref_columns = subquery.outer_ref_columns.into_iter().map(|outer| Ok(rename(outer)?.data)).collect::<Result<Vec<_>>>()?;
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, ..subquery })
}
