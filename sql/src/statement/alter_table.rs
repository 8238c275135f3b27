//! `ALTER TABLE t ...`.

use std::fmt;

use datafusion::sql::sqlparser::parser;

use super::create_table::{ColumnDefinition, TableConstraint};
use crate::ast::{Expr, Ident, ObjectName};
use crate::error::{Error, Result};
use crate::name::{Name, Qualified, Separated, if_exists, if_not_exists};
use crate::parser::Parser;

/// `ALTER TABLE [IF EXISTS] t action, ...`
#[derive(Debug, Clone, PartialEq)]
pub struct AlterTable {
    pub name: ObjectName,
    pub if_exists: bool,
    /// At least one; done in order.
    pub actions: Vec<AlterAction>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AlterAction {
    /// `ADD [COLUMN] [IF NOT EXISTS] column type ...`
    AddColumn { column: Box<ColumnDefinition>, if_not_exists: bool },
    /// `ADD [CONSTRAINT name] {PRIMARY KEY | UNIQUE} (column, ...)`
    AddConstraint(TableConstraint),
    /// `DROP CONSTRAINT [IF EXISTS] name`
    DropConstraint { name: Ident, if_exists: bool },
    /// `DROP [COLUMN] [IF EXISTS] column`
    DropColumn { column: Ident, if_exists: bool },
    /// `RENAME [COLUMN] a TO b`
    RenameColumn { from: Ident, to: Ident },
    /// `RENAME TO t2`
    RenameTo(Ident),
    /// `ALTER [COLUMN] column SET DEFAULT expression`; without one, `DROP DEFAULT`
    Default { column: Ident, expression: Option<Box<Expr>> },
    /// `ALTER [COLUMN] column {SET | DROP} NOT NULL`
    NotNull { column: Ident, not_null: bool },
    /// `CREATE [OR REPLACE] TAG [IF NOT EXISTS] name [AS OF VERSION n]`, as in Apache Iceberg; without a version the newest
    CreateTag { name: String, version: Option<u64>, replace: bool, if_not_exists: bool },
    /// `DROP TAG [IF EXISTS] name`
    DropTag { name: String, if_exists: bool },
}

impl AlterTable {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("ALTER TABLE")?;
        let if_exists = parser.eat("IF EXISTS");
        parser.eat("ONLY");
        let name = parser.object_name("the table's name")?;
        let actions = parser.comma_separated(AlterAction::parse)?;
        Ok(Self { name, if_exists, actions })
    }
}

impl AlterAction {
    fn parse(parser: &mut Parser) -> Result<Self> {
        const COLUMN: &str = "a column's name";
        const TAG: &str = "the tag's name";
        match parser.peek_word(0).as_deref() {
            Some("ADD") => {
                parser.expect("ADD")?;
                if let Some(constraint) = TableConstraint::parse_optional(parser, "ALTER TABLE ... ADD")? {
                    return Ok(Self::AddConstraint(constraint));
                }
                parser.eat("COLUMN");
                let if_not_exists = parser.eat("IF NOT EXISTS");
                Ok(Self::AddColumn { column: Box::new(ColumnDefinition::parse(parser)?), if_not_exists })
            }
            Some("DROP") => {
                parser.expect("DROP")?;
                if parser.is_before_name("TAG") {
                    parser.expect("TAG")?;
                    let if_exists = parser.eat("IF EXISTS");
                    return Ok(Self::DropTag { name: parser.new_name(TAG)?, if_exists });
                }
                let is_constraint = parser.eat("CONSTRAINT");
                if !is_constraint {
                    parser.eat("COLUMN");
                }
                let if_exists = parser.eat("IF EXISTS");
                let name = parser.ident(if is_constraint { "the constraint's name" } else { COLUMN })?;
                if !parser.eat("CASCADE") {
                    parser.eat("RESTRICT");
                }
                Ok(if is_constraint { Self::DropConstraint { name, if_exists } } else { Self::DropColumn { column: name, if_exists } })
            }
            Some("CREATE") => {
                parser.expect("CREATE")?;
                let replace = parser.eat("OR REPLACE");
                parser.expect("TAG")?;
                let if_not_exists = parser.eat("IF NOT EXISTS");
                let name = parser.new_name(TAG)?;
                let version = if parser.eat("AS OF VERSION") { Some(parser.unsigned("a version")?) } else { None };
                Ok(Self::CreateTag { name, version, replace, if_not_exists })
            }
            Some("RENAME") => {
                parser.expect("RENAME")?;
                if parser.eat("TO") {
                    return Ok(Self::RenameTo(parser.ident("the table's new name")?));
                }
                parser.eat("COLUMN");
                let from = parser.ident(COLUMN)?;
                parser.expect("TO")?;
                Ok(Self::RenameColumn { from, to: parser.ident("the column's new name")? })
            }
            Some("ALTER") => {
                parser.expect("ALTER")?;
                parser.eat("COLUMN");
                let column = parser.ident(COLUMN)?;
                Self::parse_column_change(parser, column)
            }
            _ => {
                Err(parser
                    .expected("ADD COLUMN, ADD CONSTRAINT, DROP COLUMN, DROP CONSTRAINT, RENAME, ALTER COLUMN, CREATE TAG or DROP TAG"))
            }
        }
    }

