//! How long an array is in each of its dimensions. It begins with 1; an empty one has no dimensions.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use super::{ARRAY, SECTION, item_field};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns, type_name};

const DIMENSION: Parameter = Parameter { name: "dimension", kind: Kind::Integer, description: "From 1, the outermost." };

pub(crate) static DIMS: Function = Function {
    interface: Interface {
        name: "array_dims",
        section: SECTION,
        description: "The bounds of an array in all its dimensions; NULL of an empty one.",
        parameters: &[ARRAY],
        required: 1,
        example: ("SELECT array_dims(ARRAY[[1, 2, 3], [4, 5, 6]])", "[1:2][1:3]"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let text = |lengths: Vec<usize>| {
            let text: String = lengths.iter().map(|length| format!("[1:{length}]")).collect();
            (!text.is_empty()).then_some(text)
        };
        let texts: StringArray = lengths(&DIMS, arguments)?.into_iter().map(|lengths| lengths.and_then(text)).collect();
        Ok(Arc::new(texts) as ArrayRef)
    },
};

pub(crate) static LENGTH: Function = Function {
    interface: Interface {
        name: "array_length",
        section: SECTION,
        description: "The length of an array in one dimension; NULL of an empty one, and where there is no such dimension.",
        parameters: &[ARRAY, DIMENSION],
        required: 1,
        example: ("SELECT array_length(ARRAY['a', 'b', 'c'], 1)", "3"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| of_dimension(&LENGTH, arguments, |length| length),
};

pub(crate) static LOWER: Function = Function {
    interface: Interface {
        name: "array_lower",
        section: SECTION,
        description: "The subscript of the first item in a dimension: 1; NULL of an empty array, and where there is no such dimension.",
        parameters: &[ARRAY, DIMENSION],
        required: 2,
        example: ("SELECT array_lower(ARRAY['a', 'b', 'c'], 1)", "1"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| of_dimension(&LOWER, arguments, |_| 1),
};

pub(crate) static UPPER: Function = Function {
    interface: Interface {
        name: "array_upper",
        section: SECTION,
        description: "The subscript of the last item in a dimension; NULL of an empty array, and where there is no such dimension.",
        parameters: &[ARRAY, DIMENSION],
        required: 2,
        example: ("SELECT array_upper(ARRAY['a', 'b', 'c'], 1)", "3"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| of_dimension(&UPPER, arguments, |length| length),
};

fn of_dimension(function: &'static Function, arguments: &Arguments, bound: fn(usize) -> usize) -> Result<ArrayRef> {
    let dimensions = if arguments.has(1) { Some(arguments.integer(1)?) } else { None };
    let bounds = lengths(function, arguments)?.into_iter().enumerate().map(|(row, lengths)| {
        let dimension = dimensions.as_ref().map_or(Some(1), |dimensions| dimensions.get(row))?;
        let length = *lengths?.get(usize::try_from(dimension).ok()?.checked_sub(1)?)?;
        i32::try_from(bound(length)).ok()
    });
    Ok(Arc::new(bounds.collect::<Int32Array>()))
}

/// The length in each dimension, none of an empty array; `None` for NULL.
fn lengths(function: &'static Function, arguments: &Arguments) -> Result<Vec<Option<Vec<usize>>>> {
    let column = arguments.column(0)?;
    let found = column.array().data_type();
    if item_field(found).is_none() {
        if found.is_null() {
            return Ok(vec![None; arguments.num_rows()]);
        }
        let found = type_name(found);
        return Err(Error::ArgumentType { function: function.interface.name, argument: "array", found, expected: "an array" }.into());
    }
    let of_row = |row: usize| {
        let at = if column.is_constant() { 0 } else { row };
        column.array().is_valid(at).then(|| of_items(&column.array().slice(at, 1)))
    };
    Ok((0..arguments.num_rows()).map(of_row).collect())
}

/// `list`: one list, which is not NULL.
fn of_items(list: &ArrayRef) -> Vec<usize> {
    let Some(items) = item_field(list.data_type()).and_then(|_| inner(list)) else { return Vec::new() };
    if items.is_empty() {
        return Vec::new();
    }
    let mut lengths = vec![items.len()];
    if item_field(items.data_type()).is_some() && items.is_valid(0) {
        lengths.extend(of_items(&items.slice(0, 1)));
    }
    lengths
}

/// The items of the only list of an array.
fn inner(list: &ArrayRef) -> Option<ArrayRef> {
    match list.data_type() {
        DataType::List(_) => Some(list.as_list::<i32>().value(0)),
        DataType::LargeList(_) => Some(list.as_list::<i64>().value(0)),
        DataType::FixedSizeList(..) => Some(list.as_fixed_size_list().value(0)),
        _ => None,
    }
}
