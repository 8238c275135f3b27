//! What `+` and `-` do with a time of day: it goes round the clock.

use std::sync::Arc;

use arrow::array::{ArrayRef, Time64MicrosecondArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::error::Result;

use super::{MICROS_PER_DAY, SECTION, is_infinite, micros};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

const TIME: Parameter = Parameter { name: "time", kind: Kind::Any, description: "A time of day." };
const INTERVAL: Parameter =
    Parameter { name: "interval", kind: Kind::Any, description: "An interval, whose months and days count nothing." };

pub(crate) static DATE_AND_TIME: Function = Function {
    interface: Interface {
        name: "datetime_pl",
        section: SECTION,
        description: "A date and a time of day as a timestamp; also `date + time`.",
        parameters: &[Parameter { name: "date", kind: Kind::Any, description: "A date." }, TIME],
        required: 2,
        example: ("SELECT datetime_pl(DATE '2024-02-29', TIME '10:30')", "2024-02-29T10:30:00"),
    },
    returns: Returns::Always(DataType::Timestamp(TimeUnit::Microsecond, None)),
    kernel: |arguments| {
        let (dates, times) = (micros(arguments, 0)?, micros(arguments, 1)?);
        let sum = |(date, time): (i64, i64)| match is_infinite(date) {
            true => Ok(date),
            false => date.checked_add(time).ok_or(Error::TimeOverflow { type_name: "timestamp" }),
        };
        let sums = (0..arguments.num_rows()).map(|row| dates.get(row).zip(times.get(row)).map(sum).transpose());
        Ok(Arc::new(sums.collect::<Result<TimestampMicrosecondArray, Error>>()?) as ArrayRef)
    },
};

pub(crate) static TIME_PLUS_INTERVAL: Function = Function {
    interface: Interface {
        name: "time_pl_interval",
        section: SECTION,
        description: "The time of day that is so much later; also `time + interval`.",
        parameters: &[TIME, INTERVAL],
        required: 2,
        example: ("SELECT time_pl_interval(TIME '23:00', INTERVAL '2 hours')", "01:00:00"),
    },
    returns: Returns::Always(DataType::Time64(TimeUnit::Microsecond)),
    kernel: |arguments| moved(arguments, |time, micros| time + micros),
};

pub(crate) static TIME_MINUS_INTERVAL: Function = Function {
    interface: Interface {
        name: "time_mi_interval",
        section: SECTION,
        description: "The time of day that is so much earlier; also `time - interval`.",
        parameters: &[TIME, INTERVAL],
        required: 2,
        example: ("SELECT time_mi_interval(TIME '01:00', INTERVAL '2 hours')", "23:00:00"),
    },
    returns: Returns::Always(DataType::Time64(TimeUnit::Microsecond)),
    kernel: |arguments| moved(arguments, |time, micros| time - micros),
};

fn moved(arguments: &Arguments, by: fn(i64, i64) -> i64) -> Result<ArrayRef> {
    let (times, intervals) = (micros(arguments, 0)?, arguments.interval(1)?);
    let moved = |row: usize| {
        let (time, interval) = times.get(row).zip(intervals.get(row))?;
        Some(by(time, interval.nanoseconds / 1_000 % MICROS_PER_DAY).rem_euclid(MICROS_PER_DAY))
    };
    Ok(Arc::new((0..arguments.num_rows()).map(moved).collect::<Time64MicrosecondArray>()))
}
