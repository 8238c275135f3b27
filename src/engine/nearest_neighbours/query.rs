//! A vector that a model makes when the scan runs.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float32Type;
use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use rolloutdb_catalogs::LateVector;

use crate::engine::apply::ApplyFunction;
use crate::engine::task_history::calls_of;
use crate::error::Error;

/// A call of constants, as in `ORDER BY embedding <=> embed('m', 'text')`. The function keeps its value, so that the expressions above the scan do not
/// call the model again.
#[derive(Debug)]
pub struct ModelQuery {
    pub function: Arc<dyn ApplyFunction>,
    /// The call, for EXPLAIN.
    pub text: String,
}

#[async_trait]
impl LateVector for ModelQuery {
    fn text(&self) -> &str {
        &self.text
    }

    async fn vector(&self, context: &TaskContext) -> Result<Option<Vec<f32>>> {
        let calls = calls_of(context).unwrap_or_default();
        let value = calls.scope(self.function.call(Vec::new(), 1)).await?.batch.column(0).clone();
        let Some(vectors) = value.as_fixed_size_list_opt().filter(|vectors| vectors.len() == 1) else {
            return Err(Error::Internal(format!("{} is no vector, but {}", self.text, value.data_type())).into());
        };
        if vectors.is_null(0) {
            return Ok(None);
        }
        let vector = vectors.value(0);
        match vector.as_primitive_opt::<Float32Type>() {
            Some(values) => Ok(Some(values.values().to_vec())),
            None => Err(DataFusionError::from(Error::Internal(format!("{} has numbers of {}", self.text, vector.data_type())))),
        }
    }
}
