//! Dates beside timestamps, and instants in nanoseconds beside those in microseconds. DataFusion would count nanoseconds for both, which reach from 1677 to
//! 2262; here both are in microseconds, as timestamps of PostgreSQL are.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Between, Case, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Union, cast};

use super::typing::call;
use crate::error::Result;

/// The plan in which both are of one type.
pub fn typed(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let mut has_mixed_union = false;
    let typed = plan.transform_up_with_subqueries(|node| {
        let node = match node {
            LogicalPlan::Join(mut join) if !join.on.is_empty() => {
                let (left, right) = (join.left.schema(), join.right.schema());
                let mut is_changed = false;
                for (of_left, of_right) in &mut join.on {
                    let types = [of_left.get_type(left)?, of_right.get_type(right)?];
                    if let Some(wanted) = common(&types) {
                        is_changed = true;
                        *of_left = compared(of_left.clone(), &types[0], &wanted, state)?;
                        *of_right = compared(of_right.clone(), &types[1], &wanted, state)?;
                    }
                }
                Transformed::new_transformed(LogicalPlan::Join(join), is_changed)
            }
            LogicalPlan::Union(union) => {
                let united = branches(union, state)?;
                has_mixed_union |= united.transformed;
                united
            }
            other => Transformed::no(other),
        };
        node.transform_data(|node| {
            if !node.expressions().iter().any(|expression| expression.exists(|inner| Ok(may_mix(inner))).unwrap_or(true)) {
                return Ok(Transformed::no(node));
            }
            let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let typed = expression.transform_up(|inner| Ok(of_one_type(inner, &schema, state)?))?;
                Ok(if typed.transformed { Transformed::yes(name.restore(typed.data)) } else { typed })
            })
        })
    })?;
    if !has_mixed_union {
        return Ok(typed.data);
    }
    // What stands above a UNION tells its types.
    let told = typed.data.transform_up_with_subqueries(|node| node.recompute_schema().map(Transformed::yes))?;
    Ok(told.data)
}

/// The branches of a UNION with columns of one type.
fn branches(union: Union, state: &SessionState) -> Result<Transformed<LogicalPlan>> {
    let num_columns = union.schema.fields().len();
    let types_of =
        |position: usize| union.inputs.iter().map(|input| input.schema().field(position).data_type().clone()).collect::<Vec<_>>();
    let wanted: Vec<Option<DataType>> = (0..num_columns).map(|position| common(&types_of(position))).collect();
    if wanted.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let mut inputs = Vec::with_capacity(union.inputs.len());
    for input in &union.inputs {
        let columns = input.schema().columns().into_iter().zip(&wanted).enumerate().map(|(position, (column, wanted))| {
            let (relation, name) = (column.relation.clone(), column.name.clone());
            match wanted {
                Some(wanted) => {
                    let converted = assigned(Expr::Column(column), input.schema().field(position).data_type(), wanted, state)?;
                    Ok(converted.alias_qualified(relation, name))
                }
                None => Ok(Expr::Column(column)),
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        inputs.push(Arc::new(LogicalPlanBuilder::from(Arc::clone(input)).project(columns)?.build()?));
    }
    // Columns of other types are brought to one later.
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

fn may_mix(expression: &Expr) -> bool {
    match expression {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => is_comparison(*op),
        Expr::ScalarFunction(function) => gives_an_argument(function.func.name()),
        Expr::InList(_) | Expr::Between(_) | Expr::Case(_) => true,
        _ => false,
    }
}

pub fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Functions whose result is one of their arguments.
fn gives_an_argument(function: &str) -> bool {
    matches!(function, "coalesce" | "nvl" | "greatest" | "least" | "nullif" | "make_array")
}

fn of_one_type(expression: Expr, schema: &DFSchema, state: &SessionState) -> Result<Transformed<Expr>> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let (both, is_changed) = one_type(vec![*left, *right], schema, state, compared)?;
            let [left, right] = <[Expr; 2]>::try_from(both).map_err(|_| lost())?.map(Box::new);
            Ok(Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), is_changed))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let (mut all, is_changed) = one_type(std::iter::once(*expr).chain(list).collect(), schema, state, compared)?;
            let expr = Box::new(all.remove(0));
            Ok(Transformed::new_transformed(Expr::InList(InList { expr, list: all, negated }), is_changed))
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (all, is_changed) = one_type(vec![*expr, *low, *high], schema, state, compared)?;
            let [expr, low, high] = <[Expr; 3]>::try_from(all).map_err(|_| lost())?.map(Box::new);
            Ok(Transformed::new_transformed(Expr::Between(Between { expr, negated, low, high }), is_changed))
        }
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let (whens, thens): (Vec<_>, Vec<_>) = when_then_expr.into_iter().unzip();
            let has_else = else_expr.is_some();
            let values = thens.into_iter().chain(else_expr).map(|value| *value).collect();
            let (mut values, is_changed) = one_type(values, schema, state, assigned)?;
            let else_expr = if has_else { values.pop().map(Box::new) } else { None };
            let when_then_expr = whens.into_iter().zip(values.into_iter().map(Box::new)).collect();
            Ok(Transformed::new_transformed(Expr::Case(Case { expr: None, when_then_expr, else_expr }), is_changed))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if gives_an_argument(func.name()) => {
            let (args, is_changed) = one_type(args, schema, state, assigned)?;
            Ok(Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), is_changed))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn lost() -> crate::Error {
    crate::Error::Internal("operands of a comparison are as many as before".to_owned())
}

