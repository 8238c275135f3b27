//! What stands in FROM, as rows: tables, queries, functions and joins of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::inner_join::InnerJoin;
use super::run::rows;
use super::{Binary, Context, Env, Expression, JoinKind, Source, SourceKind};
use crate::engine::pg_catalog::value::{Row, Value};
use crate::error::Result;

/// Whether an expression can be evaluated for rows of `source` alone.
pub(super) fn is_within(expression: &Expression, source: &Source) -> bool {
    let columns = expression.columns();
    let of_source = source.offset..source.offset + source.width;
    !expression.has_subquery() && !columns.is_empty() && columns.iter().all(|column| of_source.contains(column))
}

/// The rows of a source that meet those of `conditions` that are about it alone, and its own.
pub(super) fn source_rows(
    source: &Source,
    conditions: &[&Expression],
    left: Option<&Env<'_>>,
    outer: Option<&Env<'_>>,
    context: &Context<'_>,
) -> Result<Vec<Row>> {
    let own: Vec<&Expression> = conditions.iter().copied().filter(|condition| is_within(condition, source)).collect();
    let found = match &source.kind {
        SourceKind::Rows(table) => return table_rows(source, table, &own, left, outer, context),
        SourceKind::Join { kind, left: first, right: second, conditions: on } => {
            if let Some(join) = InnerJoin::of(source).filter(|_| *kind == JoinKind::Inner) {
                return join.rows(&own, left, outer, context);
            }
            return join_rows(&Sides { kind: *kind, first, second, on }, &own, left, outer, context);
        }
        SourceKind::Working(number) => context.working.borrow().get(number).map(|rows| rows.to_vec()).unwrap_or_default(),
        SourceKind::Query { plan, is_lateral, num_outward, .. } => {
            // It is one level further in than the rows before it, which it sees if it is lateral.
            let outward = (0..*num_outward).fold(outer, |outer, _| outer.and_then(|env| env.outer));
            let nothing = Env { row: &[], base: 0, left: None, outer: outward };
            let before = left.copied().filter(|_| *is_lateral).unwrap_or(nothing);
            rows(plan, Some(&before), context)?.to_vec()
        }
        SourceKind::Function { list, spread, ordinality } => {
            let env = left.copied().unwrap_or(Env { row: &[], base: source.offset, left: None, outer });
            function_rows(&list.value(&env, context)?, *spread, *ordinality, source.width)
        }
    };
    filtered(found, source.offset, &own, left, outer, context)
}

fn filtered(
    rows: Vec<Row>,
    base: usize,
    conditions: &[&Expression],
    left: Option<&Env<'_>>,
    outer: Option<&Env<'_>>,
    context: &Context<'_>,
) -> Result<Vec<Row>> {
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        context.step()?;
        if holds(conditions, &Env { row: &row, base, left, outer }, context)? {
            kept.push(row);
        }
    }
    Ok(kept)
}

