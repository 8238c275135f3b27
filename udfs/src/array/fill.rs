use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;

use super::{SECTION, lists};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

/// Items of an array.
const ITEMS_MAX: i64 = 1 << 24;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "array_fill",
        section: SECTION,
        description: "An array of one value as often as the only item of `lengths` says; arrays of more dimensions are not made.",
        parameters: &[
            Parameter { name: "value", kind: Kind::Any, description: "What the items are." },
            Parameter { name: "lengths", kind: Kind::Any, description: "The length, in an array." },
        ],
        required: 2,
        example: ("SELECT array_fill(7, ARRAY[3])", "[7, 7, 7]"),
    },
    returns: Returns::Computed(|types, _| Ok(DataType::List(Arc::new(Field::new_list_field(types[0].clone(), true))))),
    kernel: |arguments| {
        let (column, lengths) = (arguments.column(0)?, arguments.lists(1)?);
        let item = Arc::new(Field::new_list_field(column.array().data_type().clone(), true));
        let refused = |found: String, expected: &str| -> Error { FUNCTION.interface.argument_error(1, found, expected) };
        let filled = |row: usize| -> Result<Option<ArrayRef>> {
            let Some(lengths) = lengths.get(row) else { return Ok(None) };
            let lengths = arrow::compute::cast(&lengths, &DataType::Int64)?;
            let lengths = datafusion::common::cast::as_int64_array(&lengths)?;
            let length = match lengths.len() {
                0 => 0,
                1 if lengths.is_valid(0) => lengths.value(0),
                1 => return Err(refused("NULL".to_owned(), "a length").into()),
                found => return Err(refused(format!("{found} lengths"), "one length").into()),
            };
            if !(0..=ITEMS_MAX).contains(&length) {
                return Err(refused(length.to_string(), "from 0 to 16777216").into());
            }
            let at = if column.is_constant() { 0 } else { row as u32 };
            Ok(Some(take(column.array(), &UInt32Array::from(vec![at; length as usize]), None)?))
        };
        lists(&item, &(0..arguments.num_rows()).map(filled).collect::<Result<Vec<_>>>()?)
    },
};