type Convert = fn(Expr, &DataType, &DataType, &SessionState) -> Result<Expr>;

/// The operands as values of one type, if they mix; and whether they did.
fn one_type(operands: Vec<Expr>, schema: &DFSchema, state: &SessionState, convert: Convert) -> Result<(Vec<Expr>, bool)> {
    // What has no type yet takes that of the others.
    let types: Vec<DataType> = operands.iter().map(|operand| operand.get_type(schema).unwrap_or(DataType::Null)).collect();
    let Some(wanted) = common(&types) else { return Ok((operands, false)) };
    let converted = operands.into_iter().zip(&types).map(|(operand, found)| convert(operand, found, &wanted, state));
    Ok((converted.collect::<Result<_>>()?, true))
}

/// The timestamps that all become; `None`: they are of one type, or there is something else among them.
fn common(types: &[DataType]) -> Option<DataType> {
    let is_known = |found: &&DataType| !found.is_null() && !matches!(found, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let known: Vec<&DataType> = types.iter().filter(is_known).collect();
    let are_times = known.iter().all(|found| matches!(found, DataType::Date32 | DataType::Timestamp(..)));
    let first = known.first()?;
    if !are_times || known.iter().all(|found| found == first) {
        return None;
    }
    let zone = known.iter().find_map(|found| if let DataType::Timestamp(_, zone) = found { zone.clone() } else { None });
    Some(DataType::Timestamp(TimeUnit::Microsecond, zone))
}

fn has_zone(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(_)))
}

/// An operand of a comparison, in which a date beyond timestamps is beyond all of them.
fn compared(operand: Expr, found: &DataType, wanted: &DataType, state: &SessionState) -> Result<Expr> {
    let function = match (found, wanted) {
        (DataType::Date32, _) if has_zone(wanted) => "instanttz_of_date",
        (DataType::Date32, _) => "instant_of_date",
        (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(_))) => "timestamptz_of_timestamp",
        (DataType::Timestamp(..), _) if found != wanted => return Ok(cast(operand, wanted.clone())),
        _ => return Ok(operand),
    };
    // UTC has several names.
    Ok(cast(call(state, function, vec![operand])?, wanted.clone()))
}

/// A value among others, where such a date is an error.
fn assigned(operand: Expr, found: &DataType, wanted: &DataType, state: &SessionState) -> Result<Expr> {
    match found {
        DataType::Date32 => {
            let function = if has_zone(wanted) { "timestamptz_of_date" } else { "timestamp_of_date" };
            Ok(cast(call(state, function, vec![operand])?, wanted.clone()))
        }
        _ => compared(operand, found, wanted, state),
    }
}
