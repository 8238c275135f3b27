//! `LIKE other [INCLUDING property] [EXCLUDING property]` among the columns of CREATE TABLE.

use std::fmt;

use crate::ast::ObjectName;
use crate::error::Result;
use crate::name::Qualified;
use crate::parser::Parser;

/// The columns of another table, with their types and NOT NULL, and what else is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct LikeTable {
    pub table: ObjectName,
    /// How many columns are written before it.
    pub position: usize,
    /// In their order, each once.
    pub including: Vec<LikeProperty>,
}

/// What columns bring along if INCLUDING says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LikeProperty {
    Comments,
    Compression,
    /// CHECK, which no table has.
    Constraints,
    Defaults,
    Generated,
    Identity,
    /// The primary key and UNIQUE too.
    Indexes,
    /// Tables here have neither of these.
    Statistics,
    Storage,
}

impl LikeProperty {
    pub const ALL: [Self; 9] = [
        Self::Comments,
        Self::Compression,
        Self::Constraints,
        Self::Defaults,
        Self::Generated,
        Self::Identity,
        Self::Indexes,
        Self::Statistics,
        Self::Storage,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Comments => "COMMENTS",
            Self::Compression => "COMPRESSION",
            Self::Constraints => "CONSTRAINTS",
            Self::Defaults => "DEFAULTS",
            Self::Generated => "GENERATED",
            Self::Identity => "IDENTITY",
            Self::Indexes => "INDEXES",
            Self::Statistics => "STATISTICS",
            Self::Storage => "STORAGE",
        }
    }
}

impl LikeTable {
    /// `None`: what comes next is something else. `position`: see there.
    pub(crate) fn parse_optional(parser: &mut Parser, position: usize) -> Result<Option<Self>> {
        if !parser.eat("LIKE") {
            return Ok(None);
        }
        let table = parser.object_name("the name of the other table")?;
        let mut including = Vec::new();
        loop {
            let is_included = parser.eat("INCLUDING");
            if !is_included && !parser.eat("EXCLUDING") {
                break;
            }
            let named = properties(parser)?;
            including.retain(|property| !named.contains(property));
            if is_included {
                including.extend(named);
            }
        }
        including.sort_unstable();
        Ok(Some(Self { table, position, including }))
    }

    #[must_use]
    pub fn includes(&self, property: LikeProperty) -> bool {
        self.including.contains(&property)
    }
}

fn properties(parser: &mut Parser) -> Result<Vec<LikeProperty>> {
    if parser.eat("ALL") {
        return Ok(LikeProperty::ALL.to_vec());
    }
    match LikeProperty::ALL.into_iter().find(|property| parser.eat(property.word())) {
        Some(property) => Ok(vec![property]),
        None => Err(parser.expected("ALL, DEFAULTS, IDENTITY, GENERATED, INDEXES or another property of columns")),
    }
}

impl fmt::Display for LikeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LIKE {}", Qualified(&self.table))?;
        if self.including == LikeProperty::ALL {
            return f.write_str(" INCLUDING ALL");
        }
        self.including.iter().try_for_each(|property| write!(f, " INCLUDING {}", property.word()))
    }
}
