//! `COPY` from and to files and the client.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::Statement;
use crate::ast::{Ident, ObjectName, Query};
use crate::error::{Error, Result};
use crate::name::{Columns, Qualified, Text, parse_optional_columns};
use crate::options::{OptionValue, Options};
use crate::parser::Parser;

/// `COPY t [(a, b)] FROM {'file' | STDIN} [[WITH] (FORMAT jsonl, ...)] [ON ERROR SKIP | STOP]`; the last is the option `on_error`.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyFrom {
    pub table: ObjectName,
    /// The columns that the rows have; empty: those of the table.
    pub columns: Vec<Ident>,
    pub place: CopyPlace,
    pub options: Options,
}

/// `COPY {t [(a, b)] | (SELECT ...)} TO {'file' | STDOUT} [[WITH] (FORMAT parquet, ...)]`
#[derive(Debug, Clone, PartialEq)]
pub struct CopyTo {
    pub source: CopySource,
    pub place: CopyPlace,
    pub options: Options,
}

/// Where the bytes of COPY come from or go to.
#[derive(Debug, Clone, PartialEq)]
pub enum CopyPlace {
    /// A file of the machine that runs the database.
    File(String),
    /// `STDIN`, `STDOUT`: the client sends or gets them.
    Client,
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
    // PostgreSQL's oldest form: the word is the name of a table unless a table comes after it.
    let is_binary = parser.is_at("BINARY") && parser.is_before_name("BINARY") && !parser.is_at("BINARY FROM") && !parser.is_at("BINARY TO");
    if is_binary {
        parser.next_token();
    }
    if parser.is_left_parenthesis() {
        let query = parser.parenthesized_query("a query")?;
        parser.expect("TO")?;
        return parse_to(parser, CopySource::Query(query), is_binary);
    }
    let table = parser.object_name("the table's name, or a query in parentheses")?;
    let columns = parse_optional_columns(parser)?;
    if parser.eat("TO") {
        parse_to(parser, CopySource::Table(table, columns), is_binary)
    } else if parser.eat("FROM") {
        let (place, options) = parse_place(parser, true, is_binary)?;
        Ok(Statement::CopyFrom(CopyFrom { table, columns, place, options }))
    } else {
        Err(parser.expected("FROM or TO"))
    }
}

fn parse_to(parser: &mut Parser, source: CopySource, is_binary: bool) -> Result<Statement> {
    let (place, options) = parse_place(parser, false, is_binary)?;
    Ok(Statement::CopyTo(CopyTo { source, place, options }))
}

fn parse_place(parser: &mut Parser, takes_on_error: bool, is_binary: bool) -> Result<(CopyPlace, Options)> {
    if parser.is_at("PROGRAM") {
        return Err(Error::not_supported_but("COPY with PROGRAM", "name a file in quotes, or STDIN or STDOUT"));
    }
    // PostgreSQL takes either word in either direction.
    let place = match parser.eat("STDIN") || parser.eat("STDOUT") {
        true => CopyPlace::Client,
        false => CopyPlace::File(parser.string("the file's name in quotes, STDIN or STDOUT")?),
    };
    if parser.is_at("STORED AS") {
        return Err(Error::not_supported_but("COPY ... STORED AS", "write (FORMAT parquet)"));
    }
    let mut options = parse_options(parser)?;
    if is_binary {
        options = options.with("format", OptionValue::Text("binary".to_owned()))?;
    }
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
    Ok((place, options))
}

/// `[WITH] (FORMAT csv, ...)`; or as before PostgreSQL 9.0, and as psql's `\copy` is still written: `[WITH] CSV HEADER DELIMITER AS ';'`.
fn parse_options(parser: &mut Parser) -> Result<Options> {
    let has_with = parser.eat("WITH");
    if parser.is_left_parenthesis() {
        return Options::parse_copy(parser);
    }
    let mut entries = Vec::new();
    while let Some(entry) = parse_old_option(parser)? {
        entries.push(entry);
    }
    if has_with && entries.is_empty() {
        return Err(parser.expected("\"(\" and options, as in (FORMAT csv, HEADER true)"));
    }
    Options::new(entries)
}

fn parse_old_option(parser: &mut Parser) -> Result<Option<(String, OptionValue)>> {
    let text = |value: &str| OptionValue::Text(value.to_owned());
    let (name, value) = if parser.eat("BINARY") {
        ("format", text("binary"))
    } else if parser.eat("CSV") {
        ("format", text("csv"))
    } else if parser.eat("HEADER") {
        ("header", OptionValue::Boolean(true))
    } else if parser.eat("DELIMITER") || parser.eat("DELIMITERS") || parser.eat("USING DELIMITERS") {
        ("delimiter", parse_quoted(parser)?)
    } else if parser.eat("NULL") {
        ("null", parse_quoted(parser)?)
    } else if parser.eat("QUOTE") {
        ("quote", parse_quoted(parser)?)
    } else if parser.eat("ESCAPE") {
        ("escape", parse_quoted(parser)?)
    } else if parser.eat("ENCODING") {
        ("encoding", parse_quoted(parser)?)
    } else if parser.eat("FORCE QUOTE") {
        ("force_quote", parse_columns(parser)?)
    } else if parser.eat("FORCE NOT NULL") {
        ("force_not_null", parse_columns(parser)?)
    } else if parser.eat("FORCE NULL") {
        ("force_null", parse_columns(parser)?)
    } else {
        return Ok(None);
    };
    Ok(Some((name.to_owned(), value)))
}

fn parse_quoted(parser: &mut Parser) -> Result<OptionValue> {
    parser.eat("AS");
    parser.string("a text in quotes").map(OptionValue::Text)
}

/// `a, b`, or `*` for all.
fn parse_columns(parser: &mut Parser) -> Result<OptionValue> {
    if parser.eat_token(&Token::Mul) {
        return Ok(OptionValue::Text("*".to_owned()));
    }
    let columns = parser.comma_separated(|parser| parser.ident("a column's name"))?;
    Ok(OptionValue::List(columns.into_iter().map(|column| OptionValue::Text(column.value)).collect()))
}

impl fmt::Display for CopyFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, columns, place, options } = self;
        write!(f, "COPY {}{} FROM ", Qualified(table), Columns(columns))?;
        match place {
            CopyPlace::File(path) => write!(f, "{}", Text(path))?,
            CopyPlace::Client => f.write_str("STDIN")?,
        }
        write!(f, "{}", options.display_copy())
    }
}

impl fmt::Display for CopyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "COPY {} TO ", self.source)?;
        match &self.place {
            CopyPlace::File(path) => write!(f, "{}", Text(path))?,
            CopyPlace::Client => f.write_str("STDOUT")?,
        }
        write!(f, "{}", self.options.display_copy())
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
