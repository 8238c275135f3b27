//! Options: `WITH (name = value, ...)` and COPY's `(FORMAT jsonl, HEADER true)`.
//!
//! Which options exist, and their types, is known to who executes the statement.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Error, Result};
use crate::name::{Name, Separated, Text};
use crate::parser::Parser;

/// Named values in the order in which they were written; names are in lower case and differ.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options(Vec<(String, OptionValue)>);

/// One value of an option or setting.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// `'text'`, or a bare word in lower case: `hnsw` and `'hnsw'` are the same.
    Text(String),
    /// A number without point or exponent.
    Integer(i64),
    /// Any other number; finite.
    Float(f64),
    /// `true` or `false`; an option without a value is `true`. Other spellings (`on`, `off`) are [`OptionValue::Text`].
    Boolean(bool),
    /// `NULL`.
    Null,
    /// `['a', 'b']`, `ARRAY['a', 'b']` or `('a', 'b')`; not nested.
    List(Vec<OptionValue>),
}

impl Options {
    /// The value of the option of that name (in lower case), if it was given.
    pub fn get(&self, name: &str) -> Option<&OptionValue> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Names and values, as ordered in the text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &OptionValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether no option was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of options.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Options from names (in lower case) and values.
    ///
    /// # Errors
    /// [`Error::Option`] if a name comes twice.
    pub fn new(entries: Vec<(String, OptionValue)>) -> Result<Self> {
        for (i, (name, _)) in entries.iter().enumerate() {
            if entries[..i].iter().any(|(earlier, _)| earlier == name) {
                return Err(Error::Option { name: name.clone(), problem: "is given twice".to_string() });
            }
        }
        Ok(Self(entries))
    }

    /// These and one more.
    ///
    /// # Errors
    /// [`Error::Option`] if there is one of that name.
    pub(crate) fn with(self, name: &str, value: OptionValue) -> Result<Self> {
        let mut entries = self.0;
        entries.push((name.to_owned(), value));
        Self::new(entries)
    }

    /// Reads `WITH (name = value, ...)`, or nothing.
    pub(crate) fn parse_with(parser: &mut Parser) -> Result<Self> {
        if !parser.eat("WITH") {
            return Ok(Self::default());
        }
        Self::new(parser.parenthesized(parse_assignment)?)
    }

    /// Reads COPY's `[WITH] (NAME value, ...)`, or nothing.
    pub(crate) fn parse_copy(parser: &mut Parser) -> Result<Self> {
        if !parser.eat("WITH") && !parser.is_left_parenthesis() {
            return Ok(Self::default());
        }
        Self::new(parser.parenthesized(parse_pair)?)
    }

    /// Prints ` WITH (name = value, ...)`, or nothing.
    pub(crate) fn display_with(&self) -> impl fmt::Display + '_ {
        Clause { options: self, before: " WITH (", between: " = " }
    }

    /// Prints ` (name value, ...)`, or nothing.
    pub(crate) fn display_copy(&self) -> impl fmt::Display + '_ {
        Clause { options: self, before: " (", between: " " }
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{}", Text(text)),
            Self::Integer(value) => write!(f, "{value}"),
            // Debug prints a point or an exponent for every finite number, so it is read as a float again.
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Null => f.write_str("NULL"),
            Self::List(values) => write!(f, "[{}]", Separated(values.iter())),
        }
    }
}

struct Clause<'a> {
    options: &'a Options,
    before: &'static str,
    between: &'static str,
}

impl fmt::Display for Clause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.options.is_empty() {
            return Ok(());
        }
        f.write_str(self.before)?;
        for (i, (name, value)) in self.options.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{}{}{value}", Name(name), self.between)?;
        }
        f.write_str(")")
    }
}

/// `name = value`; a name alone means `true`, as for Postgres' storage parameters.
fn parse_assignment(parser: &mut Parser) -> Result<(String, OptionValue)> {
    let name = parse_name(parser)?;
    if parser.eat_token(&Token::Eq) {
        let value = parse_value(parser, &name)?;
        Ok((name, value))
    } else if is_at_end_of_option(parser) {
        Ok((name, OptionValue::Boolean(true)))
    } else {
        Err(parser.expected(&format!("\"=\" after the option's name \"{name}\"")))
    }
}

