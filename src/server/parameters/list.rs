//! Arrays from their items.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ListArray, new_empty_array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use rolloutdb_udfs::postgres::ValueType;

use super::Unreadable;

/// An array of items in the order in which they come, with the length of each dimension from the outside to the inside; none for an empty one.
///
/// # Errors
/// [`Unreadable::Range`] for decimals that no type holds all of.
pub(super) fn list(items: Vec<Option<ScalarValue>>, lengths: &[usize], item_type: &ValueType) -> Result<ScalarValue, Unreadable> {
    let data_type = common_type(&items, item_type)?;
    let items = items.into_iter().map(|item| match item {
        Some(value) if value.data_type() == data_type => Ok(value),
        Some(value) => value.cast_to(&data_type).map_err(|_| Unreadable::Range),
        None => ScalarValue::try_from(&data_type).map_err(|_| Unreadable::Unsupported),
    });
    let items = items.collect::<Result<Vec<_>, _>>()?;
    let mut values: ArrayRef = match items.is_empty() {
        true => new_empty_array(&data_type),
        false => ScalarValue::iter_to_array(items).map_err(|_| Unreadable::Unsupported)?,
    };
    // From the inside to the outside; the outermost one is the scalar itself.
    for length in lengths.iter().skip(1).rev() {
        values = Arc::new(lists_of(*length, values));
    }
    let num_items = values.len();
    Ok(ScalarValue::List(Arc::new(lists_of(num_items, values))))
}

/// The values in lists of that length, which divides their number.
fn lists_of(length: usize, values: ArrayRef) -> ListArray {
    let count = values.len().checked_div(length).unwrap_or(1);
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    ListArray::new(field, OffsetBuffer::from_lengths(std::iter::repeat_n(length, count)), values, None)
}

/// The type of all items. Decimals have the digits that each was written with: the type that holds them all has as many as most before the point and
/// behind it.
fn common_type(items: &[Option<ScalarValue>], item_type: &ValueType) -> Result<DataType, Unreadable> {
    let ValueType::Numeric(_) = item_type else {
        // A vector that was declared has its own width.
        let first = items.iter().flatten().next();
        return Ok(first.map_or_else(|| item_type.data_type(), ScalarValue::data_type));
    };
    let (mut whole, mut scale) = (1, 0);
    for item in items.iter().flatten() {
        match item {
            ScalarValue::Decimal128(_, precision, item_scale) => {
                whole = whole.max(i16::from(*precision) - i16::from(*item_scale));
                scale = scale.max(*item_scale);
            }
            // NaN, or infinite: decimals have neither.
            _ => return Ok(DataType::Float64),
        }
    }
    let precision = u8::try_from(whole + i16::from(scale)).ok().filter(|precision| *precision <= 38);
    Ok(DataType::Decimal128(precision.ok_or(Unreadable::Range)?, scale))
}
