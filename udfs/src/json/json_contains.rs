use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;

use super::document::{self, Document};
use super::number::Number;
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "json_contains",
        section: super::SECTION,
        description: "Whether a JSON value contains another: an object every key of it with a value that contains its value, an array every \
            item of it, as PostgreSQL's `jsonb @> jsonb`.",
        parameters: &[super::JSON, Parameter { name: "part", kind: Kind::Text, description: "The JSON value to find in it." }],
        required: 2,
        example: ("SELECT json_contains('{\"a\": [1, 2], \"b\": 3}', '{\"a\": [2]}')", "true"),
    },
    returns: Returns::Always(DataType::Boolean),
    kernel: |arguments| {
        let (texts, parts) = (arguments.text(0)?, arguments.text(1)?);
        let found = (0..arguments.num_rows()).map(|row| {
            let both = texts.get(row).zip(parts.get(row));
            both.map(|(text, part)| Ok(contains(&value(text)?, &value(part)?, true))).transpose()
        });
        Ok(Arc::new(found.collect::<Result<BooleanArray, Error>>()?) as ArrayRef)
    },
};

/// A JSON value whose parts are found by their keys.
#[derive(PartialEq)]
enum Value<'a> {
    Object(BTreeMap<String, Value<'a>>),
    Array(Vec<Value<'a>>),
    String(String),
    Number(Number<'a>),
    Boolean(bool),
    Null,
}

impl<'a> Value<'a> {
    fn of(document: Document<'a>) -> Self {
        match document.kind() {
            document::Kind::Object => Self::Object(document.entries().map(|(key, value)| (key, Self::of(value))).collect()),
            document::Kind::Array => Self::Array(document.items().map(Self::of).collect()),
            document::Kind::String => Self::String(document.string()),
            document::Kind::Number => Self::Number(Number::of(document.as_str())),
            document::Kind::Boolean => Self::Boolean(document.as_str() == "true"),
            document::Kind::Null => Self::Null,
        }
    }
}

fn value(text: &str) -> Result<Value<'_>, Error> {
    Ok(Value::of(Document::parse(text)?))
}

/// PostgreSQL's rules; only at the outside does an array contain a scalar that is one of its items.
fn contains(whole: &Value<'_>, part: &Value<'_>, is_outside: bool) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part, false)))
        }
        (Value::Array(whole), Value::Array(part)) => part.iter().all(|part| whole.iter().any(|whole| contains(whole, part, false))),
        (Value::Array(whole), part) if is_outside && !matches!(part, Value::Object(_)) => whole.contains(part),
        (whole, part) => whole == part,
    }
}

#[cfg(test)]
mod tests {
    use super::{contains, value};

    #[test]
    fn follows_postgres() {
        let holds = |whole, part| contains(&value(whole).expect("JSON"), &value(part).expect("JSON"), true);
        for (whole, part, expected) in [
            (r#"{"a": [1, 2, {"b": 3, "c": 4}]}"#, r#"{"a": [{"b": 3}, 2]}"#, true),
            ("[1, 2, 2.0]", "[2, 2, 2]", true),
            (r#"["x", "y"]"#, r#""x""#, true),
            (r#"{"a": 1}"#, "{}", true),
            (r#"{"a": 1}"#, r#"{"a": 2}"#, false),
            (r#"{"a": ["x"]}"#, r#"{"a": "x"}"#, false),
            (r#""x""#, r#"["x"]"#, false),
            (r#"{"a": {"b": 1}}"#, r#"{"b": 1}"#, false),
            ("[1e400]", "[10e399]", true),
            ("[9007199254740993]", "[9007199254740992]", false),
            ("[0.10]", "[0.1]", true),
        ] {
            assert_eq!(holds(whole, part), expected, "{whole} and {part}");
        }
    }
}
