//! `DESCRIBE MODEL` and `DESCRIBE AGENT`; `DESCRIBE t` of a table is sqlparser's.

use std::fmt;

use super::Statement;
use crate::error::Result;
use crate::name::{Name, Reference};
use crate::parser::Parser;

/// `DESCRIBE MODEL m`
#[derive(Debug, Clone, PartialEq)]
pub struct DescribeModel {
    /// `policy` (its newest version) or `policy@3`.
    pub name: String,
}

/// `DESCRIBE AGENT a`
#[derive(Debug, Clone, PartialEq)]
pub struct DescribeAgent {
    pub name: String,
}

pub(super) fn parse(parser: &mut Parser) -> Result<Statement> {
    if parser.eat("DESCRIBE MODEL") || parser.eat("DESC MODEL") {
        let name = parser.reference("the model's name")?;
        Ok(Statement::DescribeModel(DescribeModel { name }))
    } else if parser.eat("DESCRIBE AGENT") || parser.eat("DESC AGENT") {
        let name = parser.name("the agent's name")?;
        Ok(Statement::DescribeAgent(DescribeAgent { name }))
    } else {
        Statement::parse_ast(parser)
    }
}

impl fmt::Display for DescribeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DESCRIBE MODEL {}", Reference(&self.name))
    }
}

impl fmt::Display for DescribeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DESCRIBE AGENT {}", Name(&self.name))
    }
}
