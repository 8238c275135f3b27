//! `COPY` from and to files.

use std::fmt;

use super::Statement;
use crate::ast::{Ident, ObjectName, Query};
use crate::error::{Error, Result};
use crate::name::{Columns, Qualified, Text, parse_optional_columns};
use crate::options::{OptionValue, Options};
use crate::parser::Parser;

/// `COPY t [(a, b)] FROM 'file' [[WITH] (FORMAT jsonl, ...)] [ON ERROR SKIP | STOP]`; the last is the option `on_error`.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyFrom {
    pub table: ObjectName,
    /// The columns that the file has; empty: those of the table.
    pub columns: Vec<Ident>,
    pub path: String,
    pub options: Options,
}

/// `COPY {t [(a, b)] | (SELECT ...)} TO 'file' [[WITH] (FORMAT parquet, ...)]`
#[derive(Debug, Clone, PartialEq)]
pub struct CopyTo {
    pub source: CopySource,
    pub path: String,
    pub options: Options,
}

/// What is written into a file.
#[derive(Debug, Clone, PartialEq)]
pub enum CopySource {
    /// A table and the columns that are wanted; empty: all.
    Table(ObjectName, Vec<Ident>),
    Query(Box<Query>),
}

pub(super) fn parse(parser: &mut Parser) -> Result<Statement> {
    parser.expect("COPY")?;
    if parser.is_left_parenthesis() {
        let query = parser.parenthesized_query("a query")?;
        parser.expect("TO")?;
        return parse_to(parser, CopySource::Query(query));
    }
    let table = parser.object_name("the table's name, or a query in parentheses")?;
    let columns = parse_optional_columns(parser)?;
    if parser.eat("TO") {
        parse_to(parser, CopySource::Table(table, columns))
    } else if parser.eat("FROM") {
        let (path, options) = parse_file(parser, true)?;
        Ok(Statement::CopyFrom(CopyFrom { table, columns, path, options }))
    } else {
        Err(parser.expected("FROM or TO"))
    }
}

fn parse_to(parser: &mut Parser, source: CopySource) -> Result<Statement> {
    let (path, options) = parse_file(parser, false)?;
    Ok(Statement::CopyTo(CopyTo { source, path, options }))
}

fn parse_file(parser: &mut Parser, takes_on_error: bool) -> Result<(String, Options)> {
    if let Some(end @ ("STDIN" | "STDOUT" | "PROGRAM")) = parser.peek_word(0).as_deref() {
        return Err(Error::not_supported_but(format!("COPY with {end}"), "name a file in quotes"));
    }
    let path = parser.string("the file's name in quotes")?;
    if parser.is_at("STORED AS") {
        return Err(Error::not_supported_but("COPY ... STORED AS", "write (FORMAT parquet)"));
    }
    let mut options = Options::parse_copy(parser)?;
    if takes_on_error && parser.eat("ON ERROR") {
        let action = ["SKIP", "IGNORE", "STOP"].into_iter().find(|action| parser.eat(action));
        let action = action.ok_or_else(|| parser.expected("SKIP, IGNORE or STOP"))?;
        options = options.with("on_error", OptionValue::Text(action.to_lowercase()))?;
    }
    if parser.is_at("WHERE") {
        return Err(Error::not_supported_but("COPY ... WHERE", "delete the rows afterwards, or copy the result of a query"));
    }
    if !parser.at_end_of_statement() && !parser.is_at("ASYNC") {
        return Err(parser.expected("options in parentheses, as in (FORMAT csv, HEADER true), or end of statement"));
    }
    Ok((path, options))
}

impl fmt::Display for CopyFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, columns, path, options } = self;
        write!(f, "COPY {}{} FROM {}{}", Qualified(table), Columns(columns), Text(path), options.display_copy())
    }
}

impl fmt::Display for CopyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "COPY {} TO {}{}", self.source, Text(&self.path), self.options.display_copy())
    }
}

impl fmt::Display for CopySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(name, columns) => write!(f, "{}{}", Qualified(name), Columns(columns)),
            Self::Query(query) => write!(f, "({query})"),
        }
    }
}
