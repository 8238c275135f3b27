//! Vectors that are known when the scan runs: one that a model makes, and the value of a subquery.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Schema};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
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

/// `ORDER BY embedding <=> (SELECT ..)`. The planner runs such subqueries before all else, and the expressions of a plan read what they gave.
#[derive(Debug)]
pub struct SubqueryVector {
    /// The subquery, perhaps in a cast.
    pub expression: Expr,
}

/// What EXPLAIN shows of it.
const SUBQUERY: &str = "the vector of a subquery";

#[async_trait]
impl LateVector for SubqueryVector {
    fn text(&self) -> &str {
        SUBQUERY
    }

    async fn vector(&self, _: &TaskContext) -> Result<Option<Vec<f32>>> {
        Err(Error::Internal(format!("{SUBQUERY} was not planned")).into())
    }

    fn planned(&self, state: &dyn Session) -> Result<Option<Arc<dyn LateVector>>> {
        let expression = create_physical_expr(&self.expression, &DFSchema::empty(), state.execution_props())?;
        Ok(Some(Arc::new(PlannedSubquery(expression))))
    }

    fn is_of_one_run(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct PlannedSubquery(Arc<dyn PhysicalExpr>);

#[async_trait]
impl LateVector for PlannedSubquery {
    fn text(&self) -> &str {
        SUBQUERY
    }

    async fn vector(&self, _: &TaskContext) -> Result<Option<Vec<f32>>> {
        let row = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &row)?;
        let value = self.0.evaluate(&row)?.into_array(1)?;
        if value.is_null(0) {
            return Ok(None);
        }
        let numbers = match value.as_fixed_size_list_opt() {
            Some(vectors) => cast(&vectors.value(0), &DataType::Float32)?,
            None => return Err(Error::Internal(format!("{SUBQUERY} is {}", value.data_type())).into()),
        };
        let numbers = numbers.as_primitive::<Float32Type>();
        Ok((numbers.null_count() == 0).then(|| numbers.values().to_vec()))
    }

    fn is_of_one_run(&self) -> bool {
        false
    }
}
