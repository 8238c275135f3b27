//! Values as PostgreSQL's output functions write them.

use super::column::{Column, Items, Values};
use super::nested::{ARRAY, RECORD};
use super::{datetime, decimal, float, interval};
use crate::bytea_in;

impl Column {
    /// Writes the value of a row, which is not NULL.
    pub fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Bool(values) => out.push(if values.value(row) { b't' } else { b'f' }),
            Values::Int2(values) => decimal::write_integer(i64::from(values.value(row)), out),
            Values::Int4(values) => decimal::write_integer(i64::from(values.value(row)), out),
            Values::Int8(values) | Values::Oid(values) => decimal::write_integer(values.value(row), out),
            Values::Float4(values) => float::write_f32(values.value(row), out),
            Values::Float8(values) => float::write_f64(values.value(row), out),
            Values::Numeric(values) => {
                let (value, scale) = self.decimal(values, row);
                decimal::write_decimal(value, scale, out);
            }
            Values::WideNumeric(values) => decimal::write_scaled_text(&values.value(row).to_string(), values.scale(), out),
            Values::Text(values) | Values::Jsonb(values) | Values::Uuid(values) | Values::Bits(values) => {
                out.extend_from_slice(values.value(row).as_bytes())
            }
            Values::Padded(values, length) => write_padded(values.value(row), *length, out),
            Values::Bytea(values) => bytea_in::write_bytea(values.value(row), out),
            Values::Date(values) => datetime::write_date(values.value(row), out),
            Values::Time(values) => datetime::write_time(values.value(row), out),
            Values::Timestamp(values) => datetime::write_timestamp(values.value(row), false, out),
            Values::Timestamptz(values) => datetime::write_timestamp(values.value(row), true, out),
            Values::Interval(values) => interval::write_interval(values.value(row), out),
            Values::Vector(vectors) | Values::Halfvec(vectors) => write_vector(vectors.get(row), out),
            Values::Array(items) if self.value_type.counts_from_zero() => write_numbers(items, row, out),
            Values::Array(items) => write_array(items, row, out),
            Values::Record(columns) => write_record(columns, row, out),
        }
    }

    /// A boolean as a cast writes it: `true`. Other values as always.
    pub(super) fn write_word(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            Values::Bool(values) => out.extend_from_slice(if values.value(row) { &b"true"[..] } else { &b"false"[..] }),
            _ => self.write_text(row, out),
        }
    }

    /// Whether no text of such a value needs quotes in an array.
    pub(super) fn is_bare(&self) -> bool {
        matches!(
            self.values,
            Values::Bool(_)
                | Values::Int2(_)
                | Values::Int4(_)
                | Values::Int8(_)
                | Values::Oid(_)
                | Values::Float4(_)
                | Values::Float8(_)
                | Values::Numeric(_)
                | Values::WideNumeric(_)
                | Values::Uuid(_)
                | Values::Bits(_)
                | Values::Time(_)
                | Values::Array(_)
        )
    }
}

/// A text with blanks up to its length in characters.
fn write_padded(text: &str, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.extend(std::iter::repeat_n(b' ', length.saturating_sub(text.chars().count())));
}

/// `[1,2.5,-3e-07]`
pub(crate) fn write_vector(numbers: &[f32], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, number) in numbers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        float::write_f32(*number, out);
    }
    out.push(b']');
}

/// `1 2`, as `int2vector` and `oidvector` are written.
fn write_numbers(items: &Items, row: usize, out: &mut Vec<u8>) {
    let range = items.range(row);
    for place in range.clone() {
        if place > range.start {
            out.push(b' ');
        }
        items.column.write_text(place, out);
    }
}

/// `{1,NULL,"a b"}`. An array of arrays that have no items is empty, as in PostgreSQL.
fn write_array(items: &Items, row: usize, out: &mut Vec<u8>) {
    if !items.has_any(row) {
        return out.extend_from_slice(b"{}");
    }
    out.push(b'{');
    let range = items.range(row);
    for place in range.clone() {
        if place > range.start {
            out.push(b',');
        }
        if items.column.is_null(place) {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let start = out.len();
        items.column.write_text(place, out);
        if !items.column.is_bare() {
            ARRAY.quote(out, start);
        }
    }
    out.push(b'}');
}

/// `(1,,"a b")`: nothing for NULL.
fn write_record(columns: &[Column], row: usize, out: &mut Vec<u8>) {
    out.push(b'(');
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        if !column.is_null(row) {
            let start = out.len();
            column.write_text(row, out);
            RECORD.quote(out, start);
        }
    }
    out.push(b')');
}

impl Items {
    /// Whether one array has an item that is no array.
    pub fn has_any(&self, row: usize) -> bool {
        let mut range = self.range(row);
        match &self.column.values {
            Values::Array(inner) => range.any(|place| self.column.is_null(place) || inner.has_any(place)),
            _ => !range.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, ListArray};
    use arrow::datatypes::Int16Type;

    use crate::postgres::{CatalogType, Column, ValueType};

    #[test]
    fn vectors_of_numbers_have_blanks_between_them() {
        let lists = ListArray::from_iter_primitive::<Int16Type, _, _>([Some(vec![Some(2), Some(1)]), Some(vec![])]);
        let column = Column::new(&ValueType::Catalog(CatalogType::Int2Vector), &(Arc::new(lists) as ArrayRef)).expect("numbers");
        let text = |row| {
            let mut out = Vec::new();
            column.write_text(row, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!((text(0).as_str(), text(1).as_str()), ("2 1", ""));
    }
}
