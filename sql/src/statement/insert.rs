//! `INSERT INTO t VALUES ...`.

use std::fmt;

use super::target::{Assignment, Returning, SetClause, Target, Where, assignments};
use crate::ast::{self, ConflictTarget, Expr, Ident, ObjectName, OnConflictAction, OnInsert, Query, SelectItem, TableObject};
use crate::error::{Error, Result};
use crate::name::{Columns, fold, fold_object_name};
use crate::parser::Parser;

/// `INSERT INTO t [AS x] [(a, b)] {VALUES (...), ... | query} [ON CONFLICT ...] [RETURNING ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    pub target: Target,
    /// The columns that the source has; empty: those of the table.
    pub columns: Vec<Ident>,
    /// A `VALUES` list is a query too.
    pub source: Box<Query>,
    pub on_conflict: Option<OnConflict>,
    /// What is asked for of the written rows; empty: nothing.
    pub returning: Vec<SelectItem>,
}

/// `ON CONFLICT [(a, b)] DO NOTHING`, `ON CONFLICT (a, b) DO UPDATE SET c = 1, ... [WHERE condition]`
#[derive(Debug, Clone, PartialEq)]
pub struct OnConflict {
    /// The columns of a primary key or UNIQUE constraint; empty: of any.
    pub columns: Vec<Ident>,
    pub action: ConflictAction,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ConflictAction {
    /// The stored row stays, the new one is left out.
    Nothing,
    /// The stored row is changed; `excluded` is the new one.
    Update { assignments: Vec<Assignment>, condition: Option<Box<Expr>> },
}

impl Insert {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        match parser.statement()? {
            ast::Statement::Insert(insert) => Self::from_ast(insert),
            other => Err(Error::not_supported(format!("the statement {other}"))),
        }
    }

    fn from_ast(insert: ast::Insert) -> Result<Self> {
        refuse_clauses(&insert)?;
        let TableObject::TableName(table) = insert.table else {
            return Err(Error::not_supported("INSERT into a function or query"));
        };
        let columns = insert.columns.into_iter().map(single_name).collect::<Result<_>>()?;
        let Some(source) = insert.source else {
            return Err(Error::not_supported_but("INSERT ... DEFAULT VALUES", "give at least one value"));
        };
        Ok(Self {
            target: Target { table: fold_object_name(table), alias: insert.table_alias.map(|alias| fold(alias.alias)) },
            columns,
            source,
            on_conflict: insert.on.map(OnConflict::from_ast).transpose()?,
            returning: insert.returning.unwrap_or_default(),
        })
    }
}

impl OnConflict {
    fn from_ast(on: OnInsert) -> Result<Self> {
        let OnInsert::OnConflict(on) = on else { return Err(Error::not_supported("INSERT ... ON DUPLICATE KEY UPDATE")) };
        let columns = match on.conflict_target {
            None => Vec::new(),
            Some(ConflictTarget::Columns(columns)) => columns.into_iter().map(fold).collect(),
            Some(ConflictTarget::OnConstraint(_)) => {
                return Err(Error::not_supported_but("ON CONFLICT ON CONSTRAINT", "name the constraint's columns in parentheses"));
            }
        };
        let action = match on.action {
            OnConflictAction::DoNothing => ConflictAction::Nothing,
            OnConflictAction::DoUpdate(update) => {
                ConflictAction::Update { assignments: assignments(update.assignments)?, condition: update.selection.map(Box::new) }
            }
        };
        Ok(Self { columns, action })
    }
}

fn refuse_clauses(insert: &ast::Insert) -> Result<()> {
    // What other databases have; sqlparser reads some of it in every dialect.
    let is_foreign = insert.or.is_some()
        || insert.ignore
        || insert.overwrite
        || insert.replace_into
        || !insert.assignments.is_empty()
        || insert.partitioned.is_some()
        || !insert.after_columns.is_empty()
        || insert.output.is_some()
        || insert.priority.is_some()
        || insert.insert_alias.is_some()
        || insert.settings.is_some()
        || insert.format_clause.is_some()
        || insert.multi_table_insert_type.is_some();
    if is_foreign { Err(Error::not_supported("this form of INSERT")) } else { Ok(()) }
}

/// A column in an `INSERT` is one name; Postgres' `a.field` of a composite column is not ours.
fn single_name(name: ObjectName) -> Result<Ident> {
    match name.0.as_slice() {
        [part] => part.as_ident().cloned().map(fold),
        _ => None,
    }
    .ok_or_else(|| Error::not_supported(format!("INSERT into the field {name} of a column")))
}

impl fmt::Display for Insert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "INSERT INTO {}{} {}", self.target, Columns(&self.columns), self.source)?;
        if let Some(on_conflict) = &self.on_conflict {
            write!(f, " {on_conflict}")?;
        }
        write!(f, "{}", Returning(&self.returning))
    }
}

impl fmt::Display for OnConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ON CONFLICT{}", Columns(&self.columns))?;
        match &self.action {
            ConflictAction::Nothing => f.write_str(" DO NOTHING"),
            ConflictAction::Update { assignments, condition } => {
                write!(f, " DO UPDATE{}{}", SetClause(assignments), Where(condition.as_deref()))
            }
        }
    }
}
