//! The rows of a query.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::evaluate::values;
use super::group::{grouped, with_windows};
use super::join::source_rows;
use super::{Body, Context, Env, Expression, Extra, Plan, Select, SetOperator, SortKey, Source};
use crate::engine::pg_catalog::value::{Row, Value};
use crate::error::{Error, Result};

/// Recursions of a query; each gives at least one row that was not there.
const RECURSIONS_MAX: usize = 10_000;

/// The rows of a query, one value per column. `outer`: the row of the query round it.
pub(super) fn rows(plan: &Plan, outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Arc<Vec<Row>>> {
    let key = std::ptr::from_ref(plan).addr();
    if !plan.is_correlated
        && let Some(rows) = context.results.borrow().get(&key)
    {
        return Ok(Arc::clone(rows));
    }
    let rows = Arc::new(fresh_rows(plan, outer, context)?);
    if !plan.is_correlated {
        context.hold_values(rows.len().saturating_mul(plan.columns.len()))?;
        context.results.borrow_mut().insert(key, Arc::clone(&rows));
    }
    Ok(rows)
}

fn fresh_rows(plan: &Plan, outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Vec<Row>> {
    let mut rows = match &plan.body {
        Body::Select(select) => select_rows(select, outer, context)?,
        Body::Query(query) => rows(query, outer, context)?.to_vec(),
        Body::Values(rows) => {
            let env = Env { row: &[], base: 0, left: None, outer };
            rows.iter().map(|row| values(row, &env, context)).collect::<Result<_>>()?
        }
        Body::Set { operator, all, left, right } => {
            let (left, right) = (rows(left, outer, context)?, rows(right, outer, context)?);
            context.look()?;
            combined(*operator, *all, left.to_vec(), &right)
        }
        Body::Recursive { first, step, all, working } => recursive(first, step, *all, *working, outer, context)?,
    };
    context.look()?;
    sort(&mut rows, &plan.order);
    if let Body::Select(select) = &plan.body
        && let Some(positions) = &select.distinct_on
    {
        let mut seen = HashSet::new();
        rows.retain(|row| {
            seen.insert(positions.iter().fold(String::new(), |mut key, position| {
                row[*position].write_key(&mut key);
                key
            }))
        });
    }
    let env = Env { row: &[], base: 0, left: None, outer };
    let number = |expression: &Option<Expression>| match expression {
        Some(expression) => Ok::<_, Error>(expression.value(&env, context)?.as_int().and_then(|number| usize::try_from(number).ok())),
        None => Ok(None),
    };
    let skipped = number(&plan.offset)?.unwrap_or(0).min(rows.len());
    rows.drain(..skipped);
    if let Some(limit) = number(&plan.limit)? {
        rows.truncate(limit);
    }
    let width = plan.columns.len();
    rows.iter_mut().for_each(|row| row.truncate(width));
    Ok(rows)
}

fn sort(rows: &mut [Row], order: &[SortKey]) {
    if order.is_empty() {
        return;
    }
    rows.sort_by(|left, right| {
        let mut keys = order.iter().map(|key| ordered(&left[key.position], &right[key.position], key.descending, key.nulls_first));
        keys.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
}

pub(super) fn ordered(left: &Value, right: &Value, descending: bool, nulls_first: bool) -> Ordering {
    match (left.is_null(), right.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => {
            if nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) => {
            let order = left.order(right);
            if descending { order.reverse() } else { order }
        }
    }
}

fn select_rows(select: &Select, outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Vec<Row>> {
    let held = context.held();
    let outputs = output_rows(select, outer, context);
    // The rows that the outputs were made of are gone.
    context.release(held);
    outputs
}

fn output_rows(select: &Select, outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Vec<Row>> {
    let mut rows = match &select.from {
        Some(source) => filtered_source(select, source, outer, context)?,
        None => {
            let env = Env { row: &[], base: 0, left: None, outer };
            let holds =
                select.conditions.iter().try_fold(true, |holds, condition| Ok::<_, Error>(holds && condition.is_true(&env, context)?))?;
            if holds { vec![Row::new()] } else { Vec::new() }
        }
    };
    if select.groups_items {
        rows.iter_mut().for_each(|row| row.resize(select.width + select.extras.len(), Value::Null));
        rows = unnested(select, rows, outer, context)?;
    }
    rows = match &select.group {
        Some(keys) => grouped(select, keys, &rows, outer, context)?,
        None => {
            rows.iter_mut().for_each(|row| row.resize(select.width + select.extras.len(), Value::Null));
            rows
        }
    };
    if let Some(having) = &select.having {
        rows = kept(rows, outer, |env| having.is_true(env, context))?;
    }
    with_windows(select, &mut rows, outer, context)?;
    if !select.groups_items {
        rows = unnested(select, rows, outer, context)?;
    }
    let mut outputs = Vec::with_capacity(rows.len());
    for row in &rows {
        context.step()?;
        outputs.push(values(&select.outputs, &Env { row, base: 0, left: None, outer }, context)?);
    }
    Ok(if select.distinct { distinct(outputs) } else { outputs })
}

/// Conditions without subqueries are met as early as their columns are there, the others last.
fn filtered_source(select: &Select, source: &Source, outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Vec<Row>> {
    let is_early = |condition: &&Expression| !condition.has_subquery() && !condition.columns().is_empty();
    let (early, late): (Vec<&Expression>, Vec<&Expression>) = select.conditions.iter().partition(is_early);
    let rows = source_rows(source, &early, None, outer, context)?;
    if late.is_empty() {
        return Ok(rows);
    }
    kept(rows, outer, |env| {
        for condition in &late {
            if !condition.is_true(env, context)? {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

fn kept(rows: Vec<Row>, outer: Option<&Env<'_>>, holds: impl Fn(&Env<'_>) -> Result<bool>) -> Result<Vec<Row>> {
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        if holds(&Env { row: &row, base: 0, left: None, outer })? {
            kept.push(row);
        }
    }
    Ok(kept)
}

/// A row for each item of the lists among the outputs; shorter lists go on with NULL, as in PostgreSQL.
fn unnested(select: &Select, rows: Vec<Row>, outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Vec<Row>> {
    let lists: Vec<(usize, &Expression)> = select
        .extras
        .iter()
        .enumerate()
        .filter_map(|(number, extra)| match extra {
            Extra::Unnest(list) => Some((select.width + number, list)),
            _ => None,
        })
        .collect();
    if lists.is_empty() {
        return Ok(rows);
    }
    let mut unnested = Vec::new();
    for row in rows {
        let env = Env { row: &row, base: 0, left: None, outer };
        let mut items = Vec::with_capacity(lists.len());
        for (position, list) in &lists {
            items.push((*position, list.value(&env, context)?));
        }
        let longest = items.iter().filter_map(|(_, list)| list.as_list()).map(<[Value]>::len).max().unwrap_or(0);
        for number in 0..longest {
            context.step()?;
            context.hold(&row)?;
            let mut filled = row.clone();
            for (position, list) in &items {
                filled[*position] = list.as_list().and_then(|list| list.get(number)).cloned().unwrap_or(Value::Null);
            }
            unnested.push(filled);
        }
    }
    Ok(unnested)
}

fn distinct(rows: Vec<Row>) -> Vec<Row> {
    let mut seen = HashSet::new();
    rows.into_iter().filter(|row| seen.insert(Value::key_of(row))).collect()
}

fn combined(operator: SetOperator, all: bool, mut left: Vec<Row>, right: &[Row]) -> Vec<Row> {
    if operator == SetOperator::Union {
        left.extend_from_slice(right);
        return if all { left } else { distinct(left) };
    }
    let mut counts = HashMap::<String, usize>::new();
    right.iter().for_each(|row| *counts.entry(Value::key_of(row)).or_default() += 1);
    left.retain(|row| {
        let count = counts.get_mut(&Value::key_of(row)).filter(|count| **count > 0);
        let is_there = count.is_some();
        if let (Some(count), true) = (count, all) {
            *count -= 1;
        }
        is_there == (operator == SetOperator::Intersect)
    });
    if all { left } else { distinct(left) }
}

fn recursive(first: &Plan, step: &Plan, all: bool, working: usize, outer: Option<&Env<'_>>, context: &Context<'_>) -> Result<Vec<Row>> {
    let mut found: Vec<Row> = rows(first, outer, context)?.to_vec();
    let mut seen = HashSet::new();
    if !all {
        found.retain(|row| seen.insert(Value::key_of(row)));
    }
    let mut last = found.clone();
    for _ in 0..RECURSIONS_MAX {
        if last.is_empty() {
            return Ok(found);
        }
        context.working.borrow_mut().insert(working, Arc::new(last));
        // Never from the memory of results: the working table differs each time.
        let mut next = fresh_rows(step, outer, context)?;
        if !all {
            next.retain(|row| seen.insert(Value::key_of(row)));
        }
        context.hold_values(next.iter().map(Vec::len).sum())?;
        found.extend_from_slice(&next);
        last = next;
    }
    Err(Error::OutOfMemory(format!("a recursive query about the catalog did not end in {RECURSIONS_MAX} steps")))
}