pub(super) fn holds(conditions: &[&Expression], env: &Env<'_>, context: &Context<'_>) -> Result<bool> {
    for condition in conditions {
        if !condition.is_true(env, context)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Rows of a table; where a column equals what is the same for all of its rows, by an index that is made at the first such look.
fn table_rows(
    source: &Source,
    table: &Arc<Vec<Row>>,
    conditions: &[&Expression],
    left: Option<&Env<'_>>,
    outer: Option<&Env<'_>>,
    context: &Context<'_>,
) -> Result<Vec<Row>> {
    let looked_up = conditions.iter().find_map(|condition| match condition {
        Expression::Binary { operator: Binary::Equal, left, right } => match (left.as_ref(), right.as_ref()) {
            (Expression::Column { depth: 0, index }, other) | (other, Expression::Column { depth: 0, index })
                if other.columns().is_empty() && !other.has_subquery() =>
            {
                Some((index - source.offset, other))
            }
            _ => None,
        },
        _ => None,
    });
    let candidates: Vec<&Row> = match looked_up {
        None => table.iter().collect(),
        Some((column, wanted)) => {
            let wanted = wanted.value(&Env { row: &[], base: source.offset, left, outer }, context)?;
            if wanted.is_null() {
                return Ok(Vec::new());
            }
            let index = index_of(table, column, context);
            let positions = index.get(&Value::key_of(&[wanted])).map(Vec::as_slice).unwrap_or_default();
            positions.iter().map(|position| &table[*position]).collect()
        }
    };
    let mut kept = Vec::new();
    for row in candidates {
        context.step()?;
        if holds(conditions, &Env { row, base: source.offset, left, outer }, context)? {
            kept.push(row.clone());
        }
    }
    Ok(kept)
}

fn index_of(table: &Arc<Vec<Row>>, column: usize, context: &Context<'_>) -> Arc<HashMap<String, Vec<usize>>> {
    let key = (Arc::as_ptr(table).addr(), column);
    let mut indexes = context.indexes.borrow_mut();
    let index = indexes.entry(key).or_insert_with(|| {
        let mut index: HashMap<String, Vec<usize>> = HashMap::new();
        for (position, row) in table.iter().enumerate() {
            index.entry(Value::key_of(&row[column..=column])).or_default().push(position);
        }
        Arc::new(index)
    });
    Arc::clone(index)
}

/// A row for each item, with its number behind it if that is asked for.
fn function_rows(list: &Value, spread: bool, ordinality: bool, width: usize) -> Vec<Row> {
    let items = list.as_list().unwrap_or_default();
    let rows = items.iter().enumerate().map(|(position, item)| {
        let mut row: Row = match item {
            Value::Record(fields) if spread => fields.to_vec(),
            other => vec![other.clone()],
        };
        row.resize(width - usize::from(ordinality), Value::Null);
        if ordinality {
            row.push(Value::Int(position as i64 + 1));
        }
        row
    });
    rows.collect()
}

struct Sides<'a> {
    kind: JoinKind,
    first: &'a Source,
    second: &'a Source,
    on: &'a [Expression],
}

fn join_rows(
    sides: &Sides<'_>,
    conditions: &[&Expression],
    before: Option<&Env<'_>>,
    outer: Option<&Env<'_>>,
    context: &Context<'_>,
) -> Result<Vec<Row>> {
    let Sides { kind, first, second, on } = sides;
    // A condition of WHERE may go below the join only on a side whose rows all stay as they are.
    let (above, on): (Vec<&Expression>, Vec<&Expression>) = match kind {
        JoinKind::Inner => (Vec::new(), on.iter().chain(conditions.iter().copied()).collect()),
        _ => (conditions.to_vec(), on.iter().collect()),
    };
    let for_first: Vec<&Expression> = match kind {
        JoinKind::Inner => on.clone(),
        JoinKind::Left => above.clone(),
        JoinKind::Right | JoinKind::Full => Vec::new(),
    };
    let for_second: Vec<&Expression> = match kind {
        JoinKind::Inner | JoinKind::Left => on.clone(),
        JoinKind::Right => above.clone(),
        JoinKind::Full => Vec::new(),
    };
    let base = first.offset;
    let mut found = Vec::new();
    let mut keep = |row: Row| -> Result<()> {
        context.hold(&row)?;
        found.push(row);
        Ok(())
    };
    if second.is_lateral() {
        for row in &source_rows(first, &for_first, before, outer, context)? {
            let env = Env { row, base, left: before, outer };
            let right_rows = source_rows(second, &for_second, Some(&env), outer, context)?;
            let mut has_match = false;
            for right in &right_rows {
                let joined = joined(row, right);
                if holds(&on, &Env { row: &joined, base, left: before, outer }, context)? {
                    has_match = true;
                    keep(joined)?;
                }
            }
            if !has_match && matches!(kind, JoinKind::Left | JoinKind::Full) {
                keep(joined(row, &vec![Value::Null; second.width]))?;
            }
        }
    } else {
        let right_rows = source_rows(second, &for_second, before, outer, context)?;
        // Clients join with tables that are empty here: what stands before them need not be made.
        if right_rows.is_empty() && *kind == JoinKind::Inner {
            return Ok(Vec::new());
        }
        let left_rows = source_rows(first, &for_first, before, outer, context)?;
        let matches = Matches::new(&on, first, second, &right_rows, before, outer, context)?;
        let mut is_matched = vec![false; right_rows.len()];
        for row in &left_rows {
            context.step()?;
            let mut has_match = false;
            for position in matches.candidates(row, base, before, outer, context)? {
                context.step()?;
                let joined = joined(row, &right_rows[position]);
                if holds(&on, &Env { row: &joined, base, left: before, outer }, context)? {
                    (has_match, is_matched[position]) = (true, true);
                    keep(joined)?;
                }
            }
            if !has_match && matches!(kind, JoinKind::Left | JoinKind::Full) {
                keep(joined(row, &vec![Value::Null; second.width]))?;
            }
        }
        if matches!(kind, JoinKind::Right | JoinKind::Full) {
            for (right, _) in right_rows.iter().zip(is_matched).filter(|(_, is_matched)| !is_matched) {
                keep(joined(&vec![Value::Null; first.width], right))?;
            }
        }
    }
    filtered(found, base, &above, before, outer, context)
}

fn joined(left: &[Value], right: &[Value]) -> Row {
    left.iter().chain(right).cloned().collect()
}

/// Which rows of the right side may match one of the left: those with its key, where the condition has equalities.
struct Matches<'a> {
    /// Of the left side.
    keys: Vec<&'a Expression>,
    by_key: HashMap<String, Vec<usize>>,
    num_rows: usize,
}

