//! Dates, times and intervals as PostgreSQL computes with them: parts, truncation, ages, and what is made of parts.
//!
//! An instant counts microseconds from 1970-01-01, an interval months, days and nanoseconds. The session's time zone is UTC.

mod age;
mod arithmetic;
mod between_types;
mod date_bin;
mod date_trunc;
mod extract;
mod input;
mod isfinite;
mod justify;
mod make;
mod operator;
mod time_of_day;
mod timezone;
mod unit;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Date32Type, Int64Type, IntervalMonthDayNano, IntervalUnit, Time64MicrosecondType, TimeUnit};
use datafusion::error::Result;

pub use arithmetic::later;
pub use operator::TimeOperatorPlanner;

use crate::Error;
use crate::arguments::{Arguments, Column};
use crate::function::{Function, Kind, Parameter, is_text, type_name};
use crate::postgres::{MICROS_PER_DAY, MICROS_PER_SECOND, civil_of_days, days_of_civil, timestamp_of};

pub(crate) const FUNCTIONS: &[&Function] = &[
    &extract::EXTRACT,
    &extract::DATE_PART,
    &date_trunc::FUNCTION,
    &timezone::FUNCTION,
    &age::FUNCTION,
    &date_bin::FUNCTION,
    &arithmetic::TIMESTAMP_PLUS_INTERVAL,
    &arithmetic::TIMESTAMP_MINUS_INTERVAL,
    &arithmetic::TIMESTAMP_MINUS_TIMESTAMP,
    &arithmetic::DATE_PLUS_DAYS,
    &arithmetic::DATE_MINUS_DAYS,
    &arithmetic::DATE_MINUS_DATE,
    &between_types::TIMESTAMP_OF_DATE,
    &between_types::TIMESTAMPTZ_OF_DATE,
    &between_types::INSTANT_OF_DATE,
    &between_types::INSTANTTZ_OF_DATE,
    &between_types::TIMESTAMPTZ_OF_TIMESTAMP,
    &between_types::TIMESTAMP_OF_TIMESTAMPTZ,
    &between_types::DATE_OF_TIMESTAMP,
    &between_types::TIME_OF_TIMESTAMP,
    &justify::HOURS,
    &justify::DAYS,
    &justify::INTERVAL,
    &isfinite::FUNCTION,
    &make::DATE,
    &make::TIME,
    &make::TIMESTAMP,
    &make::INTERVAL,
    &time_of_day::DATE_AND_TIME,
    &time_of_day::TIME_PLUS_INTERVAL,
    &time_of_day::TIME_MINUS_INTERVAL,
    &input::DATE_IN,
    &input::TIME_IN,
    &input::TIMESTAMP_IN,
    &input::TIMESTAMPTZ_IN,
];

const SECTION: &str = "Dates and times";

const FIELD: Parameter = Parameter {
    name: "field",
    kind: Kind::Text,
    description: "`millennium`, `century`, `decade`, `year`, `quarter`, `month`, `week`, `day`, `hour`, `minute`, `second`, `milliseconds` or `microseconds`.",
};
const TIME: Parameter = Parameter { name: "source", kind: Kind::Any, description: "A timestamp, date, time or interval." };

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeType {
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
}

impl TimeType {
    /// A text is read as an instant.
    fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Date32 | DataType::Date64 => Some(Self::Date),
            DataType::Time32(_) | DataType::Time64(_) => Some(Self::Time),
            DataType::Timestamp(_, None) => Some(Self::Timestamp),
            DataType::Timestamp(_, Some(_)) | DataType::Null => Some(Self::Timestamptz),
            DataType::Interval(_) | DataType::Duration(_) => Some(Self::Interval),
            text if is_text(text) => Some(Self::Timestamptz),
            _ => None,
        }
    }

    /// The same of argument `index` of a function.
    ///
    /// # Errors
    /// [`Error::ArgumentType`].
    fn of_argument(function: &'static Function, index: usize, data_type: &DataType) -> Result<Self, Error> {
        Self::of(data_type).ok_or_else(|| {
            let argument = function.interface.parameters[index].name;
            let expected = "a timestamp, date, time or interval";
            Error::ArgumentType { function: function.interface.name, argument, found: type_name(data_type), expected }
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::Time => "time without time zone",
            Self::Timestamp => "timestamp without time zone",
            Self::Timestamptz => "timestamp with time zone",
            Self::Interval => "interval",
        }
    }
}

fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn timestamptz_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()))
}

fn time_type() -> DataType {
    DataType::Time64(TimeUnit::Microsecond)
}

fn interval_type() -> DataType {
    DataType::Interval(IntervalUnit::MonthDayNano)
}

/// Argument `index`, a date, a time of day, an instant or the text of one, in microseconds; the two infinities are the largest and the smallest number.
fn micros(arguments: &Arguments, index: usize) -> Result<Column<Int64Array>> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    arguments.column(index)?.map_array(|array| {
        let data_type = array.data_type();
        if is_text(data_type) {
            let texts = cast_with_options(array, &DataType::Utf8, &strict)?;
            let micros = texts.as_string::<i32>().iter().map(|text| text.map(|text| timestamp_of(text, true)).transpose());
            return Ok(micros.collect::<Result<Int64Array, Error>>()?);
        }
        let micros: ArrayRef = match TimeType::of(data_type) {
            Some(TimeType::Date) => {
                let days = cast_with_options(array, &DataType::Date32, &strict)?;
                Arc::new(days.as_primitive::<Date32Type>().try_unary::<_, Int64Type, Error>(micros_of_date)?)
            }
            Some(TimeType::Time) => {
                let times = cast_with_options(array, &time_type(), &strict)?;
                Arc::new(times.as_primitive::<Time64MicrosecondType>().unary::<_, Int64Type>(|micros| micros))
            }
            _ => {
                let zone = if let DataType::Timestamp(_, zone) = data_type { zone.clone() } else { None };
                let instants = cast_with_options(array, &DataType::Timestamp(TimeUnit::Microsecond, zone), &strict)?;
                cast_with_options(&instants, &DataType::Int64, &strict)?
            }
        };
        Ok(micros.as_primitive::<Int64Type>().clone())
    })
}

/// # Errors
/// [`Error::DateBeyondTimestamp`].
fn micros_of_date(days: i32) -> Result<i64, Error> {
    match days {
        i32::MAX => Ok(i64::MAX),
        i32::MIN => Ok(i64::MIN),
        days => i64::from(days).checked_mul(MICROS_PER_DAY).ok_or(Error::DateBeyondTimestamp),
    }
}

/// Argument `index`, a date, as its day.
fn days(arguments: &Arguments, index: usize) -> Result<Column<Int64Array>> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    arguments.column(index)?.map_array(|array| {
        let days = cast_with_options(array, &DataType::Date32, &strict)?;
        Ok(days.as_primitive::<Date32Type>().unary::<_, Int64Type>(i64::from))
    })
}

/// The inverse, of any time of a day.
fn day_of_micros(micros: i64) -> i32 {
    match micros {
        i64::MAX => i32::MAX,
        i64::MIN => i32::MIN,
        // Microseconds count fewer days than there are numbers of 32 bits.
        micros => micros.div_euclid(MICROS_PER_DAY) as i32,
    }
}

fn is_infinite(micros: i64) -> bool {
    matches!(micros, i64::MAX | i64::MIN)
}

/// Year (0 is 1 BC), month and day, and the microseconds since midnight.
fn civil(micros: i64) -> (i64, i64, i64, i64) {
    let (year, month, day) = civil_of_days(micros.div_euclid(MICROS_PER_DAY));
    (year, month, day, micros.rem_euclid(MICROS_PER_DAY))
}

/// The instant at the beginning of a day that there is.
fn midnight(year: i64, month: i64, day: i64) -> Result<i64, Error> {
    let days = days_of_civil(year, month, day).and_then(|days| days.checked_mul(MICROS_PER_DAY));
    days.ok_or(Error::TimeOverflow { type_name: "timestamp" })
}

/// # Errors
/// [`Error::TimeOverflow`].
fn interval(months: i64, days: i64, micros: i64) -> Result<IntervalMonthDayNano, Error> {
    let parts = (i32::try_from(months).ok(), i32::try_from(days).ok(), micros.checked_mul(1_000));
    match parts {
        (Some(months), Some(days), Some(nanos)) => Ok(IntervalMonthDayNano::new(months, days, nanos)),
        _ => Err(Error::TimeOverflow { type_name: "interval" }),
    }
}
