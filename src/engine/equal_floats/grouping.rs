//! GROUP BY and DISTINCT over floats: groups by the one form of the keys, which are shown as the first row of each group has them.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Projection};

use super::one_form::one_form;
use super::{compared, is_float};

/// `SELECT DISTINCT` as groups of all columns.
pub fn distinct(input: Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let keys = input.schema().columns().into_iter().map(Expr::Column).collect();
    let aggregate = Aggregate::try_new(input, keys, vec![])?;
    Ok(self::aggregate(aggregate)?.data)
}

pub fn aggregate(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let keys = match aggregate.group_expr.as_slice() {
        [Expr::GroupingSet(set)] => set.distinct_expr(),
        keys => keys.iter().collect(),
    };
    if !keys.into_iter().any(|key| is_float(key, aggregate.input.schema().as_ref())) {
        return compared(LogicalPlan::Aggregate(aggregate));
    }
    let are_sets = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let grouped = if are_sets { over_forms(aggregate) } else { of_first_keys(aggregate) };
    grouped.map(Transformed::yes)
}

/// Sets of keys leave some of them out in some groups: the columns are in their one form before they are grouped.
fn over_forms(aggregate: Aggregate) -> Result<LogicalPlan> {
    let [Expr::GroupingSet(set)] = aggregate.group_expr.as_slice() else {
        return compared(LogicalPlan::Aggregate(aggregate)).map(|new| new.data);
    };
    let schema = Arc::clone(aggregate.input.schema());
    let is_key = |column: &Column| set.distinct_expr().iter().any(|key| matches!(key, Expr::Column(found) if found == column));
    let columns = schema.columns().into_iter().map(|column| {
        let expression = Expr::Column(column.clone());
        match is_key(&column) && is_float(&expression, schema.as_ref()) {
            true => one_form(expression).alias_qualified(column.relation, column.name),
            false => expression,
        }
    });
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(aggregate.input)).project(columns.collect::<Vec<_>>())?.build()?;
    let aggregate = Aggregate::try_new(Arc::new(input), aggregate.group_expr, aggregate.aggr_expr)?;
    compared(LogicalPlan::Aggregate(aggregate)).map(|new| new.data)
}

/// Groups by the forms; a projection above gives the columns of before, of floats the first value of the group.
fn of_first_keys(aggregate: Aggregate) -> Result<LogicalPlan> {
    let LogicalPlan::Aggregate(aggregate) = compared(LogicalPlan::Aggregate(aggregate))?.data else {
        unreachable!("expressions of a node leave it what it is")
    };
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
    let num_keys = group_expr.len();
    let (mut keys, mut calls, mut outputs) = (Vec::new(), aggr_expr, Vec::new());
    let num_calls = calls.len();
    for (position, key) in group_expr.into_iter().enumerate() {
        let (relation, field) = schema.qualified_field(position);
        if !is_float(&key, input.schema().as_ref()) {
            keys.push(key);
            outputs.push(Expr::Column(Column::new(relation.cloned(), field.name())));
            continue;
        }
        let key = key.unalias();
        let (key_name, first_name) = (format!("__form_{position}"), format!("__first_{position}"));
        keys.push(one_form(key.clone()).alias(key_name));
        let first = AggregateFunction::new_udf(first_value_udaf(), vec![key], false, None, vec![], None);
        calls.push(Expr::AggregateFunction(first).alias(&first_name));
        let first = Expr::Column(Column::new(None::<TableReference>, first_name));
        outputs.push(first.alias_qualified(relation.cloned(), field.name()));
    }
    for position in num_keys..num_keys + num_calls {
        let (relation, field) = schema.qualified_field(position);
        outputs.push(Expr::Column(Column::new(relation.cloned(), field.name())));
    }
    let groups = LogicalPlan::Aggregate(Aggregate::try_new(input, keys, calls)?);
    // With the schema of before, which says more of a column than its type.
    let plan = Projection::try_new(outputs, Arc::new(groups))?;
    Ok(LogicalPlan::Projection(plan))
}
