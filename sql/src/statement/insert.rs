//! `INSERT INTO t VALUES ...`.

use std::fmt;

use crate::ast::{self, Ident, ObjectName, OnInsert, Query, SelectItem, TableObject};
use crate::error::{Error, Result};
use crate::name::{Columns, Qualified, fold, fold_object_name};
use crate::parser::Parser;

/// `INSERT INTO t [(a, b)] {VALUES (...), ... | query} [RETURNING ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    pub table: ObjectName,
    /// The columns that the source has; empty: those of the table.
    pub columns: Vec<Ident>,
    /// A `VALUES` list is a query too.
    pub source: Box<Query>,
    /// What is asked for of the written rows; empty: nothing.
    pub returning: Vec<SelectItem>,
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
        match insert.source {
            Some(source) => Ok(Self { table: fold_object_name(table), columns, source, returning: insert.returning.unwrap_or_default() }),
            None => Err(Error::not_supported_but("INSERT ... DEFAULT VALUES", "give at least one value")),
        }
    }
}

fn refuse_clauses(insert: &ast::Insert) -> Result<()> {
    match &insert.on {
        Some(OnInsert::OnConflict(_)) => return Err(Error::not_supported("INSERT ... ON CONFLICT")),
        Some(_) => return Err(Error::not_supported("INSERT ... ON DUPLICATE KEY UPDATE")),
        None => {}
    }
    if insert.table_alias.is_some() {
        return Err(Error::not_supported("INSERT with an alias for the table"));
    }
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
        write!(f, "INSERT INTO {}{} {}", Qualified(&self.table), Columns(&self.columns), self.source)?;
        for (position, item) in self.returning.iter().enumerate() {
            write!(f, "{} {item}", if position == 0 { " RETURNING" } else { "," })?;
        }
        Ok(())
    }
}
