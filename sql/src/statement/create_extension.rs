//! `CREATE EXTENSION vector`, which clients of pgvector send first.

use std::fmt;

use crate::error::Result;
use crate::name::{Name, if_not_exists};
use crate::parser::Parser;

/// `CREATE EXTENSION [IF NOT EXISTS] name [WITH] [SCHEMA s] [VERSION v] [CASCADE]`
///
/// What an extension would bring is built in or missing, so its schema and version are read and forgotten.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateExtension {
    pub name: String,
    pub if_not_exists: bool,
}

impl CreateExtension {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE EXTENSION")?;
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = parser.name("the extension's name")?;
        parser.eat("WITH");
        loop {
            if parser.eat("SCHEMA") {
                parser.name("the schema's name")?;
            } else if parser.eat("VERSION") {
                parser.name("the version")?;
            } else if !parser.eat("CASCADE") {
                return Ok(Self { name, if_not_exists });
            }
        }
    }
}

impl fmt::Display for CreateExtension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE EXTENSION {}{}", if_not_exists(self.if_not_exists), Name(&self.name))
    }
}
