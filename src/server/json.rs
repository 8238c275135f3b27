//! Nested values as JSON text, for which Postgres has a type where it has none for ours.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, StringArray, StringBuilder};
use datafusion::arrow::datatypes::Field;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{EncoderOptions, make_encoder};

/// One JSON text per value, with fields that are NULL written as `null`; a NULL value stays NULL.
///
/// # Errors
/// Types without a JSON form, such as a map whose keys are not text.
pub(super) fn to_text(values: &ArrayRef) -> Result<StringArray, ArrowError> {
    let field = Arc::new(Field::new("value", values.data_type().clone(), true));
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(&field, values.as_ref(), &options)?;
    let mut texts = StringBuilder::with_capacity(values.len(), values.len() * 32);
    let mut buffer = Vec::new();
    for row in 0..values.len() {
        if encoder.is_null(row) {
            texts.append_null();
            continue;
        }
        buffer.clear();
        encoder.encode(row, &mut buffer);
        texts.append_value(std::str::from_utf8(&buffer).map_err(|error| ArrowError::JsonError(error.to_string()))?);
    }
    Ok(texts.finish())
}
