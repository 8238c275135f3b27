//! `CREATE [TEMP] TABLE t (...)` and `CREATE [TEMP] TABLE t AS SELECT ...`.

use std::fmt;

use datafusion::sql::sqlparser::parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::eat_temporary;
use super::like_table::LikeTable;
use crate::ast::{
    ColumnDef, ColumnOption, ColumnOptionDef, DataType, Expr, GeneratedAs, GeneratedExpressionMode, Ident, ObjectName, Query,
    SequenceOptions,
};
use crate::error::{Error, Result};
use crate::name::{Columns, Name, Qualified, column, fold, if_not_exists, temporary};
use crate::parser::Parser;
use crate::type_modifiers::check_modifiers;

/// `CREATE [[GLOBAL | LOCAL] {TEMP | TEMPORARY}] TABLE [IF NOT EXISTS] t [(column, ..., LIKE other, ..., constraint, ...)] [ON COMMIT PRESERVE ROWS]
/// [AS query]`; columns, a query, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    pub name: ObjectName,
    /// Of the session alone, whatever schema the name says.
    pub temporary: bool,
    pub if_not_exists: bool,
    pub columns: Vec<ColumnDefinition>,
    /// Tables whose columns it has too, in their order.
    pub likes: Vec<LikeTable>,
    /// Of the table's own. See [`CreateTable::all_constraints`].
    pub constraints: Vec<TableConstraint>,
    /// The rows to start with.
    pub query: Option<Box<Query>>,
}

/// `[CONSTRAINT name] {PRIMARY KEY | UNIQUE} (column, ...)`, in CREATE TABLE and after ALTER TABLE ... ADD
#[derive(Debug, Clone, PartialEq)]
pub struct TableConstraint {
    /// `None`: the engine makes a name.
    pub name: Option<Ident>,
    pub is_primary: bool,
    /// At least one.
    pub columns: Vec<Ident>,
}

/// `name type [COMPRESSION method] [NOT NULL] [[CONSTRAINT name] PRIMARY KEY] [[CONSTRAINT name] UNIQUE] [DEFAULT expr] [GENERATED ALWAYS AS (expr) STORED]
/// [GENERATED {ALWAYS | BY DEFAULT} AS IDENTITY]`
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDefinition {
    pub name: Ident,
    /// `vector(384)` is `DataType::Custom`.
    pub data_type: DataType,
    pub not_null: bool,
    pub primary_key: Option<ColumnConstraint>,
    pub unique: Option<ColumnConstraint>,
    pub default: Option<Expr>,
    /// The expression of a stored generated column.
    pub generated: Option<Expr>,
    /// How its values are packed in files.
    pub compression: Option<Ident>,
    /// Numbered by the table; the types `serial` and `bigserial` say so too.
    pub identity: Option<Identity>,
}

/// A constraint in the definition of its column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnConstraint {
    /// `None`: the engine makes a name.
    pub name: Option<Ident>,
}

/// Whether an INSERT may give the number itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    Always,
    ByDefault,
}

/// Clauses of Postgres that may follow a table's columns.
const UNSUPPORTED_CLAUSES: &[&str] = &["INHERITS", "PARTITION", "WITH", "WITHOUT", "USING", "TABLESPACE", "ON", "OF", "LIKE"];

/// What a constraint of the table starts with, besides `PRIMARY KEY` and `UNIQUE`.
const UNSUPPORTED_CONSTRAINTS: &[&str] = &["CHECK", "FOREIGN", "EXCLUDE"];

