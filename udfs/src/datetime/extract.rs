//! `extract(field FROM source)`, which is a numeric, and `date_part('field', source)`, the same in double precision.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array};
use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::error::Result;

use super::unit::{Unit, century, decade, millennium};
use super::{FIELD, MICROS_PER_DAY, MICROS_PER_SECOND, SECTION, TIME, TimeType, civil, is_infinite, micros};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Parameter, Returns};
use crate::numeric_in::numeric_type;
use crate::postgres::days_of_civil;

/// A part is a whole number of these, as a numeric without declared digits is.
const SCALE: i128 = 10_000_000_000;
/// Of a microsecond in a second.
const PER_MICRO: i128 = SCALE / MICROS_PER_SECOND as i128;
/// The Julian day of 1970-01-01.
const JULIAN_OF_1970: i64 = 2_440_588;

const PART: Parameter = Parameter {
    description: "What `date_trunc` takes, or `epoch` (seconds from 1970-01-01, or of an interval), `dow` (Sunday is 0), `isodow` (Sunday is 7), `doy`, \
        `isoyear`, `julian`, `timezone`, `timezone_hour`, `timezone_minute`.",
    ..FIELD
};

pub(crate) static EXTRACT: Function = Function {
    interface: Interface {
        name: "extract",
        section: SECTION,
        description: "A part of a time, as `extract(field FROM source)`; seconds have their fraction.",
        parameters: &[PART, TIME],
        required: 2,
        example: ("SELECT extract(hour FROM TIMESTAMP '2024-02-29 12:34:56.5')", "12"),
    },
    returns: Returns::Numeric,
    kernel: |arguments| {
        let parts = parts(&EXTRACT, arguments)?.into_iter().map(|part| match part {
            Some(Part::Infinite(_)) => Err(Error::ValueRange { type_name: "numeric", text: "Infinity".to_owned() }),
            Some(Part::Number(number)) => Ok(Some(number)),
            None => Ok(None),
        });
        let parts = parts.collect::<Result<Vec<_>, Error>>()?;
        Ok(Arc::new(Decimal128Array::from(parts).with_data_type(numeric_type())) as ArrayRef)
    },
};

