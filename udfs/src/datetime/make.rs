//! Dates, times and intervals of their parts.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, IntervalMonthDayNanoArray, Time64MicrosecondArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::error::Result;

use super::{MICROS_PER_DAY, MICROS_PER_SECOND, SECTION, interval};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::days_of_civil;

const fn integer(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Integer, description }
}

const YEAR: Parameter = integer("year", "The year; negative before Christ.");
const MONTH: Parameter = integer("month", "1 to 12.");
const DAY: Parameter = integer("day", "1 to 31.");
const HOUR: Parameter = integer("hour", "0 to 23; 24 with nothing behind it.");
const MINUTE: Parameter = integer("min", "0 to 59.");
const SECOND: Parameter = Parameter { name: "sec", kind: Kind::Number, description: "Seconds with their fraction." };

pub(crate) static DATE: Function = Function {
    interface: Interface {
        name: "make_date",
        section: SECTION,
        description: "A date of its parts.",
        parameters: &[YEAR, MONTH, DAY],
        required: 3,
        example: ("SELECT make_date(2024, 2, 29)", "2024-02-29"),
    },
    returns: Returns::Always(DataType::Date32),
    kernel: |arguments| {
        let integers = integers::<3>(arguments, 0)?;
        let date = |[year, month, day]: [i64; 3]| {
            let days = days(year, month, day)?;
            i32::try_from(days).map_err(|_| Error::TimeOverflow { type_name: "date" })
        };
        let dates = integers.into_iter().map(|parts| parts.map(date).transpose());
        Ok(Arc::new(dates.collect::<Result<Date32Array, Error>>()?) as ArrayRef)
    },
};

pub(crate) static TIME: Function = Function {
    interface: Interface {
        name: "make_time",
        section: SECTION,
        description: "A time of day of its parts.",
        parameters: &[HOUR, MINUTE, SECOND],
        required: 3,
        example: ("SELECT make_time(8, 15, 23.5)", "08:15:23.500"),
    },
    returns: Returns::Always(DataType::Time64(TimeUnit::Microsecond)),
    kernel: |arguments| {
        let (integers, seconds) = (integers::<2>(arguments, 0)?, arguments.number(2)?);
        let time = |([hour, minute], second): ([i64; 2], f64)| clock(hour, minute, second);
        let times = integers.into_iter().enumerate().map(|(row, parts)| parts.zip(seconds.get(row)).map(time).transpose());
        Ok(Arc::new(times.collect::<Result<Time64MicrosecondArray, Error>>()?) as ArrayRef)
    },
};

pub(crate) static TIMESTAMP: Function = Function {
    interface: Interface {
        name: "make_timestamp",
        section: SECTION,
        description: "A timestamp of its parts.",
        parameters: &[YEAR, MONTH, DAY, HOUR, MINUTE, SECOND],
        required: 6,
        example: ("SELECT make_timestamp(2013, 7, 15, 8, 15, 23.5)", "2013-07-15T08:15:23.500"),
    },
    returns: Returns::Always(DataType::Timestamp(TimeUnit::Microsecond, None)),
    kernel: |arguments| {
        let (integers, seconds) = (integers::<5>(arguments, 0)?, arguments.number(5)?);
        let timestamp = |([year, month, day, hour, minute], second): ([i64; 5], f64)| {
            let (days, time) = (days(year, month, day)?, clock(hour, minute, second)?);
            let micros = days.checked_mul(MICROS_PER_DAY).and_then(|micros| micros.checked_add(time));
            micros.ok_or(Error::TimeOverflow { type_name: "timestamp" })
        };
        let timestamps = integers.into_iter().enumerate().map(|(row, parts)| parts.zip(seconds.get(row)).map(timestamp).transpose());
        Ok(Arc::new(timestamps.collect::<Result<TimestampMicrosecondArray, Error>>()?) as ArrayRef)
    },
};

