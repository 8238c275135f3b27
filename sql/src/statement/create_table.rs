//! `CREATE TABLE t (...)` and `CREATE TABLE t AS SELECT ...`.

use std::fmt;

use datafusion::sql::sqlparser::parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::ast::{ColumnDef, ColumnOption, DataType, Expr, GeneratedAs, GeneratedExpressionMode, Ident, ObjectName, Query};
use crate::error::{Error, Result};
use crate::name::{Columns, Qualified, column, fold, if_not_exists};
use crate::parser::Parser;

/// `CREATE TABLE [IF NOT EXISTS] t [(column, ..., [PRIMARY KEY (a, b)])] [AS query]`; columns, a query, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    pub name: ObjectName,
    pub if_not_exists: bool,
    pub columns: Vec<ColumnDefinition>,
    /// The columns of a `PRIMARY KEY (a, b)` of the table's own; empty if there is none. See [`CreateTable::primary_key_columns`].
    pub primary_key: Vec<Ident>,
    /// The rows to start with.
    pub query: Option<Box<Query>>,
}

/// `name type [NOT NULL] [PRIMARY KEY] [UNIQUE] [DEFAULT expr] [GENERATED ALWAYS AS (expr) STORED]`
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDefinition {
    pub name: Ident,
    /// `vector(384)` is `DataType::Custom`.
    pub data_type: DataType,
    pub not_null: bool,
    pub primary_key: bool,
    pub unique: bool,
    pub default: Option<Expr>,
    /// The expression of a stored generated column.
    pub generated: Option<Expr>,
}

/// Clauses of Postgres that may follow a table's columns.
const UNSUPPORTED_CLAUSES: &[&str] = &["INHERITS", "PARTITION", "WITH", "WITHOUT", "USING", "TABLESPACE", "ON", "OF", "LIKE"];

/// What a constraint of the table starts with, besides `PRIMARY KEY`.
const UNSUPPORTED_CONSTRAINTS: &[&str] = &["UNIQUE", "CHECK", "FOREIGN", "EXCLUDE", "LIKE"];

enum Item {
    Column(Box<ColumnDefinition>),
    PrimaryKey(Vec<Ident>),
}

impl CreateTable {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE TABLE")?;
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = parser.object_name("the table's name")?;
        let (columns, primary_key) = parse_items(parser)?;
        if let Some(clause) = parser.peek_word(0).filter(|word| UNSUPPORTED_CLAUSES.contains(&word.as_str())) {
            return Err(Error::not_supported(format!("CREATE TABLE ... {clause}")));
        }
        let query = if parser.eat("AS") { Some(parser.query()?) } else { None };
        if parser.eat("WITH NO DATA") {
            return Err(Error::not_supported_but("CREATE TABLE AS ... WITH NO DATA", "add LIMIT 0 to the query"));
        }
        parser.eat("WITH DATA");
        if columns.is_empty() && query.is_none() {
            return Err(parser.expected("the table's columns in parentheses, or AS and a query"));
        }
        Ok(Self { name, if_not_exists, columns, primary_key, query })
    }

    /// The columns of the primary key, wherever it was written; empty if there is none.
    pub fn primary_key_columns(&self) -> Vec<&Ident> {
        let own = self.columns.iter().filter(|column| column.primary_key).map(|column| &column.name);
        own.chain(&self.primary_key).collect()
    }
}

