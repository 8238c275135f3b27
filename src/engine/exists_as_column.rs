//! EXISTS in a SELECT list, in SET, in RETURNING and in aggregates.
//!
//! DataFusion runs an EXISTS only where rows are filtered: it joins the rows with the subquery and gives each a mark, which the filter reads. For other places
//! [`ExistsAsColumn`] lets it make that join for a filter, and reads the mark without filtering. An IN comes here as EXISTS, see
//! [`super::three_valued_in`]. What DataFusion can not join stays, and is refused (0A000) when the plan is made.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, Filter, LogicalPlan};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

#[derive(Debug)]
pub struct ExistsAsColumn;

/// DataFusion's rules, with ours behind the one for filters: later rules would move conditions of the subqueries.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    let of_filters = rules.iter().position(|rule| rule.name() == DecorrelatePredicateSubquery::new().name());
    rules.insert(of_filters.map_or(0, |position| position + 1), Arc::new(ExistsAsColumn));
    rules
}

impl OptimizerRule for ExistsAsColumn {
    fn name(&self) -> &str {
        "exists_as_column"
    }

    /// Inner queries first: their conditions are joins before the outer one is.
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_)) {
            return Ok(Transformed::no(plan));
        }
        let tests = tests_in(&plan)?;
        if tests.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let mut input = plan.inputs()[0].clone();
        let mut marks = Vec::with_capacity(tests.len());
        for test in &tests {
            let Some((joined, mark)) = marked(input, test, config)? else { return Ok(Transformed::no(plan)) };
            input = joined;
            marks.push(mark);
        }
        let names = NamePreserver::new(&plan);
        let expressions = plan.expressions().into_iter().map(|expression| {
            let name = names.save(&expression);
            let read = expression.transform_up(|inner| {
                Ok(match tests.iter().position(|test| *test == inner) {
                    Some(position) => Transformed::yes(marks[position].clone()),
                    None => Transformed::no(inner),
                })
            });
            Ok(name.restore(read?.data))
        });
        let expressions = expressions.collect::<Result<Vec<_>>>()?;
        Ok(Transformed::yes(plan.with_new_exprs(expressions, vec![input])?))
    }
}

/// The different EXISTS in the expressions of a plan.
fn tests_in(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut tests: Vec<Expr> = Vec::new();
    plan.apply_expressions(|expression| {
        expression.apply(|inner| {
            if matches!(inner, Expr::Exists(_)) && !tests.contains(inner) {
                tests.push(inner.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(tests)
}

/// The rows with a mark of the test, and what reads the mark; `None`: DataFusion has no join for it.
fn marked(rows: LogicalPlan, test: &Expr, config: &dyn OptimizerConfig) -> Result<Option<(LogicalPlan, Expr)>> {
    // Within another expression an EXISTS is a mark; alone it would be a join that drops rows.
    let filter = LogicalPlan::Filter(Filter::try_new(test.clone().is_null(), Arc::new(rows))?);
    let joined = match DecorrelatePredicateSubquery::new().rewrite(filter, config)?.data {
        LogicalPlan::Projection(projection) => Arc::unwrap_or_clone(projection.input),
        other => other,
    };
    let LogicalPlan::Filter(filter) = joined else { return Ok(None) };
    Ok(match filter.predicate {
        Expr::IsNull(mark) if !mark.exists(|inner| Ok(matches!(inner, Expr::Exists(_))))? => {
            Some((Arc::unwrap_or_clone(filter.input), *mark))
        }
        _ => None,
    })
}
