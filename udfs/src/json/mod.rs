//! JSON: the types `json` and `jsonb`, their operators, and functions over JSON texts.
//!
//! The functions take any text; one that is no JSON is an error (22P02), as if it were cast.

mod change;
mod document;
mod normal_form;
mod number;
mod operator;

mod json_array_length;
mod json_build_array;
mod json_build_object;
mod json_change;
mod json_concat;
mod json_contains;
mod json_exists;
mod json_exists_keys;
mod json_extract_path;
mod json_extract_path_text;
mod json_get;
mod json_get_text;
mod json_in;
mod json_typeof;
mod jsonb_in;
mod jsonb_order;
mod jsonb_pretty;
mod to_json;

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use datafusion::error::Result;

use document::Document;
pub use normal_form::normalize;
pub use operator::JsonOperatorPlanner;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Kind, Parameter};

pub(crate) const FUNCTIONS: &[&crate::function::Function] = &[
    &json_in::FUNCTION,
    &jsonb_in::FUNCTION,
    &json_get::FUNCTION,
    &json_get_text::FUNCTION,
    &json_extract_path::FUNCTION,
    &json_extract_path_text::FUNCTION,
    &json_typeof::FUNCTION,
    &json_array_length::FUNCTION,
    &json_concat::FUNCTION,
    &json_contains::FUNCTION,
    &json_exists::FUNCTION,
    &json_exists_keys::ANY,
    &json_exists_keys::ALL,
    &json_change::SET,
    &json_change::INSERT,
    &json_change::DELETE,
    &json_change::DELETE_PATH,
    &json_change::STRIP_NULLS,
    &json_change::STRIP_NULLS_B,
    &jsonb_order::FUNCTION,
    &jsonb_pretty::FUNCTION,
    &to_json::FUNCTION,
    &to_json::JSONB,
    &to_json::ARRAY,
    &json_build_object::JSON,
    &json_build_object::JSONB,
    &json_build_object::ROW,
    &json_build_array::JSON,
    &json_build_array::JSONB,
];

const SECTION: &str = "JSON";

const JSON: Parameter = Parameter { name: "json", kind: Kind::Text, description: "A JSON text." };
const KEY: Parameter = Parameter {
    name: "key",
    kind: Kind::TextOrInteger,
    description: "Key of an object, or position in an array, from 0; from the end if negative.",
};
const PATH: Parameter =
    Parameter { name: "path", kind: Kind::TextList, description: "Keys, and positions in arrays, from the outside to the inside." };
const STEPS: Parameter = Parameter {
    kind: Kind::Rest,
    description: "Keys, and positions in arrays, from the outside to the inside: in an array, or one by one.",
    ..PATH
};

/// The items of an array, as they were written.
///
/// # Errors
/// [`Error::JsonText`] if the text is not one JSON value, [`Error::JsonKind`] if it is no array.
pub fn items(text: &str) -> Result<Vec<&str>, Error> {
    Ok(of_kind(text, document::Kind::Array)?.items().map(Document::as_str).collect())
}

/// Keys and values of an object in the order of the text, the values as they were written.
///
/// # Errors
/// [`Error::JsonText`] if the text is not one JSON value, [`Error::JsonKind`] if it is no object.
pub fn entries(text: &str) -> Result<Vec<(String, &str)>, Error> {
    Ok(of_kind(text, document::Kind::Object)?.entries().map(|(key, value)| (key, value.as_str())).collect())
}

/// What `->>` gives for a value: a string without its quotes, `None` for null, the JSON text of everything else.
///
/// # Errors
/// [`Error::JsonText`] if the text is not one JSON value.
pub fn to_text(text: &str) -> Result<Option<String>, Error> {
    Ok(Document::parse(text)?.to_text())
}

/// Whether a text is JSON.
///
/// # Errors
/// [`Error::JsonText`] if it is not one JSON value.
pub fn check(text: &str) -> Result<(), Error> {
    Document::parse(text).map(|_| ())
}

fn of_kind(text: &str, expected: document::Kind) -> Result<Document<'_>, Error> {
    let document = Document::parse(text)?;
    match document.kind() {
        found if found == expected => Ok(document),
        found => Err(Error::JsonKind { expected: expected.name(), found: found.name() }),
    }
}

/// One text per row from the document in argument 0; NULL for NULL.
fn map_documents(arguments: &Arguments, mut kernel: impl FnMut(Document<'_>, usize, &mut StringBuilder)) -> Result<ArrayRef> {
    let documents = arguments.text(0)?;
    let mut texts = StringBuilder::new();
    for row in 0..arguments.num_rows() {
        match documents.get(row) {
            Some(text) => kernel(Document::parse(text)?, row, &mut texts),
            None => texts.append_null(),
        }
    }
    Ok(Arc::new(texts.finish()))
}

/// The part of each row's document that argument 1, a key or a position, names, written by `append`.
fn map_parts(arguments: &Arguments, append: fn(Document<'_>, &mut StringBuilder)) -> Result<ArrayRef> {
    let key = arguments.column(1)?;
    let positions = if key.array().data_type().is_integer() { Some(arguments.integer(1)?) } else { None };
    let keys = if positions.is_none() { Some(arguments.text(1)?) } else { None };
    map_documents(arguments, |document, row, texts| {
        let by_position = positions.as_ref().and_then(|positions| document.item(positions.get(row)?));
        let found = by_position.or_else(|| keys.as_ref().and_then(|keys| document.get(keys.get(row)?)));
        match found {
            Some(found) => append(found, texts),
            None => texts.append_null(),
        }
    })
}

/// The part of each row's document at the end of a path, written by `append`: argument 1, or its steps are the arguments from there on.
fn map_paths(arguments: &Arguments, append: fn(Document<'_>, &mut StringBuilder)) -> Result<ArrayRef> {
    if arguments.count() > 2 {
        let steps = (1..arguments.count()).map(|index| arguments.text(index)).collect::<Result<Vec<_>>>()?;
        return append_found(arguments, append, |row| steps.iter().map(|step| step.get(row)).collect());
    }
    let paths = arguments.texts(1)?;
    append_found(arguments, append, |row| paths.elements(row)?.into_iter().collect())
}

/// `path`: of a row; `None` if it, or one of its steps, is NULL.
fn append_found<'a>(
    arguments: &Arguments,
    append: fn(Document<'_>, &mut StringBuilder),
    path: impl Fn(usize) -> Option<Vec<&'a str>>,
) -> Result<ArrayRef> {
    map_documents(arguments, |document, row, texts| {
        let found = path(row).and_then(|path| path.iter().try_fold(document, |document, step| part(document, step)));
        match found {
            Some(found) => append(found, texts),
            None => texts.append_null(),
        }
    })
}

fn part<'a>(document: Document<'a>, step: &str) -> Option<Document<'a>> {
    match document.kind() {
        document::Kind::Array => document.item(step.parse().ok()?),
        _ => document.get(step),
    }
}

fn append_json(document: Document<'_>, texts: &mut StringBuilder) {
    texts.append_value(document.as_str());
}

fn append_text(document: Document<'_>, texts: &mut StringBuilder) {
    texts.append_option(document.to_text());
}
