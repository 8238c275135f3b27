//! `EXPLAIN`.

use std::fmt;

use super::Statement;
use crate::error::{Error, Result};
use crate::options::{OptionValue, Options};
use crate::parser::Parser;
use crate::suggest::did_you_mean;

/// `EXPLAIN [ANALYZE] [VERBOSE] [FORMAT f] statement`, `EXPLAIN (ANALYZE, VERBOSE, FORMAT f) statement`
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// Run it, and show what was measured.
    pub analyze: bool,
    pub verbose: bool,
    /// In lower case: `text`, `json`.
    pub format: Option<String>,
    /// Never another `EXPLAIN`.
    pub statement: Box<Statement>,
}

/// Postgres' options that ask for what our plans do not have; they may only be switched off.
const ABSENT: &[&str] = &["costs", "settings", "generic_plan", "buffers", "serialize", "wal", "timing", "summary", "memory"];

impl Explain {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("EXPLAIN")?;
        let (analyze, verbose, format) = if is_at_options(parser) { parse_options(parser)? } else { parse_words(parser)? };
        if parser.is_at("EXPLAIN") {
            return Err(parser.error_here("EXPLAIN cannot explain an EXPLAIN".to_string()));
        }
        let statement = Box::new(Statement::parse(parser)?);
        Ok(Self { analyze, verbose, format, statement })
    }
}

/// `(ANALYZE` and not `(SELECT`.
fn is_at_options(parser: &Parser) -> bool {
    let starts_query = |word: &str| ["SELECT", "WITH", "VALUES", "TABLE", "FROM"].contains(&word);
    parser.is_left_parenthesis() && parser.peek_word(1).is_some_and(|word| !starts_query(&word))
}

fn parse_words(parser: &mut Parser) -> Result<(bool, bool, Option<String>)> {
    let analyze = parser.eat("ANALYZE");
    let verbose = parser.eat("VERBOSE");
    let format = if parser.eat("FORMAT") { Some(parser.name("a format, text or json")?.to_lowercase()) } else { None };
    Ok((analyze, verbose, format))
}

fn parse_options(parser: &mut Parser) -> Result<(bool, bool, Option<String>)> {
    let options = Options::parse_copy(parser)?;
    let (mut analyze, mut verbose, mut format) = (false, false, None);
    for (name, value) in options.iter() {
        match (name, value) {
            ("analyze", value) => analyze = switch(name, value)?,
            ("verbose", value) => verbose = switch(name, value)?,
            ("format", OptionValue::Text(text)) => format = Some(text.to_lowercase()),
            ("format", value) => return Err(wrong(name, value, "the name of a format")),
            (name, value) if ABSENT.contains(&name) => refuse_absent(name, value)?,
            (name, _) => return Err(unknown(name)),
        }
    }
    Ok((analyze, verbose, format))
}

/// Postgres' spellings of a boolean.
fn switch(name: &str, value: &OptionValue) -> Result<bool> {
    match value {
        OptionValue::Boolean(value) => Ok(*value),
        OptionValue::Integer(value @ (0 | 1)) => Ok(*value == 1),
        OptionValue::Text(text) if text.eq_ignore_ascii_case("on") => Ok(true),
        OptionValue::Text(text) if text.eq_ignore_ascii_case("off") => Ok(false),
        value => Err(wrong(name, value, "true or false")),
    }
}

fn refuse_absent(name: &str, value: &OptionValue) -> Result<()> {
    let is_off = matches!(value, OptionValue::Text(text) if text.eq_ignore_ascii_case("none")) || !switch(name, value)?;
    if is_off { Ok(()) } else { Err(Error::not_supported(format!("EXPLAIN ({})", name.to_uppercase()))) }
}

fn wrong(name: &str, value: &OptionValue, expected: &str) -> Error {
    Error::Option { name: name.to_string(), problem: format!("of EXPLAIN is {value}, expected {expected}") }
}

fn unknown(name: &str) -> Error {
    let problem = format!("of EXPLAIN is unknown{}", did_you_mean(name, &["analyze", "verbose", "format"]));
    Error::Option { name: name.to_string(), problem }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [self.analyze.then_some("ANALYZE".to_string()), self.verbose.then_some("VERBOSE".to_string())];
        let format = self.format.as_ref().map(|format| format!("FORMAT {}", OptionValue::Text(format.clone())));
        let options: Vec<String> = words.into_iter().flatten().chain(format).collect();
        match options.as_slice() {
            [] => write!(f, "EXPLAIN {}", self.statement),
            options => write!(f, "EXPLAIN ({}) {}", options.join(", "), self.statement),
        }
    }
}
