//! `jsonb_order(json)`: bytes that are in the order in which PostgreSQL has values of jsonb, and equal where the values are.
//!
//! jsonb is kept as text, in which `1.0` and `1` differ and `10` comes before `9`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder};
use arrow::datatypes::DataType;

use super::document::{Document, Kind};
use super::number::Number;
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "jsonb_order",
        section: super::SECTION,
        description: "Bytes by which values of jsonb are compared and ordered as in PostgreSQL: `1.0` is `1`, an array of fewer items comes first.",
        parameters: &[super::JSON],
        required: 1,
        example: ("SELECT jsonb_order('[1.0]') = jsonb_order('[1]')", "true"),
    },
    returns: Returns::Always(DataType::Binary),
    kernel: |arguments| {
        let documents = arguments.text(0)?;
        let mut keys = BinaryBuilder::new();
        for row in 0..arguments.num_rows() {
            match documents.get(row) {
                Some(text) => {
                    let mut key = Vec::with_capacity(text.len() + 8);
                    write(Document::parse(text)?, true, &mut key);
                    keys.append_value(key);
                }
                None => keys.append_null(),
            }
        }
        Ok(Arc::new(keys.finish()) as ArrayRef)
    },
};

/// Kinds in PostgreSQL's order, from the least; an empty array at the outside comes before all others.
fn write(value: Document<'_>, is_outside: bool, out: &mut Vec<u8>) {
    match value.kind() {
        Kind::Array => {
            let items: Vec<Document> = value.items().collect();
            out.push(if is_outside && items.is_empty() { 0 } else { 6 });
            out.extend((items.len() as u64).to_be_bytes());
            items.into_iter().for_each(|item| write(item, false, out));
        }
        Kind::Null => out.push(1),
        Kind::String => {
            out.push(2);
            write_text(&value.string(), out);
        }
        Kind::Number => {
            out.push(3);
            Number::of(value.as_str()).write_order(out);
        }
        Kind::Boolean => out.push(if value.as_str() == "true" { 5 } else { 4 }),
        Kind::Object => {
            let entries: BTreeMap<(usize, String), Document> = value.entries().map(|(key, value)| ((key.len(), key), value)).collect();
            out.push(7);
            out.extend((entries.len() as u64).to_be_bytes());
            // Shorter keys come first within an object, and keys of two objects are compared as texts.
            for ((_, key), value) in entries {
                write_text(&key, out);
                write(value, false, out);
            }
        }
    }
}

/// Ends below every byte of a text, which has no zero.
fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        let mut key = Vec::new();
        write(Document::parse(text).expect("JSON"), true, &mut key);
        key
    }

    /// From PostgreSQL 15: `SELECT x FROM (VALUES ..) t(x jsonb) ORDER BY x`.
    #[test]
    fn values_are_ordered_as_in_postgres() {
        let ordered = [
            "[]",
            "null",
            r#""""#,
            r#""a""#,
            r#""ab""#,
            r#""b""#,
            "-1e400",
            "-2",
            "-1.5",
            "0",
            "0.1",
            "1",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "false",
            "true",
            "[null]",
            r#"["x"]"#,
            "[1]",
            "[2]",
            "[[]]",
            "[{}]",
            r#"["a", 1]"#,
            "[1, 1]",
            "{}",
            r#"{"a": 1}"#,
            r#"{"a": 2}"#,
            r#"{"aa": 1}"#,
            r#"{"b": 1}"#,
            r#"{"a": 1, "b": 1}"#,
        ];
        for pair in ordered.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{} and {}", pair[0], pair[1]);
        }
        for (one, other) in [("1.0", "1"), ("[0.10, -0]", "[0.1, 0.0]"), (r#"{"b": 1, "a": 1e2}"#, r#"{"a": 100, "b": 1.00}"#)] {
            assert_eq!(key(one), key(other), "{one} and {other}");
        }
    }
}
