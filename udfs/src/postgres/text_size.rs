//! How long the text of a value will be: within arrays and records quotes are written with others before them, so that it may double at each level.

use super::column::{Column, Values};
use super::nested::{ARRAY, RECORD};

/// What a text has that quotes round it make longer.
#[derive(Debug, Clone, Copy, Default)]
struct Text {
    bytes: u64,
    quotes: u64,
    backslashes: u64,
    /// Whether it has what needs quotes in an array, and in a record.
    in_array: bool,
    in_record: bool,
    /// Whether it is the word that stands for no item in an array.
    is_null_word: bool,
}

/// A column whose texts may have as many bytes together is measured value by value.
const MEASURED_FROM: u64 = 1 << 20;

/// What a number or a time takes as text.
const SCALAR: u64 = 32;

impl Column {
    /// The bytes of the longest text among those of `rows`, of arrays and records; 0 where all of them are short, and for other types.
    #[must_use]
    pub fn longest_nested_text(&self, num_rows: usize) -> u64 {
        if !self.may_be_long() {
            return 0;
        }
        (0..num_rows).map(|row| self.nested_text_bytes(row)).max().unwrap_or(0)
    }

    /// Whether it has arrays or records whose texts may be long.
    #[must_use]
    pub fn may_be_long(&self) -> bool {
        let depth = self.depth();
        depth > 0 && self.leaf_bytes().saturating_mul(1_u64.checked_shl(depth).unwrap_or(u64::MAX)) > MEASURED_FROM
    }

    /// The bytes of the text of an array or a record; 0 for NULL and other types.
    #[must_use]
    pub fn nested_text_bytes(&self, row: usize) -> u64 {
        match self.values {
            Values::Array(_) | Values::Record(_) if !self.is_null(row) => self.measure(row, &mut Vec::new()).bytes,
            _ => 0,
        }
    }

