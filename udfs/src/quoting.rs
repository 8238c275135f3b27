//! `quote_ident`, `quote_literal` and `quote_nullable`: texts as parts of a statement.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::text_out::texts;

pub(crate) static QUOTE_IDENT: Function = Function {
    interface: Interface {
        name: "quote_ident",
        section: "Text",
        description: "A text as a name in a statement, in double quotes where it needs them. NULL for NULL.",
        parameters: &[Parameter { name: "name", kind: Kind::Text, description: "The name of a table, a column and the like." }],
        required: 1,
        example: ("SELECT quote_ident('Foo bar')", "\"Foo bar\""),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let names = arguments.text(0)?;
        Ok(Arc::new((0..arguments.num_rows()).map(|row| names.get(row).map(identifier)).collect::<StringArray>()) as ArrayRef)
    },
};

pub(crate) static QUOTE_LITERAL: Function = Function {
    interface: Interface {
        name: "quote_literal",
        section: "Text",
        description: "A value as a constant in a statement, in single quotes. NULL for NULL; `quote_nullable` gives the word.",
        parameters: &[Parameter { name: "value", kind: Kind::Any, description: "Any value." }],
        required: 1,
        example: ("SELECT quote_literal('O''Reilly')", "'O''Reilly'"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| quoted(arguments, None),
};

pub(crate) static QUOTE_NULLABLE: Function = Function {
    interface: Interface {
        name: "quote_nullable",
        section: "Text",
        description: "A value as a constant in a statement, in single quotes, or the word NULL.",
        parameters: &[Parameter { name: "value", kind: Kind::Any, description: "Any value." }],
        required: 1,
        example: ("SELECT quote_nullable(42)", "'42'"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| quoted(arguments, Some("NULL")),
};

fn quoted(arguments: &Arguments, null: Option<&str>) -> Result<ArrayRef> {
    let values = texts(arguments, 0, true)?;
    let quoted = values.iter().map(|value| value.map(literal).or_else(|| null.map(str::to_owned)));
    Ok(Arc::new(quoted.collect::<StringArray>()))
}

/// A text in single quotes; with backslashes in the form that reads them as such under every setting.
#[must_use]
pub fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}

/// A name, in double quotes unless it reads back without them.
#[must_use]
pub fn identifier(name: &str) -> String {
    let is_start = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let is_plain = name.bytes().next().is_some_and(is_start) && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit());
    if is_plain && KEYWORDS.binary_search(&name).is_err() { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// PostgreSQL 15's keywords that no name can be everywhere (Appendix C: all but the non-reserved ones), in order.
const KEYWORDS: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// From PostgreSQL's documentation, and of its keywords.
    #[test]
    fn names_and_constants_are_quoted_as_in_postgres() {
        for (name, expected) in [
            ("foo_1", "foo_1"),
            ("Foo bar", "\"Foo bar\""),
            ("1st", "\"1st\""),
            ("", "\"\""),
            ("select", "\"select\""),
            ("name", "name"),
            ("a\"b", "\"a\"\"b\""),
            ("wiki", "wiki"),
            ("Wiki", "\"Wiki\""),
            ("1a", "\"1a\""),
        ] {
            assert_eq!(identifier(name), expected);
        }
        assert_eq!(literal("O'Reilly"), "'O''Reilly'");
        assert_eq!((literal("it's"), literal("a\\b")), ("'it''s'".to_owned(), "E'a\\\\b'".to_owned()));
        assert_eq!(literal("a\\b'"), "E'a\\\\b'''");
        assert!(KEYWORDS.is_sorted(), "they are searched by halves");
    }
}
