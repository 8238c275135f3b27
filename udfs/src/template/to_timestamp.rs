use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Date32Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::cast::as_string_array;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};
use datafusion::scalar::ScalarValue;

use super::read::Reader;
use crate::Error;
use crate::function::{is_text, type_name};

/// The zone of instants.
const UTC: &str = "+00:00";
const MICROS_PER_DAY: i64 = 86_400_000_000;

/// `to_timestamp` or `to_date`, which read a text by a template pattern of PostgreSQL's where they have two arguments, and else are what they were.
#[must_use]
pub fn with_patterns(inner: &ScalarUDF) -> ScalarUDF {
    let function = if inner.name() == "to_date" { "to_date" } else { "to_timestamp" };
    ScalarUDF::new_from_impl(WithPatterns { function, inner: inner.clone() })
}

#[derive(Debug)]
struct WithPatterns {
    function: &'static str,
    inner: ScalarUDF,
}

impl PartialEq for WithPatterns {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for WithPatterns {}

impl Hash for WithPatterns {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

impl WithPatterns {
    fn check(&self, types: &[DataType]) -> Result<(), Error> {
        let syntax = || format!("{}(text, pattern)", self.function);
        if types.len() != 2 {
            return Err(Error::ArgumentCount { found: types.len(), syntax: syntax() });
        }
        match types.iter().find(|found| !is_text(found) && !found.is_null()) {
            Some(found) => {
                Err(Error::ArgumentType { function: self.function, argument: "text or pattern", found: type_name(found), expected: "text" })
            }
            None => Ok(()),
        }
    }
}

impl ScalarUDFImpl for WithPatterns {
    fn name(&self) -> &str {
        self.function
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if types.len() < 2 {
            return self.inner.return_type(types);
        }
        self.check(types)?;
        Ok(match self.function {
            "to_date" => DataType::Date32,
            _ => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.len() < 2 {
            return self.inner.invoke_with_args(args);
        }
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let num_rows = if is_constant { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|value| value.cast_to(&DataType::Utf8, None)?.to_array(num_rows)).collect::<Result<Vec<_>>>()?;
        let (texts, patterns) = (as_string_array(&columns[0])?, as_string_array(&columns[1])?);
        let mut known: Option<(&str, Reader)> = None;
        let mut instants = Vec::with_capacity(num_rows);
        for pair in texts.iter().zip(patterns.iter()) {
            let (Some(text), Some(pattern)) = pair else {
                instants.push(None);
                continue;
            };
            if known.as_ref().is_none_or(|(of, _)| *of != pattern) {
                known = Some((pattern, Reader::new(self.function, pattern)?));
            }
            instants.push(known.as_ref().map(|(_, reader)| reader.instant(text)).transpose()?);
        }
        let column: arrow::array::ArrayRef = match self.function {
            "to_date" => {
                let days = |micros: i64| i32::try_from(micros.div_euclid(MICROS_PER_DAY)).expect("microseconds count fewer days");
                Arc::new(instants.into_iter().map(|micros| micros.map(days)).collect::<Date32Array>())
            }
            _ => Arc::new(instants.into_iter().collect::<TimestampMicrosecondArray>().with_timezone(UTC)),
        };
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&column, 0)?)),
            false => Ok(ColumnarValue::Array(column)),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
