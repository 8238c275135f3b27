//! `DROP MODEL`, `DROP AGENT`, `DROP TABLE`, `DROP VIEW`, `DROP INDEX`, `DROP SCHEMA`.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::ast::ObjectName;
use crate::error::{Error, Result};
use crate::name::{Name, Qualified, Reference, Separated, if_exists};
use crate::parser::Parser;

/// `DROP MODEL [IF EXISTS] m [RESTRICT | CASCADE | FORCE]`
#[derive(Debug, Clone, PartialEq)]
pub struct DropModel {
    /// `policy` with all its versions, or one version, `policy@3`.
    pub name: String,
    pub if_exists: bool,
    pub dependents: Dependents,
}

/// What becomes of agents that name a model which is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dependents {
    /// `RESTRICT`, or nothing: the model stays.
    #[default]
    Restrict,
    /// They are dropped too.
    Cascade,
    /// They stay, without a model.
    Force,
}

/// `DROP AGENT [IF EXISTS] a`
#[derive(Debug, Clone, PartialEq)]
pub struct DropAgent {
    pub name: String,
    pub if_exists: bool,
}

/// `DROP TABLE [IF EXISTS] t, ... [CASCADE | RESTRICT]`
///
/// `CASCADE` is read and forgotten: nothing depends on a table but its own indexes.
#[derive(Debug, Clone, PartialEq)]
pub struct DropTable {
    /// At least one.
    pub names: Vec<ObjectName>,
    pub if_exists: bool,
}

/// `DROP VIEW [IF EXISTS] v, ... [CASCADE | RESTRICT]`
///
/// `CASCADE` is read and forgotten: a view that reads another one fails when it is used.
#[derive(Debug, Clone, PartialEq)]
pub struct DropView {
    /// At least one.
    pub names: Vec<ObjectName>,
    pub if_exists: bool,
}

/// `DROP SCHEMA [IF EXISTS] s [CASCADE | RESTRICT]`
#[derive(Debug, Clone, PartialEq)]
pub struct DropSchema {
    pub name: String,
    pub if_exists: bool,
    /// Drop its tables and views too.
    pub cascade: bool,
}

/// `DROP INDEX [IF EXISTS] i [CASCADE | RESTRICT]`
#[derive(Debug, Clone, PartialEq)]
pub struct DropIndex {
    pub name: ObjectName,
    pub if_exists: bool,
}

impl DropModel {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DROP MODEL")?;
        let if_exists = parser.eat("IF EXISTS");
        let name = parser.reference("the model's name")?;
        let dependents = if parser.eat("CASCADE") {
            Dependents::Cascade
        } else if parser.eat("FORCE") {
            Dependents::Force
        } else {
            parser.eat("RESTRICT");
            Dependents::Restrict
        };
        Ok(Self { name, if_exists, dependents })
    }
}

impl DropAgent {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DROP AGENT")?;
        let if_exists = parser.eat("IF EXISTS");
        Ok(Self { name: parser.name("the agent's name")?, if_exists })
    }
}

impl DropTable {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DROP TABLE")?;
        let if_exists = parser.eat("IF EXISTS");
        let names = parser.comma_separated(|parser| parser.object_name("the table's name"))?;
        skip_behavior(parser);
        Ok(Self { names, if_exists })
    }
}

impl DropView {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DROP VIEW")?;
        let if_exists = parser.eat("IF EXISTS");
        let names = parser.comma_separated(|parser| parser.object_name("the view's name"))?;
        skip_behavior(parser);
        Ok(Self { names, if_exists })
    }
}

impl DropSchema {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DROP SCHEMA")?;
        let if_exists = parser.eat("IF EXISTS");
        let name = parser.name("the schema's name")?;
        if *parser.peek_token() == Token::Comma {
            return Err(Error::not_supported_but("DROP SCHEMA of several schemas", "drop each by itself"));
        }
        let cascade = parser.eat("CASCADE");
        parser.eat("RESTRICT");
        Ok(Self { name, if_exists, cascade })
    }
}

impl DropIndex {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("DROP INDEX")?;
        parser.eat("CONCURRENTLY");
        let if_exists = parser.eat("IF EXISTS");
        let name = parser.object_name("the index's name")?;
        if *parser.peek_token() == Token::Comma {
            return Err(Error::not_supported_but("DROP INDEX of several indexes", "drop each by itself"));
        }
        skip_behavior(parser);
        Ok(Self { name, if_exists })
    }
}

fn skip_behavior(parser: &mut Parser) {
    if !parser.eat("CASCADE") {
        parser.eat("RESTRICT");
    }
}

impl fmt::Display for DropModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dependents = match self.dependents {
            Dependents::Restrict => "",
            Dependents::Cascade => " CASCADE",
            Dependents::Force => " FORCE",
        };
        write!(f, "DROP MODEL {}{}{dependents}", if_exists(self.if_exists), Reference(&self.name))
    }
}

impl fmt::Display for DropAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DROP AGENT {}{}", if_exists(self.if_exists), Name(&self.name))
    }
}

impl fmt::Display for DropTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DROP TABLE {}{}", if_exists(self.if_exists), Separated(self.names.iter().map(Qualified)))
    }
}

impl fmt::Display for DropView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DROP VIEW {}{}", if_exists(self.if_exists), Separated(self.names.iter().map(Qualified)))
    }
}

impl fmt::Display for DropSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cascade = if self.cascade { " CASCADE" } else { "" };
        write!(f, "DROP SCHEMA {}{}{cascade}", if_exists(self.if_exists), Name(&self.name))
    }
}

impl fmt::Display for DropIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DROP INDEX {}{}", if_exists(self.if_exists), Qualified(&self.name))
    }
}
