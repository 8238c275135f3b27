//! `CREATE AGENT a WITH (...)`.

use std::fmt;

use crate::error::Result;
use crate::name::{Name, if_not_exists};
use crate::options::Options;
use crate::parser::Parser;

/// `CREATE AGENT [IF NOT EXISTS] a [WITH (policy = .., corpus = .., ...)]`
#[derive(Debug, Clone, PartialEq)]
pub struct CreateAgent {
    pub name: String,
    pub if_not_exists: bool,
    pub options: Options,
}

impl CreateAgent {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE AGENT")?;
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = parser.new_name("the agent's name")?;
        let options = Options::parse_with(parser)?;
        Ok(Self { name, if_not_exists, options })
    }
}

impl fmt::Display for CreateAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, if_not_exists: quietly, options } = self;
        write!(f, "CREATE AGENT {}{}{}", if_not_exists(*quietly), Name(name), options.display_with())
    }
}
