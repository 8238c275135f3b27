//! Rows by their key: what `WHERE id = $1` reads of a table in memory in place of every key.

use std::hash::{BuildHasher, RandomState};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type};
use datafusion::common::ScalarValue;
use hashbrown::HashTable;

/// The numbers of rows by the hash of their key. Deleted rows are among them: an update leaves the key to a row that is dead and to one that lives.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    places: HashTable<(u64, u32)>,
    num_rows: usize,
    hasher: RandomState,
}

impl Keys {
    /// Whether keys of this type are found by their hash.
    pub(crate) fn are_of(data_type: &DataType) -> bool {
        matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Utf8)
    }

    /// The rows that it has, the first ones of the table.
    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.places.allocation_size()
    }

    /// Takes in the keys of the next rows, a column of a type of [`Self::are_of`]; `false`: there are more rows than it can number.
    pub(crate) fn push_segment(&mut self, keys: &ArrayRef) -> bool {
        let first = self.num_rows;
        if u32::try_from(first + keys.len()).is_err() {
            return false;
        }
        self.places.reserve(keys.len(), |(hash, _)| *hash);
        for place in (0..keys.len()).filter(|place| keys.is_valid(*place)) {
            let hash = match keys.data_type() {
                DataType::Int16 => self.hash_of(i64::from(keys.as_primitive::<Int16Type>().value(place))),
                DataType::Int32 => self.hash_of(i64::from(keys.as_primitive::<Int32Type>().value(place))),
                DataType::Int64 => self.hash_of(keys.as_primitive::<Int64Type>().value(place)),
                _ => self.hasher.hash_one(keys.as_string::<i32>().value(place)),
            };
            // Numbered above.
            let row = (first + place) as u32;
            self.places.insert_unique(hash, (hash, row), |(hash, _)| *hash);
        }
        self.num_rows += keys.len();
        true
    }

    /// Rows that may have this key: those whose hash is its. `None`: it is no key.
    pub(crate) fn candidates(&self, key: &ScalarValue) -> Option<Vec<usize>> {
        let hash = match key {
            ScalarValue::Int16(Some(number)) => self.hash_of(i64::from(*number)),
            ScalarValue::Int32(Some(number)) => self.hash_of(i64::from(*number)),
            ScalarValue::Int64(Some(number)) => self.hash_of(*number),
            ScalarValue::Utf8(Some(text)) => self.hasher.hash_one(text.as_str()),
            _ => return None,
        };
        Some(self.places.iter_hash(hash).filter(|(found, _)| *found == hash).map(|(_, row)| *row as usize).collect())
    }

    fn hash_of(&self, number: i64) -> u64 {
        self.hasher.hash_one(number)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    #[test]
    fn rows_are_found_by_their_key_in_every_segment() {
        let mut keys = Keys::default();
        for start in [0_i64, 500] {
            let segment: ArrayRef = Arc::new(Int64Array::from_iter_values((start..start + 500).map(|key| key % 700)));
            assert!(keys.push_segment(&segment));
        }
        assert_eq!(keys.num_rows(), 1_000);
        let sorted = |key: i64| {
            let mut found = keys.candidates(&ScalarValue::from(key)).expect("a key");
            found.sort_unstable();
            found
        };
        assert_eq!((sorted(0), sorted(299), sorted(300), sorted(700)), (vec![0, 700], vec![299, 999], vec![300], vec![]));
        assert_eq!(keys.candidates(&ScalarValue::Int64(None)), None);
    }

    #[test]
    fn texts_are_keys_and_nulls_are_none() {
        let mut keys = Keys::default();
        let segment: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("a")]));
        assert!(keys.push_segment(&segment));
        let mut found = keys.candidates(&ScalarValue::from("a")).expect("a key");
        found.sort_unstable();
        assert_eq!((found, keys.candidates(&ScalarValue::from(""))), (vec![0, 3], Some(vec![2])));
    }
}
