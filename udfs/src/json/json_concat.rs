use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};

use super::document::{Document, Kind as JsonKind};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::text_type::TextType;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "jsonb_concat",
        section: super::SECTION,
        description: "Two JSON values as one: of objects the members of both, where the second one's count; else one array of the items of both, a value that is \
            no array being an item; `jsonb || jsonb` does the same. NULL for NULL.",
        parameters: &[super::JSON, Parameter { name: "other", kind: Kind::Text, description: "A JSON text." }],
        required: 2,
        example: ("SELECT jsonb_concat('{\"a\": 1, \"b\": 2}', '{\"b\": 3}')", r#"{"a": 1, "b": 3}"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| {
        let (lefts, rights) = (arguments.text(0)?, arguments.text(1)?);
        let joined = (0..arguments.num_rows()).map(|row| {
            let both = lefts.get(row).zip(rights.get(row));
            both.map(|(left, right)| concatenated(left, right)).transpose()
        });
        Ok(Arc::new(joined.collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

fn concatenated(left: &str, right: &str) -> Result<String, Error> {
    let (left, right) = (Document::parse(left)?, Document::parse(right)?);
    let (open, close) = if [left, right].iter().all(|value| value.kind() == JsonKind::Object) { ('{', '}') } else { ('[', ']') };
    let parts: Vec<&str> = [left, right].into_iter().map(|value| parts(value, open)).filter(|parts| !parts.trim().is_empty()).collect();
    // Of members with one key the last counts.
    super::normalize(&format!("{open}{}{close}", parts.join(",")))
}

/// What stands between the brackets of an object or array of this kind; any other value is an item.
fn parts(value: Document<'_>, open: char) -> &str {
    let text = value.as_str();
    if text.starts_with(open) { &text[1..text.len() - 1] } else { text }
}

#[cfg(test)]
mod tests {
    use super::concatenated;

    /// Checked against PostgreSQL 15.
    #[test]
    fn follows_postgres() {
        for (left, right, expected) in [
            (r#"{"a":1,"b":{"x":1}}"#, r#"{"b":2}"#, r#"{"a": 1, "b": 2}"#),
            ("{}", r#"{"b":2}"#, r#"{"b": 2}"#),
            ("[1]", "2", "[1, 2]"),
            ("1", "[2]", "[1, 2]"),
            ("1", "\"a\"", r#"[1, "a"]"#),
            (r#"{"a":1}"#, "[1]", r#"[{"a": 1}, 1]"#),
            ("[1]", "{}", "[1, {}]"),
            (r#"{"a":1}"#, "2", r#"[{"a": 1}, 2]"#),
            ("[ ]", "[]", "[]"),
            ("null", "null", "[null, null]"),
        ] {
            assert_eq!(concatenated(left, right).as_deref(), Ok(expected), "{left} || {right}");
        }
        assert!(concatenated("{", "{}").is_err());
    }
}
