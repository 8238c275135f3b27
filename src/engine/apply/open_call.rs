//! A call whose constants are parameters without values.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::logical_expr::Expr;

use super::{Applied, ApplyFunction};
use crate::error::{Error, Result};

/// It can be described: its columns are known, and the types of its parameters. It can not run.
#[derive(Debug)]
pub struct OpenCall {
    /// Bound as if the constants were left out.
    pub function: Arc<dyn ApplyFunction>,
    pub constants: Vec<Expr>,
}

#[async_trait]
impl ApplyFunction for OpenCall {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn details(&self) -> String {
        self.function.details()
    }

    fn schema(&self) -> SchemaRef {
        self.function.schema()
    }

    fn open_constants(&self) -> &[Expr] {
        &self.constants
    }

    async fn call(&self, _: Vec<ArrayRef>, _: usize) -> Result<Applied> {
        Err(Error::Internal(format!("{}() runs without values for its parameters", self.name())))
    }
}
