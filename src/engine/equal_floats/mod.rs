//! Minus zero is zero and every NaN is one and the greatest number, as in PostgreSQL.
//!
//! Arrow compares floats by their bits: -0.0 comes before 0.0, and a NaN with a sign before all numbers. This rule puts [`one_form`] round what is
//! compared, grouped, joined, sorted and counted once, wherever it has floats in it, vectors, arrays and rows too. A column beside constants stays as it
//! is, so that filters go down to the storage and its indexes: there the constant gets the sign that makes the comparison right.

mod comparisons;
mod grouping;
mod one_form;
mod stored;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Distinct, DistinctOn, Expr, ExprSchemable, Join, JoinConstraint, LogicalPlan, Sort, SortExpr};
use datafusion::optimizer::AnalyzerRule;

use super::nearest_neighbours::has_distance;
use comparisons::Rows;
pub use comparisons::depends_on_outer_form;
use one_form::one_form;
pub use one_form::without_one_form;

#[derive(Debug)]
pub struct EqualFloats;

impl AnalyzerRule for EqualFloats {
    fn name(&self) -> &str {
        "equal_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_changed = false;
        let changed = plan.transform_up_with_subqueries(|node| {
            // A key that is the first of its group may be NULL, as far as a plan knows.
            let node = if is_changed { node.recompute_schema()? } else { node };
            let changed = rewritten(node)?;
            is_changed |= changed.transformed;
            Ok(changed)
        });
        changed.map(|changed| changed.data)
    }
}

fn rewritten(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Join(join) if joins_floats(&join) => Ok(Transformed::yes(LogicalPlan::Join(with_equal_keys(join)?))),
        LogicalPlan::Sort(sort) => Ok(sorted(sort)?.update_data(LogicalPlan::Sort)),
        LogicalPlan::Distinct(Distinct::All(input)) if has_float_columns(input.schema()) => grouping::distinct(input).map(Transformed::yes),
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct_on(distinct),
        LogicalPlan::Aggregate(aggregate) => grouping::aggregate(aggregate),
        other => compared(other),
    }
}

/// The comparisons within the expressions of a node; names of its columns stay.
fn compared(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let inputs: Vec<LogicalPlan> = node.inputs().into_iter().cloned().collect();
    let inputs: Vec<&LogicalPlan> = inputs.iter().collect();
    let (schema, names) = (merge_schema(&inputs), NamePreserver::new(&node));
    let rows = Rows { schema: &schema, inputs: &inputs };
    let changed = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let changed = comparisons::within(expression, rows)?;
        Ok(if changed.transformed { changed.update_data(|expression| name.restore(expression)) } else { changed })
    })?;
    if changed.transformed { changed.map_data(LogicalPlan::recompute_schema) } else { Ok(changed) }
}

fn joins_floats(join: &Join) -> bool {
    let is_float = |side: &Expr, input: &LogicalPlan| is_float(side, input.schema().as_ref());
    join.on.iter().any(|(left, right)| is_float(left, &join.left) || is_float(right, &join.right))
        || join.filter.as_ref().is_some_and(|filter| filter.exists(|inner| Ok(comparisons::compares(inner))).unwrap_or(true))
}

fn with_equal_keys(mut join: Join) -> Result<Join> {
    let (left, right) = (Arc::clone(join.left.schema()), Arc::clone(join.right.schema()));
    for (of_left, of_right) in &mut join.on {
        if is_float(of_left, left.as_ref()) || is_float(of_right, right.as_ref()) {
            *of_left = one_form(of_left.clone());
            *of_right = one_form(of_right.clone());
            // USING means columns alone, and their names are resolved by now.
            join.join_constraint = JoinConstraint::On;
        }
    }
    let inputs = [join.left.as_ref(), join.right.as_ref()];
    let rows = Rows { schema: &merge_schema(&inputs), inputs: &inputs };
    join.filter = join.filter.map(|filter| comparisons::within(filter, rows)).transpose()?.map(|changed| changed.data);
    Ok(join)
}

fn sorted(sort: Sort) -> Result<Transformed<Sort>> {
    let schema = Arc::clone(sort.input.schema());
    let mut is_changed = false;
    let mut expr = Vec::with_capacity(sort.expr.len());
    for key in sort.expr {
        if is_distance(&key.expr, &sort.input) {
            expr.push(key);
            continue;
        }
        let within = comparisons::within(key.expr.clone(), Rows { schema: schema.as_ref(), inputs: &[&sort.input] })?;
        let form = equal_key(&within.data, &schema);
        is_changed |= within.transformed || form.is_some();
        expr.push(SortExpr { expr: form.unwrap_or(within.data), ..key });
    }
    Ok(Transformed::new_transformed(Sort { expr, ..sort }, is_changed))
}

/// Whether a key is a distance between vectors, or the name that one has in the list of SELECT: by these nearest rows are found. They have no zero but one,
/// and no NaN with a sign.
fn is_distance(key: &Expr, input: &LogicalPlan) -> bool {
    if has_distance(key) {
        return true;
    }
    let (Expr::Column(column), LogicalPlan::Projection(projection)) = (key, input) else { return false };
    let Some(position) = projection.schema.maybe_index_of_column(column) else { return false };
    has_distance(&projection.expr[position])
}

/// A key of an order in its one form; `None`: it has no floats.
fn equal_key(key: &Expr, schema: &DFSchema) -> Option<Expr> {
    is_float(key, schema).then(|| one_form(key.clone()))
}

fn distinct_on(distinct: DistinctOn) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(distinct.input.schema());
    let is_any = distinct.on_expr.iter().any(|expression| is_float(expression, schema.as_ref()));
    let key = |expression: Expr| equal_key(&expression, &schema).unwrap_or(expression);
    let on_expr = distinct.on_expr.into_iter().map(key).collect();
    let sort_expr = distinct.sort_expr.map(|keys| keys.into_iter().map(|sort| SortExpr { expr: key(sort.expr.clone()), ..sort }).collect());
    let distinct = DistinctOn { on_expr, sort_expr, ..distinct };
    Ok(Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(distinct)), is_any))
}

fn has_float_columns(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| has_floats(field.data_type()))
}

/// Whether the values of an expression are floats, or have floats in them.
fn is_float(expression: &Expr, schema: &dyn ExprSchema) -> bool {
    expression.get_type(schema).is_ok_and(|data_type| has_floats(&data_type))
}

fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => has_floats(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        other => other.is_floating(),
    }
}
