use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;
use serde_json::Value;

use super::document::Document;
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

fn value(text: &str) -> Result<Value, Error> {
    let document = Document::parse(text)?;
    serde_json::from_str(document.as_str()).map_err(|error| Error::JsonText { text: text.to_owned(), reason: error.to_string() })
}

/// PostgreSQL's rules; only at the outside does an array contain a scalar that is one of its items.
fn contains(whole: &Value, part: &Value, is_outside: bool) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part, false)))
        }
        (Value::Array(whole), Value::Array(part)) => part.iter().all(|part| whole.iter().any(|whole| contains(whole, part, false))),
        (Value::Array(whole), part) if is_outside && !part.is_object() => whole.contains(part),
        (Value::Number(whole), Value::Number(part)) => whole == part || whole.as_f64() == part.as_f64(),
        (whole, part) => whole == part,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::contains;

    #[test]
    fn follows_postgres() {
        let holds = |whole, part| contains(&whole, &part, true);
        assert!(holds(json!({"a": [1, 2, {"b": 3, "c": 4}]}), json!({"a": [{"b": 3}, 2]})));
        assert!(holds(json!([1, 2, 2.0]), json!([2, 2, 2])));
        assert!(holds(json!(["x", "y"]), json!("x")));
        assert!(holds(json!({"a": 1}), json!({})));
        assert!(!holds(json!({"a": 1}), json!({"a": 2})));
        assert!(!holds(json!({"a": ["x"]}), json!({"a": "x"})), "not inside");
        assert!(!holds(json!("x"), json!(["x"])));
        assert!(!holds(json!({"a": {"b": 1}}), json!({"b": 1})));
    }
}
