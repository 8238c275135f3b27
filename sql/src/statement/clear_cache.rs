//! `CLEAR CACHE`.

use std::fmt;

use crate::error::Result;
use crate::name::Reference;
use crate::parser::Parser;

/// `CLEAR CACHE [OF MODEL m]`: the answers of servers that are kept on the disk.
#[derive(Debug, Clone, PartialEq)]
pub struct ClearCache {
    /// `gpt` (its newest version) or `gpt@3`; None: of all models, and of those that are dropped.
    pub model: Option<String>,
}

impl ClearCache {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CLEAR CACHE")?;
        if parser.at_end_of_statement() {
            return Ok(Self { model: None });
        }
        parser.expect("OF MODEL")?;
        Ok(Self { model: Some(parser.reference("the model's name")?) })
    }
}

impl fmt::Display for ClearCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            None => f.write_str("CLEAR CACHE"),
            Some(model) => write!(f, "CLEAR CACHE OF MODEL {}", Reference(model)),
        }
    }
}
