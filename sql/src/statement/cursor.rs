//! `DECLARE ... CURSOR`, `FETCH`, `MOVE`, `CLOSE`.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::Statement;
use crate::ast::Query;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::parser::Parser;

/// `DECLARE name [BINARY] [INSENSITIVE] [NO SCROLL] CURSOR [{WITH | WITHOUT} HOLD] FOR query`
#[derive(Debug, Clone, PartialEq)]
pub struct Declare {
    pub name: String,
    /// Rows come in binary form where the client does not choose one.
    pub is_binary: bool,
    /// It outlives its transaction.
    pub is_held: bool,
    pub query: Box<Query>,
}

/// `FETCH [direction] [FROM | IN] name`, and `MOVE`, which passes over the rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetch {
    pub cursor: String,
    pub direction: Direction,
    pub is_move: bool,
}

/// Which rows of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `NEXT`, `n`, `FORWARD [n]`: so many from here on. Negative ones are behind.
    Forward(i64),
    /// `ALL`, `FORWARD ALL`: those that are left.
    All,
    /// `FIRST`, `ABSOLUTE n`: the row of this number, from 1; negative: from the end.
    Absolute(i64),
    /// `RELATIVE n`: the row so many behind this one.
    Relative(i64),
    /// `BACKWARD ALL`: those before this one.
    BackwardAll,
}

/// `CLOSE {name | ALL}`; `None`: all.
#[derive(Debug, Clone, PartialEq)]
pub struct CloseCursor {
    pub name: Option<String>,
}

impl Declare {
    pub(super) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DECLARE")?;
        let name = parser.name("the cursor's name")?;
        let mut is_binary = false;
        // In any order, as in PostgreSQL.
        while !parser.eat("CURSOR") {
            if parser.is_at("SCROLL") {
                return Err(Error::not_supported_but("DECLARE ... SCROLL CURSOR", "rows come forward only; leave out SCROLL"));
            } else if parser.eat("BINARY") {
                is_binary = true;
            } else if !(parser.eat("INSENSITIVE") || parser.eat("ASENSITIVE") || parser.eat("NO SCROLL")) {
                return Err(parser.expected("CURSOR"));
            }
        }
        let is_held = parser.eat("WITH HOLD");
        if !is_held {
            parser.eat("WITHOUT HOLD");
        }
        parser.expect("FOR")?;
        let query = parser.query()?;
        Ok(Self { name, is_binary, is_held, query })
    }
}

impl Fetch {
    pub(super) fn parse(parser: &mut Parser) -> Result<Self> {
        let is_move = parser.eat("MOVE");
        if !is_move {
            parser.expect("FETCH")?;
        }
        let direction = Direction::parse(parser)?;
        if !parser.eat("FROM") {
            parser.eat("IN");
        }
        Ok(Self { cursor: parser.name("the cursor's name")?, direction, is_move })
    }
}

impl Direction {
    /// A word such as `next` may be the name of a cursor too; then it is the last word.
    fn parse(parser: &mut Parser) -> Result<Self> {
        if let Some(count) = optional_number(parser)? {
            return Ok(Self::Forward(count));
        }
        if parser.eat("ALL") {
            return Ok(Self::All);
        }
        let word = parser.peek_word(0).filter(|_| !is_last(parser)).unwrap_or_default();
        let direction = match word.as_str() {
            "NEXT" => Self::Forward(1),
            "PRIOR" => Self::Forward(-1),
            "FIRST" => Self::Absolute(1),
            "LAST" => Self::Absolute(-1),
            "ABSOLUTE" | "RELATIVE" => {
                parser.next_token();
                let number = optional_number(parser)?.ok_or_else(|| parser.expected("a number of rows"))?;
                return Ok(if word == "ABSOLUTE" { Self::Absolute(number) } else { Self::Relative(number) });
            }
            "FORWARD" | "BACKWARD" => {
                parser.next_token();
                let is_forward = word == "FORWARD";
                if parser.eat("ALL") {
                    return Ok(if is_forward { Self::All } else { Self::BackwardAll });
                }
                let count = optional_number(parser)?.unwrap_or(1);
                return Ok(Self::Forward(if is_forward { count } else { count.saturating_neg() }));
            }
            _ => return Ok(Self::Forward(1)),
        };
        parser.next_token();
        Ok(direction)
    }
}

fn is_last(parser: &Parser) -> bool {
    parser.peek_word(1).is_none() && !parser.is_before_name(&parser.peek_word(0).unwrap_or_default()) && !is_number_next(parser)
}

fn is_number_next(parser: &Parser) -> bool {
    matches!(parser.peek_nth_token(1), Token::Number(..) | Token::Minus | Token::Plus)
}

fn optional_number(parser: &mut Parser) -> Result<Option<i64>> {
    let is_negative = parser.eat_token(&Token::Minus);
    let has_sign = is_negative || parser.eat_token(&Token::Plus);
    if !has_sign && !matches!(parser.peek_token(), Token::Number(..)) {
        return Ok(None);
    }
    let number = parser.unsigned("a number of rows")?;
    let number = i64::try_from(number).map_err(|_| parser.expected("a smaller number of rows"))?;
    Ok(Some(if is_negative { -number } else { number }))
}

impl CloseCursor {
    pub(super) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CLOSE")?;
        if parser.eat("ALL") {
            return Ok(Self { name: None });
        }
        Ok(Self { name: Some(parser.name("the cursor's name, or ALL")?) })
    }
}

pub(super) fn parse(parser: &mut Parser, first: &str) -> Result<Statement> {
    Ok(match first {
        "DECLARE" => Statement::Declare(Declare::parse(parser)?),
        "CLOSE" => Statement::CloseCursor(CloseCursor::parse(parser)?),
        _ => Statement::Fetch(Fetch::parse(parser)?),
    })
}

impl fmt::Display for Declare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = if self.is_binary { "BINARY " } else { "" };
        let hold = if self.is_held { "WITH HOLD " } else { "" };
        write!(f, "DECLARE {} {binary}CURSOR {hold}FOR {}", Name(&self.name), self.query)
    }
}

impl fmt::Display for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_move { "MOVE" } else { "FETCH" };
        write!(f, "{verb} {} FROM {}", self.direction, Name(&self.cursor))
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward(count) => write!(f, "FORWARD {count}"),
            Self::All => f.write_str("ALL"),
            Self::Absolute(number) => write!(f, "ABSOLUTE {number}"),
            Self::Relative(number) => write!(f, "RELATIVE {number}"),
            Self::BackwardAll => f.write_str("BACKWARD ALL"),
        }
    }
}

impl fmt::Display for CloseCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "CLOSE {}", Name(name)),
            None => f.write_str("CLOSE ALL"),
        }
    }
}
