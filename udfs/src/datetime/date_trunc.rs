//! `date_trunc('month', source [, zone])`

use std::sync::Arc;

use arrow::array::{ArrayRef, IntervalMonthDayNanoArray, TimestampMicrosecondArray};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::error::Result;

use super::timezone::{instant, local};
use super::unit::{Unit, century, decade, millennium};
use super::{
    FIELD, MICROS_PER_DAY, MICROS_PER_SECOND, SECTION, TIME, TimeType, civil, interval, interval_type, is_infinite, micros, midnight,
};
use super::{timestamp_type, timestamptz_type};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "date_trunc",
        section: SECTION,
        description: "A time without what is smaller than a field. A date becomes a timestamp with time zone.",
        parameters: &[
            FIELD,
            TIME,
            Parameter {
                name: "zone",
                kind: Kind::Text,
                description: "The time zone in which days and hours begin, of a timestamp with time zone; UTC by default.",
            },
        ],
        required: 2,
        example: ("SELECT date_trunc('quarter', TIMESTAMP '2024-05-29 12:34:56')", "2024-04-01T00:00:00"),
    },
    returns: Returns::Computed(|types, _| {
        Ok(match TimeType::of_argument(&FUNCTION, 1, &types[1])? {
            TimeType::Interval | TimeType::Time => interval_type(),
            TimeType::Timestamp => timestamp_type(),
            TimeType::Date | TimeType::Timestamptz => timestamptz_type(),
        })
    }),
    kernel: |arguments| {
        let units = arguments.text(0)?;
        let found = TimeType::of_argument(&FUNCTION, 1, arguments.column(1)?.array().data_type())?;
        let unit = |row: usize| units.get(row).map(|name| unit(name, found)).transpose();
        if matches!(found, TimeType::Interval | TimeType::Time) {
            let intervals = if found == TimeType::Interval { Some(arguments.interval(1)?) } else { None };
            let times = if found == TimeType::Time { Some(micros(arguments, 1)?) } else { None };
            let value = |row: usize| match (&intervals, &times) {
                (Some(intervals), _) => intervals.get(row),
                (_, Some(times)) => times.get(row).map(|micros| IntervalMonthDayNano::new(0, 0, micros * 1_000)),
                _ => None,
            };
            let cut = |row: usize| value(row).zip(unit(row)?).map(|(value, unit)| interval_cut(unit, value)).transpose();
            let cut = (0..arguments.num_rows()).map(cut).collect::<Result<IntervalMonthDayNanoArray, Error>>()?;
            return Ok(Arc::new(cut) as ArrayRef);
        }
        let instants = micros(arguments, 1)?;
        let zones = if arguments.has(2) { Some(arguments.text(2)?) } else { None };
        let cut = |row: usize| -> Result<Option<i64>, Error> {
            let Some((micros, unit)) = instants.get(row).zip(unit(row)?) else { return Ok(None) };
            match &zones {
                Some(zones) if found != TimeType::Timestamp => {
                    let Some(zone) = zones.get(row) else { return Ok(None) };
                    instant(zone, cut(unit, local(zone, micros)?)?).map(Some)
                }
                _ => cut(unit, micros).map(Some),
            }
        };
        let instants = (0..arguments.num_rows()).map(cut).collect::<Result<TimestampMicrosecondArray, Error>>()?;
        Ok(Arc::new(instants.with_data_type(arguments.return_type().clone())) as ArrayRef)
    },
};

fn unit(name: &str, found: TimeType) -> Result<Unit, Error> {
    let lower = || name.to_ascii_lowercase();
    match Unit::of(name) {
        Some(unit) if unit.is_cut() => Ok(unit),
        Some(Unit::Timezone | Unit::TimezoneHour | Unit::TimezoneMinute) => {
            Err(Error::UnitNotSupported { unit: lower(), type_name: found.name() })
        }
        _ => Err(Error::UnknownUnit { unit: lower(), type_name: found.name() }),
    }
}