fn parse_items(parser: &mut Parser) -> Result<(Vec<ColumnDefinition>, Vec<Ident>)> {
    if !parser.is_left_parenthesis() {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut columns: Vec<ColumnDefinition> = Vec::new();
    let mut primary_key = Vec::new();
    parser.parenthesized(|parser| {
        let key_exists = !primary_key.is_empty() || columns.iter().any(|column| column.primary_key);
        let is_key = match parse_item(parser)? {
            Item::Column(column) => {
                columns.push(*column);
                columns.last().is_some_and(|column| column.primary_key)
            }
            Item::PrimaryKey(key) => {
                primary_key = key;
                true
            }
        };
        if is_key && key_exists { Err(parser.error_here("a table has one primary key, here are two".to_string())) } else { Ok(()) }
    })?;
    Ok((columns, primary_key))
}

fn parse_item(parser: &mut Parser) -> Result<Item> {
    if parser.eat("CONSTRAINT") {
        // Nothing shows or drops a constraint by its name, so the name is read and forgotten.
        parser.ident("the constraint's name")?;
        if !parser.is_at("PRIMARY KEY") && !parser.peek_word(0).is_some_and(|word| UNSUPPORTED_CONSTRAINTS.contains(&word.as_str())) {
            return Err(parser.expected("PRIMARY KEY"));
        }
    }
    if parser.eat("PRIMARY KEY") {
        return Ok(Item::PrimaryKey(parser.parenthesized(|parser| parser.ident("a column's name"))?));
    }
    match parser.peek_word(0) {
        Some(word) if UNSUPPORTED_CONSTRAINTS.contains(&word.as_str()) => Err(Error::not_supported(format!("CREATE TABLE with {word}"))),
        _ => Ok(Item::Column(Box::new(ColumnDefinition::parse(parser)?))),
    }
}

impl ColumnDefinition {
    fn parse(parser: &mut Parser) -> Result<Self> {
        if !matches!(parser.peek_token(), Token::Word(_)) {
            return Err(parser.expected("a column's name"));
        }
        let ColumnDef { name, data_type, options } = parser.ast(parser::Parser::parse_column_def)?;
        let mut definition =
            Self { name: fold(name), data_type, not_null: false, primary_key: false, unique: false, default: None, generated: None };
        for option in options {
            definition.set(option.option)?;
        }
        Ok(definition)
    }

    fn set(&mut self, option: ColumnOption) -> Result<()> {
        match option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => self.not_null = true,
            ColumnOption::PrimaryKey(_) => self.primary_key = true,
            ColumnOption::Unique(_) => self.unique = true,
            ColumnOption::Default(expr) => self.default = Some(expr),
            ColumnOption::Generated {
                generated_as: GeneratedAs::Always | GeneratedAs::ExpStored,
                generation_expr: Some(expr),
                generation_expr_mode: Some(GeneratedExpressionMode::Stored),
                sequence_options: None,
                ..
            } => self.generated = Some(expr),
            ColumnOption::Generated { generation_expr: Some(_), .. } => {
                return Err(Error::not_supported_but("a generated column that is not STORED", "add STORED"));
            }
            ColumnOption::Generated { .. } => return Err(Error::not_supported("GENERATED AS IDENTITY")),
            ColumnOption::Check(_) => return Err(Error::not_supported("CREATE TABLE with CHECK")),
            ColumnOption::ForeignKey(_) => return Err(Error::not_supported("CREATE TABLE with REFERENCES")),
            other => return Err(Error::not_supported(format!("the column option {other}"))),
        }
        Ok(())
    }
}

impl fmt::Display for CreateTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, if_not_exists: quietly, columns, primary_key, query } = self;
        write!(f, "CREATE TABLE {}{}", if_not_exists(*quietly), Qualified(name))?;
        for (i, column) in columns.iter().enumerate() {
            write!(f, "{}{column}", if i == 0 { " (" } else { ", " })?;
        }
        if !primary_key.is_empty() {
            write!(f, "{}PRIMARY KEY{}", if columns.is_empty() { " (" } else { ", " }, Columns(primary_key))?;
        }
        if !columns.is_empty() || !primary_key.is_empty() {
            f.write_str(")")?;
        }
        match query {
            Some(query) => write!(f, " AS {query}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ColumnDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", column(&self.name), self.data_type)?;
        for (is_set, words) in [(self.not_null, " NOT NULL"), (self.primary_key, " PRIMARY KEY"), (self.unique, " UNIQUE")] {
            if is_set {
                f.write_str(words)?;
            }
        }
        if let Some(expr) = &self.default {
            write!(f, " DEFAULT {expr}")?;
        }
        match &self.generated {
            Some(expr) => write!(f, " GENERATED ALWAYS AS ({expr}) STORED"),
            None => Ok(()),
        }
    }
}
