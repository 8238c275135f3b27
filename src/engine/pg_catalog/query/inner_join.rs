//! Inner joins of any number of sources, whether they are written with JOIN or with commas, in an order of their own.
//!
//! Drivers list six tables with commas and say in WHERE how they belong together, in no order. So each source is read with the conditions that are about it alone, and
//! one after the other joins those before it: next is one that an equality ties to them, by a look at the rows with its key, and only what nothing ties is multiplied. The
//! rows come out as if the sources had been nested loops in the order in which they are written.

use std::collections::{BTreeSet, HashMap};

use super::join::{holds, is_within, key_of, source_rows};
use super::{Binary, Context, Env, Expression, JoinKind, Source, SourceKind};
use crate::engine::pg_catalog::value::{Row, Value};
use crate::error::Result;

/// The sources of nested inner joins in the order of their columns, and the conditions between them. `None`: one reads rows of another, which fixes the order.
pub(super) struct InnerJoin<'a> {
    sources: Vec<&'a Source>,
    conditions: Vec<&'a Expression>,
}

impl<'a> InnerJoin<'a> {
    pub(super) fn of(source: &'a Source) -> Option<Self> {
        let mut join = Self { sources: Vec::new(), conditions: Vec::new() };
        join.add(source).then_some(join)
    }

    /// Whether it could be added.
    fn add(&mut self, source: &'a Source) -> bool {
        match &source.kind {
            SourceKind::Join { kind: JoinKind::Inner, left, right, conditions } => {
                self.conditions.extend(conditions);
                !right.is_lateral() && self.add(left) && self.add(right)
            }
            _ => {
                self.sources.push(source);
                true
            }
        }
    }

    /// The joined rows that meet the conditions, and those of WHERE that are about them alone.
    pub(super) fn rows(
        &self,
        of_where: &[&Expression],
        before: Option<&Env<'_>>,
        outer: Option<&Env<'_>>,
        context: &Context<'_>,
    ) -> Result<Vec<Row>> {
        let implied: Vec<Expression> = self.conditions.iter().chain(of_where).flat_map(|condition| common_to_branches(condition)).collect();
        let conditions: Vec<&Expression> = self.conditions.iter().chain(of_where).copied().chain(&implied).collect();
        let mut read = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            let rows = source_rows(source, &conditions, before, outer, context)?;
            // Clients join with tables that are empty here: the others need not be read.
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            read.push(rows);
        }
        let joining = Joining { sources: &self.sources, read: &read, conditions: &conditions, before, outer, context };
        joining.rows()
    }
}

/// Rows of some of the sources: the place of each one's row, in the order of the sources.
type Places = Vec<usize>;

/// Of a source that no row was taken of yet.
const NO_PLACE: usize = usize::MAX;

struct Joining<'a> {
    sources: &'a [&'a Source],
    read: &'a [Vec<Row>],
    conditions: &'a [&'a Expression],
    before: Option<&'a Env<'a>>,
    outer: Option<&'a Env<'a>>,
    context: &'a Context<'a>,
}

