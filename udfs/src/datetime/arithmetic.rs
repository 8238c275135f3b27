//! `+` and `-` of dates and instants: infinity stays what it is, and what a type does not reach is an error.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, DurationMicrosecondArray, Int32Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::error::Result;

use super::{MICROS_PER_DAY, SECTION, TimeType, civil, days, is_infinite, micros, timestamp_type, timestamptz_type};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::days_of_civil;

/// The first day of dates and instants, 4714-11-24 BC, and the last of dates, 5874897-12-31.
const FIRST_DAY: i64 = -2_440_588;
const LAST_DAY: i64 = 2_145_031_948;

const SOURCE: Parameter = Parameter { name: "source", kind: Kind::Any, description: "A date or a timestamp." };
const INTERVAL: Parameter = Parameter { name: "interval", kind: Kind::Any, description: "An interval." };
const DATE: Parameter = Parameter { name: "date", kind: Kind::Any, description: "A date." };
const DAYS: Parameter = Parameter { name: "days", kind: Kind::Integer, description: "How many days." };

pub(crate) static TIMESTAMP_PLUS_INTERVAL: Function = Function {
    interface: Interface {
        name: "timestamp_pl_interval",
        section: SECTION,
        description: "The instant that is so much later; also `timestamp + interval`. Of a day that a month does not have its last one is taken.",
        parameters: &[SOURCE, INTERVAL],
        required: 2,
        example: ("SELECT timestamp_pl_interval(TIMESTAMP '2024-01-31', INTERVAL '1 month')", "2024-02-29T00:00:00"),
    },
    returns: Returns::Computed(|types, _| moved_type(&TIMESTAMP_PLUS_INTERVAL, types)),
    kernel: |arguments| moved(arguments, |interval| interval),
};

pub(crate) static TIMESTAMP_MINUS_INTERVAL: Function = Function {
    interface: Interface {
        name: "timestamp_mi_interval",
        section: SECTION,
        description: "The instant that is so much earlier; also `timestamp - interval`.",
        parameters: &[SOURCE, INTERVAL],
        required: 2,
        example: ("SELECT timestamp_mi_interval(TIMESTAMP '2024-03-31', INTERVAL '1 month')", "2024-02-29T00:00:00"),
    },
    returns: Returns::Computed(|types, _| moved_type(&TIMESTAMP_MINUS_INTERVAL, types)),
    kernel: |arguments| moved(arguments, negated),
};

pub(crate) static DATE_PLUS_DAYS: Function = Function {
    interface: Interface {
        name: "date_pli",
        section: SECTION,
        description: "The date that is so many days later; also `date + integer`.",
        parameters: &[DATE, DAYS],
        required: 2,
        example: ("SELECT date_pli(DATE '2024-02-28', 2)", "2024-03-01"),
    },
    returns: Returns::Always(DataType::Date32),
    kernel: |arguments| days_later(arguments, 1),
};

pub(crate) static DATE_MINUS_DAYS: Function = Function {
    interface: Interface {
        name: "date_mii",
        section: SECTION,
        description: "The date that is so many days earlier; also `date - integer`.",
        parameters: &[DATE, DAYS],
        required: 2,
        example: ("SELECT date_mii(DATE '2024-03-01', 2)", "2024-02-28"),
    },
    returns: Returns::Always(DataType::Date32),
    kernel: |arguments| days_later(arguments, -1),
};

