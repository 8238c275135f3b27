//! Scalar subqueries that name columns of the query round them and may have several rows: `(SELECT word FROM u WHERE u.id = t.id)`.
//!
//! DataFusion wants an aggregate there. [`SingleRow`] gathers the rows into a list, of which `only_value` takes the only one; where there are more, it is
//! an error (21000) as in PostgreSQL.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::array_agg;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::AnalyzerRule;

use super::function;

#[derive(Debug)]
pub struct SingleRow;

impl AnalyzerRule for SingleRow {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            if !has_correlated_subquery(&node)? {
                return Ok(Transformed::no(node));
            }
            let names = NamePreserver::new(&node);
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let rewritten = expression.transform_up(single_row)?;
                Ok(if rewritten.transformed { Transformed::yes(name.restore(rewritten.data)) } else { rewritten })
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "single_row"
    }
}

fn has_correlated_subquery(node: &LogicalPlan) -> Result<bool> {
    let is_one = |inner: &Expr| matches!(inner, Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty());
    let mut found = false;
    node.apply_expressions(|expression| {
        found = found || expression.exists(|inner| Ok(is_one(inner)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn single_row(expression: Expr) -> Result<Transformed<Expr>> {
    let Expr::ScalarSubquery(subquery) = &expression else { return Ok(Transformed::no(expression)) };
    Ok(match gathered(subquery)? {
        Some(list) => Transformed::yes(only_value(Expr::ScalarSubquery(list), subquery)),
        None => Transformed::no(expression),
    })
}

/// The subquery with its rows in one list; `None`: DataFusion runs it as it is.
pub fn gathered(subquery: &Subquery) -> Result<Option<Subquery>> {
    let plan = subquery.subquery.as_ref();
    if subquery.outer_ref_columns.is_empty() || has_one_row(plan) {
        return Ok(None);
    }
    let value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let list = LogicalPlanBuilder::from(plan.clone()).aggregate(Vec::<Expr>::new(), vec![array_agg(value)])?.build()?;
    let column = Expr::Column(Column::from(list.schema().qualified_field(0)));
    let list = LogicalPlanBuilder::from(list).project(vec![column])?.build()?;
    Ok(Some(Subquery { subquery: Arc::new(list), ..subquery.clone() }))
}

/// The value of a subquery in the list of its rows.
pub fn only_value(list: Expr, subquery: &Subquery) -> Expr {
    function::only_value(list, subquery.subquery.schema().field(0))
}

/// At most one.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Filter(filter) => has_one_row(&filter.input),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => true,
        other => other.max_rows().is_some_and(|count| count <= 1),
    }
}