impl CreateTable {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE")?;
        let temporary = eat_temporary(parser);
        parser.expect("TABLE")?;
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = parser.object_name("the table's name")?;
        let Items { columns, likes, constraints } = parse_items(parser)?;
        if temporary {
            parse_on_commit(parser)?;
        }
        // There is one place for tables, which pgAdmin names.
        parser.eat("TABLESPACE PG_DEFAULT");
        if let Some(clause) = parser.peek_word(0).filter(|word| UNSUPPORTED_CLAUSES.contains(&word.as_str())) {
            return Err(Error::not_supported(format!("CREATE TABLE ... {clause}")));
        }
        let query = if parser.eat("AS") { Some(parser.query()?) } else { None };
        if parser.eat("WITH NO DATA") {
            return Err(Error::not_supported_but("CREATE TABLE AS ... WITH NO DATA", "add LIMIT 0 to the query"));
        }
        parser.eat("WITH DATA");
        if !likes.is_empty() && query.is_some() {
            return Err(Error::not_supported_but("LIKE in CREATE TABLE AS", "name the columns in the query"));
        }
        if columns.is_empty() && likes.is_empty() && query.is_none() {
            return Err(parser.expected("the table's columns in parentheses, or AS and a query"));
        }
        Ok(Self { name, temporary, if_not_exists, columns, likes, constraints, query })
    }

    /// The primary key, at most one, and the UNIQUE constraints, wherever they were written.
    pub fn all_constraints(&self) -> Vec<TableConstraint> {
        let keys = self.columns.iter().filter_map(ColumnDefinition::primary_key_constraint);
        let unique = self.columns.iter().filter_map(ColumnDefinition::unique_constraint);
        keys.chain(unique).chain(self.constraints.iter().cloned()).collect()
    }

    fn has_primary_key(columns: &[ColumnDefinition], constraints: &[TableConstraint]) -> bool {
        columns.iter().any(|column| column.primary_key.is_some()) || constraints.iter().any(|constraint| constraint.is_primary)
    }
}

/// Reads `ON COMMIT PRESERVE ROWS`, which is how it is without it.
fn parse_on_commit(parser: &mut Parser) -> Result<()> {
    for action in ["DELETE ROWS", "DROP"] {
        if parser.is_at(&format!("ON COMMIT {action}")) {
            return Err(Error::not_supported_but(
                format!("ON COMMIT {action}"),
                "every statement commits by itself, so that the rows would be gone at once; leave it out, and write TRUNCATE or DROP TABLE where it shall end",
            ));
        }
    }
    if parser.eat("ON COMMIT") { parser.expect("PRESERVE ROWS") } else { Ok(()) }
}

#[derive(Default)]
struct Items {
    columns: Vec<ColumnDefinition>,
    likes: Vec<LikeTable>,
    constraints: Vec<TableConstraint>,
}

fn parse_items(parser: &mut Parser) -> Result<Items> {
    let mut items = Items::default();
    if !parser.is_left_parenthesis() {
        return Ok(items);
    }
    parser.parenthesized(|parser| {
        let key_exists = CreateTable::has_primary_key(&items.columns, &items.constraints);
        if let Some(like) = LikeTable::parse_optional(parser, items.columns.len())? {
            items.likes.push(like);
            return Ok(());
        }
        let is_key = if let Some(constraint) = TableConstraint::parse_optional(parser, "CREATE TABLE with")? {
            items.constraints.push(constraint);
            items.constraints.last().is_some_and(|constraint| constraint.is_primary)
        } else {
            items.columns.push(ColumnDefinition::parse(parser)?);
            items.columns.last().is_some_and(|column| column.primary_key.is_some())
        };
        if is_key && key_exists { Err(parser.error_here("a table has one primary key, here are two".to_string())) } else { Ok(()) }
    })?;
    Ok(items)
}

