//! Aggregates over groups of rows, and the few window functions that clients number rows with.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::evaluate::values;
use super::operators::out_of_range;
use super::run::ordered;
use super::{Aggregate, AggregateFunction, Context, Env, Expression, Extra, Select, Window, WindowFunction};
use crate::engine::pg_catalog::value::{Row, Value};
use crate::error::Result;

/// Expressions to sort by: descending, NULL first.
type Order = [(Expression, bool, bool)];

/// A row for each group: its first row, then the aggregates. Without keys there is one group, even of no rows.
pub(super) fn grouped(
    select: &Select,
    keys: &[Expression],
    rows: &[Row],
    outer: Option<&Env<'_>>,
    context: &Context<'_>,
) -> Result<Vec<Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    for row in rows {
        context.step()?;
        let key = Value::key_of(&values(keys, &Env { row, base: 0, left: None, outer }, context)?);
        let position = *positions.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[position].push(row);
    }
    if keys.is_empty() && groups.is_empty() {
        groups.push(Vec::new());
    }
    groups.iter().map(|group| group_row(select, group, outer, context)).collect()
}

fn group_row(select: &Select, group: &[&Row], outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Row> {
    let first = group.first();
    let mut row = first.map_or_else(|| vec![Value::Null; select.width], |first| first[..select.width].to_vec());
    for (number, extra) in select.extras.iter().enumerate() {
        row.push(match extra {
            Extra::Aggregate(aggregate) => aggregated(aggregate, group, outer, context)?,
            Extra::Window(_) => Value::Null,
            // Items by which the rows are grouped are there already.
            Extra::Unnest(_) => first.and_then(|first| first.get(select.width + number)).cloned().unwrap_or(Value::Null),
        });
    }
    Ok(row)
}

fn aggregated(aggregate: &Aggregate, group: &[&Row], outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Value> {
    let mut inputs: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
    let mut seen = HashSet::new();
    for row in group {
        context.step()?;
        let env = Env { row, base: 0, left: None, outer };
        if let Some(filter) = &aggregate.filter
            && !filter.is_true(&env, context)?
        {
            continue;
        }
        let arguments = values(&aggregate.arguments, &env, context)?;
        if aggregate.distinct && !seen.insert(Value::key_of(&arguments)) {
            continue;
        }
        inputs.push((sort_values(&aggregate.order, &env, context)?, arguments));
    }
    inputs.sort_by(|left, right| by_order(&aggregate.order, &left.0, &right.0));
    let inputs: Vec<Vec<Value>> = inputs.into_iter().map(|(_, arguments)| arguments).collect();
    folded(aggregate.function, &inputs)
}

fn folded(function: AggregateFunction, inputs: &[Vec<Value>]) -> Result<Value> {
    let firsts = || inputs.iter().filter_map(|arguments| arguments.first());
    let present = || firsts().filter(|value| !value.is_null());
    Ok(match function {
        // count(*) has no argument.
        AggregateFunction::Count => {
            Value::Int(inputs.iter().filter(|arguments| arguments.first().is_none_or(|value| !value.is_null())).count() as i64)
        }
        AggregateFunction::Min => present().min_by(|left, right| left.order(right)).cloned().unwrap_or(Value::Null),
        AggregateFunction::Max => present().max_by(|left, right| left.order(right)).cloned().unwrap_or(Value::Null),
        AggregateFunction::Sum => sum(present())?,
        AggregateFunction::Average => {
            let numbers: Vec<f64> = present().filter_map(Value::as_float).collect();
            if numbers.is_empty() { Value::Null } else { Value::Float(numbers.iter().sum::<f64>() / numbers.len() as f64) }
        }
        AggregateFunction::BoolAnd | AggregateFunction::BoolOr if present().next().is_none() => Value::Null,
        AggregateFunction::BoolAnd => Value::Bool(present().all(Value::is_true)),
        AggregateFunction::BoolOr => Value::Bool(present().any(Value::is_true)),
        AggregateFunction::ArrayAgg if inputs.is_empty() => Value::Null,
        AggregateFunction::ArrayAgg => Value::list(firsts().cloned()),
        AggregateFunction::StringAgg => {
            let mut joined: Option<String> = None;
            for arguments in inputs {
                let [Value::Text(text), delimiter, ..] = arguments.as_slice() else { continue };
                match &mut joined {
                    Some(before) => before.extend([delimiter.as_str().unwrap_or_default(), text]),
                    None => joined = Some(text.to_string()),
                }
            }
            Value::optional_text(joined)
        }
    })
}

/// # Errors
/// A sum of whole numbers that a bigint has no place for (22003).
fn sum<'a>(numbers: impl Iterator<Item = &'a Value> + Clone) -> Result<Value> {
    let whole = numbers.clone().map(|number| if let Value::Int(number) = number { Some(i128::from(*number)) } else { None });
    match whole.sum::<Option<i128>>() {
        _ if numbers.clone().next().is_none() => Ok(Value::Null),
        Some(sum) => i64::try_from(sum).map(Value::Int).map_err(|_| out_of_range()),
        None => Ok(numbers.map(Value::as_float).sum::<Option<f64>>().map_or(Value::Null, Value::Float)),
    }
}

fn sort_values(order: &Order, env: &Env<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
    order.iter().map(|(expression, _, _)| expression.value(env, context)).collect()
}

fn by_order(order: &Order, left: &[Value], right: &[Value]) -> Ordering {
    let pairs = order.iter().zip(left.iter().zip(right));
    let mut orders = pairs.map(|((_, descending, nulls_first), (left, right))| ordered(left, right, *descending, *nulls_first));
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Fills in the values of window functions.
pub(super) fn with_windows(select: &Select, rows: &mut [Row], outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<()> {
    for (number, extra) in select.extras.iter().enumerate() {
        let Extra::Window(window) = extra else { continue };
        let numbers = numbered(window, rows, outer, context)?;
        rows.iter_mut().zip(numbers).for_each(|(row, value)| row[select.width + number] = Value::Int(value));
    }
    Ok(())
}

/// The value of a window function for each row.
fn numbered(window: &Window, rows: &[Row], outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Vec<i64>> {
    let mut keyed = Vec::with_capacity(rows.len());
    for (position, row) in rows.iter().enumerate() {
        context.step()?;
        let env = Env { row, base: 0, left: None, outer };
        let partition = Value::key_of(&values(&window.partition, &env, context)?);
        keyed.push((partition, sort_values(&window.order, &env, context)?, position));
    }
    keyed.sort_by(|left, right| left.0.cmp(&right.0).then_with(|| by_order(&window.order, &left.1, &right.1)));
    let mut numbers = vec![0; rows.len()];
    let (mut row_number, mut rank, mut dense_rank) = (0, 0, 0);
    for (place, (partition, order, position)) in keyed.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| &keyed[before]).filter(|before| before.0 == *partition);
        match before {
            None => (row_number, rank, dense_rank) = (1, 1, 1),
            Some(before) => {
                row_number += 1;
                if by_order(&window.order, &before.1, order).is_ne() {
                    rank = row_number;
                    dense_rank += 1;
                }
            }
        }
        numbers[*position] = match window.function {
            WindowFunction::RowNumber => row_number,
            WindowFunction::Rank => rank,
            WindowFunction::DenseRank => dense_rank,
        };
    }
    Ok(numbers)
}
