//! `age(end, start)`: years, months and days between two instants.

use std::sync::Arc;

use arrow::array::{ArrayRef, IntervalMonthDayNanoArray};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::error::Result;

use super::{MICROS_PER_DAY, SECTION, TimeType, civil, interval, interval_type, is_infinite, micros};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::days_of_civil;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "age",
        section: SECTION,
        description: "The time between two instants in years, months and days; `age(start)` ends today at midnight.",
        parameters: &[
            Parameter { name: "end", kind: Kind::Any, description: "A timestamp or date." },
            Parameter { name: "start", kind: Kind::Any, description: "A timestamp or date." },
        ],
        required: 2,
        example: ("SELECT text_out(age(TIMESTAMP '2001-04-10 00:00:00', TIMESTAMP '1957-06-13 00:00:00'))", "43 years 9 mons 27 days"),
    },
    returns: Returns::Computed(|types, _| {
        for (index, data_type) in types.iter().enumerate() {
            TimeType::of_argument(&FUNCTION, index, data_type)?;
        }
        Ok(interval_type())
    }),
    kernel: |arguments| {
        let (ends, starts) = (micros(arguments, 0)?, micros(arguments, 1)?);
        let between = |row: usize| ends.get(row).zip(starts.get(row)).map(|(end, start)| age(end, start)).transpose();
        let ages = (0..arguments.num_rows()).map(between).collect::<Result<IntervalMonthDayNanoArray, Error>>()?;
        Ok(Arc::new(ages) as ArrayRef)
    },
};

fn age(end: i64, start: i64) -> Result<IntervalMonthDayNano, Error> {
    if is_infinite(end) || is_infinite(start) {
        return Err(Error::TimeOverflow { type_name: "interval" });
    }
    if end < start {
        let (months, days, micros) = difference(start, end);
        return interval(-months, -days, -micros);
    }
    let (months, days, micros) = difference(end, start);
    interval(months, days, micros)
}

/// Months, days and microseconds, field by field as one writes it on paper; days that are missing are those of the month of the earlier instant.
fn difference(later: i64, earlier: i64) -> (i64, i64, i64) {
    let ((late_year, late_month, late_day, late_time), (year, month, day, time)) = (civil(later), civil(earlier));
    let (mut months, mut days, mut micros) = ((late_year - year) * 12 + late_month - month, late_day - day, late_time - time);
    if micros < 0 {
        (micros, days) = (micros + MICROS_PER_DAY, days - 1);
    }
    while days < 0 {
        (days, months) = (days + days_of_month(year, month), months - 1);
    }
    (months, days, micros)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    (28..=31).rev().find(|day| days_of_civil(year, month, *day).is_some()).expect("every month has 28 days")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{parse_interval, parse_timestamp};

    #[test]
    fn ages_are_those_of_postgres() {
        for (end, start, expected) in [
            ("2001-04-10", "1957-06-13", "43 years 9 mons 27 days"),
            ("2024-03-01", "2024-01-31", "1 mon 1 day"),
            ("2024-01-31", "2024-03-01", "-1 mons -1 days"),
            ("2023-03-30", "2023-02-28", "1 mon 2 days"),
            ("2024-02-29 01:00:00", "2023-02-28 12:00:00", "1 year 13:00:00"),
            ("2024-01-01", "2024-01-01", "0"),
        ] {
            let micros = |text: &str| parse_timestamp(text, false).expect(text);
            assert_eq!(age(micros(end), micros(start)), Ok(parse_interval(expected).expect(expected)), "from {start} to {end}");
        }
    }
}
