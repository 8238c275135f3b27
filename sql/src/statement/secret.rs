//! `CREATE SECRET s FROM ENV 'VARIABLE'`, `DROP SECRET s`.

use std::fmt;

use crate::error::{Error, Result};
use crate::name::{Name, Text, if_exists, if_not_exists};
use crate::parser::Parser;

/// `CREATE SECRET [IF NOT EXISTS] s FROM {ENV 'VARIABLE' | FILE 'path'}`
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSecret {
    pub name: String,
    pub if_not_exists: bool,
    pub source: SecretSource,
}

/// Where a secret's value is read whenever it is needed. A statement never holds the value: texts of statements are logged and shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// An environment variable of the server.
    Environment(String),
    /// The first line of a file on the server.
    File(String),
}

/// `DROP SECRET [IF EXISTS] s`
#[derive(Debug, Clone, PartialEq)]
pub struct DropSecret {
    pub name: String,
    pub if_exists: bool,
}

impl CreateSecret {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE SECRET")?;
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = parser.new_name("the secret's name")?;
        let source = if parser.eat("FROM ENV") {
            SecretSource::Environment(parser.string("the variable's name in quotes")?)
        } else if parser.eat("FROM FILE") {
            SecretSource::File(parser.string("the file's path in quotes")?)
        } else {
            // What stands there may be the secret itself: no error of this statement repeats it.
            return Err(value_in_text());
        };
        Ok(Self { name, if_not_exists, source })
    }
}

fn value_in_text() -> Error {
    Error::not_supported_but(
        "CREATE SECRET with a value in its text",
        "statements are kept in logs and histories, so the value has to be elsewhere: FROM ENV 'VARIABLE' or FROM FILE 'path'",
    )
}

impl DropSecret {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DROP SECRET")?;
        let if_exists = parser.eat("IF EXISTS");
        Ok(Self { name: parser.name("the secret's name")?, if_exists })
    }
}

impl fmt::Display for CreateSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE SECRET {}{} FROM ", if_not_exists(self.if_not_exists), Name(&self.name))?;
        match &self.source {
            SecretSource::Environment(variable) => write!(f, "ENV {}", Text(variable)),
            SecretSource::File(path) => write!(f, "FILE {}", Text(path)),
        }
    }
}

impl fmt::Display for DropSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DROP SECRET {}{}", if_exists(self.if_exists), Name(&self.name))
    }
}
