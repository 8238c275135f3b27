//! `CREATE SCHEMA s`.

use std::fmt;

use crate::error::{Error, Result};
use crate::name::{Name, if_not_exists};
use crate::parser::Parser;

/// `CREATE SCHEMA [IF NOT EXISTS] s`
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSchema {
    pub name: String,
    pub if_not_exists: bool,
}

impl CreateSchema {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE SCHEMA")?;
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = parser.new_name("the schema's name")?;
        if parser.is_at("AUTHORIZATION") {
            return Err(Error::not_supported_but("CREATE SCHEMA ... AUTHORIZATION", "leave it out: schemas have no owners"));
        }
        Ok(Self { name, if_not_exists })
    }
}

impl fmt::Display for CreateSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE SCHEMA {}{}", if_not_exists(self.if_not_exists), Name(&self.name))
    }
}