impl TableConstraint {
    /// `None`: what comes next is no constraint. `clause`: what it would be part of, for errors.
    pub(crate) fn parse_optional(parser: &mut Parser, clause: &str) -> Result<Option<Self>> {
        let name = if parser.eat("CONSTRAINT") { Some(parser.ident("the constraint's name")?) } else { None };
        let is_primary = parser.eat("PRIMARY KEY");
        if is_primary || parser.eat("UNIQUE") {
            let columns = parser.parenthesized(|parser| parser.ident("a column's name"))?;
            return Ok(Some(Self { name, is_primary, columns }));
        }
        match parser.peek_word(0) {
            Some(word) if UNSUPPORTED_CONSTRAINTS.contains(&word.as_str()) => Err(Error::not_supported(format!("{clause} {word}"))),
            _ if name.is_some() => Err(parser.expected("PRIMARY KEY or UNIQUE")),
            _ => Ok(None),
        }
    }
}

impl ColumnDefinition {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        if !matches!(parser.peek_token(), Token::Word(_)) {
            return Err(parser.expected("a column's name"));
        }
        let ColumnDef { name, data_type, options } = parser.ast(parser::Parser::parse_column_def)?;
        check_modifiers(&data_type)?;
        let (data_type, identity) = serial(data_type);
        let mut definition = Self {
            name: fold(name),
            data_type,
            not_null: identity.is_some(),
            primary_key: None,
            unique: None,
            default: None,
            generated: None,
            compression: None,
            identity,
        };
        for option in options {
            definition.set(option)?;
        }
        if parser.eat("COMPRESSION") {
            definition.compression = Some(parser.ident("the method: none or fsst")?);
            while let Some(option) = parser.ast(parser::Parser::parse_optional_column_option)? {
                definition.set(ColumnOptionDef { name: None, option })?;
            }
        }
        Ok(definition)
    }

    /// Its PRIMARY KEY, as a constraint of the table.
    #[must_use]
    pub fn primary_key_constraint(&self) -> Option<TableConstraint> {
        self.primary_key.as_ref().map(|constraint| self.as_table_constraint(constraint, true))
    }

    /// Its UNIQUE, as a constraint of the table.
    #[must_use]
    pub fn unique_constraint(&self) -> Option<TableConstraint> {
        self.unique.as_ref().map(|constraint| self.as_table_constraint(constraint, false))
    }

    fn as_table_constraint(&self, constraint: &ColumnConstraint, is_primary: bool) -> TableConstraint {
        TableConstraint { name: constraint.name.clone(), is_primary, columns: vec![self.name.clone()] }
    }

    /// Names of other constraints, such as NOT NULL, say nothing.
    fn set(&mut self, ColumnOptionDef { name, option }: ColumnOptionDef) -> Result<()> {
        let constraint = ColumnConstraint { name: name.map(fold) };
        match option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => self.not_null = true,
            ColumnOption::PrimaryKey(_) => self.primary_key = Some(constraint),
            ColumnOption::Unique(_) => self.unique = Some(constraint),
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
            ColumnOption::Generated { sequence_options: Some(options), .. }
                if !options.iter().all(|option| is_how_it_counts(option, &self.data_type)) =>
            {
                return Err(Error::not_supported_but(
                    "GENERATED AS IDENTITY with other options",
                    "it counts from 1 by 1, as far as the type goes",
                ));
            }
            ColumnOption::Generated { generated_as, .. } => {
                self.not_null = true;
                self.identity = Some(match generated_as {
                    GeneratedAs::ByDefault => Identity::ByDefault,
                    GeneratedAs::Always | GeneratedAs::ExpStored => Identity::Always,
                });
            }
            // Texts have one order, which has this name.
            ColumnOption::Collation(name) if is_default_collation(&name) => {}
            ColumnOption::Check(_) => return Err(Error::not_supported("CREATE TABLE with CHECK")),
            ColumnOption::ForeignKey(_) => return Err(Error::not_supported("CREATE TABLE with REFERENCES")),
            other => return Err(Error::not_supported(format!("the column option {other}"))),
        }
        Ok(())
    }
}

/// `COLLATE pg_catalog."default"`
fn is_default_collation(name: &ObjectName) -> bool {
    let parts: Vec<&str> = name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.as_str()).collect();
    matches!(parts.as_slice(), ["default"] | ["pg_catalog", "default"])
}

