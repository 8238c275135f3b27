//! `ALTER TABLE t OWNER TO role`, and of views, schemas, models and agents.

use std::fmt;

use crate::ast::ObjectName;
use crate::error::Result;
use crate::name::{Name, Qualified, if_exists};
use crate::parser::Parser;

/// `ALTER {TABLE | VIEW | SCHEMA | MODEL | AGENT} [IF EXISTS] name OWNER TO role`
#[derive(Debug, Clone, PartialEq)]
pub struct AlterOwner {
    pub kind: OwnedKind,
    pub if_exists: bool,
    /// One part, but for tables and views.
    pub name: ObjectName,
    /// `None`: `CURRENT_ROLE`, `CURRENT_USER`.
    pub role: Option<String>,
}

/// What has an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnedKind {
    Table,
    View,
    Schema,
    Model,
    Agent,
}

impl OwnedKind {
    const ALL: [Self; 5] = [Self::Table, Self::View, Self::Schema, Self::Model, Self::Agent];

    /// The word for it in SQL: `TABLE`.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Table => "TABLE",
            Self::View => "VIEW",
            Self::Schema => "SCHEMA",
            Self::Model => "MODEL",
            Self::Agent => "AGENT",
        }
    }

    fn at(parser: &Parser) -> Option<Self> {
        let word = parser.peek_word(1)?;
        Self::ALL.into_iter().find(|kind| kind.keyword() == word)
    }
}

impl AlterOwner {
    /// Whether ALTER, which comes next, changes an owner: `OWNER TO` stands right after the name, which has up to three parts.
    pub(crate) fn comes_next(parser: &Parser) -> bool {
        if OwnedKind::at(parser).is_none() {
            return false;
        }
        let is_at = |n: usize, words: &[&str]| words.iter().enumerate().all(|(i, word)| parser.peek_word(n + i).as_deref() == Some(*word));
        let after_if_exists = if is_at(2, &["IF", "EXISTS"]) { 4 } else { 2 };
        let name = if is_at(after_if_exists, &["ONLY"]) { after_if_exists + 1 } else { after_if_exists };
        for part in 0..3 {
            let after = name + 2 * part + 1;
            if is_at(after, &["OWNER", "TO"]) {
                return true;
            }
            // A word here is no dot: the name has ended.
            if parser.peek_word(after).is_some() {
                return false;
            }
        }
        false
    }

    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        let Some(kind) = OwnedKind::at(parser) else { return Err(parser.expected("ALTER TABLE")) };
        parser.expect("ALTER")?;
        parser.next_token();
        let if_exists = parser.eat("IF EXISTS");
        parser.eat("ONLY");
        let name = match kind {
            OwnedKind::Table | OwnedKind::View => parser.object_name("the table's name")?,
            OwnedKind::Schema | OwnedKind::Model | OwnedKind::Agent => ObjectName::from(vec![parser.ident("a name")?]),
        };
        parser.expect("OWNER TO")?;
        let is_current = parser.eat("CURRENT_ROLE") || parser.eat("CURRENT_USER");
        let role = if is_current { None } else { Some(parser.name("the role's name")?) };
        Ok(Self { kind, if_exists, name, role })
    }
}

impl fmt::Display for AlterOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, if_exists: quietly, name, role } = self;
        write!(f, "ALTER {} {}{} OWNER TO ", kind.keyword(), if_exists(*quietly), Qualified(name))?;
        match role.as_deref() {
            None => f.write_str("CURRENT_ROLE"),
            // A role of one of these names is told from the word by its quotes.
            Some(role) if ["current_role", "current_user"].contains(&role) => write!(f, "\"{role}\""),
            Some(role) => write!(f, "{}", Name(role)),
        }
    }
}
