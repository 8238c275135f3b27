//! `json_exists_any` and `json_exists_all`

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use super::json_exists::exists;
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

const KEYS: Parameter = Parameter { name: "keys", kind: Kind::TextList, description: "Keys or strings, in an array." };

pub(crate) static ANY: Function = Function {
    interface: Interface {
        name: "json_exists_any",
        section: super::SECTION,
        description: "Whether one of several texts is a key of an object or a string in an array; also `json ?| keys`.",
        parameters: &[super::JSON, KEYS],
        required: 2,
        example: ("SELECT json_exists_any('{\"a\": null}', ARRAY['b', 'a'])", "true"),
    },
    returns: Returns::Always(DataType::Boolean),
    kernel: |arguments| check(arguments, |text, keys| keys.iter().try_fold(false, |found, key| Ok(found || exists(text, key)?))),
};

pub(crate) static ALL: Function = Function {
    interface: Interface {
        name: "json_exists_all",
        section: super::SECTION,
        description: "Whether all of several texts are keys of an object or strings in an array; also `json ?& keys`.",
        parameters: &[super::JSON, KEYS],
        required: 2,
        example: ("SELECT json_exists_all('{\"a\": null}', ARRAY['b', 'a'])", "false"),
    },
    returns: Returns::Always(DataType::Boolean),
    kernel: |arguments| check(arguments, |text, keys| keys.iter().try_fold(true, |found, key| Ok(found && exists(text, key)?))),
};

/// A NULL among the keys is none.
fn check(arguments: &Arguments, holds: fn(&str, &[String]) -> Result<bool, Error>) -> Result<ArrayRef> {
    let (texts, lists) = (arguments.text(0)?, arguments.text_lists(1)?);
    let of_row = |row: usize| {
        let keys: Option<Vec<String>> = lists[row].as_ref().map(|keys| keys.iter().flatten().cloned().collect());
        texts.get(row).zip(keys).map(|(text, keys)| holds(text, &keys)).transpose()
    };
    Ok(Arc::new((0..arguments.num_rows()).map(of_row).collect::<Result<BooleanArray, Error>>()?))
}
