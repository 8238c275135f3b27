//! `pg_sleep(seconds)`: a statement that waits, asynchronously, so that a cancel or a timeout ends it and no thread waits with it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Float64Type};
use async_trait::async_trait;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// More than thirty years: what is longer, infinity too, ends with the statement alone.
const SECONDS_MAX: f64 = 1e9;

pub fn function() -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Volatile);
    AsyncScalarUDF::new(Arc::new(Sleep { signature })).into_scalar_udf()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    signature: Signature,
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        // Of PostgreSQL's type `void` clients see an empty text.
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("pg_sleep is asynchronous")
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Sleep {
    /// Once for each row, one after the other.
    async fn invoke_async_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let seconds = arguments.args[0].to_array(arguments.number_rows)?;
        let mut slept = Vec::with_capacity(arguments.number_rows);
        for seconds in seconds.as_primitive::<Float64Type>() {
            slept.push(match seconds {
                Some(seconds) => {
                    tokio::time::sleep(time(seconds)).await;
                    Some("")
                }
                None => None,
            });
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(slept)) as ArrayRef))
    }
}

/// None at all for a number below zero, as in PostgreSQL.
fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(if seconds > 0.0 { seconds.min(SECONDS_MAX) } else { 0.0 })
}
