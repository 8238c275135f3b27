//! `clock_timestamp()`: the time at which it is asked, unlike `now()`, which is that of the statement.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

pub fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(ClockTimestamp { signature: Signature::nullary(Volatility::Volatile) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ClockTimestamp {
    signature: Signature,
}

impl ScalarUDFImpl for ClockTimestamp {
    fn name(&self) -> &str {
        "clock_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_micros()).ok());
        let Some(micros) = micros else { return exec_err!("the clock of this machine is before 1970") };
        let times = TimestampMicrosecondArray::from(vec![micros; args.number_rows]);
        Ok(ColumnarValue::Array(Arc::new(times.with_timezone("+00:00"))))
    }
}
