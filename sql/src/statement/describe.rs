//! `DESCRIBE [TABLE] t`, `DESCRIBE MODEL m` and `DESCRIBE AGENT a`.

use std::fmt;

use super::Statement;
use crate::ast::ObjectName;
use crate::error::Result;
use crate::name::{Name, Qualified, Reference};
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

/// `DESCRIBE [TABLE] t`
#[derive(Debug, Clone, PartialEq)]
pub struct DescribeTable {
    pub name: ObjectName,
}

pub(super) fn parse(parser: &mut Parser) -> Result<Statement> {
    if parser.eat("DESCRIBE MODEL") || parser.eat("DESC MODEL") {
        let name = parser.reference("the model's name")?;
        Ok(Statement::DescribeModel(DescribeModel { name }))
    } else if parser.eat("DESCRIBE AGENT") || parser.eat("DESC AGENT") {
        let name = parser.name("the agent's name")?;
        Ok(Statement::DescribeAgent(DescribeAgent { name }))
    } else {
        let _ = parser.eat("DESCRIBE TABLE") || parser.eat("DESC TABLE") || parser.eat("DESCRIBE") || parser.eat("DESC");
        let name = parser.object_name("the table's name")?;
        Ok(Statement::DescribeTable(DescribeTable { name }))
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

impl fmt::Display for DescribeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DESCRIBE TABLE {}", Qualified(&self.name))
    }
}