/// How many microseconds a part of a day has.
fn length(unit: Unit) -> i64 {
    match unit {
        Unit::Microsecond => 1,
        Unit::Millisecond => 1_000,
        Unit::Second => MICROS_PER_SECOND,
        Unit::Minute => 60 * MICROS_PER_SECOND,
        Unit::Hour => 3_600 * MICROS_PER_SECOND,
        _ => MICROS_PER_DAY,
    }
}

fn cut(unit: Unit, micros: i64) -> Result<i64, Error> {
    if is_infinite(micros) {
        return Ok(micros);
    }
    let (year, month, ..) = civil(micros);
    match unit {
        Unit::Millennium => midnight(first_year(millennium(year), 1_000), 1, 1),
        Unit::Century => midnight(first_year(century(year), 100), 1, 1),
        Unit::Decade => midnight(decade(year) * 10, 1, 1),
        Unit::Year => midnight(year, 1, 1),
        Unit::Quarter => midnight(year, (month - 1) / 3 * 3 + 1, 1),
        Unit::Month => midnight(year, month, 1),
        Unit::Week => {
            let days = micros.div_euclid(MICROS_PER_DAY);
            Ok((days - (days + 3).rem_euclid(7)) * MICROS_PER_DAY)
        }
        unit => Ok(micros.div_euclid(length(unit)) * length(unit)),
    }
}

/// The first year of a century or millennium; year 0 is 1 BC, and there is no century 0.
fn first_year(number: i64, years: i64) -> i64 {
    if number > 0 { number * years - years + 1 } else { number * years + 1 }
}

/// Towards zero.
fn interval_cut(unit: Unit, value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano, Error> {
    let (months, days, micros) = (i64::from(value.months), i64::from(value.days), value.nanoseconds / 1_000);
    let months_only = |of: i64| interval(months / of * of, 0, 0);
    match unit {
        Unit::Millennium => months_only(12_000),
        Unit::Century => months_only(1_200),
        Unit::Decade => months_only(120),
        Unit::Year => months_only(12),
        Unit::Quarter => months_only(3),
        Unit::Month => months_only(1),
        Unit::Week => Err(Error::UnitNotSupported { unit: "week".to_owned(), type_name: "interval" }),
        Unit::Day => interval(months, days, 0),
        unit => interval(months, days, micros / length(unit) * length(unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{parse_interval, parse_timestamp};

    #[test]
    fn times_are_cut_as_in_postgres() {
        for (name, text, expected) in [
            ("week", "2024-02-29 12:34:56", "2024-02-26"),
            ("quarter", "2024-05-29 12:34:56", "2024-04-01"),
            ("decade", "2024-05-29", "2020-01-01"),
            ("century", "2000-05-29", "1901-01-01"),
            ("millennium", "2024-05-29", "2001-01-01"),
            ("century", "0055-08-10 BC", "0100-01-01 BC"),
            ("decade", "0002-12-31 BC", "0011-01-01 BC"),
            ("minute", "1969-05-29 12:34:56.1", "1969-05-29 12:34:00"),
            ("ms", "2024-05-29 12:34:56.123456", "2024-05-29 12:34:56.123"),
            ("day", "infinity", "infinity"),
        ] {
            let micros = |text: &str| parse_timestamp(text, false).expect(text);
            assert_eq!(cut(unit(name, TimeType::Timestamp).expect(name), micros(text)), Ok(micros(expected)), "{name} of {text}");
        }
        assert!(matches!(unit("dow", TimeType::Timestamp), Err(Error::UnknownUnit { .. })));
    }

    #[test]
    fn intervals_are_cut_towards_zero() {
        for (name, text, expected) in [
            ("day", "3 days 02:47:33", "3 days"),
            ("hour", "-1 day -02:47:33", "-1 day -02:00:00"),
            ("year", "-14 months", "-1 year"),
            ("quarter", "1 year 5 months 1 day", "1 year 3 months"),
        ] {
            let read = |text: &str| parse_interval(text).expect(text);
            assert_eq!(interval_cut(unit(name, TimeType::Interval).expect(name), read(text)), Ok(read(expected)), "{name} of {text}");
        }
    }
}
