//! Numbers that a subquery after LATERAL needs: which row before LATERAL a row belongs to, and in which order a function gave its rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use rolloutdb_catalogs::Table;

use super::{Applied, ApplyFunction, ModelUse};
use crate::error::Result;

/// Gives each row a number that no other row has, over all partitions. Unlike a window function it lets conditions on the rows go below it.
#[derive(Debug, Default)]
pub struct RowNumbers {
    next: AtomicI64,
}

#[async_trait]
impl ApplyFunction for RowNumbers {
    fn name(&self) -> &str {
        "row_numbers"
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("row_number", DataType::Int64, false)]))
    }

    fn is_row_preserving(&self) -> bool {
        true
    }

    /// The numbers only tell rows apart.
    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        Some(Vec::new())
    }

    fn batch_rows(&self) -> usize {
        8192
    }

    async fn call(&self, _: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let first = self.next.fetch_add(num_rows as i64, Ordering::Relaxed);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + num_rows as i64));
        Ok(Applied::row_by_row(RecordBatch::try_new(self.schema(), vec![numbers]).map_err(DataFusionError::from)?))
    }
}

/// A function with one more column, last: the place of a row among those that the function gave for its input row, from 0.
#[derive(Debug)]
pub struct Numbered {
    pub function: Arc<dyn ApplyFunction>,
}

#[async_trait]
impl ApplyFunction for Numbered {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn details(&self) -> String {
        self.function.details()
    }

    fn schema(&self) -> SchemaRef {
        let place = Arc::new(Field::new("place", DataType::Int64, false));
        Arc::new(Schema::new(self.function.schema().fields().iter().cloned().chain([place]).collect::<Vec<_>>()))
    }

    fn is_row_preserving(&self) -> bool {
        self.function.is_row_preserving()
    }

    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        self.function.tables()
    }

    fn model_use(&self) -> ModelUse {
        self.function.model_use()
    }

    fn open_constants(&self) -> &[Expr] {
        self.function.open_constants()
    }

    fn batch_rows(&self) -> usize {
        self.function.batch_rows()
    }

    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let Applied { batch, input_rows } = self.function.call(arguments, num_rows).await?;
        let places: ArrayRef = Arc::new(Int64Array::from(places(input_rows.values())));
        let columns = batch.columns().iter().cloned().chain([places]).collect();
        let batch = RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?;
        Ok(Applied { batch, input_rows })
    }
}

fn places(input_rows: &[u32]) -> Vec<i64> {
    input_rows.chunk_by(|a, b| a == b).flat_map(|rows| 0..rows.len() as i64).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn places_start_anew_for_each_input_row() {
        assert_eq!(places(&[0, 0, 2, 3, 3, 3]), [0, 1, 0, 0, 1, 2]);
        assert_eq!(places(&[]), Vec::<i64>::new());
    }

    #[tokio::test]
    async fn no_two_rows_have_one_number() -> Result<()> {
        let numbers = RowNumbers::default();
        let mut given = Vec::new();
        for num_rows in [3, 2] {
            let batch = numbers.call(Vec::new(), num_rows).await?.batch;
            given.push(batch.column(0).as_primitive::<Int64Type>().values().to_vec());
        }
        assert_eq!(given, [vec![0, 1, 2], vec![3, 4]]);
        Ok(())
    }
}