pub(crate) static DATE_MINUS_DATE: Function = Function {
    interface: Interface {
        name: "date_mi",
        section: SECTION,
        description: "The days from a date to another; also `date - date`.",
        parameters: &[DATE, Parameter { name: "start", ..DATE }],
        required: 2,
        example: ("SELECT date_mi(DATE '2024-03-01', DATE '2024-02-28')", "2"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| {
        let (ends, starts) = (days(arguments, 0)?, days(arguments, 1)?);
        let between = |(end, start): (i64, i64)| match is_infinite_day(end) || is_infinite_day(start) {
            true => Err(Error::InfiniteTimes { what: "dates" }),
            false => i32::try_from(end - start).map_err(|_| Error::TimeOverflow { type_name: "integer" }),
        };
        let between = (0..arguments.num_rows()).map(|row| ends.get(row).zip(starts.get(row)).map(between).transpose());
        Ok(Arc::new(between.collect::<Result<Int32Array, Error>>()?) as ArrayRef)
    },
};

pub(crate) static TIMESTAMP_MINUS_TIMESTAMP: Function = Function {
    interface: Interface {
        name: "timestamp_mi",
        section: SECTION,
        description: "The time from an instant to another; also `timestamp - timestamp`.",
        parameters: &[SOURCE, Parameter { name: "start", ..SOURCE }],
        required: 2,
        example: ("SELECT text_out(timestamp_mi(TIMESTAMP '2024-03-01 12:00:00', TIMESTAMP '2024-02-28'))", "2 days 12:00:00"),
    },
    returns: Returns::Always(DataType::Duration(TimeUnit::Microsecond)),
    kernel: |arguments| {
        let (ends, starts) = (micros(arguments, 0)?, micros(arguments, 1)?);
        let between = |(end, start): (i64, i64)| match is_infinite(end) || is_infinite(start) {
            true => Err(Error::InfiniteTimes { what: "timestamps" }),
            false => end.checked_sub(start).ok_or(Error::TimeOverflow { type_name: "interval" }),
        };
        let times = (0..arguments.num_rows()).map(|row| ends.get(row).zip(starts.get(row)).map(between).transpose());
        Ok(Arc::new(times.collect::<Result<DurationMicrosecondArray, Error>>()?) as ArrayRef)
    },
};

/// A date becomes a timestamp.
fn moved_type(function: &'static Function, types: &[DataType]) -> Result<DataType> {
    Ok(match TimeType::of_argument(function, 0, &types[0])? {
        TimeType::Timestamptz => timestamptz_type(),
        _ => timestamp_type(),
    })
}

fn moved(arguments: &Arguments, direction: fn(IntervalMonthDayNano) -> IntervalMonthDayNano) -> Result<ArrayRef> {
    let (instants, intervals) = (micros(arguments, 0)?, arguments.interval(1)?);
    let moved = |row: usize| instants.get(row).zip(intervals.get(row)).map(|(micros, by)| later(micros, direction(by))).transpose();
    let instants = (0..arguments.num_rows()).map(moved).collect::<Result<TimestampMicrosecondArray, Error>>()?;
    Ok(Arc::new(instants.with_data_type(arguments.return_type().clone())))
}

fn negated(interval: IntervalMonthDayNano) -> IntervalMonthDayNano {
    IntervalMonthDayNano::new(interval.months.saturating_neg(), interval.days.saturating_neg(), interval.nanoseconds.saturating_neg())
}

/// The instant that is an interval later: by its months, then its days, then its time.
///
/// # Errors
/// [`Error::TimeOverflow`].
pub fn later(instant: i64, interval: IntervalMonthDayNano) -> Result<i64, Error> {
    if is_infinite(instant) {
        return Ok(instant);
    }
    let overflow = || Error::TimeOverflow { type_name: "timestamp" };
    let (year, month, day, time) = civil(instant);
    let days = if interval.months == 0 {
        instant.div_euclid(MICROS_PER_DAY)
    } else {
        let months = year * 12 + month - 1 + i64::from(interval.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        (1..=day).rev().find_map(|day| days_of_civil(year, month, day)).ok_or_else(overflow)?
    };
    let total = (i128::from(days) + i128::from(interval.days)) * i128::from(MICROS_PER_DAY)
        + i128::from(time)
        + i128::from(interval.nanoseconds / 1_000);
    i64::try_from(total).ok().filter(|total| is_instant(*total)).ok_or_else(overflow)
}

/// Whether a finite instant is one that the type has.
pub(super) fn is_instant(micros: i64) -> bool {
    !is_infinite(micros) && micros >= FIRST_DAY * MICROS_PER_DAY
}

fn is_infinite_day(day: i64) -> bool {
    day == i64::from(i32::MAX) || day == i64::from(i32::MIN)
}

fn days_later(arguments: &Arguments, sign: i64) -> Result<ArrayRef> {
    let (dates, moves) = (days(arguments, 0)?, arguments.integer(1)?);
    let later = |(date, days): (i64, i64)| -> Result<i32, Error> {
        let day = days.checked_mul(sign).and_then(|days| days.checked_add(date)).filter(|day| (FIRST_DAY..=LAST_DAY).contains(day));
        let day = if is_infinite_day(date) { Some(date) } else { day };
        day.and_then(|day| i32::try_from(day).ok()).ok_or(Error::TimeOverflow { type_name: "date" })
    };
    let moved = (0..arguments.num_rows()).map(|row| dates.get(row).zip(moves.get(row)).map(later).transpose());
    Ok(Arc::new(moved.collect::<Result<Date32Array, Error>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{parse_interval, parse_timestamp};

    #[test]
    fn instants_move_as_in_postgres() {
        for (instant, interval, expected) in [
            ("2024-01-31 12:00", "1 month", Some("2024-02-29 12:00")),
            ("2024-03-31", "-1 month", Some("2024-02-29")),
            ("0001-01-01", "-1 day", Some("0001-12-31 BC")),
            ("9999-12-31", "1 year 1 day 00:00:01", Some("10001-01-01 00:00:01")),
            ("infinity", "-1000 years", Some("infinity")),
            ("294246-12-31", "1 year", None),
            ("4714-11-24 BC", "-1 day", None),
        ] {
            let micros = |text: &str| parse_timestamp(text, false).expect(text);
            let found = later(micros(instant), parse_interval(interval).expect(interval)).ok();
            assert_eq!(found, expected.map(micros), "{instant} and {interval}");
        }
    }
}
