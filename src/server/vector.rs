//! Vectors in pgvector's text form, `[1,2.5,-3]`.

use std::fmt::{Display, Write};

use datafusion::arrow::array::{Array, AsArray, FixedSizeListArray, PrimitiveArray, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;

/// The vectors of a column as text; each number is the shortest that reads back as the same value.
///
/// # Errors
/// Elements that are not numbers.
pub(super) fn to_text(vectors: &FixedSizeListArray) -> Result<StringArray, ArrowError> {
    match vectors.value_type() {
        DataType::Float64 => to_text_of(vectors, vectors.values().as_primitive::<Float64Type>()),
        _ => {
            let values = cast(vectors.values(), &DataType::Float32)?;
            to_text_of(vectors, values.as_primitive::<Float32Type>())
        }
    }
}

fn to_text_of<T>(vectors: &FixedSizeListArray, values: &PrimitiveArray<T>) -> Result<StringArray, ArrowError>
where
    T: ArrowPrimitiveType,
    T::Native: Display,
{
    let width = vectors.value_length() as usize;
    let mut texts = StringBuilder::with_capacity(vectors.len(), vectors.len() * width * 10);
    let mut text = String::new();
    for row in 0..vectors.len() {
        if vectors.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        for index in row * width..(row + 1) * width {
            text.push(if text.is_empty() { '[' } else { ',' });
            match values.is_null(index) {
                true => text.push_str("NULL"),
                false => write!(text, "{}", values.value(index)).map_err(|error| ArrowError::CastError(error.to_string()))?,
            }
        }
        text.push_str(if width == 0 { "[]" } else { "]" });
        texts.append_value(&text);
    }
    Ok(texts.finish())
}

/// Reads `[1,2.5,-3]`, and `{1,2.5,-3}` for clients that bind an array. `None` if it is neither.
pub(super) fn from_text(text: &str) -> Option<Vec<f32>> {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.or_else(|| text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')))?;
    inner.split(',').map(|number| number.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::Float32Array;
    use datafusion::arrow::datatypes::Field;

    use super::*;

    #[test]
    fn a_vector_reads_back_from_its_text() {
        let numbers = vec![1.0_f32, -2.5, 0.1, 1e-7, 16_777_216.0];
        let field = Arc::new(Field::new("item", DataType::Float32, true));
        let vectors = FixedSizeListArray::new(field, 5, Arc::new(Float32Array::from(numbers.clone())), None);
        let texts = to_text(&vectors).expect("numbers");
        assert_eq!(texts.value(0), "[1,-2.5,0.1,0.0000001,16777216]");
        assert_eq!(from_text(texts.value(0)), Some(numbers));
    }

    #[test]
    fn text_that_is_not_a_vector_is_refused() {
        for text in ["", "[", "[1,2", "1,2", "[1,,2]", "[a]", "[]"] {
            assert_eq!(from_text(text), None, "{text}");
        }
        assert_eq!(from_text(" { 1 , 2 } "), Some(vec![1.0, 2.0]));
    }
}
