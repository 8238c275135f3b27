//! A `jsonb` value with one part another: what `jsonb_set`, `jsonb_insert`, `-` and `#-` do.

use super::document::{Document, Kind};
use super::normal_form::quoted;
use crate::Error;

/// What becomes of the place at the end of a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'a> {
    /// The value, also where there is nothing yet if `creates`.
    Set {
        value: &'a str,
        creates: bool,
    },
    /// A new item before or behind that one, or a new key.
    Insert {
        value: &'a str,
        is_after: bool,
    },
    Delete,
}

/// The document after the change; a path that leads nowhere changes nothing.
///
/// # Errors
/// [`Error::JsonKind`] for a document without parts, [`Error::JsonPathStep`] for a step into an array that is no number, [`Error::Argument`] for an insertion
/// at a key that is there.
pub(super) fn changed(document: Document<'_>, path: &[String], change: Change<'_>) -> Result<String, Error> {
    if !matches!(document.kind(), Kind::Object | Kind::Array) {
        return Err(Error::JsonKind { expected: "object or array", found: document.kind().name() });
    }
    at(document, path, 1, change)
}

fn at(document: Document<'_>, path: &[String], position: usize, change: Change<'_>) -> Result<String, Error> {
    let Some((step, rest)) = path.split_first() else { return Ok(document.as_str().to_owned()) };
    match document.kind() {
        Kind::Object => in_object(document, step, rest, position, change),
        Kind::Array => in_array(document, step, rest, position, change),
        _ => Ok(document.as_str().to_owned()),
    }
}

fn in_object(document: Document<'_>, step: &str, rest: &[String], position: usize, change: Change<'_>) -> Result<String, Error> {
    let mut members = Vec::new();
    let mut is_there = false;
    for (key, value) in document.entries() {
        let new = match (key == step, rest.is_empty(), change) {
            (false, ..) => value.as_str().to_owned(),
            (true, false, _) => at(value, rest, position + 1, change)?,
            (true, true, Change::Set { value, .. }) => value.to_owned(),
            (true, true, Change::Insert { .. }) => {
                let expected = "a key that is not there; jsonb_set replaces".to_owned();
                return Err(Error::Argument { function: "jsonb_insert", argument: "path", found: format!("\"{step}\""), expected });
            }
            (true, true, Change::Delete) => continue,
        };
        is_there |= key == step;
        members.push(format!("{}: {new}", quoted(&key)));
    }
    match change {
        Change::Set { value, creates: true } | Change::Insert { value, .. } if !is_there && rest.is_empty() => {
            members.push(format!("{}: {value}", quoted(step)));
        }
        _ => {}
    }
    Ok(format!("{{{}}}", members.join(", ")))
}

fn in_array(document: Document<'_>, step: &str, rest: &[String], position: usize, change: Change<'_>) -> Result<String, Error> {
    let index: i64 = step.trim().parse().map_err(|_| Error::JsonPathStep { position, step: step.chars().take(60).collect() })?;
    let mut items: Vec<String> = document.items().map(|item| item.as_str().to_owned()).collect();
    let length = items.len() as i64;
    let place = if index < 0 { index + length } else { index };
    let found = usize::try_from(place).ok().filter(|place| *place < items.len());
    match (found, rest.is_empty(), change) {
        (Some(place), false, _) => items[place] = at(document.item(place as i64).expect("it is there"), rest, position + 1, change)?,
        (Some(place), true, Change::Set { value, .. }) => value.clone_into(&mut items[place]),
        (Some(place), true, Change::Insert { value, is_after }) => items.insert(place + usize::from(is_after), value.to_owned()),
        (Some(place), true, Change::Delete) => drop(items.remove(place)),
        // Beyond an end a new item goes to that end.
        (None, true, Change::Set { value, creates: true } | Change::Insert { value, .. }) => {
            let end = if place < 0 { 0 } else { items.len() };
            items.insert(end, value.to_owned());
        }
        (None, ..) => {}
    }
    Ok(format!("[{}]", items.join(", ")))
}

/// The document without some keys, or strings that are equal to one.
///
/// # Errors
/// [`Error::JsonKind`] for a document without parts.
pub(super) fn without_keys(document: Document<'_>, keys: &[String]) -> Result<String, Error> {
    match document.kind() {
        Kind::Object => {
            let kept = document.entries().filter(|(key, _)| !keys.contains(key));
            let members: Vec<_> = kept.map(|(key, value)| format!("{}: {}", quoted(&key), value.as_str())).collect();
            Ok(format!("{{{}}}", members.join(", ")))
        }
        Kind::Array => {
            let is_key = |item: &Document<'_>| item.kind() == Kind::String && keys.contains(&item.string());
            let items: Vec<_> = document.items().filter(|item| !is_key(item)).map(Document::as_str).collect();
            Ok(format!("[{}]", items.join(", ")))
        }
        found => Err(Error::JsonKind { expected: "object or array", found: found.name() }),
    }
}

