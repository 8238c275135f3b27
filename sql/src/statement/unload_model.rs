//! `UNLOAD MODEL`.

use std::fmt;

use crate::error::Result;
use crate::name::Reference;
use crate::parser::Parser;

/// `UNLOAD MODEL m`: out of memory, not out of the database.
#[derive(Debug, Clone, PartialEq)]
pub struct UnloadModel {
    /// `policy` with all its versions, or one version, `policy@3`.
    pub name: String,
}

impl UnloadModel {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("UNLOAD MODEL")?;
        Ok(Self { name: parser.reference("the model's name")? })
    }
}

impl fmt::Display for UnloadModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UNLOAD MODEL {}", Reference(&self.name))
    }
}
