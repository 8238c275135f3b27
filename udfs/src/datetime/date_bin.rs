//! `date_bin(stride, source, origin)`: the beginning of the bin of a width in which an instant is.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::error::Result;

use super::{MICROS_PER_DAY, SECTION, TimeType, is_infinite, micros, timestamp_type, timestamptz_type};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "date_bin",
        section: SECTION,
        description: "The beginning of the bin in which an instant is; bins of one width follow each other, and one of them begins at the origin.",
        parameters: &[
            Parameter { name: "stride", kind: Kind::Any, description: "The width of a bin, an interval without months." },
            Parameter { name: "source", kind: Kind::Any, description: "A timestamp or date." },
            Parameter { name: "origin", kind: Kind::Any, description: "Where a bin begins; 1970-01-01 by default." },
        ],
        required: 2,
        example: ("SELECT date_bin(INTERVAL '15 minutes', TIMESTAMP '2020-02-11 15:44:17', TIMESTAMP '2001-01-01')", "2020-02-11T15:30:00"),
    },
    returns: Returns::Computed(|types, _| {
        Ok(match TimeType::of_argument(&FUNCTION, 1, &types[1])? {
            TimeType::Timestamp | TimeType::Date => timestamp_type(),
            TimeType::Timestamptz => timestamptz_type(),
            other => return Err(FUNCTION.interface.argument_error(1, other.name(), "a timestamp").into()),
        })
    }),
    kernel: |arguments| {
        let (strides, sources) = (arguments.interval(0)?, micros(arguments, 1)?);
        let origins = if arguments.has(2) { Some(micros(arguments, 2)?) } else { None };
        let begin = |row: usize| -> Result<Option<i64>, Error> {
            let origin = origins.as_ref().map_or(Some(0), |origins| origins.get(row));
            let (Some(stride), Some(source), Some(origin)) = (strides.get(row), sources.get(row), origin) else { return Ok(None) };
            bin(stride, source, origin).map(Some)
        };
        let begins = (0..arguments.num_rows()).map(begin).collect::<Result<TimestampMicrosecondArray, Error>>()?;
        Ok(Arc::new(begins.with_data_type(arguments.return_type().clone())) as ArrayRef)
    },
};

fn bin(stride: IntervalMonthDayNano, source: i64, origin: i64) -> Result<i64, Error> {
    if is_infinite(source) {
        return Ok(source);
    }
    if is_infinite(origin) {
        return Err(Error::Stride { reason: "origin out of range" });
    }
    if stride.months != 0 {
        return Err(Error::MonthStride);
    }
    let width = i128::from(stride.days) * i128::from(MICROS_PER_DAY) + i128::from(stride.nanoseconds / 1_000);
    if width <= 0 {
        return Err(Error::Stride { reason: "stride must be greater than zero" });
    }
    let since = i128::from(source) - i128::from(origin);
    let begin = i128::from(origin) + since.div_euclid(width) * width;
    i64::try_from(begin).ok().filter(|begin| super::arithmetic::is_instant(*begin)).ok_or(Error::TimeOverflow { type_name: "timestamp" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{parse_interval, parse_timestamp};

    #[test]
    fn bins_are_those_of_postgres() {
        for (stride, source, origin, expected) in [
            ("15 minutes", "2020-02-11 15:44:17", "2001-01-01", Some("2020-02-11 15:30:00")),
            ("15 minutes", "2000-12-31 23:59:59", "2001-01-01", Some("2000-12-31 23:45:00")),
            ("1 day", "0001-01-01 12:00 BC", "1970-01-01 06:00", Some("0001-01-01 06:00 BC")),
            ("1 day", "infinity", "1970-01-01", Some("infinity")),
            ("1 day", "1970-01-01", "infinity", None),
            ("0 days", "1970-01-01", "1970-01-01", None),
            ("-1 day", "1970-01-01", "1970-01-01", None),
            ("1 month", "1970-01-01", "1970-01-01", None),
        ] {
            let micros = |text: &str| parse_timestamp(text, false).expect(text);
            let found = bin(parse_interval(stride).expect(stride), micros(source), micros(origin)).ok();
            assert_eq!(found, expected.map(micros), "{source} by {stride} from {origin}");
        }
    }
}
