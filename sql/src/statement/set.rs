//! `SET` and `RESET`.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Statement, role, transaction};
use crate::error::Result;
use crate::name::{Name, Separated};
use crate::options::{OptionValue, parse_scalar};
use crate::parser::Parser;

/// `SET [SESSION | LOCAL] variable {= | TO} value, ...`, `SET TIME ZONE value`, `SET NAMES value`
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// The setting's name in lower case, with its dots: `search_path`, `rollout.seed`.
    pub variable: String,
    /// At least one; several for lists such as `search_path`.
    pub values: Vec<OptionValue>,
    /// Until the end of the transaction.
    pub local: bool,
}

/// `RESET variable`, `RESET ALL`, `SET variable TO DEFAULT`
#[derive(Debug, Clone, PartialEq)]
pub struct Reset {
    /// The setting's name in lower case, with its dots; `all` for every setting.
    pub variable: String,
}

/// What follows `SET` and is no setting; sqlparser reads these.
const NOT_A_SETTING: &[&str] = &["SESSION AUTHORIZATION", "CONSTRAINTS"];

pub(super) fn parse(parser: &mut Parser) -> Result<Statement> {
    if let Some(statement) = role::parse_set(parser)? {
        return Ok(statement);
    }
    if let Some(statement) = transaction::parse_set(parser)? {
        return Ok(statement);
    }
    if NOT_A_SETTING.iter().any(|words| parser.is_at(&format!("SET {words}"))) {
        return Statement::parse_ast(parser);
    }
    if parser.eat("RESET") {
        let variable = parse_variable(parser)?;
        return Ok(Statement::Reset(Reset { variable }));
    }
    parser.expect("SET")?;
    let local = parser.eat("LOCAL");
    if !local {
        parser.eat("SESSION");
    }
    let (variable, needs_sign) = parse_target(parser)?;
    if needs_sign && !parser.eat_token(&Token::Eq) && !parser.eat("TO") {
        return Err(parser.expected("\"=\" or TO"));
    }
    let is_time_zone_here = !needs_sign && parser.eat("LOCAL");
    if is_time_zone_here || parser.eat("DEFAULT") {
        return Ok(Statement::Reset(Reset { variable }));
    }
    let values = parser.comma_separated(|parser| parse_scalar(parser, &variable))?;
    Ok(Statement::Set(Set { variable, values, local }))
}

/// The setting, and whether `=` or `TO` comes next.
fn parse_target(parser: &mut Parser) -> Result<(String, bool)> {
    if parser.is_at("TIME ZONE") {
        Ok((parse_variable(parser)?, false))
    } else if parser.eat("NAMES") {
        Ok(("client_encoding".to_string(), false))
    } else {
        Ok((parse_variable(parser)?, true))
    }
}

/// Reads a setting's name: `search_path`, `rollout.seed`, `TIME ZONE`, `ALL`.
pub(super) fn parse_variable(parser: &mut Parser) -> Result<String> {
    if parser.eat("TIME ZONE") {
        return Ok("timezone".to_string());
    }
    if parser.eat("ALL") {
        return Ok("all".to_string());
    }
    let mut variable = parser.name("a setting's name")?;
    while parser.eat_token(&Token::Period) {
        variable = format!("{variable}.{}", parser.name("a setting's name after the dot")?);
    }
    Ok(variable.to_lowercase())
}

/// Prints a setting's name.
pub(super) struct Variable<'a>(pub &'a str);

impl fmt::Display for Variable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == "all" {
            return f.write_str("ALL");
        }
        for (i, part) in self.0.split('.').enumerate() {
            let dot = if i > 0 { "." } else { "" };
            // In quotes, what would be read as the statements SHOW TABLES, SET SESSION ... .
            match part {
                "tables" | "indexes" | "jobs" | "models" | "agents" | "session" | "local" | "names" | "role" | "transaction"
                | "constraints" | "" => {
                    write!(f, "{dot}\"{part}\"")?;
                }
                _ => write!(f, "{dot}{}", Name(part))?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = if self.local { "LOCAL " } else { "" };
        write!(f, "SET {local}{} = {}", Variable(&self.variable), Separated(self.values.iter()))
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RESET {}", Variable(&self.variable))
    }
}