impl<'a> Matches<'a> {
    fn new(
        on: &[&'a Expression],
        first: &Source,
        second: &Source,
        rows: &[Row],
        before: Option<&Env<'_>>,
        outer: Option<&Env<'_>>,
        context: &Context<'_>,
    ) -> Result<Self> {
        let pairs = on.iter().filter_map(|condition| match condition {
            Expression::Binary { operator: Binary::Equal, left, right } => {
                let (left, right) = (left.as_ref(), right.as_ref());
                if is_within(left, first) && is_within(right, second) {
                    Some((left, right))
                } else if is_within(right, first) && is_within(left, second) {
                    Some((right, left))
                } else {
                    None
                }
            }
            _ => None,
        });
        let (keys, right_keys): (Vec<&Expression>, Vec<&Expression>) = pairs.unzip();
        let mut by_key: HashMap<String, Vec<usize>> = HashMap::new();
        if !keys.is_empty() {
            for (position, row) in rows.iter().enumerate() {
                context.step()?;
                if let Some(key) = key_of(&right_keys, &Env { row, base: second.offset, left: before, outer }, context)? {
                    by_key.entry(key).or_default().push(position);
                }
            }
        }
        Ok(Self { keys, by_key, num_rows: rows.len() })
    }

    fn candidates(
        &self,
        row: &[Value],
        base: usize,
        before: Option<&Env<'_>>,
        outer: Option<&Env<'_>>,
        context: &Context<'_>,
    ) -> Result<Vec<usize>> {
        if self.keys.is_empty() {
            return Ok((0..self.num_rows).collect());
        }
        let key = key_of(&self.keys, &Env { row, base, left: before, outer }, context)?;
        Ok(key.and_then(|key| self.by_key.get(&key).cloned()).unwrap_or_default())
    }
}

/// `None`: a part is NULL, which equals nothing.
pub(super) fn key_of(parts: &[&Expression], env: &Env<'_>, context: &Context<'_>) -> Result<Option<String>> {
    let mut key = String::new();
    for part in parts {
        let value = part.value(env, context)?;
        if value.is_null() {
            return Ok(None);
        }
        value.write_key(&mut key);
    }
    Ok(Some(key))
}
