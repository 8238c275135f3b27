//! Values as text.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use datafusion::error::DataFusionError;
use rolloutdb_udfs::postgres::{Column, ValueType};

use super::{WriteValue, plain};
use crate::engine::files::write::json_texts;
use crate::error::Result;

/// What writes the values of a column.
///
/// # Errors
/// [`crate::Error::DataFusion`] for a value that its PostgreSQL type cannot hold, a number beyond bigint.
pub fn writer(array: &ArrayRef, field: &Field) -> Result<WriteValue> {
    let column = match plain::has_own_form(array.data_type()) {
        true => Column::new(&without_blanks(ValueType::of(field)), array),
        false => Column::new(&ValueType::Text, &(Arc::new(json_texts(array, field)?) as ArrayRef)),
    };
    let column = column.map_err(DataFusionError::from)?;
    Ok(Box::new(move |row, out| column.write_text(row, out)))
}

/// The blanks that a client sees behind a `char(n)` would be a part of the value when it is read again.
fn without_blanks(value_type: ValueType) -> ValueType {
    match value_type {
        ValueType::Char(_) => ValueType::Text,
        ValueType::Array(item) => ValueType::Array(Box::new(without_blanks(*item))),
        other => other,
    }
}
