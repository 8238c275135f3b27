//! Equal inputs once: the distinct inputs of a batch, and the way back to its rows.

use std::collections::HashMap;
use std::hash::Hash;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use datafusion::error::Result;

use crate::Error;

#[derive(Debug)]
pub(super) struct Distinct<T> {
    /// In the order of their first row.
    pub inputs: Vec<T>,
    /// Which input each row has; NULL for a row without one.
    rows: UInt32Array,
}

impl<T: Copy + Eq + Hash> Distinct<T> {
    pub fn new(inputs: impl Iterator<Item = Option<T>>) -> Self {
        let mut indices = HashMap::new();
        let mut distinct = Vec::new();
        let rows = inputs.map(|input| {
            input.map(|input| {
                *indices.entry(input).or_insert_with(|| {
                    distinct.push(input);
                    u32::try_from(distinct.len() - 1).expect("a batch has fewer than 2^32 rows")
                })
            })
        });
        let rows = rows.collect();
        Self { inputs: distinct, rows }
    }

    /// Rows whose input stands in a row before them.
    pub fn num_repeats(&self) -> usize {
        self.rows.len() - self.rows.null_count() - self.inputs.len()
    }

    /// One result per row from one per distinct input.
    ///
    /// # Errors
    /// [`Error::ModelResult`] if there are not as many results as inputs.
    pub fn scatter(&self, function: &'static str, results: &dyn Array) -> Result<ArrayRef> {
        if results.len() != self.inputs.len() {
            let (found, expected) = (format!("{} rows", results.len()), self.inputs.len().to_string());
            return Err(Error::ModelResult { function, found, expected }.into());
        }
        Ok(take(results, &self.rows, None)?)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    #[test]
    fn there_and_back() {
        let column = StringArray::from(vec![Some("b"), None, Some("a"), Some("b")]);
        let distinct = Distinct::new(column.iter());
        assert_eq!((distinct.inputs.as_slice(), distinct.num_repeats()), (["b", "a"].as_slice(), 1));
        let back = distinct.scatter("test", &StringArray::from(distinct.inputs.clone())).expect("as many");
        assert_eq!(&back, &(std::sync::Arc::new(column) as ArrayRef));
    }

    #[test]
    fn notices_missing_results() {
        let distinct = Distinct::new([Some("a"), Some("b")].into_iter());
        let error = distinct.scatter("embed", &StringArray::from(vec!["x"])).expect_err("one of two");
        assert!(error.to_string().contains("embed: the model returned 1 rows, expected 2"), "{error}");
    }
}
