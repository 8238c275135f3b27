//! `PREPARE`, `EXECUTE`, `DEALLOCATE`.

use std::fmt;

use datafusion::sql::sqlparser::parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::Statement;
use crate::ast::{DataType, Expr};
use crate::error::Result;
use crate::name::Name;
use crate::parser::Parser;
use crate::type_modifiers::check_modifiers;

/// `PREPARE name [(type, ...)] AS statement`
#[derive(Debug, Clone, PartialEq)]
pub struct Prepare {
    pub name: String,
    /// Of its parameters, in their order; the statement may have more.
    pub types: Vec<DataType>,
    /// `SELECT`, `VALUES`, `INSERT`, `UPDATE`, `DELETE` or `MERGE`.
    pub statement: Box<Statement>,
}

/// `EXECUTE name [(value, ...)]`
#[derive(Debug, Clone, PartialEq)]
pub struct Execute {
    pub name: String,
    pub arguments: Vec<Expr>,
}

/// `DEALLOCATE [PREPARE] {name | ALL}`; `None`: all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deallocate {
    pub name: Option<String>,
}

/// What a statement that is prepared can start with.
const PREPARED: &[&str] = &["SELECT", "VALUES", "TABLE", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE"];

impl Prepare {
    fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("PREPARE")?;
        let name = parser.name("the name of the prepared statement")?;
        let types = match parser.is_left_parenthesis() {
            true => parser.parenthesized(|parser| parser.ast(parser::Parser::parse_data_type))?,
            false => Vec::new(),
        };
        types.iter().try_for_each(check_modifiers)?;
        parser.expect("AS")?;
        let is_prepared = match parser.peek_word(0) {
            Some(first) => PREPARED.contains(&first.as_str()),
            None => parser.is_left_parenthesis(),
        };
        if !is_prepared {
            return Err(parser.expected("SELECT, VALUES, INSERT, UPDATE, DELETE or MERGE"));
        }
        let statement = Box::new(Statement::parse(parser)?);
        Ok(Self { name, types, statement })
    }
}

impl Execute {
    fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("EXECUTE")?;
        let name = parser.name("the name of a prepared statement")?;
        let arguments = match parser.is_left_parenthesis() {
            true => parser.parenthesized(|parser| parser.ast(parser::Parser::parse_expr))?,
            false => Vec::new(),
        };
        Ok(Self { name, arguments })
    }
}

impl Deallocate {
    fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DEALLOCATE")?;
        // A statement may be called `prepare`.
        if !matches!(parser.peek_nth_token(1), Token::EOF | Token::SemiColon) {
            parser.eat("PREPARE");
        }
        if parser.eat("ALL") {
            return Ok(Self { name: None });
        }
        Ok(Self { name: Some(parser.name("the name of a prepared statement, or ALL")?) })
    }
}

/// `first`: the word that comes next.
pub(super) fn parse(parser: &mut Parser, first: &str) -> Result<Statement> {
    Ok(match first {
        "PREPARE" => Statement::Prepare(Prepare::parse(parser)?),
        "EXECUTE" => Statement::Execute(Execute::parse(parser)?),
        _ => Statement::Deallocate(Deallocate::parse(parser)?),
    })
}

/// `(a, b)` behind a name; nothing for an empty list.
fn write_list(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    write!(f, "({})", items.join(", "))
}

impl fmt::Display for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PREPARE {}", Name(&self.name))?;
        write_list(f, &self.types)?;
        write!(f, " AS {}", self.statement)
    }
}

impl fmt::Display for Execute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EXECUTE {}", Name(&self.name))?;
        write_list(f, &self.arguments)
    }
}

impl fmt::Display for Deallocate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "DEALLOCATE {}", Name(name)),
            None => f.write_str("DEALLOCATE ALL"),
        }
    }
}
