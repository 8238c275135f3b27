//! `TRUNCATE t`.

use std::fmt;

use crate::ast::ObjectName;
use crate::error::{Error, Result};
use crate::name::{Qualified, Separated};
use crate::parser::Parser;

/// `TRUNCATE [TABLE] t, ... [RESTART IDENTITY | CONTINUE IDENTITY] [CASCADE | RESTRICT]`
///
/// `CASCADE` is read and forgotten: nothing depends on a table's rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Truncate {
    /// At least one.
    pub names: Vec<ObjectName>,
    /// Whether identity columns count from their start again.
    pub restart_identity: bool,
}

impl Truncate {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("TRUNCATE")?;
        parser.eat("TABLE");
        if parser.eat("ONLY") {
            return Err(Error::not_supported_but("TRUNCATE ONLY", "leave ONLY out: tables have no children"));
        }
        let names = parser.comma_separated(|parser| parser.object_name("the table's name"))?;
        let restart_identity = parser.eat("RESTART IDENTITY");
        if !restart_identity {
            parser.eat("CONTINUE IDENTITY");
        }
        if !parser.eat("CASCADE") {
            parser.eat("RESTRICT");
        }
        Ok(Self { names, restart_identity })
    }
}

impl fmt::Display for Truncate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = if self.restart_identity { " RESTART IDENTITY" } else { "" };
        write!(f, "TRUNCATE {}{identity}", Separated(self.names.iter().map(Qualified)))
    }
}
