//! What keeps tables fast and small: `VACUUM`, `OPTIMIZE`, `ANALYZE`, `REINDEX`.

use std::fmt;

use crate::ast::ObjectName;
use crate::error::Result;
use crate::name::{Qualified, Separated};
use crate::parser::Parser;

/// `VACUUM [FULL] [t, ...]`, `VACUUM (FULL, FORCE) [t, ...]`: gives the space of old versions and of abandoned files back.
#[derive(Debug, Clone, PartialEq)]
pub struct Vacuum {
    /// Keep no old version at all, but for those that something names.
    pub full: bool,
    /// Nor these.
    pub force: bool,
    /// Empty: all tables.
    pub tables: Vec<ObjectName>,
}

/// `OPTIMIZE [TABLE] [t, ...]`: writes many small files as few large ones and brings the indexes up to date.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimize {
    /// Empty: all tables.
    pub tables: Vec<ObjectName>,
}

/// `ANALYZE [t, ...]`: for clients' sake; row counts are always exact.
#[derive(Debug, Clone, PartialEq)]
pub struct Analyze {
    /// Empty: all tables.
    pub tables: Vec<ObjectName>,
}

/// `REINDEX {INDEX | TABLE} [CONCURRENTLY] name`: builds indexes anew; readers never wait for it.
#[derive(Debug, Clone, PartialEq)]
pub enum Reindex {
    Index(ObjectName),
    Table(ObjectName),
}

impl Vacuum {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("VACUUM")?;
        if parser.is_left_parenthesis() {
            let (mut full, mut force) = (false, false);
            parser.parenthesized(|parser| {
                match parse_option(parser)? {
                    ("FULL", is_on) => full = is_on,
                    ("FORCE", is_on) => force = is_on,
                    _ => {}
                }
                Ok(())
            })?;
            return Ok(Self { full, force, tables: parse_tables(parser)? });
        }
        let full = parser.eat("FULL");
        parser.eat("FREEZE");
        parser.eat("VERBOSE");
        parser.eat("ANALYZE");
        Ok(Self { full, force: false, tables: parse_tables(parser)? })
    }
}

/// The options of VACUUM in parentheses. The last ones are PostgreSQL's, and change nothing here.
const OPTIONS: [&str; 9] =
    ["FULL", "FORCE", "FREEZE", "VERBOSE", "ANALYZE", "SKIP_LOCKED", "TRUNCATE", "PROCESS_TOAST", "DISABLE_PAGE_SKIPPING"];

/// `FULL`, `FULL on`, `FORCE false`: the option, and whether it is on.
fn parse_option(parser: &mut Parser) -> Result<(&'static str, bool)> {
    let Some(option) = OPTIONS.into_iter().find(|option| parser.eat(option)) else {
        return Err(parser.expected("an option of VACUUM: FULL, FORCE, VERBOSE or ANALYZE"));
    };
    let is_off = ["OFF", "FALSE"].iter().any(|word| parser.eat(word));
    let _ = is_off || ["ON", "TRUE"].iter().any(|word| parser.eat(word));
    Ok((option, !is_off))
}

impl Optimize {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("OPTIMIZE")?;
        parser.eat("TABLE");
        // Not a table of that name, which has to be quoted here.
        let tables = if parser.is_at("ASYNC") { Vec::new() } else { parse_tables(parser)? };
        Ok(Self { tables })
    }
}

impl Analyze {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("ANALYZE")?;
        parser.eat("VERBOSE");
        Ok(Self { tables: parse_tables(parser)? })
    }
}

impl Reindex {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("REINDEX")?;
        if parser.eat("INDEX") {
            parser.eat("CONCURRENTLY");
            return Ok(Self::Index(parser.object_name("the index's name")?));
        }
        parser.expect("TABLE")?;
        parser.eat("CONCURRENTLY");
        Ok(Self::Table(parser.object_name("the table's name")?))
    }
}

fn parse_tables(parser: &mut Parser) -> Result<Vec<ObjectName>> {
    match parser.at_end_of_statement() {
        true => Ok(Vec::new()),
        false => parser.comma_separated(|parser| parser.object_name("a table's name")),
    }
}

fn write_tables(f: &mut fmt::Formatter<'_>, statement: &str, tables: &[ObjectName]) -> fmt::Result {
    match tables {
        [] => f.write_str(statement),
        tables => write!(f, "{statement} {}", Separated(tables.iter().map(Qualified))),
    }
}

impl fmt::Display for Vacuum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statement = match (self.full, self.force) {
            (false, false) => "VACUUM",
            (true, false) => "VACUUM FULL",
            (false, true) => "VACUUM (FORCE)",
            (true, true) => "VACUUM (FULL, FORCE)",
        };
        write_tables(f, statement, &self.tables)
    }
}

impl fmt::Display for Optimize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tables.as_slice() {
            [table] if table.to_string() == "async" => f.write_str("OPTIMIZE \"async\""),
            tables => write_tables(f, "OPTIMIZE", tables),
        }
    }
}

impl fmt::Display for Analyze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tables(f, "ANALYZE", &self.tables)
    }
}

impl fmt::Display for Reindex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(name) => write!(f, "REINDEX INDEX {}", Qualified(name)),
            Self::Table(name) => write!(f, "REINDEX TABLE {}", Qualified(name)),
        }
    }
}