/// Whether an option of an identity column says what holds without it.
fn is_how_it_counts(option: &SequenceOptions, data_type: &DataType) -> bool {
    let largest = match data_type {
        DataType::SmallInt(_) | DataType::Int2(_) => i64::from(i16::MAX),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => i64::from(i32::MAX),
        _ => i64::MAX,
    };
    let is = |value: &Expr, wanted: i64| value.to_string() == wanted.to_string();
    match option {
        SequenceOptions::IncrementBy(value, _) | SequenceOptions::StartWith(value, _) | SequenceOptions::MinValue(Some(value)) => {
            is(value, 1)
        }
        SequenceOptions::MaxValue(Some(value)) => is(value, largest),
        // Whoever asks for numbers in advance may lose some of them, and asks for no more.
        SequenceOptions::MinValue(None) | SequenceOptions::MaxValue(None) | SequenceOptions::Cache(_) => true,
        // `true` is NO CYCLE.
        SequenceOptions::Cycle(is_off) => *is_off,
    }
}

/// `serial` is an integer that the table numbers.
fn serial(data_type: DataType) -> (DataType, Option<Identity>) {
    let DataType::Custom(name, modifiers) = &data_type else { return (data_type, None) };
    let word = match name.0.as_slice() {
        [part] if modifiers.is_empty() => part.as_ident().map(|ident| ident.value.to_ascii_lowercase()),
        _ => None,
    };
    match word.as_deref() {
        Some("serial" | "serial4") => (DataType::Integer(None), Some(Identity::ByDefault)),
        Some("bigserial" | "serial8") => (DataType::BigInt(None), Some(Identity::ByDefault)),
        Some("smallserial" | "serial2") => (DataType::SmallInt(None), Some(Identity::ByDefault)),
        _ => (data_type, None),
    }
}

impl fmt::Display for CreateTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, temporary: is_temporary, if_not_exists: quietly, columns, likes, constraints, query } = self;
        write!(f, "CREATE {}TABLE {}{}", temporary(*is_temporary), if_not_exists(*quietly), Qualified(name))?;
        let mut items: Vec<String> = columns.iter().map(ToString::to_string).collect();
        for like in likes.iter().rev() {
            items.insert(like.position, like.to_string());
        }
        items.extend(constraints.iter().map(ToString::to_string));
        if !items.is_empty() {
            write!(f, " ({})", items.join(", "))?;
        }
        match query {
            Some(query) => write!(f, " AS {query}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TableConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "CONSTRAINT {} ", Name(&name.value))?;
        }
        write!(f, "{}{}", if self.is_primary { "PRIMARY KEY" } else { "UNIQUE" }, Columns(&self.columns))
    }
}

impl fmt::Display for ColumnDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", column(&self.name), self.data_type)?;
        if let Some(method) = &self.compression {
            write!(f, " COMPRESSION {}", Name(&method.value))?;
        }
        if self.not_null {
            f.write_str(" NOT NULL")?;
        }
        for (constraint, words) in [(&self.primary_key, "PRIMARY KEY"), (&self.unique, "UNIQUE")] {
            match constraint {
                Some(ColumnConstraint { name: Some(name) }) => write!(f, " CONSTRAINT {} {words}", Name(&name.value))?,
                Some(ColumnConstraint { name: None }) => write!(f, " {words}")?,
                None => {}
            }
        }
        if let Some(expr) = &self.default {
            write!(f, " DEFAULT {expr}")?;
        }
        if let Some(expr) = &self.generated {
            write!(f, " GENERATED ALWAYS AS ({expr}) STORED")?;
        }
        match self.identity {
            Some(Identity::Always) => f.write_str(" GENERATED ALWAYS AS IDENTITY"),
            Some(Identity::ByDefault) => f.write_str(" GENERATED BY DEFAULT AS IDENTITY"),
            None => Ok(()),
        }
    }
}
