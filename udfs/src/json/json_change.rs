//! `jsonb_set`, `jsonb_insert`, `jsonb_delete` and `jsonb_delete_path`, and the functions that leave nulls out.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use datafusion::error::Result;

use super::change::{Change, changed, without_item, without_keys, without_nulls};
use super::document::Document;
use super::normal_form::normalize;
use super::{JSON, PATH};
use crate::Error;
use crate::arguments::{Arguments, Column};
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::text_type::TextType;

const VALUE: Parameter = Parameter { name: "value", kind: Kind::Text, description: "A JSON text." };

pub(crate) static SET: Function = Function {
    interface: Interface {
        name: "jsonb_set",
        section: super::SECTION,
        description: "The value with another one at the end of a path.",
        parameters: &[
            JSON,
            PATH,
            VALUE,
            Parameter {
                name: "create_if_missing",
                kind: Kind::Boolean,
                description: "Whether a key that is not there is added, and an item beyond an end put there; true by default.",
            },
        ],
        required: 3,
        example: ("SELECT jsonb_set('{\"a\": [1, 2]}', '{a,0}', '9')", r#"{"a": [9, 2]}"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| {
        with_value(arguments, true, |document, path, value, creates| changed(document, path, Change::Set { value, creates }))
    },
};

pub(crate) static INSERT: Function = Function {
    interface: Interface {
        name: "jsonb_insert",
        section: super::SECTION,
        description: "The value with a new item in an array, or a new key.",
        parameters: &[
            JSON,
            PATH,
            VALUE,
            Parameter {
                name: "insert_after",
                kind: Kind::Boolean,
                description: "Whether it is put behind the item at the path; false by default.",
            },
        ],
        required: 3,
        example: ("SELECT jsonb_insert('{\"a\": [1, 2]}', '{a,1}', '9')", r#"{"a": [1, 9, 2]}"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| {
        with_value(arguments, false, |document, path, value, is_after| changed(document, path, Change::Insert { value, is_after }))
    },
};

pub(crate) static DELETE: Function = Function {
    interface: Interface {
        name: "jsonb_delete",
        section: super::SECTION,
        description: "The value without a key, several keys in an array, or the item at a position; also `jsonb - key`.",
        parameters: &[
            JSON,
            Parameter {
                name: "key",
                kind: Kind::Any,
                description: "A key, keys in an array, or a position from 0; from the end if negative.",
            },
        ],
        required: 2,
        example: ("SELECT jsonb_delete('{\"a\": 1, \"b\": 2}', 'a')", r#"{"b": 2}"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| {
        if arguments.column(1)?.array().data_type().is_integer() {
            let positions = arguments.integer(1)?;
            return map(arguments, |document, row| positions.get(row).map(|position| without_item(document, position)).transpose());
        }
        // Unlike a path, a key is what it is.
        let keys = arguments.texts(1)?;
        map(arguments, |document, row| {
            let keys = keys.get(row).map(|keys| keys.into_iter().map(str::to_owned).collect::<Vec<_>>());
            keys.map(|keys| without_keys(document, &keys)).transpose()
        })
    },
};

pub(crate) static DELETE_PATH: Function = Function {
    interface: Interface {
        name: "jsonb_delete_path",
        section: super::SECTION,
        description: "The value without what is at the end of a path; also `jsonb #- path`.",
        parameters: &[JSON, PATH],
        required: 2,
        example: ("SELECT jsonb_delete_path('{\"a\": [1, 2]}', '{a,0}')", r#"{"a": [2]}"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| {
        let paths = paths(arguments, 1)?;
        map(arguments, |document, row| paths[row].as_deref().map(|path| changed(document, path, Change::Delete)).transpose())
    },
};

pub(crate) static STRIP_NULLS: Function = Function {
    interface: Interface {
        name: "json_strip_nulls",
        section: super::SECTION,
        description: "The value without the members of objects that are null.",
        parameters: &[JSON],
        required: 1,
        example: ("SELECT json_strip_nulls('{\"a\": 1, \"b\": null}')", r#"{"a":1}"#),
    },
    returns: Returns::Text(TextType::Json),
    kernel: |arguments| super::map_documents(arguments, |document, _, texts| texts.append_value(without_nulls(document))),
};

pub(crate) static STRIP_NULLS_B: Function = Function {
    interface: Interface {
        name: "jsonb_strip_nulls",
        section: super::SECTION,
        description: "The same of jsonb.",
        parameters: &[JSON],
        required: 1,
        example: ("SELECT jsonb_strip_nulls('{\"a\": 1, \"b\": null}')", r#"{"a": 1}"#),
    },
    returns: Returns::Text(TextType::Jsonb),
    kernel: |arguments| map(arguments, |document, _| Ok(Some(without_nulls(document)))),
};

/// The paths of an argument; `None` for a NULL. A path with a NULL in it leads nowhere PostgreSQL would name, and is an error.
fn paths(arguments: &Arguments, index: usize) -> Result<Vec<Option<Vec<String>>>> {
    let path = |steps: Vec<Option<String>>| {
        let steps: Option<Vec<String>> = steps.into_iter().collect();
        steps.ok_or_else(|| -> Error { arguments.interface.argument_error(index, "a path with a NULL in it", "texts") })
    };
    let lists = arguments.text_lists(index)?;
    Ok(lists.into_iter().map(|steps| steps.map(path).transpose()).collect::<Result<Vec<_>, Error>>()?)
}

fn with_value(
    arguments: &Arguments,
    default: bool,
    change: impl Fn(Document<'_>, &[String], &str, bool) -> Result<String, Error>,
) -> Result<ArrayRef> {
    let (paths, values) = (paths(arguments, 1)?, arguments.text(2)?);
    let flags: Option<Column<_>> = if arguments.has(3) { Some(arguments.boolean(3)?) } else { None };
    map(arguments, |document, row| {
        let flag = flags.as_ref().map_or(Some(default), |flags| flags.get(row));
        let Some(((path, value), flag)) = paths[row].as_deref().zip(values.get(row)).zip(flag) else { return Ok(None) };
        change(document, path, Document::parse(value)?.as_str(), flag).map(Some)
    })
}

/// The normal form of what becomes of each row's document; NULL for NULL.
fn map(arguments: &Arguments, kernel: impl Fn(Document<'_>, usize) -> Result<Option<String>, Error>) -> Result<ArrayRef> {
    let documents = arguments.text(0)?;
    let mut texts = StringBuilder::new();
    for row in 0..arguments.num_rows() {
        let Some(text) = documents.get(row) else {
            texts.append_null();
            continue;
        };
        // Keys are there once in jsonb.
        let text = normalize(text)?;
        let changed = kernel(Document::parse(&text)?, row)?;
        texts.append_option(changed.map(|changed| normalize(&changed)).transpose()?);
    }
    Ok(Arc::new(texts.finish()))
}