    fn parse_column_change(parser: &mut Parser, column: Ident) -> Result<Self> {
        if parser.eat("SET DEFAULT") {
            return Ok(Self::Default { column, expression: Some(Box::new(parser.ast(parser::Parser::parse_expr)?)) });
        }
        if parser.eat("DROP DEFAULT") {
            return Ok(Self::Default { column, expression: None });
        }
        if parser.eat("SET NOT NULL") {
            return Ok(Self::NotNull { column, not_null: true });
        }
        if parser.eat("DROP NOT NULL") {
            return Ok(Self::NotNull { column, not_null: false });
        }
        if parser.is_at("TYPE") || parser.is_at("SET DATA TYPE") {
            return Err(Error::not_supported_but(
                "ALTER COLUMN ... TYPE",
                "add a column of the new type, UPDATE it from the old one, drop the old one and rename",
            ));
        }
        Err(parser.expected("SET DEFAULT, DROP DEFAULT, SET NOT NULL or DROP NOT NULL"))
    }
}

impl fmt::Display for AlterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, if_exists: quietly, actions } = self;
        write!(f, "ALTER TABLE {}{} {}", if_exists(*quietly), Qualified(name), Separated(actions.iter()))
    }
}

impl fmt::Display for AlterAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddColumn { column, if_not_exists: quietly } => write!(f, "ADD COLUMN {}{column}", if_not_exists(*quietly)),
            Self::AddConstraint(constraint) => write!(f, "ADD {constraint}"),
            Self::DropConstraint { name, if_exists: quietly } => write!(f, "DROP CONSTRAINT {}{}", if_exists(*quietly), Name(&name.value)),
            Self::DropColumn { column, if_exists: quietly } => write!(f, "DROP COLUMN {}{}", if_exists(*quietly), Name(&column.value)),
            Self::RenameColumn { from, to } => write!(f, "RENAME COLUMN {} TO {}", Name(&from.value), Name(&to.value)),
            Self::RenameTo(name) => write!(f, "RENAME TO {}", Name(&name.value)),
            Self::Default { column, expression: Some(expression) } => {
                write!(f, "ALTER COLUMN {} SET DEFAULT {expression}", Name(&column.value))
            }
            Self::Default { column, expression: None } => write!(f, "ALTER COLUMN {} DROP DEFAULT", Name(&column.value)),
            Self::CreateTag { name, version, replace, if_not_exists: quietly } => {
                let or_replace = if *replace { "OR REPLACE " } else { "" };
                write!(f, "CREATE {or_replace}TAG {}{}", if_not_exists(*quietly), Name(name))?;
                version.map_or(Ok(()), |version| write!(f, " AS OF VERSION {version}"))
            }
            Self::DropTag { name, if_exists: quietly } => write!(f, "DROP TAG {}{}", if_exists(*quietly), Name(name)),
            Self::NotNull { column, not_null } => {
                write!(f, "ALTER COLUMN {} {} NOT NULL", Name(&column.value), if *not_null { "SET" } else { "DROP" })
            }
        }
    }
}
