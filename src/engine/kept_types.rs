//! json, jsonb and uuid stay what they are through expressions, arrays and records of them, subqueries and set operations, as in PostgreSQL: a client sees the type of a column, and
//! what reads a column knows it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, Union, WindowFunctionDefinition};
use rolloutdb_udfs::{NamedType, is_unknown, item_type, kept_type, read_constant, telling_type, told_as};

use crate::error::Result;

/// The plan in which columns say what they are.
pub fn typed(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !may_lose_types(&plan)? {
        return Ok(plan);
    }
    let mut is_changed = false;
    let typed = plan.transform_up_with_subqueries(|node| {
        // Of what is below it may know more by now.
        let node = if is_changed { node.recompute_schema()? } else { node };
        let told = told(node)?;
        is_changed |= told.transformed;
        Ok(told)
    })?;
    Ok(typed.data)
}

/// Whether there is anything in a plan that could make a new field of an old one: most have nothing of it.
fn may_lose_types(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Union(_) | LogicalPlan::Unnest(_) | LogicalPlan::Window(_));
        node.apply_expressions(|expression| {
            found |= expression.exists(|inner| Ok(makes_a_field(inner)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn makes_a_field(expression: &Expr) -> bool {
    match expression {
        Expr::Case(_) | Expr::ScalarSubquery(_) => true,
        Expr::AggregateFunction(call) => call.func.name() == "array_agg",
        Expr::ScalarFunction(call) => {
            let name = call.name();
            matches!(name, "coalesce" | "nvl" | "nullif" | "greatest" | "least" | "make_array" | "named_struct" | "struct" | "get_field")
                || name.starts_with("array_")
        }
        _ => false,
    }
}

fn told(node: LogicalPlan) -> datafusion::error::Result<Transformed<LogicalPlan>> {
    match &node {
        LogicalPlan::Projection(_) => expressions(node),
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => Ok(expressions(node)?.transform_data(columns)?),
        LogicalPlan::Unnest(_) => columns(node),
        LogicalPlan::Union(union) => match branches(union)? {
            Some(inputs) => {
                let union = LogicalPlan::Union(Union { inputs, schema: Arc::clone(&union.schema) });
                Ok(Transformed::yes(union.recompute_schema()?))
            }
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    }
}

/// Expressions whose values are those of their operands.
fn expressions(node: LogicalPlan) -> datafusion::error::Result<Transformed<LogicalPlan>> {
    let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
    let told = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let told = expression.transform_up(|inner| {
            Ok(match telling_type(&inner, &schema) {
                Some(told) => Transformed::yes(told),
                None => Transformed::no(inner),
            })
        })?;
        Ok(if told.transformed { Transformed::yes(name.restore(told.data)) } else { told })
    })?;
    if told.transformed { told.map_data(LogicalPlan::recompute_schema) } else { Ok(told) }
}

/// Columns that a node makes, which a projection above it tells: what an aggregate or a window function gives has no expression to say it.
fn columns(node: LogicalPlan) -> datafusion::error::Result<Transformed<LogicalPlan>> {
    let made = match &node {
        LogicalPlan::Aggregate(aggregate) => {
            let first = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
            of_calls(first, &aggregate.aggr_expr, aggregate.input.schema().as_ref())
        }
        LogicalPlan::Window(window) => of_calls(window.input.schema().fields().len(), &window.window_expr, window.input.schema().as_ref()),
        LogicalPlan::Unnest(unnest) => {
            let columns = unnest.list_type_columns.iter().filter(|(_, list)| list.depth == 1);
            let of_items = columns.filter_map(|(position, list)| {
                let item = NamedType::of_field(unnest.input.schema().field(*position))?.item()?;
                Some((unnest.schema.maybe_index_of_column(&list.output_column)?, item))
            });
            of_items.collect()
        }
        _ => Vec::new(),
    };
    if made.is_empty() {
        return Ok(Transformed::no(node));
    }
    let outputs: Vec<Expr> = node
        .schema()
        .columns()
        .into_iter()
        .enumerate()
        .map(|(position, column)| match made.iter().find(|(made, _)| *made == position) {
            Some((_, named)) => {
                let Column { relation, name, .. } = column.clone();
                told_as(Expr::Column(column), named.clone()).alias_qualified(relation, name)
            }
            None => Expr::Column(column),
        })
        .collect();
    Ok(Transformed::yes(LogicalPlanBuilder::from(node).project(outputs)?.build()?))
}

/// The positions and types of what calls give; `first`: the position of the first of them.
fn of_calls(first: usize, calls: &[Expr], schema: &dyn ExprSchema) -> Vec<(usize, NamedType)> {
    let typed = calls.iter().enumerate().filter_map(|(position, call)| Some((first + position, of_call(call.clone().unalias(), schema)?)));
    typed.collect()
}

fn of_call(call: Expr, schema: &dyn ExprSchema) -> Option<NamedType> {
    let (name, args) = match call {
        Expr::AggregateFunction(call) => (call.func.name().to_owned(), call.params.args),
        Expr::WindowFunction(call) => {
            let name = match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => function.name().to_owned(),
                WindowFunctionDefinition::WindowUDF(function) => function.name().to_owned(),
            };
            (name, call.params.args)
        }
        _ => return None,
    };
    let value = args.first()?;
    match name.as_str() {
        "array_agg" => Some(item_type(value, schema)?.array()),
        "first_value" | "last_value" | "nth_value" | "lag" | "lead" => kept_type(value, schema),
        _ => None,
    }
}

/// The branches of a UNION with NULL and constants in quotes as values of the type that the others have; `None`: they are as they should be.
fn branches(union: &Union) -> datafusion::error::Result<Option<Vec<Arc<LogicalPlan>>>> {
    let mut inputs = union.inputs.clone();
    let mut is_changed = false;
    for position in 0..union.schema.fields().len() {
        let Some(named) = common_type(&inputs, position) else { continue };
        for input in &mut inputs {
            if NamedType::of_field(input.schema().field(position)).is_none()
                && let LogicalPlan::Projection(projection) = input.as_ref()
            {
                *input = Arc::new(read_as(projection, position, &named)?);
                is_changed = true;
            }
        }
    }
    Ok(is_changed.then_some(inputs))
}

/// The type that a column has in some branches, if it has no other in the rest.
fn common_type(inputs: &[Arc<LogicalPlan>], position: usize) -> Option<NamedType> {
    let mut common = None;
    for input in inputs {
        match NamedType::of_field(input.schema().field(position)) {
            Some(found) if common.as_ref().is_some_and(|common| *common != found) => return None,
            Some(found) => common = Some(found),
            None => match input.as_ref() {
                LogicalPlan::Projection(Projection { expr, input, .. })
                    if is_unknown(&expr[position].clone().unalias(), input.schema().as_ref()) => {}
                _ => return None,
            },
        }
    }
    common
}

fn read_as(projection: &Projection, position: usize, named: &NamedType) -> datafusion::error::Result<LogicalPlan> {
    let mut expressions = projection.expr.clone();
    let (relation, field) = projection.schema.qualified_field(position);
    let value = expressions[position].clone().unalias();
    let is_null = matches!(&value, Expr::Literal(constant, _) if constant.is_null());
    let read = if is_null || !named.is_of_texts() { told_as(value, named.clone()) } else { read_constant(value, named) };
    expressions[position] = read.alias_qualified(relation.cloned(), field.name());
    Projection::try_new(expressions, Arc::clone(&projection.input)).map(LogicalPlan::Projection)
}
