use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date32Array, TimestampMicrosecondArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::cast::{as_date32_array, as_float64_array, as_int64_array, as_string_array, as_timestamp_microsecond_array};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};
use datafusion::scalar::ScalarValue;

use super::read::Reader;
use crate::Error;
use crate::function::{is_text, type_name};
use crate::postgres::{MICROS_PER_SECOND, timestamp_of};

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

/// Seconds since 1970, or the texts of instants.
fn instants(values: &ArrayRef) -> Result<TimestampMicrosecondArray> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let each: Vec<Option<i64>> = match values.data_type() {
        DataType::Null => vec![None; values.len()],
        found if is_text(found) => {
            let texts = cast_with_options(values, &DataType::Utf8, &strict)?;
            let read = |text: Option<&str>| text.map(|text| timestamp_of(text, true)).transpose();
            as_string_array(&texts)?.iter().map(read).collect::<Result<_, Error>>()?
        }
        found if found.is_integer() => {
            let seconds = cast_with_options(values, &DataType::Int64, &strict)?;
            let instant = |seconds: i64| instant_of_seconds(seconds as f64).and_then(|_| micros_of(seconds));
            as_int64_array(&seconds)?.iter().map(|seconds| seconds.map(instant).transpose()).collect::<Result<_, Error>>()?
        }
        found if found.is_numeric() => {
            let seconds = cast_with_options(values, &DataType::Float64, &strict)?;
            as_float64_array(&seconds)?.iter().map(|seconds| seconds.map(instant_of_seconds).transpose()).collect::<Result<_, Error>>()?
        }
        DataType::Date32 => {
            let instant = |day: i32| match day {
                i32::MAX => Ok(i64::MAX),
                i32::MIN => Ok(i64::MIN),
                day => i64::from(day).checked_mul(MICROS_PER_DAY).ok_or(Error::DateBeyondTimestamp),
            };
            as_date32_array(values)?.iter().map(|day| day.map(instant).transpose()).collect::<Result<_, Error>>()?
        }
        _ => {
            let instants = cast_with_options(values, &DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())), &strict)?;
            return Ok(as_timestamp_microsecond_array(&instants)?.clone());
        }
    };
    Ok(TimestampMicrosecondArray::from(each).with_timezone(UTC))
}

fn micros_of(seconds: i64) -> Result<i64, Error> {
    seconds.checked_mul(MICROS_PER_SECOND).ok_or_else(|| Error::Seconds { text: seconds.to_string() })
}

fn instant_of_seconds(seconds: f64) -> Result<i64, Error> {
    /// 4714-11-24 BC.
    const FIRST: f64 = -210_866_803_200.0;
    if seconds.is_infinite() {
        return Ok(if seconds > 0.0 { i64::MAX } else { i64::MIN });
    }
    let micros = (seconds * MICROS_PER_SECOND as f64).round_ties_even();
    if !(seconds >= FIRST && micros < i64::MAX as f64) {
        let text = if seconds.is_nan() { "NaN".to_owned() } else { seconds.to_string() };
        return Err(Error::Seconds { text: text.chars().take(40).collect() });
    }
    Ok(micros as i64)
}

impl ScalarUDFImpl for WithPatterns {
    fn name(&self) -> &str {
        self.function
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if types.len() < 2 && (types.is_empty() || self.function == "to_date") {
            return self.inner.return_type(types);
        }
        if types.len() != 1 {
            self.check(types)?;
        }
        Ok(match self.function {
            "to_date" => DataType::Date32,
            _ => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [value] = args.args.as_slice()
            && self.function == "to_timestamp"
        {
            let is_constant = matches!(value, ColumnarValue::Scalar(_));
            let instants = instants(&value.to_array(if is_constant { 1 } else { args.number_rows })?)?;
            return Ok(match is_constant {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&instants, 0)?),
                false => ColumnarValue::Array(Arc::new(instants)),
            });
        }
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
        let column: ArrayRef = match self.function {
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
