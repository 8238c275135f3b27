//! `GENERATE ROLLOUTS INTO t USING AGENT a FROM (SELECT ...)`.

use std::fmt;

use crate::ast::{ObjectName, Query};
use crate::error::Result;
use crate::name::{Name, Qualified};
use crate::options::Options;
use crate::parser::Parser;

/// `GENERATE ROLLOUTS INTO t USING AGENT a FROM (SELECT ...) [WITH (simulations = .., ...)]`
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRollouts {
    /// The table of nodes.
    pub into: ObjectName,
    pub agent: String,
    /// The questions.
    pub query: Box<Query>,
    pub options: Options,
}

impl GenerateRollouts {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("GENERATE ROLLOUTS INTO")?;
        let into = parser.object_name("the table to write the rollouts into")?;
        parser.expect("USING AGENT")?;
        let agent = parser.name("the agent's name")?;
        parser.expect("FROM")?;
        let query = parser.parenthesized_query("a query that gives questions")?;
        let options = Options::parse_with(parser)?;
        Ok(Self { into, agent, query, options })
    }
}

impl fmt::Display for GenerateRollouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { into, agent, query, options } = self;
        let options = options.display_with();
        write!(f, "GENERATE ROLLOUTS INTO {} USING AGENT {} FROM ({query}){options}", Qualified(into), Name(agent))
    }
}
