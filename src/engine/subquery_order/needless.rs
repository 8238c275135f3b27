//! Sorts in subqueries whose order nobody sees: below a count, a join, DISTINCT, another sort.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRewriter};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, Sort as SortKey};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, AggregateUDF, Distinct, Expr, LogicalPlan, Sort};
use datafusion::optimizer::AnalyzerRule;

use crate::engine::apply::Apply;

/// Aggregates that give the same in every order, beside those that say so themselves.
const OF_ANY_ORDER: [&str; 22] = [
    "count",
    "avg",
    "median",
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
    "corr",
    "covar_samp",
    "covar_pop",
    "regr_slope",
    "regr_intercept",
    "regr_count",
    "regr_r2",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
    "bit_and",
    "bit_or",
    "bit_xor",
];

/// Takes them out.
#[derive(Debug)]
pub struct NeedlessSorts;

impl AnalyzerRule for NeedlessSorts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // The clients see the order of the whole.
        let mut rewriter = Seen { levels: vec![true] };
        Ok(plan.rewrite_with_subqueries(&mut rewriter)?.data)
    }

    fn name(&self) -> &str {
        "needless_sorts"
    }
}

/// Of each node round the one that is visited: whether the order of what is below it is seen.
struct Seen {
    levels: Vec<bool>,
}

impl TreeNodeRewriter for Seen {
    type Node = LogicalPlan;

    fn f_down(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let is_seen = self.levels.last().copied().unwrap_or(true);
        let mut node = Transformed::no(node);
        while !is_seen && let LogicalPlan::Sort(Sort { input, fetch: None, .. }) = node.data {
            node = Transformed::yes(Arc::unwrap_or_clone(input));
        }
        let node = node.transform_data(|node| match node {
            LogicalPlan::Aggregate(aggregate) => ordered_by_itself(aggregate),
            other => Ok(Transformed::no(other)),
        })?;
        self.levels.push(is_seen_below(&node.data, is_seen));
        Ok(node)
    }

    fn f_up(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        self.levels.pop();
        Ok(Transformed::no(node))
    }
}

/// `is_seen`: the order of the node's own rows.
fn is_seen_below(node: &LogicalPlan, is_seen: bool) -> bool {
    match node {
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::Union(_) => is_seen,
        LogicalPlan::Extension(extension) if extension.node.as_any().is::<Apply>() => is_seen,
        LogicalPlan::Window(window) => is_seen || window.window_expr.iter().any(is_of_rows_as_they_come),
        LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.iter().any(|output| gathers(output).is_some()),
        // The rows before LATERAL are gone through in their order.
        LogicalPlan::Join(join) => is_seen && is_lateral(&join.right),
        LogicalPlan::Sort(_) | LogicalPlan::Subquery(_) | LogicalPlan::Distinct(Distinct::All(_)) => false,
        _ => true,
    }
}

fn is_lateral(right: &LogicalPlan) -> bool {
    match right {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_lateral(&alias.input),
        _ => false,
    }
}

/// A window function without an order of its own.
fn is_of_rows_as_they_come(output: &Expr) -> bool {
    match output {
        Expr::Alias(alias) => is_of_rows_as_they_come(&alias.expr),
        Expr::WindowFunction(function) => function.params.order_by.is_empty(),
        _ => true,
    }
}

/// The aggregate of an output that depends on the order of its rows.
fn gathers(output: &Expr) -> Option<&AggregateFunction> {
    match output {
        Expr::Alias(alias) => gathers(&alias.expr),
        Expr::AggregateFunction(function) if function.params.order_by.is_empty() && !is_of_any_order(&function.func) => Some(function),
        _ => None,
    }
}

fn is_of_any_order(function: &AggregateUDF) -> bool {
    function.order_sensitivity().is_insensitive() || OF_ANY_ORDER.contains(&function.name())
}

/// Over rows that a correlated subquery sorts, aggregates get that order for their own: a join takes the place of the subquery, and DataFusion makes it of
/// no plan with a sort.
fn ordered_by_itself(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let gathers_rows = aggregate.aggr_expr.iter().any(|output| gathers(output).is_some_and(|function| !function.params.distinct));
    if !gathers_rows {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Some((keys, input)) = sorted_below(&aggregate.input)? else { return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))) };
    let names = NamePreserver::new_for_projection();
    let outputs = aggregate.aggr_expr.iter().map(|output| {
        let name = names.save(output);
        let ordered = output.clone().transform_up(|inner| match inner {
            Expr::AggregateFunction(mut function) if gathers(&Expr::AggregateFunction(function.clone())).is_some() => {
                function.params.order_by.clone_from(&keys);
                Ok(Transformed::yes(Expr::AggregateFunction(function)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(ordered.data))
    });
    let outputs = outputs.collect::<Result<Vec<Expr>>>()?;
    let ordered = Aggregate::try_new(Arc::new(input), aggregate.group_expr, outputs)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(ordered)))
}

/// The keys of the sort below, in columns of the plan, and the plan without it, if that reads columns of a query outside.
fn sorted_below(plan: &LogicalPlan) -> Result<Option<(Vec<SortKey>, LogicalPlan)>> {
    if let LogicalPlan::Sort(Sort { expr, input, fetch: None }) = plan {
        let is_correlated = !input.all_out_ref_exprs().is_empty();
        return Ok(is_correlated.then(|| (expr.clone(), input.as_ref().clone())));
    }
    let (LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_)) = plan else { return Ok(None) };
    let below = plan.inputs()[0];
    let Some((keys, input)) = sorted_below(below)? else { return Ok(None) };
    let keys = keys.into_iter().map(|key| Ok(above(&key.expr, plan, below.schema())?.map(|expr| SortKey { expr, ..key })));
    let Some(keys) = keys.collect::<Result<Option<Vec<SortKey>>>>()? else { return Ok(None) };
    let plan = plan.with_new_exprs(plan.expressions(), vec![input])?;
    Ok(Some((keys, plan)))
}

/// An expression over a node's input in columns of its output.
fn above(key: &Expr, node: &LogicalPlan, input: &DFSchema) -> Result<Option<Expr>> {
    let output = |position: usize| Expr::Column(Column::from(node.schema().qualified_field(position)));
    match node {
        LogicalPlan::Projection(projection) => {
            let position = projection.expr.iter().position(|expr| expr.clone().unalias() == *key);
            Ok(position.map(output))
        }
        LogicalPlan::SubqueryAlias(_) => {
            let renamed = key.clone().transform_up(|inner| match &inner {
                Expr::Column(column) => Ok(Transformed::yes(output(input.index_of_column(column)?))),
                _ => Ok(Transformed::no(inner)),
            })?;
            Ok(Some(renamed.data))
        }
        _ => Ok(Some(key.clone())),
    }
}
