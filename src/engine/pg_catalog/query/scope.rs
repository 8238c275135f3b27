//! Which columns a name can mean: those of the tables of a SELECT, then those of the queries round it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use super::{BindError, BindResult, Expression, Plan};
use crate::engine::pg_catalog::types::{Kind, PgType};
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Unresolved};

/// The names of one SELECT.
#[derive(Default)]
pub(super) struct Scope<'a> {
    pub relations: RefCell<Vec<ScopeRelation>>,
    pub parent: Option<&'a Scope<'a>>,
    /// Whether something in it reads a row of a query round it.
    pub reads_outer: Cell<bool>,
    /// Columns of it that queries within it read.
    pub read_within: RefCell<Vec<usize>>,
    /// The joins by USING, inner ones first: the columns that are joined, and those of them that stand for two.
    pub using: RefCell<Vec<(Range<usize>, Vec<usize>)>>,
}

#[derive(Clone)]
pub(super) enum WithQuery {
    /// `level`: how many queries are round the place where it was bound.
    Plan { plan: Arc<Plan>, level: usize },
    /// The recursive query itself, within its own step.
    Working(usize, Vec<(String, PgType)>),
}

/// A table in FROM, under the name that it has there.
#[derive(Clone)]
pub(super) struct ScopeRelation {
    pub alias: String,
    pub columns: Vec<(String, PgType)>,
    /// The first of its columns in a row of the SELECT.
    pub offset: usize,
    /// The number of the catalog table that it is, for `tableoid`.
    pub table_oid: Option<u32>,
    /// Columns that a join by USING has taken together with one before: unqualified they mean that one.
    pub merged: Vec<String>,
    /// Whether it is NULL where an outer join found no row of it.
    pub is_optional: bool,
}

/// A column that was found.
pub(super) type Found = (Expression, PgType);

impl<'a> Scope<'a> {
    pub fn within(parent: Option<&'a Scope<'a>>) -> Self {
        Self { parent, ..Self::default() }
    }

    /// How many queries are round this one.
    pub fn level(&self) -> usize {
        self.parent.map_or(0, |parent| parent.level() + 1)
    }

    pub fn width(&self) -> usize {
        self.relations.borrow().iter().map(|relation| relation.offset + relation.columns.len()).max().unwrap_or(0)
    }

    /// The columns that `*` gives: each join by USING has what it joins by before its other columns.
    pub fn all_columns(&self) -> Vec<usize> {
        let relations = self.relations.borrow();
        let own = |relation: &ScopeRelation| {
            let is_own = |position: &usize| !relation.merged.contains(&relation.columns[*position].0);
            (0..relation.columns.len()).filter(is_own).map(|position| relation.offset + position).collect::<Vec<_>>()
        };
        let mut order: Vec<usize> = relations.iter().flat_map(own).collect();
        for (columns, joined) in self.using.borrow().iter() {
            let Some(start) = order.iter().position(|index| columns.contains(index)) else { continue };
            let end = start + order[start..].iter().take_while(|index| columns.contains(index)).count();
            order[start..end].sort_by_key(|index| joined.iter().position(|known| known == index).unwrap_or(joined.len()));
        }
        order
    }

    /// Notes that a query reads rows that differ from one run of it to the next.
    pub fn note_outer(&self, depth: usize) {
        if depth > 0 {
            self.reads_outer.set(true);
            if let Some(parent) = self.parent {
                parent.note_outer(depth - 1);
            }
        }
    }

    /// `column`, `relation.column`.
    ///
    /// # Errors
    /// 42703, 42702.
    pub fn resolve(&self, relation: Option<&str>, column: &str) -> BindResult<Found> {
        let (mut scope, mut depth) = (Some(self), 0);
        while let Some(at) = scope {
            if let Some((index, pg_type)) = at.own(relation, column)? {
                self.note_outer(depth);
                if depth > 0 {
                    at.read_within.borrow_mut().push(index);
                }
                return Ok((Expression::Column { depth, index }, pg_type));
            }
            if let Some(found) = at.system_column(relation, column) {
                return Ok(found);
            }
            (scope, depth) = (at.parent, depth + 1);
        }
        let name = relation.map_or_else(|| column.to_owned(), |relation| format!("{relation}.{column}"));
        let known = self.relations.borrow().iter().flat_map(|known| known.columns.iter().map(|(name, _)| name.clone())).collect::<Vec<_>>();
        let near = crate::error::nearest(column, &known).map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        Err(BindError::Wrong(Error::Unresolved { kind: Unresolved::Column, message: format!("column {name} does not exist{near}") }))
    }

    /// A table in FROM as a value: a row of its columns, NULL where an outer join found none.
    pub fn whole_row(&self, relation: &str) -> Option<Found> {
        let (mut scope, mut depth) = (Some(self), 0);
        while let Some(at) = scope {
            let relations = at.relations.borrow();
            if let Some(known) = relations.iter().find(|known| known.alias == relation) {
                let columns = known.offset..known.offset + known.columns.len();
                self.note_outer(depth);
                if depth > 0 {
                    at.read_within.borrow_mut().extend(columns.clone());
                }
                let values: Vec<Expression> = columns.map(|index| Expression::Column { depth, index }).collect();
                let pg_type = PgType::Record(known.columns.as_slice().into());
                if !known.is_optional || values.is_empty() {
                    return Some((Expression::Row(values), pg_type));
                }
                let is_absent = Expression::And(values.iter().map(|value| Expression::IsNull(Box::new(value.clone()))).collect());
                let branches = vec![(is_absent, Expression::Constant(Value::Null))];
                return Some((Expression::Case { branches, otherwise: Box::new(Expression::Row(values)) }, pg_type));
            }
            (scope, depth) = (at.parent, depth + 1);
        }
        None
    }

    /// What every table of PostgreSQL has beside its columns: its number, and the transaction that wrote a row, of which there are none here.
    fn system_column(&self, relation: Option<&str>, column: &str) -> Option<Found> {
        let relations = self.relations.borrow();
        let mut tables = relations.iter().filter(|known| relation.is_none_or(|name| known.alias == name));
        let oid = tables.find_map(|known| known.table_oid)?;
        match column {
            "tableoid" => Some((Expression::Constant(Value::oid(oid)), PgType::One(Kind::Oid))),
            "xmin" | "xmax" => Some((Expression::Constant(Value::Int(0)), PgType::One(Kind::Xid))),
            _ => None,
        }
    }

    fn own(&self, relation: Option<&str>, column: &str) -> BindResult<Option<(usize, PgType)>> {
        let relations = self.relations.borrow();
        let mut found = None;
        for known in relations.iter() {
            let is_meant = relation.map_or_else(|| !known.merged.iter().any(|merged| merged == column), |name| name == known.alias);
            if !is_meant {
                continue;
            }
            let Some(position) = known.columns.iter().position(|(name, _)| name == column) else { continue };
            if found.is_some() {
                let message = format!("column reference \"{column}\" is ambiguous; write it after its table's name and a dot");
                return Err(BindError::Wrong(Error::Unresolved { kind: Unresolved::Ambiguous, message }));
            }
            found = Some((known.offset + position, known.columns[position].1.clone()));
        }
        Ok(found)
    }
}
