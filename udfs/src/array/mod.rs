//! Arrays by PostgreSQL's rules, where DataFusion has other ones or none.

mod bounds;
mod fill;
mod items;
mod ordered;
mod own_order;
mod replace;
mod to_string;
mod trim;

use arrow::array::{Array, ArrayRef, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;

use crate::arguments::{Arguments, Column};
use crate::function::{Function, Kind, Parameter};

pub use own_order::in_own_order;

pub(crate) const FUNCTIONS: &[&Function] = &[
    &replace::REMOVE,
    &replace::REPLACE,
    &bounds::DIMS,
    &bounds::LENGTH,
    &bounds::LOWER,
    &bounds::UPPER,
    &fill::FUNCTION,
    &to_string::FUNCTION,
    &trim::FUNCTION,
    &ordered::AT_FRACTION,
    &ordered::MOST_FREQUENT,
];

const SECTION: &str = "Arrays";

const ARRAY: Parameter = Parameter { name: "array", kind: Kind::Any, description: "An array." };

/// The field of a list's items; `None` for another type.
fn item_field(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

/// An argument as values of a type; one that does not fit is an error.
fn values(arguments: &Arguments, index: usize, data_type: &DataType) -> Result<Column<ArrayRef>> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    arguments.column(index)?.map_array(|array| Ok(cast_with_options(array, data_type, &strict)?))
}

/// Lists of the items, one per row.
fn lists(item: &FieldRef, rows: &[Option<ArrayRef>]) -> Result<ArrayRef> {
    let lengths = rows.iter().map(|row| row.as_ref().map_or(0, |items| items.len()));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = NullBuffer::from_iter(rows.iter().map(Option::is_some));
    let parts: Vec<&dyn Array> = rows.iter().flatten().map(AsRef::as_ref).collect();
    let values = if parts.is_empty() { arrow::array::new_empty_array(item.data_type()) } else { concat(&parts)? };
    Ok(std::sync::Arc::new(ListArray::try_new(item.clone(), offsets, values, Some(nulls))?))
}
