//! `WITH ORDINALITY`: the place of a row among those that a function in FROM gives for its input row, from 1.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use rolloutdb_catalogs::Table;

use super::{Applied, ApplyFunction, ModelUse};
use crate::error::Result;

/// The name of the column.
pub const ORDINALITY: &str = "ordinality";

/// A function with that column after its own.
#[derive(Debug)]
pub struct WithOrdinality {
    pub function: Arc<dyn ApplyFunction>,
}

#[async_trait]
impl ApplyFunction for WithOrdinality {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn details(&self) -> String {
        self.function.details()
    }

    fn schema(&self) -> SchemaRef {
        let place = Arc::new(Field::new(ORDINALITY, DataType::Int64, false));
        Arc::new(Schema::new(self.function.schema().fields().iter().cloned().chain([place]).collect::<Vec<_>>()))
    }

    fn is_row_preserving(&self) -> bool {
        self.function.is_row_preserving()
    }

    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        self.function.tables()
    }

    fn is_constant(&self) -> bool {
        self.function.is_constant()
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
        let places = input_rows.values().chunk_by(|a, b| a == b).flat_map(|rows| 1..=rows.len() as i64);
        let places: ArrayRef = Arc::new(Int64Array::from_iter_values(places));
        let columns = batch.columns().iter().cloned().chain([places]).collect();
        let batch = RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?;
        Ok(Applied { batch, input_rows })
    }
}
