//! Dates as instants and the other way round, infinity as infinity, which Arrow's casts do not know.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Time64MicrosecondArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::error::Result;

use super::arithmetic::is_instant;
use super::{MICROS_PER_DAY, SECTION, day_of_micros, days, is_infinite, timestamp_type, timestamptz_type};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

const SOURCE: &[Parameter] = &[Parameter { name: "source", kind: Kind::Any, description: "A timestamp." }];
const DATE: &[Parameter] = &[Parameter { name: "date", kind: Kind::Any, description: "A date." }];

pub(crate) static TIMESTAMP_OF_DATE: Function = Function {
    interface: Interface {
        name: "timestamp_of_date",
        section: SECTION,
        description: "The midnight at which a date begins; `date::timestamp` does the same.",
        parameters: DATE,
        required: 1,
        example: ("SELECT timestamp_of_date(DATE '2024-02-29')", "2024-02-29T00:00:00"),
    },
    returns: Returns::Computed(|_, _| Ok(timestamp_type())),
    kernel: |arguments| midnights(arguments, |day| midnight(day).ok_or(Error::DateBeyondTimestamp)),
};

pub(crate) static TIMESTAMPTZ_OF_DATE: Function = Function {
    interface: Interface {
        name: "timestamptz_of_date",
        section: SECTION,
        description: "The midnight at which a date begins in UTC; `date::timestamptz` does the same.",
        parameters: DATE,
        required: 1,
        example: ("SELECT timestamptz_of_date(DATE '2024-02-29')", "2024-02-29T00:00:00Z"),
    },
    returns: Returns::Computed(|_, _| Ok(timestamptz_type())),
    kernel: |arguments| midnights(arguments, |day| midnight(day).ok_or(Error::DateBeyondTimestamp)),
};

pub(crate) static INSTANT_OF_DATE: Function = Function {
    interface: Interface {
        name: "instant_of_date",
        section: SECTION,
        description: "The midnight at which a date begins, for comparisons with timestamps: one that they do not reach is beyond all of them, infinity aside.",
        parameters: DATE,
        required: 1,
        example: ("SELECT instant_of_date(DATE '2024-02-29')", "2024-02-29T00:00:00"),
    },
    returns: Returns::Computed(|_, _| Ok(timestamp_type())),
    kernel: instants_of_dates,
};

pub(crate) static INSTANTTZ_OF_DATE: Function = Function {
    interface: Interface {
        name: "instanttz_of_date",
        section: SECTION,
        description: "The same for comparisons with timestamps with time zone.",
        parameters: DATE,
        required: 1,
        example: ("SELECT instanttz_of_date(DATE '2024-02-29')", "2024-02-29T00:00:00Z"),
    },
    returns: Returns::Computed(|_, _| Ok(timestamptz_type())),
    kernel: instants_of_dates,
};

pub(crate) static TIMESTAMPTZ_OF_TIMESTAMP: Function = Function {
    interface: Interface {
        name: "timestamptz_of_timestamp",
        section: SECTION,
        description: "The instant at which clocks in UTC show a time; `timestamp::timestamptz` does the same.",
        parameters: SOURCE,
        required: 1,
        example: ("SELECT timestamptz_of_timestamp(TIMESTAMP '2024-02-29 12:00:00')", "2024-02-29T12:00:00Z"),
    },
    returns: Returns::Computed(|_, _| Ok(timestamptz_type())),
    kernel: same_instants,
};

pub(crate) static TIMESTAMP_OF_TIMESTAMPTZ: Function = Function {
    interface: Interface {
        name: "timestamp_of_timestamptz",
        section: SECTION,
        description: "What clocks in UTC show at an instant; `timestamptz::timestamp` does the same.",
        parameters: SOURCE,
        required: 1,
        example: ("SELECT timestamp_of_timestamptz(TIMESTAMPTZ '2024-02-29 12:00:00+02')", "2024-02-29T10:00:00"),
    },
    returns: Returns::Computed(|_, _| Ok(timestamp_type())),
    kernel: same_instants,
};

pub(crate) static DATE_OF_TIMESTAMP: Function = Function {
    interface: Interface {
        name: "date_of_timestamp",
        section: SECTION,
        description: "The date on which an instant is; `timestamp::date` does the same.",
        parameters: SOURCE,
        required: 1,
        example: ("SELECT date_of_timestamp(TIMESTAMP '2024-02-29 12:00:00')", "2024-02-29"),
    },
    returns: Returns::Always(DataType::Date32),
    kernel: |arguments| {
        let instants = super::micros(arguments, 0)?;
        let dates = (0..arguments.num_rows()).map(|row| instants.get(row).map(day_of_micros));
        Ok(Arc::new(dates.collect::<Date32Array>()) as ArrayRef)
    },
};

pub(crate) static TIME_OF_TIMESTAMP: Function = Function {
    interface: Interface {
        name: "time_of_timestamp",
        section: SECTION,
        description: "The time of day of an instant; `timestamp::time` does the same. Infinity has none.",
        parameters: SOURCE,
        required: 1,
        example: ("SELECT time_of_timestamp(TIMESTAMP '2024-02-29 12:00:00')", "12:00:00"),
    },
    returns: Returns::Always(DataType::Time64(TimeUnit::Microsecond)),
    kernel: |arguments| {
        let instants = super::micros(arguments, 0)?;
        let time = |row: usize| instants.get(row).filter(|micros| !is_infinite(*micros)).map(|micros| micros.rem_euclid(MICROS_PER_DAY));
        Ok(Arc::new((0..arguments.num_rows()).map(time).collect::<Time64MicrosecondArray>()) as ArrayRef)
    },
};

/// `None`: timestamps do not reach it.
fn midnight(day: i32) -> Option<i64> {
    match day {
        i32::MAX => Some(i64::MAX),
        i32::MIN => Some(i64::MIN),
        day => i64::from(day).checked_mul(MICROS_PER_DAY).filter(|micros| is_instant(*micros)),
    }
}

fn instants_of_dates(arguments: &Arguments) -> Result<ArrayRef> {
    midnights(arguments, |day| Ok(midnight(day).unwrap_or(if day < 0 { i64::MIN + 1 } else { i64::MAX - 1 })))
}

/// Arrow's cast would ask a table of zones, which knows neither infinity nor the ends of the type.
fn same_instants(arguments: &Arguments) -> Result<ArrayRef> {
    let instants = super::micros(arguments, 0)?;
    let same = (0..arguments.num_rows()).map(|row| instants.get(row)).collect::<TimestampMicrosecondArray>();
    Ok(Arc::new(same.with_data_type(arguments.return_type().clone())))
}

fn midnights(arguments: &Arguments, midnight: impl Fn(i32) -> Result<i64, Error>) -> Result<ArrayRef> {
    let dates = days(arguments, 0)?;
    let instants = (0..arguments.num_rows()).map(|row| dates.get(row).map(|day| midnight(day as i32)).transpose());
    let instants = instants.collect::<Result<TimestampMicrosecondArray, Error>>()?;
    Ok(Arc::new(instants.with_data_type(arguments.return_type().clone())))
}