pub(crate) static DATE_PART: Function = Function {
    interface: Interface {
        name: "date_part",
        section: SECTION,
        description: "A part of a time in double precision: `extract`, which is a numeric, is exact.",
        parameters: &[PART, TIME],
        required: 2,
        example: ("SELECT date_part('second', TIMESTAMP '2024-02-29 12:34:56.5')", "56.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        let double = |part| match part {
            Part::Infinite(is_negative) => {
                if is_negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            // The quotient of two whole numbers is rounded once.
            Part::Number(number) if number % PER_MICRO == 0 => (number / PER_MICRO) as f64 / MICROS_PER_SECOND as f64,
            Part::Number(number) => number as f64 / SCALE as f64,
        };
        let parts = parts(&DATE_PART, arguments)?.into_iter().map(|part| part.map(double));
        Ok(Arc::new(parts.collect::<Float64Array>()) as ArrayRef)
    },
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// In parts of [`SCALE`].
    Number(i128),
    Infinite(bool),
}

fn parts(function: &'static Function, arguments: &Arguments) -> Result<Vec<Option<Part>>> {
    let names = arguments.text(0)?;
    let column = arguments.column(1)?;
    let mut found = TimeType::of_argument(function, 1, column.array().data_type())?;
    // Of dates it is that of their midnight.
    if found == TimeType::Date && function.interface.name == DATE_PART.interface.name {
        found = TimeType::Timestamp;
    }
    let unit = |row: usize| names.get(row).map(|name| (name, Unit::of(name)));
    let with = |row: usize, part: &dyn Fn(Unit) -> Option<Option<Part>>| {
        let Some((name, unit)) = unit(row) else { return Ok(None) };
        let unit = unit.ok_or_else(|| Error::UnknownUnit { unit: name.to_ascii_lowercase(), type_name: found.name() })?;
        part(unit).ok_or_else(|| Error::UnitNotSupported { unit: name.to_ascii_lowercase(), type_name: found.name() })
    };
    let parts: Result<Vec<_>, Error> = if found == TimeType::Interval {
        let intervals = arguments.interval(1)?;
        let part = |row: usize| intervals.get(row).map(|interval| with(row, &|unit| of_interval(unit, interval).map(Some))).transpose();
        (0..arguments.num_rows()).map(|row| part(row).map(Option::flatten)).collect()
    } else {
        let instants = micros(arguments, 1)?;
        let part = |row: usize| instants.get(row).map(|micros| with(row, &|unit| of_instant(unit, micros, found))).transpose();
        (0..arguments.num_rows()).map(|row| part(row).map(Option::flatten)).collect()
    };
    Ok(parts?)
}

fn whole(number: i64) -> Part {
    Part::Number(i128::from(number) * SCALE)
}

/// `None`: values of the type have no such part; inner `None`: this one has not.
fn of_instant(unit: Unit, micros: i64, found: TimeType) -> Option<Option<Part>> {
    let is_of_day = matches!(unit, Unit::Hour | Unit::Minute | Unit::Second | Unit::Millisecond | Unit::Microsecond);
    let is_of_zone = matches!(unit, Unit::Timezone | Unit::TimezoneHour | Unit::TimezoneMinute);
    let has = match found {
        TimeType::Time => is_of_day || unit == Unit::Epoch,
        TimeType::Date => !is_of_day && !is_of_zone,
        TimeType::Timestamp => !is_of_zone,
        _ => true,
    };
    if !has {
        return None;
    }
    if is_infinite(micros) {
        let grows =
            matches!(unit, Unit::Epoch | Unit::Julian | Unit::Isoyear | Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium);
        return Some(grows.then_some(Part::Infinite(micros < 0)));
    }
    let (year, month, day, time) = civil(micros);
    let days = micros.div_euclid(MICROS_PER_DAY);
    // There is no year 0.
    let named = |year: i64| if year > 0 { year } else { year - 1 };
    Some(Some(match unit {
        Unit::Epoch => Part::Number(i128::from(micros) * PER_MICRO),
        Unit::Hour | Unit::Minute | Unit::Second | Unit::Millisecond | Unit::Microsecond => of_clock(unit, time),
        Unit::Timezone | Unit::TimezoneHour | Unit::TimezoneMinute => whole(0),
        Unit::Day => whole(day),
        Unit::Month => whole(month),
        Unit::Quarter => whole((month - 1) / 3 + 1),
        Unit::Year => whole(named(year)),
        Unit::Decade => whole(decade(year)),
        Unit::Century => whole(century(year)),
        Unit::Millennium => whole(millennium(year)),
        Unit::Week => whole((day_of_year(thursday(days)) - 1) / 7 + 1),
        Unit::Isoyear => whole(named(crate::postgres::civil_of_days(thursday(days)).0)),
        Unit::Dow => whole((days + 4).rem_euclid(7)),
        Unit::Isodow => whole((days + 3).rem_euclid(7) + 1),
        Unit::Doy => whole(day_of_year(days)),
        Unit::Julian => {
            let fraction = (i128::from(time) * SCALE + i128::from(MICROS_PER_DAY) / 2) / i128::from(MICROS_PER_DAY);
            Part::Number(i128::from(days + JULIAN_OF_1970) * SCALE + fraction)
        }
    }))
}

/// The Thursday of the same week: a week belongs to the year in which it is.
fn thursday(days: i64) -> i64 {
    days - (days + 3).rem_euclid(7) + 3
}

fn day_of_year(days: i64) -> i64 {
    let (year, ..) = crate::postgres::civil_of_days(days);
    days - days_of_civil(year, 1, 1).expect("every year has a first day") + 1
}

/// Of microseconds since midnight, or of those of an interval, whose hours may be any number.
fn of_clock(unit: Unit, micros: i64) -> Part {
    const MINUTE: i64 = 60 * MICROS_PER_SECOND;
    match unit {
        Unit::Hour => whole(micros / (60 * MINUTE)),
        Unit::Minute => whole(micros / MINUTE % 60),
        Unit::Second => Part::Number(i128::from(micros % MINUTE) * PER_MICRO),
        Unit::Millisecond => Part::Number(i128::from(micros % MINUTE) * PER_MICRO * 1_000),
        _ => whole(micros % MINUTE),
    }
}

/// `None`: an interval has no such part.
fn of_interval(unit: Unit, interval: IntervalMonthDayNano) -> Option<Part> {
    let (months, days, micros) = (i64::from(interval.months), i64::from(interval.days), interval.nanoseconds / 1_000);
    Some(match unit {
        Unit::Hour | Unit::Minute | Unit::Second | Unit::Millisecond | Unit::Microsecond => of_clock(unit, micros),
        Unit::Day => whole(days),
        Unit::Month => whole(months % 12),
        Unit::Quarter => whole(months % 12 / 3 + 1),
        Unit::Year => whole(months / 12),
        Unit::Decade => whole(months / 120),
        Unit::Century => whole(months / 1_200),
        Unit::Millennium => whole(months / 12_000),
        Unit::Epoch => {
            // A year has 365 and a quarter days, a month that is left 30.
            let quarter_days = (months / 12) * 1_461 + (months % 12) * 120 + days * 4;
            Part::Number((i128::from(quarter_days) * i128::from(MICROS_PER_DAY / 4) + i128::from(micros)) * PER_MICRO)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{parse_interval, parse_timestamp};

    fn part(unit: &str, text: &str) -> Option<f64> {
        let micros = parse_timestamp(text, false).expect(text);
        of_instant(Unit::of(unit).expect(unit), micros, TimeType::Timestamp).expect(unit).map(|part| match part {
            Part::Number(number) => number as f64 / SCALE as f64,
            Part::Infinite(is_negative) => {
                if is_negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
        })
    }

    #[test]
    fn parts_of_instants_are_those_of_postgres() {
        for (unit, text, expected) in [
            ("second", "2024-05-29 12:34:56.789", 56.789),
            ("ms", "2024-05-29 12:34:56.789", 56_789.0),
            ("us", "2024-05-29 12:34:56.789", 56_789_000.0),
            ("epoch", "1969-12-31 23:59:58.5", -1.5),
            ("week", "2024-12-30", 1.0),
            ("isoyear", "2024-12-30", 2025.0),
            ("week", "2021-01-03", 53.0),
            ("dow", "2024-06-02", 0.0),
            ("isodow", "2024-06-02", 7.0),
            ("doy", "2024-12-31", 366.0),
            ("century", "2000-12-31", 20.0),
            ("century", "2001-01-01", 21.0),
            ("millennium", "2000-01-01", 2.0),
            ("decade", "1999-01-01", 199.0),
            ("year", "0044-03-15 BC", -44.0),
            ("century", "0044-03-15 BC", -1.0),
            ("decade", "0002-01-01 BC", -1.0),
            ("julian", "2024-05-29 12:00:00", 2_460_460.5),
            ("quarter", "2024-05-29", 2.0),
        ] {
            assert_eq!(part(unit, text), Some(expected), "{unit} of {text}");
        }
        assert_eq!((part("year", "infinity"), part("month", "infinity")), (Some(f64::INFINITY), None));
    }

    #[test]
    fn parts_of_intervals_are_those_of_postgres() {
        for (unit, text, expected) in [
            ("day", "40 days 25 hours", 40.0),
            ("hour", "40 days 25 hours", 25.0),
            ("month", "-14 months", -2.0),
            ("quarter", "14 months", 1.0),
            ("second", "-1 minute -1.5 seconds", -1.5),
            ("epoch", "1 year 1 month", 34_149_600.0),
            ("epoch", "-1 day 12 hours", -43_200.0),
        ] {
            let found = of_interval(Unit::of(unit).expect(unit), parse_interval(text).expect(text)).expect(unit);
            assert_eq!(found, Part::Number((expected * 10.0) as i128 * SCALE / 10), "{unit} of {text}");
        }
        assert_eq!(of_interval(Unit::Dow, IntervalMonthDayNano::ZERO), None);
    }
}