impl Joining<'_> {
    fn rows(&self) -> Result<Vec<Row>> {
        let mut joined: BTreeSet<usize> = BTreeSet::new();
        let mut found: Vec<Places> = vec![vec![NO_PLACE; self.sources.len()]];
        let mut met = vec![false; self.conditions.len()];
        while joined.len() < self.sources.len() {
            let (next, lookup) = self.next(&joined)?;
            joined.insert(next);
            let is_there = |expression: &&Expression| !expression.has_subquery() && self.is_of(expression, &joined);
            let due: Vec<usize> = (0..met.len()).filter(|number| !met[*number] && is_there(&self.conditions[*number])).collect();
            due.iter().for_each(|number| met[*number] = true);
            let due: Vec<&Expression> = due.into_iter().map(|number| self.conditions[number]).collect();
            found = self.extended(&found, next, &lookup, &due)?;
            if found.is_empty() {
                return Ok(Vec::new());
            }
        }
        found.sort_unstable();
        let late: Vec<&Expression> =
            self.conditions.iter().zip(met).filter(|(_, is_met)| !is_met).map(|(condition, _)| *condition).collect();
        let mut rows = Vec::with_capacity(found.len());
        for places in &found {
            let row = self.row(places);
            if holds(&late, &self.env(&row), self.context)? {
                self.context.hold(&row)?;
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// The source that joins next: the smallest of those that an equality ties to what is joined, else of those that are tied to some other, else of all.
    fn next(&self, joined: &BTreeSet<usize>) -> Result<(usize, Lookup<'_>)> {
        let mut best: Option<((u8, usize), usize)> = None;
        for next in (0..self.sources.len()).filter(|next| !joined.contains(next)) {
            let others: BTreeSet<usize> = (0..self.sources.len()).filter(|other| *other != next).collect();
            let tie = if !self.ties(joined, next).is_empty() { 0 } else { 1 + u8::from(self.ties(&others, next).is_empty()) };
            let rank = (tie, self.read[next].len());
            if best.is_none_or(|(known, _)| rank < known) {
                best = Some((rank, next));
            }
        }
        let (_, next) = best.expect("a source is left");
        Ok((next, self.lookup(self.ties(joined, next), next)?))
    }

    /// By what rows of a source are found for those that are joined: all equalities at once, or one OR of equalities.
    fn ties(&self, joined: &BTreeSet<usize>, next: usize) -> Vec<Tie<'_>> {
        let pairs: Tie<'_> = self.conditions.iter().filter_map(|condition| self.pair(condition, joined, next)).collect();
        if !pairs.is_empty() {
            return vec![pairs];
        }
        self.conditions.iter().find_map(|condition| self.ties_of_branches(condition, joined, next)).unwrap_or_default()
    }

    /// One for each branch of an OR, if each has an equality.
    fn ties_of_branches<'e>(&self, condition: &'e Expression, joined: &BTreeSet<usize>, next: usize) -> Option<Vec<Tie<'e>>> {
        let Expression::Or(branches) = condition else { return None };
        let tie = |branch| -> Option<Tie<'e>> {
            let pairs: Tie<'e> = conjuncts(branch).into_iter().filter_map(|part| self.pair(part, joined, next)).collect();
            (!pairs.is_empty()).then_some(pairs)
        };
        branches.iter().map(tie).collect()
    }

    /// The two sides of an equality: that of what is joined, and that of the source.
    fn pair<'e>(&self, condition: &'e Expression, joined: &BTreeSet<usize>, next: usize) -> Option<(&'e Expression, &'e Expression)> {
        let (left, right) = equality(condition)?;
        let source = self.sources[next];
        let is_joined =
            |expression: &Expression| !expression.has_subquery() && !self.columns(expression).is_empty() && self.is_of(expression, joined);
        if is_joined(left) && is_within(right, source) {
            Some((left, right))
        } else if is_joined(right) && is_within(left, source) {
            Some((right, left))
        } else {
            None
        }
    }

    fn lookup<'e>(&self, ties: Vec<Tie<'e>>, next: usize) -> Result<Lookup<'e>> {
        let source = self.sources[next];
        let mut indexes = Vec::with_capacity(ties.len());
        for tie in ties {
            let (keys, own): (Vec<&Expression>, Vec<&Expression>) = tie.into_iter().unzip();
            let mut by_key: HashMap<String, Vec<usize>> = HashMap::new();
            for (place, row) in self.read[next].iter().enumerate() {
                self.context.step()?;
                let env = Env { row, base: source.offset, left: self.before, outer: self.outer };
                if let Some(key) = key_of(&own, &env, self.context)? {
                    by_key.entry(key).or_default().push(place);
                }
            }
            indexes.push((keys, by_key));
        }
        Ok(Lookup(indexes))
    }

    /// The joined rows with each row of the source that meets the conditions.
    fn extended(&self, found: &[Places], next: usize, lookup: &Lookup<'_>, due: &[&Expression]) -> Result<Vec<Places>> {
        let held = self.context.held();
        let mut extended = Vec::new();
        for places in found {
            let mut row = self.row(places);
            let candidates = match lookup.places(&self.env(&row), self.context)? {
                Some(candidates) => candidates,
                None => (0..self.read[next].len()).collect(),
            };
            for place in candidates {
                self.context.step()?;
                self.put(&mut row, next, place);
                if holds(due, &self.env(&row), self.context)? {
                    let mut places = places.clone();
                    places[next] = place;
                    self.context.hold_values(places.len())?;
                    extended.push(places);
                }
            }
        }
        // Those before are gone.
        self.context.release(held);
        self.context.hold_values(extended.len().saturating_mul(self.sources.len()))?;
        Ok(extended)
    }

    fn row(&self, places: &Places) -> Row {
        let width = self.sources.iter().map(|source| source.width).sum();
        let mut row = vec![Value::Null; width];
        for (number, place) in places.iter().enumerate().filter(|(_, place)| **place != NO_PLACE) {
            self.put(&mut row, number, *place);
        }
        row
    }

    fn put(&self, row: &mut Row, number: usize, place: usize) {
        let start = self.sources[number].offset - self.base();
        row[start..start + self.sources[number].width].clone_from_slice(&self.read[number][place]);
    }

    fn base(&self) -> usize {
        self.sources[0].offset
    }

    fn env<'r>(&'r self, row: &'r Row) -> Env<'r> {
        Env { row, base: self.base(), left: self.before, outer: self.outer }
    }

    /// The columns of the joined rows that an expression reads; others are of rows round them.
    fn columns(&self, expression: &Expression) -> Vec<usize> {
        let width: usize = self.sources.iter().map(|source| source.width).sum();
        let own = self.base()..self.base() + width;
        expression.columns().into_iter().filter(|column| own.contains(column)).collect()
    }

    fn is_of(&self, expression: &Expression, sources: &BTreeSet<usize>) -> bool {
        let is_in = |column: usize, source: &Source| (source.offset..source.offset + source.width).contains(&column);
        self.columns(expression).into_iter().all(|column| sources.iter().any(|number| is_in(column, self.sources[*number])))
    }
}

