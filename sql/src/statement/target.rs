//! The table that a statement changes, and the columns that it assigns.

use std::fmt;

use crate::ast::{self, AssignmentTarget, Expr, Ident, ObjectName, SelectItem, TableFactor, TableWithJoins};
use crate::error::{Error, Result};
use crate::name::{Name, Qualified, Separated, column, fold, fold_object_name};

/// `t`, `t AS x`
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub table: ObjectName,
    pub alias: Option<Ident>,
}

impl Target {
    /// `statement`: for the error about what is no table.
    pub(crate) fn from_relation(relation: TableFactor, statement: &str) -> Result<Self> {
        let TableFactor::Table { name, alias, args: None, sample: None, version: None, .. } = relation else {
            return Err(Error::not_supported(format!("{statement} of anything but a table")));
        };
        let alias = match alias {
            Some(alias) if !alias.columns.is_empty() => {
                return Err(Error::not_supported(format!("{statement} with new names for the table's columns")));
            }
            alias => alias.map(|alias| fold(alias.name)),
        };
        Ok(Self { table: fold_object_name(name), alias })
    }

    /// `others_after`: the word that other tables are named after.
    pub(crate) fn from_joins(table: TableWithJoins, statement: &str, others_after: &str) -> Result<Self> {
        if !table.joins.is_empty() {
            return Err(Error::not_supported_but(format!("{statement} of a join"), format!("name the other tables after {others_after}")));
        }
        Self::from_relation(table.relation, statement)
    }

    /// What the statement calls the table.
    #[must_use]
    pub fn name(&self) -> Ident {
        let last = || self.table.0.last().and_then(|part| part.as_ident()).cloned();
        self.alias.clone().or_else(last).unwrap_or_else(|| Ident::new(""))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Qualified(&self.table))?;
        match &self.alias {
            Some(alias) => write!(f, " AS {}", Name(&alias.value)),
            None => Ok(()),
        }
    }
}

/// `column = value`; the value may be the word DEFAULT.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    pub column: Ident,
    pub value: Expr,
}

/// Reads `a = 1, (b, c) = (2, 3)` as three assignments.
pub(crate) fn assignments(list: Vec<ast::Assignment>) -> Result<Vec<Assignment>> {
    let mut read = Vec::with_capacity(list.len());
    for ast::Assignment { target, value } in list {
        match target {
            AssignmentTarget::ColumnName(name) => read.push(Assignment { column: assigned_column(name)?, value }),
            AssignmentTarget::Tuple(mut names) if names.len() == 1 && matches!(value, Expr::Nested(_)) => {
                read.push(Assignment { column: assigned_column(names.remove(0))?, value });
            }
            AssignmentTarget::Tuple(names) => {
                let Expr::Tuple(values) = value else {
                    return Err(Error::not_supported_but("SET (a, b) = (SELECT ...)", "assign each column by itself"));
                };
                if names.len() != values.len() {
                    return Err(Error::not_supported(format!("SET of {} columns to {} values", names.len(), values.len())));
                }
                for (name, value) in names.into_iter().zip(values) {
                    read.push(Assignment { column: assigned_column(name)?, value });
                }
            }
        }
    }
    Ok(read)
}

/// Postgres allows no table's name here; the field of a composite column is not ours.
fn assigned_column(name: ObjectName) -> Result<Ident> {
    match name.0.as_slice() {
        [part] => part.as_ident().cloned().map(fold),
        _ => None,
    }
    .ok_or_else(|| Error::not_supported_but(format!("SET {name}"), "name the column alone"))
}

/// Whether a value is the word DEFAULT.
#[must_use]
pub fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default"))
}

/// ` SET a = 1, "B" = 2`
pub(crate) struct SetClause<'a>(pub &'a [Assignment]);

impl fmt::Display for SetClause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Assignment { column: name, value }) in self.0.iter().enumerate() {
            write!(f, "{}{} = {value}", if position == 0 { " SET " } else { ", " }, column(name))?;
        }
        Ok(())
    }
}

/// ` FROM a, b JOIN c`; the word is USING in a DELETE.
pub(crate) struct Others<'a>(pub &'a str, pub &'a [TableWithJoins]);

impl fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            [] => Ok(()),
            others => write!(f, " {} {}", self.0, Separated(others.iter())),
        }
    }
}

/// ` WHERE condition`
pub(crate) struct Where<'a>(pub Option<&'a Expr>);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |condition| write!(f, " WHERE {condition}"))
    }
}

/// ` RETURNING a, b`
pub(crate) struct Returning<'a>(pub &'a [SelectItem]);

impl fmt::Display for Returning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            items => write!(f, " RETURNING {}", Separated(items.iter())),
        }
    }
}
