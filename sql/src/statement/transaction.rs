//! `BEGIN`, `COMMIT`, `ROLLBACK`, `SET TRANSACTION`; savepoints are in `savepoint.rs`.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Statement, savepoint};
use crate::error::{Error, Result};
use crate::name::Separated;
use crate::parser::Parser;

/// `BEGIN [WORK | TRANSACTION] [mode, ...]`, `START TRANSACTION [mode, ...]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// In the order of the text; of two that contradict each other the later one counts.
    pub modes: Vec<TransactionMode>,
}

/// `SET TRANSACTION mode, ...`, `SET SESSION CHARACTERISTICS AS TRANSACTION mode, ...`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetTransaction {
    /// At least one; as those of [`Begin`].
    pub modes: Vec<TransactionMode>,
    /// For the transactions of the session that begin later, rather than for this one.
    pub for_session: bool,
}

/// How a transaction reads, and whether it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionMode {
    /// `ISOLATION LEVEL ...`
    Isolation(IsolationLevel),
    /// `READ ONLY`
    ReadOnly,
    /// `READ WRITE`
    ReadWrite,
    /// `DEFERRABLE`: it may wait before it begins.
    Deferrable,
    /// `NOT DEFERRABLE`
    NotDeferrable,
}

/// What a transaction sees of others, from the least strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLevel {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl IsolationLevel {
    /// All of them, from the least strict.
    pub const ALL: [Self; 4] = [Self::ReadUncommitted, Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// As in statements.
    pub fn words(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "READ UNCOMMITTED",
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// The modes that are not isolation levels, as in statements.
const MODES: [(&str, TransactionMode); 4] = [
    ("READ ONLY", TransactionMode::ReadOnly),
    ("READ WRITE", TransactionMode::ReadWrite),
    ("DEFERRABLE", TransactionMode::Deferrable),
    ("NOT DEFERRABLE", TransactionMode::NotDeferrable),
];

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
    let modes = parse_modes(parser)?;
    Ok(Statement::Begin(Begin { modes }))
}

/// What is missing after a comma, for errors.
const A_MODE: &str = "READ ONLY, READ WRITE, ISOLATION LEVEL, DEFERRABLE or NOT DEFERRABLE";

/// `SET TRANSACTION ...`, if it comes next.
pub(super) fn parse_set(parser: &mut Parser) -> Result<Option<Statement>> {
    const THIS_TRANSACTION: [&str; 3] = ["SET TRANSACTION", "SET LOCAL TRANSACTION", "SET SESSION TRANSACTION"];
    let for_session = parser.eat("SET SESSION CHARACTERISTICS AS TRANSACTION");
    if !for_session && !THIS_TRANSACTION.into_iter().any(|words| parser.eat(words)) {
        return Ok(None);
    }
    if parser.is_at("SNAPSHOT") {
        return Err(Error::not_supported("SET TRANSACTION SNAPSHOT"));
    }
    let modes = parse_modes(parser)?;
    if modes.is_empty() {
        return Err(parser.expected(A_MODE));
    }
    Ok(Some(Statement::SetTransaction(SetTransaction { modes, for_session })))
}

/// None or more; as in PostgreSQL there may be commas between them, or not.
fn parse_modes(parser: &mut Parser) -> Result<Vec<TransactionMode>> {
    let mut modes = Vec::new();
    let mut is_after_comma = false;
    while let Some(mode) = parse_mode(parser)? {
        modes.push(mode);
        is_after_comma = parser.eat_token(&Token::Comma);
    }
    if is_after_comma { Err(parser.expected(A_MODE)) } else { Ok(modes) }
}

fn parse_mode(parser: &mut Parser) -> Result<Option<TransactionMode>> {
    if parser.eat("ISOLATION LEVEL") {
        let level = IsolationLevel::ALL.into_iter().find(|level| parser.eat(level.words()));
        let level = level.ok_or_else(|| parser.expected("READ UNCOMMITTED, READ COMMITTED, REPEATABLE READ or SERIALIZABLE"))?;
        return Ok(Some(TransactionMode::Isolation(level)));
    }
    Ok(MODES.into_iter().find(|(words, _)| parser.eat(words)).map(|(_, mode)| mode))
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

impl fmt::Display for SetTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let characteristics = if self.for_session { "SESSION CHARACTERISTICS AS " } else { "" };
        write!(f, "SET {characteristics}TRANSACTION {}", Separated(self.modes.iter()))
    }
}

impl fmt::Display for TransactionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Isolation(level) => write!(f, "ISOLATION LEVEL {}", level.words()),
            mode => f.write_str(MODES.into_iter().find(|(_, known)| known == mode).map_or("", |(words, _)| words)),
        }
    }
}
