//! Names: folded to lower case when read unquoted, as in Postgres, and quoted again when printed if they have to be.

use std::fmt;

use crate::ast::{Ident, ObjectName, ObjectNamePart};
use crate::error::Result;
use crate::parser::Parser;

/// Words that cannot be a name without quotes: those of Postgres' reserved words that a clause of ours can start with, so that
/// `CREATE MODEL FROM ...` is a missing name and not a model called "from".
const RESERVED: &[&str] = &[
    "all",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "case",
    "check",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "default",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "in",
    "inner",
    "intersect",
    "into",
    "is",
    "join",
    "lateral",
    "left",
    "like",
    "limit",
    "natural",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "primary",
    "references",
    "returning",
    "right",
    "select",
    "table",
    "then",
    "to",
    "true",
    "union",
    "unique",
    "using",
    "values",
    "when",
    "where",
    "window",
    "with",
];

pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// Lower case, unless the name was quoted; then quoted only if it has to be, so that `wiki`, `WIKI` and `"wiki"` are equal.
pub(crate) fn fold(ident: Ident) -> Ident {
    let value = if ident.quote_style.is_some() { ident.value } else { ident.value.to_ascii_lowercase() };
    let quote_style = if is_plain(&value) { None } else { Some('"') };
    Ident { value, quote_style, span: ident.span }
}

/// [`fold`], for every part of the name.
pub(crate) fn fold_object_name(name: ObjectName) -> ObjectName {
    ObjectName(
        name.0
            .into_iter()
            .map(|part| match part {
                ObjectNamePart::Identifier(ident) => ObjectNamePart::Identifier(fold(ident)),
                function => function,
            })
            .collect(),
    )
}

/// Prints a folded name so that reading it gives the name again: quoted if it has to be.
pub(crate) struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) { f.write_str(self.0) } else { write!(f, "\"{}\"", self.0.replace('"', "\"\"")) }
    }
}

fn is_plain(name: &str) -> bool {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|first| first.is_ascii_lowercase() || first == '_');
    starts && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '$') && !is_reserved(name)
}

/// Prints the name of a model or of one of its versions: `policy`, `'policy@3'`.
pub(crate) struct Reference<'a>(pub &'a str);

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains('@') { write!(f, "{}", Text(self.0)) } else { write!(f, "{}", Name(self.0)) }
    }
}

/// Prints a string literal.
pub(crate) struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', "''"))
    }
}

/// Prints `(a, "B")` with a space before it, or nothing if there are no columns.
pub(crate) struct Columns<'a>(pub &'a [Ident]);

impl fmt::Display for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", Separated(self.0.iter().map(column))) }
    }
}

/// Prints a column's name, quoted if it has to be.
pub(crate) fn column(ident: &Ident) -> Name<'_> {
    Name(&ident.value)
}

/// Prints a qualified name.
pub(crate) struct Qualified<'a>(pub &'a ObjectName);

impl fmt::Display for Qualified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.0.0.iter().enumerate() {
            let dot = if i > 0 { "." } else { "" };
            match part {
                ObjectNamePart::Identifier(ident) => write!(f, "{dot}{}", Name(&ident.value))?,
                function => write!(f, "{dot}{function}")?,
            }
        }
        Ok(())
    }
}

/// Prints items with `, ` between them.
pub(crate) struct Separated<I>(pub I);

impl<I: Iterator<Item: fmt::Display> + Clone> fmt::Display for Separated<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.0.clone().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{item}")?;
        }
        Ok(())
    }
}

/// `IF EXISTS `, if it was there.
pub(crate) fn if_exists(yes: bool) -> &'static str {
    if yes { "IF EXISTS " } else { "" }
}

/// `IF NOT EXISTS `, if it was there.
pub(crate) fn if_not_exists(yes: bool) -> &'static str {
    if yes { "IF NOT EXISTS " } else { "" }
}

/// `TEMP `, if it was there.
pub(crate) fn temporary(yes: bool) -> &'static str {
    if yes { "TEMP " } else { "" }
}

/// Reads `(a, b)`, or nothing.
pub(crate) fn parse_optional_columns(parser: &mut Parser) -> Result<Vec<Ident>> {
    if parser.is_left_parenthesis() { parser.parenthesized(|parser| parser.ident("a column's name")) } else { Ok(Vec::new()) }
}
