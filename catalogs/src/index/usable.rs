//! How many vectors there are to build an index of: NULLs are none, equal ones make one partition, and a zero vector has no direction.

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Float16Type, Float32Type, ToByteSlice};
use futures::TryStreamExt;

use super::{IndexDefinition, Metric};
use crate::scan::scan_of;
use crate::{Error, Result, Table};

impl Table {
    /// Distinct vectors of the indexed column that an index for the metric can be trained on; at most `enough`, after which no more are read.
    pub(super) async fn usable_vectors(&self, index: &IndexDefinition, enough: usize) -> Result<usize> {
        let failed = |source| Error::storage(self.name(), source);
        let is_cosine = index.metric.unwrap_or(Metric::Cosine) == Metric::Cosine;
        let mut scanner = scan_of(&self.dataset);
        scanner.project(&[index.column.as_str()]).map_err(failed)?;
        let mut batches = scanner.try_into_stream().await.map_err(failed)?;
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        while let Some(batch) = batches.try_next().await.map_err(failed)? {
            let Some(vectors) = batch.column(0).as_fixed_size_list_opt() else { return Ok(enough) };
            for row in (0..vectors.len()).filter(|row| vectors.is_valid(*row)) {
                seen.extend(usable(&vectors.value(row), is_cosine));
                if seen.len() >= enough {
                    return Ok(enough);
                }
            }
        }
        Ok(seen.len())
    }
}

/// The bytes of a vector; `None` for one with numbers that are none, and for a zero vector where its direction matters.
fn usable(vector: &ArrayRef, is_cosine: bool) -> Option<Vec<u8>> {
    let (is_finite, is_zero, bytes) = if let Some(numbers) = vector.as_primitive_opt::<Float32Type>() {
        let numbers = numbers.values();
        (numbers.iter().all(|number| number.is_finite()), numbers.iter().all(|number| *number == 0.0), numbers.to_byte_slice().to_vec())
    } else {
        let numbers = vector.as_primitive_opt::<Float16Type>()?.values();
        let singles: Vec<f32> = numbers.iter().map(|number| number.to_f32()).collect();
        (singles.iter().all(|number| number.is_finite()), singles.iter().all(|number| *number == 0.0), singles.to_byte_slice().to_vec())
    };
    (is_finite && !(is_zero && is_cosine)).then_some(bytes)
}
