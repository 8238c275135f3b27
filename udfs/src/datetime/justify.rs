//! `justify_hours`, `justify_days` and `justify_interval`: 24 hours as a day, 30 days as a month.

use std::sync::Arc;

use arrow::array::{ArrayRef, IntervalMonthDayNanoArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::error::Result;

use super::{MICROS_PER_DAY, SECTION, interval};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

const DAYS_PER_MONTH: i64 = 30;

const VALUE: &[Parameter] = &[Parameter { name: "interval", kind: Kind::Any, description: "An interval." }];
const RETURNS: Returns = Returns::Always(DataType::Interval(IntervalUnit::MonthDayNano));

pub(crate) static HOURS: Function = Function {
    interface: Interface {
        name: "justify_hours",
        section: SECTION,
        description: "The interval with 24 hours as a day.",
        parameters: VALUE,
        required: 1,
        example: ("SELECT text_out(justify_hours(INTERVAL '27 hours'))", "1 day 03:00:00"),
    },
    returns: RETURNS,
    kernel: |arguments| map(arguments, hours),
};

pub(crate) static DAYS: Function = Function {
    interface: Interface {
        name: "justify_days",
        section: SECTION,
        description: "The interval with 30 days as a month.",
        parameters: VALUE,
        required: 1,
        example: ("SELECT text_out(justify_days(INTERVAL '35 days'))", "1 mon 5 days"),
    },
    returns: RETURNS,
    kernel: |arguments| map(arguments, days),
};

pub(crate) static INTERVAL: Function = Function {
    interface: Interface {
        name: "justify_interval",
        section: SECTION,
        description: "The interval with 24 hours as a day and 30 days as a month, all parts of one sign.",
        parameters: VALUE,
        required: 1,
        example: ("SELECT text_out(justify_interval(INTERVAL '1 month -1 hour'))", "29 days 23:00:00"),
    },
    returns: RETURNS,
    kernel: |arguments| map(arguments, both),
};

type Parts = (i64, i64, i64);

fn map(arguments: &Arguments, justify: fn(Parts) -> Parts) -> Result<ArrayRef> {
    let values = arguments.interval(0)?;
    let justified = |value: IntervalMonthDayNano| {
        let (months, days, micros) = justify((value.months.into(), value.days.into(), value.nanoseconds / 1_000));
        interval(months, days, micros)
    };
    let justified = (0..arguments.num_rows()).map(|row| values.get(row).map(justified).transpose());
    Ok(Arc::new(justified.collect::<Result<IntervalMonthDayNanoArray, Error>>()?))
}

/// Moves whole ones of a smaller part up, so that what is left has the sign of the larger.
fn carried(large: i64, small: i64, size: i64) -> (i64, i64) {
    let (large, small) = (large + small / size, small % size);
    match (large.signum(), small.signum()) {
        (1, -1) => (large - 1, small + size),
        (-1, 1) => (large + 1, small - size),
        _ => (large, small),
    }
}

fn hours((months, days, micros): Parts) -> Parts {
    let (days, micros) = carried(days, micros, MICROS_PER_DAY);
    (months, days, micros)
}

fn days((months, days, micros): Parts) -> Parts {
    let (months, days) = carried(months, days, DAYS_PER_MONTH);
    (months, days, micros)
}

fn both((months, days, micros): Parts) -> Parts {
    let (days, micros) = (days + micros / MICROS_PER_DAY, micros % MICROS_PER_DAY);
    let (mut months, mut days) = (months + days / DAYS_PER_MONTH, days % DAYS_PER_MONTH);
    let below = (days, micros);
    if months > 0 && below < (0, 0) {
        (months, days) = (months - 1, days + DAYS_PER_MONTH);
    } else if months < 0 && below > (0, 0) {
        (months, days) = (months + 1, days - DAYS_PER_MONTH);
    }
    hours((months, days, micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_move_up_with_one_sign() {
        let hour = MICROS_PER_DAY / 24;
        assert_eq!(hours((0, 1, -hour)), (0, 0, 23 * hour));
        assert_eq!(hours((0, -1, 25 * hour)), (0, 0, hour));
        assert_eq!(days((1, -31, 0)), (0, -1, 0));
        assert_eq!(both((1, 0, -hour)), (0, 29, 23 * hour));
        assert_eq!(both((0, 30, 24 * hour)), (1, 1, 0));
        assert_eq!(both((-1, 1, 0)), (0, -29, 0));
    }
}