pub(crate) static INTERVAL: Function = Function {
    interface: Interface {
        name: "make_interval",
        section: SECTION,
        description: "An interval of its parts, as `make_interval(days => 10)`; a part that is left out or NULL is none.",
        parameters: &[
            integer("years", "Years."),
            integer("months", "Months."),
            integer("weeks", "Weeks."),
            integer("days", "Days."),
            integer("hours", "Hours."),
            integer("mins", "Minutes."),
            Parameter { name: "secs", kind: Kind::Number, description: "Seconds with their fraction." },
        ],
        required: 0,
        example: ("SELECT text_out(make_interval(1, 2, 0, 10))", "1 year 2 mons 10 days"),
    },
    returns: Returns::Always(DataType::Interval(IntervalUnit::MonthDayNano)),
    kernel: |arguments| {
        let given = arguments.count().min(6);
        let integers = (0..given).map(|index| arguments.integer(index)).collect::<Result<Vec<_>>>()?;
        let seconds = if arguments.has(6) { Some(arguments.number(6)?) } else { None };
        let overflow = Error::TimeOverflow { type_name: "interval" };
        let made = |row: usize| {
            let part = |index: usize| i128::from(integers.get(index).and_then(|column| column.get(row)).unwrap_or(0));
            let second = seconds.as_ref().and_then(|seconds| seconds.get(row)).unwrap_or(0.0);
            let behind = (second * MICROS_PER_SECOND as f64).round();
            if !behind.is_finite() || behind.abs() >= i64::MAX as f64 {
                return Err(overflow.clone());
            }
            let micros = (part(4) * 60 + part(5)) * 60 * i128::from(MICROS_PER_SECOND) + behind as i128;
            let fit = |number: i128| i64::try_from(number).map_err(|_| overflow.clone());
            interval(fit(part(0) * 12 + part(1))?, fit(part(2) * 7 + part(3))?, fit(micros)?).map(Some)
        };
        let intervals = (0..arguments.num_rows()).map(made).collect::<Result<IntervalMonthDayNanoArray, Error>>()?;
        Ok(Arc::new(intervals) as ArrayRef)
    },
};

/// The integers of `N` arguments of each row; `None` if one of them is NULL.
fn integers<const N: usize>(arguments: &Arguments, first: usize) -> Result<Vec<Option<[i64; N]>>> {
    let columns = (first..first + N).map(|index| arguments.integer(index)).collect::<Result<Vec<_>>>()?;
    let integers = |row: usize| {
        let mut numbers = [0; N];
        for (number, column) in numbers.iter_mut().zip(&columns) {
            *number = column.get(row)?;
        }
        Some(numbers)
    };
    Ok((0..arguments.num_rows()).map(integers).collect())
}

/// # Errors
/// [`Error::TimeRange`].
fn days(year: i64, month: i64, day: i64) -> Result<i64, Error> {
    // The year before 1 is -1.
    let counted = if year < 0 { year + 1 } else { year };
    let days = if year == 0 || year.abs() > 5_874_897 { None } else { days_of_civil(counted, month, day) };
    days.ok_or_else(|| Error::TimeRange { text: format!("{year}-{month:02}-{day:02}") })
}

/// Microseconds since midnight. A second that has sixty seconds begins the next minute.
fn clock(hour: i64, minute: i64, second: f64) -> Result<i64, Error> {
    let micros = (second * MICROS_PER_SECOND as f64).round();
    let is_second = second.is_finite() && (0.0..=60.0 * MICROS_PER_SECOND as f64).contains(&micros);
    let total = hour.checked_mul(60).and_then(|minutes| minutes.checked_add(minute)).and_then(|minutes| minutes.checked_mul(60_000_000));
    let total = total.map(|total| total.saturating_add(micros as i64));
    let is_clock = is_second && (0..=24).contains(&hour) && (0..60).contains(&minute);
    total
        .filter(|total| is_clock && *total <= MICROS_PER_DAY)
        .ok_or_else(|| Error::TimeRange { text: format!("{hour}:{minute:02}:{second}") })
}
