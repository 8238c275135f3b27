//! Which items of an array are equal to a value; NULL is equal to NULL, as PostgreSQL's array functions have it.

use arrow::array::{Array, ArrayRef, BooleanArray, make_comparator};
use arrow::compute::SortOptions;
use datafusion::error::Result;

/// `value`: the row of `of` that the items are compared with; `None` for NULL.
pub(super) fn equal_items(items: &ArrayRef, of: &ArrayRef, value: Option<usize>) -> Result<BooleanArray> {
    let Some(value) = value else { return Ok((0..items.len()).map(|at| Some(items.is_null(at))).collect()) };
    let compare = make_comparator(items.as_ref(), of.as_ref(), SortOptions::default())?;
    Ok((0..items.len()).map(|at| Some(items.is_valid(at) && compare(at, value).is_eq())).collect())
}