    /// Arrays and records in one another.
    fn depth(&self) -> u32 {
        match &self.values {
            Values::Array(items) => 1 + items.column.depth(),
            Values::Record(columns) => 1 + columns.iter().map(Self::depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// At least what the texts of all values within take without quotes.
    fn leaf_bytes(&self) -> u64 {
        let of_texts = |texts: &arrow::array::StringArray| {
            let offsets = texts.value_offsets();
            (offsets[offsets.len() - 1] - offsets[0]) as u64 + 4 * (offsets.len() as u64)
        };
        match &self.values {
            Values::Array(items) => items.column.leaf_bytes() + 4 * self.num_rows(),
            Values::Record(columns) => columns.iter().map(Self::leaf_bytes).sum::<u64>() + 4 * self.num_rows(),
            Values::Text(texts) | Values::Jsonb(texts) | Values::Uuid(texts) => of_texts(texts),
            Values::Padded(texts, length) => of_texts(texts) + self.num_rows() * *length as u64,
            Values::Bytea(bytes) => {
                let offsets = bytes.value_offsets();
                2 * (offsets[offsets.len() - 1] - offsets[0]) as u64 + 4 * (offsets.len() as u64)
            }
            Values::Vector(vectors) | Values::Halfvec(vectors) => SCALAR * vectors.num_numbers() as u64,
            _ => SCALAR * self.num_rows(),
        }
    }

    /// `buffer`: for the texts of values that are neither arrays nor records.
    fn measure(&self, row: usize, buffer: &mut Vec<u8>) -> Text {
        match &self.values {
            Values::Array(items) => {
                let mut text = Text { bytes: 2, in_array: true, ..Text::default() };
                if !items.has_any(row) {
                    return text;
                }
                let range = items.range(row);
                for place in range.clone() {
                    text.add_separator(place > range.start);
                    if items.column.is_null(place) {
                        text.bytes = text.bytes.saturating_add(4);
                        continue;
                    }
                    let item = items.column.measure(place, buffer);
                    let is_quoted = !items.column.is_bare() && (item.in_array || item.bytes == 0 || item.is_null_word);
                    text.add(if is_quoted { item.quoted_in_array() } else { item });
                }
                text
            }
            Values::Record(columns) => {
                let mut text = Text { bytes: 2, in_record: true, ..Text::default() };
                for (place, column) in columns.iter().enumerate() {
                    text.add_separator(place > 0);
                    if !column.is_null(row) {
                        let value = column.measure(row, buffer);
                        text.add(if value.in_record || value.bytes == 0 { value.quoted_in_record() } else { value });
                    }
                }
                text
            }
            _ => {
                buffer.clear();
                self.write_text(row, buffer);
                Text::of(buffer)
            }
        }
    }
}

impl Text {
    fn of(text: &[u8]) -> Self {
        let count = |wanted: u8| text.iter().filter(|byte| **byte == wanted).count() as u64;
        Self {
            bytes: text.len() as u64,
            quotes: count(b'"'),
            backslashes: count(b'\\'),
            in_array: ARRAY.has_special(text),
            in_record: RECORD.has_special(text),
            is_null_word: text.eq_ignore_ascii_case(b"null"),
        }
    }

    fn add_separator(&mut self, is_there: bool) {
        self.bytes = self.bytes.saturating_add(u64::from(is_there));
        self.in_array |= is_there;
        self.in_record |= is_there;
    }

    fn add(&mut self, part: Self) {
        self.bytes = self.bytes.saturating_add(part.bytes);
        self.quotes = self.quotes.saturating_add(part.quotes);
        self.backslashes = self.backslashes.saturating_add(part.backslashes);
        self.in_array |= part.in_array;
        self.in_record |= part.in_record;
    }

    /// A backslash before each quote and each backslash.
    fn quoted_in_array(self) -> Self {
        Self { backslashes: self.backslashes.saturating_mul(2).saturating_add(self.quotes), ..self.in_quotes(self.quotes) }
    }

    /// Each quote and each backslash twice.
    fn quoted_in_record(self) -> Self {
        Self { backslashes: self.backslashes.saturating_mul(2), ..self.in_quotes(self.quotes.saturating_mul(2)) }
    }

    /// `quotes`: how many there are within.
    fn in_quotes(self, quotes: u64) -> Self {
        let bytes = self.bytes.saturating_add(self.quotes).saturating_add(self.backslashes).saturating_add(2);
        Self {
            bytes,
            quotes: quotes.saturating_add(2),
            backslashes: self.backslashes,
            in_array: true,
            in_record: true,
            is_null_word: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, Int64Array, ListArray, StringArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;
    use crate::postgres::ValueType;

    fn column(array: &ArrayRef) -> Column {
        Column::new(&ValueType::of(&Field::new("c", array.data_type().clone(), true)), array).expect("a column")
    }

    fn record(columns: Vec<ArrayRef>) -> ArrayRef {
        let fields = columns
            .iter()
            .enumerate()
            .map(|(place, column)| (Arc::new(Field::new(format!("f{place}"), column.data_type().clone(), true)), Arc::clone(column)));
        Arc::new(StructArray::from(fields.collect::<Vec<_>>()))
    }

    fn list(items: ArrayRef) -> ArrayRef {
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        let lengths = vec![1; items.len()];
        Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths), items, None))
    }

    #[test]
    fn what_is_measured_is_what_is_written() {
        let texts = [Some("a"), Some(""), None, Some("null"), Some("a \"b\" \\ c"), Some("(1,2)"), Some("{x}"), Some("ü,")];
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..8).map(|number| (number != 3).then_some(number))));
        let mut nested = vec![list(Arc::clone(&texts)), record(vec![Arc::clone(&texts)]), record(vec![Arc::clone(&numbers), texts])];
        for _ in 0..4 {
            let last = nested[nested.len() - 3..].to_vec();
            nested.extend([
                list(record(vec![Arc::clone(&last[0])])),
                record(vec![Arc::clone(&last[1]), Arc::clone(&numbers)]),
                list(Arc::clone(&last[2])),
            ]);
        }
        for array in nested {
            let column = column(&array);
            for row in 0..array.len() {
                let mut text = Vec::new();
                column.write_text(row, &mut text);
                assert_eq!(column.nested_text_bytes(row), text.len() as u64, "{}", String::from_utf8_lossy(&text));
            }
        }
    }

    #[test]
    fn a_record_sixty_deep_is_measured_at_once() {
        let mut array: ArrayRef = Arc::new(StringArray::from(vec!["a b"]));
        for _ in 0..60 {
            array = record(vec![array]);
        }
        assert!(column(&array).longest_nested_text(1) > 1 << 59);
    }
}