/// The array without the item at a place, which counts from the end if it is negative.
///
/// # Errors
/// [`Error::JsonKind`] for a document that is no array.
pub(super) fn without_item(document: Document<'_>, index: i64) -> Result<String, Error> {
    if document.kind() != Kind::Array {
        return Err(Error::JsonKind { expected: "array", found: document.kind().name() });
    }
    changed(document, &[index.to_string()], Change::Delete)
}

/// Without the members of objects that are null, everywhere inside.
pub(super) fn without_nulls(document: Document<'_>) -> String {
    match document.kind() {
        Kind::Object => {
            let kept = document.entries().filter(|(_, value)| value.kind() != Kind::Null);
            let members: Vec<_> = kept.map(|(key, value)| format!("{}:{}", quoted(&key), without_nulls(value))).collect();
            format!("{{{}}}", members.join(","))
        }
        Kind::Array => format!("[{}]", document.items().map(without_nulls).collect::<Vec<_>>().join(",")),
        _ => document.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::normalize;

    fn change(text: &str, path: &[&str], change: Change<'_>) -> Result<String, Error> {
        let path: Vec<String> = path.iter().map(|step| (*step).to_owned()).collect();
        normalize(&changed(Document::parse(text)?, &path, change)?)
    }

    #[test]
    fn values_are_set_as_in_postgres() {
        let set = |text: &str, path: &[&str], creates| change(text, path, Change::Set { value: "9", creates });
        assert_eq!(set(r#"[{"f1":1},2]"#, &["0", "f1"], true).as_deref(), Ok(r#"[{"f1": 9}, 2]"#));
        assert_eq!(set(r#"{"a":1}"#, &["b"], true).as_deref(), Ok(r#"{"a": 1, "b": 9}"#));
        assert_eq!(set(r#"{"a":1}"#, &["b"], false).as_deref(), Ok(r#"{"a": 1}"#));
        assert_eq!(set(r#"{"a":1}"#, &["b", "c"], true).as_deref(), Ok(r#"{"a": 1}"#));
        assert_eq!(set("[1,2]", &["-5"], true).as_deref(), Ok("[9, 1, 2]"));
        assert_eq!(set("[1,2]", &["7"], true).as_deref(), Ok("[1, 2, 9]"));
        assert_eq!(set("[1,2]", &[], true).as_deref(), Ok("[1, 2]"));
        assert!(matches!(set("[1,2]", &["x"], true), Err(Error::JsonPathStep { position: 1, .. })));
        assert!(matches!(set("1", &["x"], true), Err(Error::JsonKind { .. })));
    }

    #[test]
    fn items_are_inserted_and_deleted_as_in_postgres() {
        let insert = |text: &str, path: &[&str], is_after| change(text, path, Change::Insert { value: "9", is_after });
        assert_eq!(insert(r#"{"a":[0,1,2]}"#, &["a", "1"], false).as_deref(), Ok(r#"{"a": [0, 9, 1, 2]}"#));
        assert_eq!(insert(r#"{"a":[0,1,2]}"#, &["a", "1"], true).as_deref(), Ok(r#"{"a": [0, 1, 9, 2]}"#));
        assert_eq!(insert("{}", &["a"], false).as_deref(), Ok(r#"{"a": 9}"#));
        assert!(matches!(insert(r#"{"a":1}"#, &["a"], false), Err(Error::Argument { .. })));
        assert_eq!(change(r#"{"a":[1,{"b":2}]}"#, &["a", "1"], Change::Delete).as_deref(), Ok(r#"{"a": [1]}"#));
        assert_eq!(change(r#"{"a":[1]}"#, &["a", "-1"], Change::Delete).as_deref(), Ok(r#"{"a": []}"#));
    }

    #[test]
    fn parts_are_left_out_as_in_postgres() {
        let document = |text| Document::parse(text).expect("it is JSON");
        let keys = ["a".to_owned(), "b".to_owned()];
        assert_eq!(without_keys(document(r#"{"a":1,"c":2}"#), &keys).as_deref(), Ok(r#"{"c": 2}"#));
        assert_eq!(without_keys(document(r#"["a",1,"c"]"#), &keys).as_deref(), Ok(r#"[1, "c"]"#));
        assert_eq!(without_item(document("[1,2,3]"), -1).as_deref(), Ok("[1, 2]"));
        assert!(without_item(document("{}"), 0).is_err());
        assert_eq!(without_nulls(document(r#"{"f1":1, "f2":null, "f3":[{"x":null},null]}"#)), r#"{"f1":1,"f3":[{},null]}"#);
    }
}
