//! `SAVEPOINT s`, `RELEASE SAVEPOINT s`, `ROLLBACK TO SAVEPOINT s`.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::Statement;
use crate::error::Result;
use crate::name::Name;
use crate::parser::Parser;

/// `SAVEPOINT s`, `RELEASE [SAVEPOINT] s`, `ROLLBACK [WORK | TRANSACTION] TO [SAVEPOINT] s`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Savepoint {
    pub action: SavepointAction,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavepointAction {
    Define,
    Release,
    RollBackTo,
}

impl SavepointAction {
    /// The command tag.
    pub(super) const fn tag(self) -> &'static str {
        match self {
            Self::Define => "SAVEPOINT",
            Self::Release => "RELEASE",
            Self::RollBackTo => "ROLLBACK",
        }
    }

    /// What stands before the name.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Define => "SAVEPOINT",
            Self::Release => "RELEASE SAVEPOINT",
            Self::RollBackTo => "ROLLBACK TO SAVEPOINT",
        }
    }
}

/// `SAVEPOINT` or `RELEASE` comes next.
pub(super) fn parse(parser: &mut Parser) -> Result<Statement> {
    if parser.eat("RELEASE") {
        return parse_named(parser, SavepointAction::Release);
    }
    parser.expect("SAVEPOINT")?;
    let name = parser.name("the savepoint's name")?;
    Ok(Statement::Savepoint(Savepoint { action: SavepointAction::Define, name }))
}

/// What comes after `ROLLBACK TO`.
pub(super) fn parse_rollback_to(parser: &mut Parser) -> Result<Statement> {
    parse_named(parser, SavepointAction::RollBackTo)
}

/// A savepoint may be called `savepoint`.
fn parse_named(parser: &mut Parser, action: SavepointAction) -> Result<Statement> {
    if !matches!(parser.peek_nth_token(1), Token::EOF | Token::SemiColon) {
        parser.eat("SAVEPOINT");
    }
    let name = parser.name("the savepoint's name")?;
    Ok(Statement::Savepoint(Savepoint { action, name }))
}

impl fmt::Display for Savepoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.words(), Name(&self.name))
    }
}
