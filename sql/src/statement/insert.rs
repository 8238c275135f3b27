//! `INSERT INTO t VALUES ...`.

use std::fmt;

use datafusion::sql::sqlparser::parser;

use super::target::{Assignment, Returning, SetClause, Target, Where, WithQueries, assignments, parse_returning, refuse_with_in_returning};
use crate::ast::{Expr, Ident, Query, SelectItem, With};
use crate::error::{Error, Result};
use crate::name::{Columns, parse_optional_columns};
use crate::parser::Parser;

/// `[WITH ...] INSERT INTO t [AS x] [(a, b)] [OVERRIDING ...] {VALUES (...), ... | query | DEFAULT VALUES} [ON CONFLICT ...] [RETURNING ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// Queries that the source, and the values and condition of ON CONFLICT, can name.
    pub with: Option<With>,
    pub target: Target,
    /// The columns that the source has; empty: those of the table.
    pub columns: Vec<Ident>,
    pub overriding: Option<Overriding>,
    /// A `VALUES` list is a query too, in which a value may be the word DEFAULT; none: `DEFAULT VALUES`, a row without columns.
    pub source: Option<Box<Query>>,
    pub on_conflict: Option<OnConflict>,
    /// What is asked for of the written rows; empty: nothing.
    pub returning: Vec<SelectItem>,
}

/// What becomes of the values that are given for identity columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overriding {
    /// `OVERRIDING SYSTEM VALUE`: they are written, also to a column that is numbered ALWAYS.
    System,
    /// `OVERRIDING USER VALUE`: they are ignored, and the table numbers the rows.
    User,
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
    pub(crate) fn parse(parser: &mut Parser, with: Option<With>) -> Result<Self> {
        parser.expect("INSERT INTO")?;
        let table = parser.object_name("the table's name")?;
        let alias = if parser.eat("AS") { Some(parser.ident("the table's alias")?) } else { None };
        let (columns, overriding, source) = if parser.eat("DEFAULT VALUES") {
            (Vec::new(), None, None)
        } else {
            let columns = if parser.is_at_columns() { parse_optional_columns(parser)? } else { Vec::new() };
            (columns, Overriding::parse(parser)?, Some(parser.query()?))
        };
        let on_conflict = if parser.eat("ON") { Some(OnConflict::parse(parser)?) } else { None };
        let returning = parse_returning(parser)?;
        refuse_with_in_returning(with.as_ref(), &returning)?;
        Ok(Self { with, target: Target { table, alias }, columns, overriding, source, on_conflict, returning })
    }
}

impl Overriding {
    /// Reads the clause, or nothing.
    pub(crate) fn parse(parser: &mut Parser) -> Result<Option<Self>> {
        if !parser.eat("OVERRIDING") {
            return Ok(None);
        }
        if parser.eat("SYSTEM VALUE") {
            Ok(Some(Self::System))
        } else if parser.eat("USER VALUE") {
            Ok(Some(Self::User))
        } else {
            Err(parser.expected("SYSTEM VALUE or USER VALUE"))
        }
    }
}

impl OnConflict {
    /// Starts after the word ON.
    fn parse(parser: &mut Parser) -> Result<Self> {
        if parser.is_at("DUPLICATE KEY") {
            return Err(Error::not_supported("INSERT ... ON DUPLICATE KEY UPDATE"));
        }
        parser.expect("CONFLICT")?;
        if parser.is_at("ON CONSTRAINT") {
            return Err(Error::not_supported_but("ON CONFLICT ON CONSTRAINT", "name the constraint's columns in parentheses"));
        }
        let columns = parse_optional_columns(parser)?;
        parser.expect("DO")?;
        let action = if parser.eat("NOTHING") {
            ConflictAction::Nothing
        } else if parser.eat("UPDATE SET") {
            let list = parser.comma_separated(|parser| parser.ast(parser::Parser::parse_assignment))?;
            let condition = if parser.eat("WHERE") { Some(Box::new(parser.ast(parser::Parser::parse_expr)?)) } else { None };
            ConflictAction::Update { assignments: assignments(parser, list)?, condition }
        } else {
            return Err(parser.expected("NOTHING or UPDATE SET"));
        };
        Ok(Self { columns, action })
    }
}

impl fmt::Display for Insert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}INSERT INTO {}{}", WithQueries(self.with.as_ref()), self.target, Columns(&self.columns))?;
        if let Some(overriding) = self.overriding {
            write!(f, " {overriding}")?;
        }
        match &self.source {
            Some(source) => write!(f, " {source}")?,
            None => f.write_str(" DEFAULT VALUES")?,
        }
        if let Some(on_conflict) = &self.on_conflict {
            write!(f, " {on_conflict}")?;
        }
        write!(f, "{}", Returning(&self.returning))
    }
}

impl fmt::Display for Overriding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "OVERRIDING SYSTEM VALUE",
            Self::User => "OVERRIDING USER VALUE",
        })
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
