//! `BEGIN`, `COMMIT`, `ROLLBACK`; savepoints are in `savepoint.rs`.

use std::fmt;

use datafusion::sql::sqlparser::parser;

use super::{Statement, savepoint};
use crate::ast::TransactionMode;
use crate::error::{Error, Result};
use crate::name::Separated;
use crate::parser::Parser;

/// `BEGIN [WORK | TRANSACTION] [mode, ...]`, `START TRANSACTION [mode, ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// `ISOLATION LEVEL SERIALIZABLE`, `READ ONLY`, ...
    pub modes: Vec<TransactionMode>,
}

pub(super) fn parse(parser: &mut Parser) -> Result<Statement> {
    if parser.eat("BEGIN") || parser.is_at("START") {
        parse_begin(parser)
    } else if parser.eat("COMMIT") || parser.eat("END") {
        parse_end(parser)?;
        Ok(Statement::Commit)
    } else if ["ROLLBACK TO", "ROLLBACK WORK TO", "ROLLBACK TRANSACTION TO"].into_iter().any(|words| parser.eat(words)) {
        savepoint::parse_rollback_to(parser)
    } else {
        let _ = parser.eat("ROLLBACK") || parser.eat("ABORT");
        parse_end(parser)?;
        Ok(Statement::Rollback)
    }
}

fn parse_begin(parser: &mut Parser) -> Result<Statement> {
    if parser.eat("START") {
        parser.expect("TRANSACTION")?;
    } else {
        skip_noise(parser);
    }
    let modes = parser.ast(parser::Parser::parse_transaction_modes)?;
    Ok(Statement::Begin(Begin { modes }))
}

fn parse_end(parser: &mut Parser) -> Result<()> {
    skip_noise(parser);
    if parser.is_at("AND CHAIN") {
        return Err(Error::not_supported_but("AND CHAIN", "write BEGIN afterwards"));
    }
    parser.eat("AND NO CHAIN");
    if parser.is_at("PREPARED") { Err(Error::not_supported("two-phase commit")) } else { Ok(()) }
}

fn skip_noise(parser: &mut Parser) {
    if !parser.eat("WORK") {
        parser.eat("TRANSACTION");
    }
}

impl fmt::Display for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.modes.is_empty() { "" } else { " " };
        write!(f, "BEGIN{space}{}", Separated(self.modes.iter()))
    }
}
