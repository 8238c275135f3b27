//! Values in the type that a statement was planned with, where that loses nothing.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, FixedSizeListArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::ScalarValue;

use super::Unreadable;

/// The value in the inferred type where that loses nothing; elsewhere the planner decides, as for a literal.
///
/// # Errors
/// [`Unreadable::Width`] for a vector of another width.
pub(super) fn to(value: ScalarValue, inferred: &DataType) -> Result<ScalarValue, Unreadable> {
    match (&value, inferred) {
        (_, DataType::Dictionary(_, values)) => to(value, values),
        (ScalarValue::List(list), DataType::FixedSizeList(element, width)) => vector(&list.value(0), element, *width),
        (ScalarValue::FixedSizeList(list), DataType::FixedSizeList(element, width)) => vector(&list.value(0), element, *width),
        // One of a type without a width.
        (ScalarValue::FixedSizeList(_), DataType::List(_)) => Ok(lossless_cast(&value, inferred).unwrap_or(value)),
        // Arrow would turn truth into 1, and anything into a list of one.
        (ScalarValue::Boolean(_), _) | (_, DataType::Boolean) => Ok(value),
        (_, DataType::List(_)) if !matches!(value, ScalarValue::List(_)) => Ok(value),
        _ => Ok(lossless_cast(&value, inferred).unwrap_or(value)),
    }
}

fn lossless_cast(value: &ScalarValue, data_type: &DataType) -> Option<ScalarValue> {
    if value.data_type() == *data_type {
        return Some(value.clone());
    }
    let converted = value.cast_to(data_type).ok()?;
    (converted.cast_to(&value.data_type()).ok()? == *value).then_some(converted)
}

/// Numbers as a vector of a column's type.
fn vector(numbers: &Arc<dyn Array>, element: &FieldRef, width: i32) -> Result<ScalarValue, Unreadable> {
    let expected = usize::try_from(width).map_err(|_| Unreadable::Unsupported)?;
    if numbers.len() != expected {
        return Err(Unreadable::Width { found: numbers.len(), expected });
    }
    let values = cast(numbers, element.data_type()).map_err(|_| Unreadable::Syntax)?;
    if values.null_count() > 0 {
        return Err(Unreadable::Syntax);
    }
    check_finite(numbers)?;
    if check_finite(&values).is_err() {
        return Err(Unreadable::Range);
    }
    let array = FixedSizeListArray::try_new(Arc::clone(element), width, values, None).map_err(|_| Unreadable::Unsupported)?;
    Ok(ScalarValue::FixedSizeList(Arc::new(array)))
}

/// Numbers that were given may not be what no vector holds; one that became infinite on its way to the column's precision is beyond it.
fn check_finite(numbers: &Arc<dyn Array>) -> Result<(), Unreadable> {
    let numbers = cast(numbers, &DataType::Float64).map_err(|_| Unreadable::Syntax)?;
    let unwanted = numbers.as_primitive::<Float64Type>().iter().flatten().find(|number| !number.is_finite());
    match unwanted {
        Some(number) => Err(Unreadable::NotFinite { found: if number.is_nan() { "NaN" } else { "infinite value" } }),
        None => Ok(()),
    }
}