/// Equalities that hold together: the side of what is joined, and that of the source.
type Tie<'e> = Vec<(&'e Expression, &'e Expression)>;

/// Places of a source's rows by their keys, for each tie. None: no condition ties the source to the others.
struct Lookup<'e>(Vec<Index<'e>>);

/// What is compared, and the rows by the text of its values.
type Index<'e> = (Vec<&'e Expression>, HashMap<String, Vec<usize>>);

impl Lookup<'_> {
    /// Of the rows that may belong to a joined one, in their order; `None`: all.
    fn places(&self, env: &Env<'_>, context: &Context<'_>) -> Result<Option<Vec<usize>>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut places = BTreeSet::new();
        for (keys, by_key) in &self.0 {
            if let Some(found) = key_of(keys, env, context)?.and_then(|key| by_key.get(&key)) {
                places.extend(found);
            }
        }
        Ok(Some(places.into_iter().collect()))
    }
}

/// `a = b`, or `a IN (b)`.
fn equality(condition: &Expression) -> Option<(&Expression, &Expression)> {
    match condition {
        Expression::Binary { operator: Binary::Equal, left, right } => Some((left.as_ref(), right.as_ref())),
        Expression::Quantified { operator: Binary::Equal, left, list, all: false } => match list.as_ref() {
            Expression::Array(items) => match items.as_slice() {
                [item] => Some((left.as_ref(), item)),
                _ => None,
            },
            _ => None,
        },
        Expression::And(parts) | Expression::Or(parts) if parts.len() == 1 => equality(&parts[0]),
        _ => None,
    }
}

fn conjuncts(condition: &Expression) -> Vec<&Expression> {
    match condition {
        Expression::And(parts) => parts.iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

/// What each branch of an OR asks for holds whichever it is: `(a = b AND c) OR (a = b AND d)` is tied by `a = b`.
fn common_to_branches(condition: &Expression) -> Vec<Expression> {
    let Expression::Or(branches) = condition else { return Vec::new() };
    let Some((first, others)) = branches.split_first() else { return Vec::new() };
    let text = |part: &&Expression| format!("{part:?}");
    let others: Vec<Vec<String>> = others.iter().map(|branch| conjuncts(branch).iter().map(text).collect()).collect();
    // The text of an expression says all of it but what a subquery is.
    let is_plain = |part: &&Expression| !part.has_subquery();
    let is_common = |part: &&Expression| others.iter().all(|branch| branch.contains(&text(part)));
    conjuncts(first).into_iter().filter(is_plain).filter(is_common).cloned().collect()
}