/// `NAME value` or `NAME`; DuckDB's `name = value` is taken too.
fn parse_pair(parser: &mut Parser) -> Result<(String, OptionValue)> {
    let name = parse_name(parser)?;
    let has_sign = parser.eat_token(&Token::Eq);
    if !has_sign && is_at_end_of_option(parser) {
        return Ok((name, OptionValue::Boolean(true)));
    }
    // FORCE_QUOTE * means all columns.
    let value = if parser.eat_token(&Token::Mul) { OptionValue::Text("*".to_string()) } else { parse_value(parser, &name)? };
    Ok((name, value))
}

/// An option's name may be a reserved word (COPY has NULL and DEFAULT).
fn parse_name(parser: &mut Parser) -> Result<String> {
    match parser.peek_token() {
        Token::Word(word) => {
            let name = word.value.to_lowercase();
            parser.next_token();
            Ok(name)
        }
        _ => Err(parser.expected("an option's name")),
    }
}

fn is_at_end_of_option(parser: &Parser) -> bool {
    matches!(parser.peek_token(), Token::Comma | Token::RParen)
}

fn parse_value(parser: &mut Parser, name: &str) -> Result<OptionValue> {
    let is_array = parser.peek_word(0).as_deref() == Some("ARRAY");
    if is_array {
        parser.next_token();
    }
    match parser.peek_token() {
        Token::LBracket => parse_list(parser, name, &Token::LBracket, &Token::RBracket),
        Token::LParen if !is_array => parse_list(parser, name, &Token::LParen, &Token::RParen),
        _ if is_array => Err(parser.expected("\"[\"")),
        _ => parse_scalar(parser, name),
    }
}

fn parse_list(parser: &mut Parser, name: &str, open: &Token, close: &Token) -> Result<OptionValue> {
    Ok(OptionValue::List(parser.list(open, close, |parser| parse_scalar(parser, name))?))
}

/// Reads one value; `name` is the option's or setting's, for errors.
pub(crate) fn parse_scalar(parser: &mut Parser, name: &str) -> Result<OptionValue> {
    if let Some(text) = parser.optional_string() {
        return Ok(OptionValue::Text(text));
    }
    match parser.peek_token().clone() {
        Token::Word(word) if word.quote_style.is_some() => Ok(OptionValue::Text(parser.reference("a value")?)),
        Token::Word(word) => parse_word(parser, &word.value),
        Token::Number(digits, _) => {
            parser.next_token();
            parse_number(name, &digits)
        }
        Token::Minus | Token::Plus => parse_signed(parser, name),
        _ => Err(parser.expected(&format!("a value for \"{name}\""))),
    }
}

fn parse_word(parser: &mut Parser, word: &str) -> Result<OptionValue> {
    let value = match word.to_ascii_uppercase().as_str() {
        "TRUE" => OptionValue::Boolean(true),
        "FALSE" => OptionValue::Boolean(false),
        "NULL" => OptionValue::Null,
        // A reserved word all the same: `SET standard_conforming_strings = on`.
        "ON" | "ALL" | "DEFAULT" => OptionValue::Text(word.to_lowercase()),
        _ => return Ok(OptionValue::Text(parser.reference("a value")?)),
    };
    parser.next_token();
    Ok(value)
}

fn parse_signed(parser: &mut Parser, name: &str) -> Result<OptionValue> {
    let sign = parser.next_token();
    match parser.peek_token().clone() {
        Token::Number(digits, _) => {
            parser.next_token();
            parse_number(name, &format!("{sign}{digits}"))
        }
        _ => Err(parser.expected(&format!("a number for \"{name}\""))),
    }
}

fn parse_number(name: &str, digits: &str) -> Result<OptionValue> {
    let digits = digits.replace('_', "");
    let is_integer = !digits.contains(['.', 'e', 'E']);
    let value = if is_integer {
        digits.parse().ok().map(OptionValue::Integer)
    } else {
        digits.parse().ok().filter(|value: &f64| value.is_finite()).map(OptionValue::Float)
    };
    value.ok_or_else(|| Error::Option { name: name.to_string(), problem: format!("has the number {digits}, which is out of range") })
}
