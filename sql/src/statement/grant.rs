//! `GRANT SELECT ON t TO role`, `REVOKE SELECT ON t FROM role`.
//!
//! Without `ON` they make a role a member of another one: see `role.rs`.

use std::fmt;

use crate::ast::ObjectName;
use crate::error::{Error, Result};
use crate::name::{Name, Qualified, Separated};
use crate::parser::Parser;

use super::Statement;

/// `GRANT {privilege, ... | ALL [PRIVILEGES]} ON objects TO role, ... [WITH GRANT OPTION]`
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// Empty: all that objects of the kind have.
    pub privileges: Vec<Privilege>,
    pub objects: GrantObjects,
    /// At least one.
    pub to: Vec<Grantee>,
    /// Whether the roles may grant them too.
    pub with_grant_option: bool,
}

/// `REVOKE [GRANT OPTION FOR] {privilege, ... | ALL [PRIVILEGES]} ON objects FROM role, ... [CASCADE | RESTRICT]`
#[derive(Debug, Clone, PartialEq)]
pub struct Revoke {
    /// Take the right to grant them, and leave the privileges.
    pub grant_option_only: bool,
    /// Empty: all that objects of the kind have.
    pub privileges: Vec<Privilege>,
    pub objects: GrantObjects,
    /// At least one.
    pub from: Vec<Grantee>,
    /// Take them from those too whom the roles have granted them.
    pub cascade: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privilege {
    Insert,
    Select,
    Update,
    Delete,
    Truncate,
    Usage,
    Create,
}

/// What privileges are on.
#[derive(Debug, Clone, PartialEq)]
pub enum GrantObjects {
    /// Tables and views.
    Tables(Vec<ObjectName>),
    /// `ALL TABLES IN SCHEMA s, ...`: those that are there now.
    TablesInSchemas(Vec<String>),
    Schemas(Vec<String>),
    Models(Vec<String>),
    Agents(Vec<String>),
    Databases(Vec<String>),
}

/// Whom a privilege is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grantee {
    /// Every role, also those that are made later.
    Public,
    /// `CURRENT_ROLE`, `CURRENT_USER`
    CurrentRole,
    Role(String),
}

impl Privilege {
    /// Every privilege.
    pub const ALL: [Self; 7] = [Self::Insert, Self::Select, Self::Update, Self::Delete, Self::Truncate, Self::Usage, Self::Create];

    /// The word for it in SQL: `SELECT`.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Select => "SELECT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Truncate => "TRUNCATE",
            Self::Usage => "USAGE",
            Self::Create => "CREATE",
        }
    }
}

pub(super) fn parse(parser: &mut Parser) -> Result<Statement> {
    if parser.eat("GRANT") {
        let (privileges, objects) = parse_what(parser)?;
        parser.expect("TO")?;
        let to = parser.comma_separated(Grantee::parse)?;
        let with_grant_option = parser.eat("WITH GRANT OPTION");
        refuse_grantor(parser)?;
        return Ok(Statement::Grant(Grant { privileges, objects, to, with_grant_option }));
    }
    parser.expect("REVOKE")?;
    let grant_option_only = parser.eat("GRANT OPTION FOR");
    let (privileges, objects) = parse_what(parser)?;
    parser.expect("FROM")?;
    let from = parser.comma_separated(Grantee::parse)?;
    refuse_grantor(parser)?;
    let cascade = parser.eat("CASCADE");
    if !cascade {
        parser.eat("RESTRICT");
    }
    Ok(Statement::Revoke(Revoke { grant_option_only, privileges, objects, from, cascade }))
}

fn parse_what(parser: &mut Parser) -> Result<(Vec<Privilege>, GrantObjects)> {
    let privileges = if parser.eat("ALL") {
        parser.eat("PRIVILEGES");
        refuse_columns(parser)?;
        Vec::new()
    } else {
        parser.comma_separated(parse_privilege)?
    };
    parser.expect("ON")?;
    Ok((privileges, GrantObjects::parse(parser)?))
}

fn parse_privilege(parser: &mut Parser) -> Result<Privilege> {
    let word = parser.peek_word(0).unwrap_or_default();
    if let Some(privilege) = Privilege::ALL.into_iter().find(|privilege| privilege.keyword() == word) {
        parser.next_token();
        refuse_columns(parser)?;
        return Ok(privilege);
    }
    match word.as_str() {
        "REFERENCES" | "TRIGGER" | "EXECUTE" | "CONNECT" | "TEMPORARY" | "TEMP" | "MAINTAIN" | "SET" | "ALTER" => {
            Err(Error::not_supported_but(format!("the privilege {word}"), "SELECT, INSERT, UPDATE, DELETE, TRUNCATE, USAGE and CREATE are"))
        }
        _ => Err(parser.expected("a privilege: SELECT, INSERT, UPDATE, DELETE, TRUNCATE, USAGE, CREATE or ALL")),
    }
}

fn refuse_columns(parser: &Parser) -> Result<()> {
    if parser.is_left_parenthesis() {
        return Err(Error::not_supported_but("a privilege on single columns", "grant SELECT on a view that has these columns"));
    }
    Ok(())
}

