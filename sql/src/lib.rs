//! The dialect of RolloutDB: text in, [`Statement`] out, and back.
//!
//! PostgreSQL, plus the statements that PostgreSQL lacks: `CREATE MODEL`, `CREATE AGENT`, `GENERATE ROLLOUTS`, `TRAIN`, `COPY` to
//! and from jsonl and Parquet. Queries and everything else are sqlparser's; its syntax tree is re-exported as [`ast`].
//!
//! `Display` prints what [`parse`] reads: `parse(statement.to_string())` gives the statement back.
//!
//! A statement says only what the text said. Whether a table, a model or an option exists is the engine's question; there is
//! no I/O here, no async, no planning.

mod async_word;
mod calls;
mod depth;
mod dialect;
mod error;
mod hidden;
mod identity_options;
mod joined_texts;
mod length;
mod name;
mod numbers;
mod options;
mod parser;
mod postgres_forms;
mod quotes;
mod recursive_names;
mod rewrite;
mod statement;
mod suggest;
mod table_command;
#[cfg(test)]
mod tests;
mod type_modifiers;

pub use datafusion::sql::sqlparser;
pub use datafusion::sql::sqlparser::ast;

pub use calls::{call, cast};
pub use error::{Error, Result};
pub use hidden::without_passwords;
pub use options::{OptionValue, Options};
pub use statement::*;

/// Parses a text of any number of statements, separated by `;`.
///
/// Comments, empty statements and a trailing `;` are skipped, so an empty text gives no statement.
///
/// # Errors
/// [`Error::Syntax`] with the place in `text`; [`Error::NotSupported`] for SQL that is valid but not ours yet;
/// [`Error::Option`] for an option given twice or with a value that cannot be read; [`Error::TooDeep`].
/// The first error wins and no statement is returned, as in Postgres' simple query protocol.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    let mut parser = parser::Parser::new(text)?;
    let mut statements = Vec::new();
    loop {
        parser.skip_semicolons();
        if parser.at_end_of_text() {
            return Ok(statements);
        }
        statements.push(Statement::parse(&mut parser)?);
        if !parser.at_end_of_statement() {
            return Err(parser.expected("end of statement"));
        }
    }
}

/// Parses a text that is one expression, such as `year > 1990 AND language = 'en'`.
///
/// # Errors
/// As [`parse`].
pub fn parse_expression(text: &str) -> Result<ast::Expr> {
    let mut parser = parser::Parser::new(text)?;
    let expression = parser.ast(sqlparser::parser::Parser::parse_expr)?;
    if parser.at_end_of_text() { Ok(expression) } else { Err(parser.expected("the end of the expression")) }
}
