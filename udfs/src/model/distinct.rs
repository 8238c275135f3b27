//! Equal inputs once: the distinct texts of a batch, and the way back to its rows.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, StringArray, UInt32Array};
use arrow::compute::take;
use datafusion::error::Result;

use crate::Error;

#[derive(Debug)]
pub(super) struct Distinct {
    /// In the order of their first row, none NULL.
    pub texts: StringArray,
    /// Which text each row has; NULL for a NULL text.
    rows: UInt32Array,
}

impl Distinct {
    pub fn new<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Self {
        let mut indices = HashMap::new();
        let mut distinct = Vec::new();
        let rows = texts.map(|text| {
            text.map(|text| {
                *indices.entry(text).or_insert_with(|| {
                    distinct.push(text);
                    u32::try_from(distinct.len() - 1).expect("a batch has fewer than 2^32 rows")
                })
            })
        });
        let rows = rows.collect();
        Self { texts: StringArray::from(distinct), rows }
    }

    /// One result per row from one per distinct text.
    ///
    /// # Errors
    /// [`Error::ModelResult`] if there are not as many results as texts.
    pub fn scatter(&self, function: &'static str, results: &dyn Array) -> Result<ArrayRef> {
        if results.len() != self.texts.len() {
            let (found, expected) = (format!("{} rows", results.len()), self.texts.len().to_string());
            return Err(Error::ModelResult { function, found, expected }.into());
        }
        Ok(take(results, &self.rows, None)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let column = StringArray::from(vec![Some("b"), None, Some("a"), Some("b")]);
        let distinct = Distinct::new(column.iter());
        assert_eq!(distinct.texts, StringArray::from(vec!["b", "a"]));
        let back = distinct.scatter("test", &distinct.texts).expect("as many");
        assert_eq!(&back, &(std::sync::Arc::new(column) as ArrayRef));
    }

    #[test]
    fn notices_missing_results() {
        let distinct = Distinct::new([Some("a"), Some("b")].into_iter());
        let error = distinct.scatter("embed", &StringArray::from(vec!["x"])).expect_err("one of two");
        assert!(error.to_string().contains("embed: the model returned 1 rows, expected 2"), "{error}");
    }
}
