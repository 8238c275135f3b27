//! `COMMENT ON TABLE t IS 'text'`.

use std::fmt;

use crate::ast::ObjectName;
use crate::error::{Error, Result};
use crate::name::{Name, Qualified, Text};
use crate::parser::Parser;

/// `COMMENT ON {TABLE | VIEW | COLUMN | INDEX | SCHEMA} name IS {'text' | NULL}`
#[derive(Debug, Clone, PartialEq)]
pub struct Comment {
    pub on: CommentedObject,
    /// `None`: there shall be no comment.
    pub text: Option<String>,
}

/// What a comment is on.
#[derive(Debug, Clone, PartialEq)]
pub enum CommentedObject {
    Table(ObjectName),
    View(ObjectName),
    /// Of a table or a view.
    Column {
        relation: ObjectName,
        column: String,
    },
    Index(ObjectName),
    Schema(String),
}

impl Comment {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("COMMENT ON")?;
        let on = if parser.eat("TABLE") {
            CommentedObject::Table(parser.object_name("the table's name")?)
        } else if parser.eat("VIEW") {
            CommentedObject::View(parser.object_name("the view's name")?)
        } else if parser.eat("COLUMN") {
            column(parser)?
        } else if parser.eat("INDEX") {
            CommentedObject::Index(parser.object_name("the index's name")?)
        } else if parser.eat("SCHEMA") {
            CommentedObject::Schema(parser.name("the schema's name")?)
        } else {
            return Err(match parser.peek_word(0) {
                Some(kind) => Error::not_supported_but(format!("COMMENT ON {kind}"), "TABLE, VIEW, COLUMN, INDEX and SCHEMA take comments"),
                None => parser.expected("TABLE, VIEW, COLUMN, INDEX or SCHEMA"),
            });
        };
        parser.expect("IS")?;
        let text = if parser.eat("NULL") { None } else { Some(parser.string("the comment in quotes, or NULL")?) };
        // An empty comment is none, as in PostgreSQL.
        Ok(Self { on, text: text.filter(|text| !text.is_empty()) })
    }
}

/// `table.column`, perhaps with the table's schema.
fn column(parser: &mut Parser) -> Result<CommentedObject> {
    let mut name = parser.object_name("the column's name, after its table's and a dot")?;
    let column = name.0.pop().and_then(|part| part.as_ident().map(|ident| ident.value.clone()));
    match column {
        Some(column) if !name.0.is_empty() => Ok(CommentedObject::Column { relation: name, column }),
        _ => Err(parser.error_here("a column is named with its table: COMMENT ON COLUMN table.column".to_owned())),
    }
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.on {
            CommentedObject::Table(name) => write!(f, "COMMENT ON TABLE {}", Qualified(name))?,
            CommentedObject::View(name) => write!(f, "COMMENT ON VIEW {}", Qualified(name))?,
            CommentedObject::Column { relation, column } => write!(f, "COMMENT ON COLUMN {}.{}", Qualified(relation), Name(column))?,
            CommentedObject::Index(name) => write!(f, "COMMENT ON INDEX {}", Qualified(name))?,
            CommentedObject::Schema(name) => write!(f, "COMMENT ON SCHEMA {}", Name(name))?,
        }
        match &self.text {
            Some(text) => write!(f, " IS {}", Text(text)),
            None => f.write_str(" IS NULL"),
        }
    }
}
