//! Vectors with NaN or infinity that were stored before such were refused: reading them stays possible, and ANALYZE names them.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;

use crate::conversion::not_finite;
use crate::index::is_vector;
use crate::scan::scan_of;
use crate::{Error, Result, Table};

/// What ANALYZE says of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwantedVectors {
    pub column: String,
    pub count: u64,
    /// Where the first one is: `(id)=(7)` by the primary key, or `row 8` in the order of the table.
    pub first: String,
}

impl Table {
    /// The columns of this version with vectors that no statement would store today. Reads all vectors.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn unwanted_vectors(&self) -> Result<Vec<UnwantedVectors>> {
        let definition = self.definition();
        let columns = definition.schema.fields().iter().filter(|field| is_vector(field.data_type())).map(|field| field.name());
        let mut found = Vec::new();
        for column in columns {
            found.extend(self.unwanted_in(column).await?);
        }
        Ok(found)
    }

    async fn unwanted_in(&self, column: &str) -> Result<Option<UnwantedVectors>> {
        let failed = |source| Error::storage(self.name(), source);
        let key = &self.definition().primary_key;
        let mut columns: Vec<&str> = vec![column];
        columns.extend(key.iter().map(String::as_str));
        let mut scanner = scan_of(&self.dataset);
        scanner.project(&columns).map_err(failed)?;
        let mut batches = scanner.try_into_stream().await.map_err(failed)?;
        let (mut count, mut first, mut num_rows) = (0, None, 0);
        while let Some(batch) = batches.try_next().await.map_err(failed)? {
            for row in unwanted_rows(&batch, column) {
                count += 1;
                first.get_or_insert_with(|| place(&batch, key, row, num_rows + row));
            }
            num_rows += batch.num_rows();
        }
        Ok(first.map(|first| UnwantedVectors { column: column.to_owned(), count, first }))
    }
}

fn unwanted_rows(batch: &RecordBatch, column: &str) -> Vec<usize> {
    let Some(vectors) = batch.column_by_name(column).and_then(|column| column.as_fixed_size_list_opt()) else { return vec![] };
    if not_finite(vectors).is_none() {
        return vec![];
    }
    (0..vectors.len()).filter(|row| not_finite(&vectors.slice(*row, 1)).is_some()).collect()
}

/// `number`: of the row in the table, from 0.
fn place(batch: &RecordBatch, key: &[String], row: usize, number: usize) -> String {
    if key.is_empty() {
        return format!("row {}", number + 1);
    }
    let value = |column: &String| array_value_to_string(batch.column_by_name(column)?, row).ok();
    let values: Vec<String> = key.iter().filter_map(value).collect();
    format!("({})=({})", key.join(", "), values.join(", "))
}