fn refuse_grantor(parser: &Parser) -> Result<()> {
    if parser.is_at("GRANTED BY") {
        return Err(Error::not_supported_but("GRANTED BY", "leave it out, or SET ROLE to that role first"));
    }
    Ok(())
}

impl GrantObjects {
    fn parse(parser: &mut Parser) -> Result<Self> {
        if parser.eat("ALL TABLES IN SCHEMA") {
            return Ok(Self::TablesInSchemas(names(parser, "the schema's name")?));
        }
        if parser.is_at("ALL") {
            let kind = parser.peek_word(1).unwrap_or_default();
            return Err(Error::not_supported_but(format!("ON ALL {kind}"), "ALL TABLES IN SCHEMA is"));
        }
        if is_kind(parser, "SCHEMA") {
            parser.expect("SCHEMA")?;
            return Ok(Self::Schemas(names(parser, "the schema's name")?));
        }
        if is_kind(parser, "MODEL") {
            parser.expect("MODEL")?;
            return Ok(Self::Models(names(parser, "the model's name")?));
        }
        if is_kind(parser, "AGENT") {
            parser.expect("AGENT")?;
            return Ok(Self::Agents(names(parser, "the agent's name")?));
        }
        if is_kind(parser, "DATABASE") {
            parser.expect("DATABASE")?;
            return Ok(Self::Databases(names(parser, "the database's name")?));
        }
        let others =
            ["SEQUENCE", "FUNCTION", "PROCEDURE", "ROUTINE", "LANGUAGE", "TYPE", "DOMAIN", "TABLESPACE", "FOREIGN", "LARGE", "PARAMETER"];
        if let Some(kind) = others.into_iter().find(|kind| is_kind(parser, kind)) {
            return Err(Error::not_supported_but(
                format!("privileges on a {kind}"),
                "those on TABLE, SCHEMA, MODEL, AGENT and DATABASE are",
            ));
        }
        if is_kind(parser, "TABLE") {
            parser.expect("TABLE")?;
        }
        Ok(Self::Tables(parser.comma_separated(|parser| parser.object_name("the table's name"))?))
    }
}

/// Whether the word says of what kind the names after it are; a table may have its name.
fn is_kind(parser: &Parser, word: &str) -> bool {
    parser.is_before_name(word) && !matches!(parser.peek_word(1).as_deref(), Some("TO" | "FROM"))
}

fn names(parser: &mut Parser, what: &str) -> Result<Vec<String>> {
    parser.comma_separated(|parser| parser.name(what))
}

impl Grantee {
    fn parse(parser: &mut Parser) -> Result<Self> {
        if parser.is_before_name("GROUP") {
            parser.expect("GROUP")?;
        }
        if parser.eat("CURRENT_ROLE") || parser.eat("CURRENT_USER") {
            return Ok(Self::CurrentRole);
        }
        Ok(match parser.name("the role's name")? {
            name if name == "public" => Self::Public,
            name => Self::Role(name),
        })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { privileges, objects, to, with_grant_option } = self;
        let option = if *with_grant_option { " WITH GRANT OPTION" } else { "" };
        write!(f, "GRANT {} ON {objects} TO {}{option}", Privileges(privileges), Separated(to.iter()))
    }
}

impl fmt::Display for Revoke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grant_option_only, privileges, objects, from, cascade } = self;
        let option = if *grant_option_only { "GRANT OPTION FOR " } else { "" };
        let cascade = if *cascade { " CASCADE" } else { "" };
        write!(f, "REVOKE {option}{} ON {objects} FROM {}{cascade}", Privileges(privileges), Separated(from.iter()))
    }
}

struct Privileges<'a>(&'a [Privilege]);

impl fmt::Display for Privileges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("ALL PRIVILEGES") } else { write!(f, "{}", Separated(self.0.iter())) }
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.keyword())
    }
}

impl fmt::Display for GrantObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, kind: &str, names: &[String]| {
            write!(f, "{kind} {}", Separated(names.iter().map(|name| Name(name))))
        };
        match self {
            Self::Tables(tables) => write!(f, "TABLE {}", Separated(tables.iter().map(Qualified))),
            Self::TablesInSchemas(schemas) => list(f, "ALL TABLES IN SCHEMA", schemas),
            Self::Schemas(names) => list(f, "SCHEMA", names),
            Self::Models(names) => list(f, "MODEL", names),
            Self::Agents(names) => list(f, "AGENT", names),
            Self::Databases(names) => list(f, "DATABASE", names),
        }
    }
}

impl fmt::Display for Grantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("PUBLIC"),
            Self::CurrentRole => f.write_str("CURRENT_ROLE"),
            // A role of one of these names is told from the word by its quotes.
            Self::Role(name) if ["current_role", "current_user"].contains(&name.as_str()) => write!(f, "\"{name}\""),
            Self::Role(name) => write!(f, "{}", Name(name)),
        }
    }
}
