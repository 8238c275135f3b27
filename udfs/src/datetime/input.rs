//! Readers of dates and times.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Time64MicrosecondArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::error::Result;

use super::{SECTION, timestamptz_type};
use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::{date_of, time_of, timestamp_of};

const TEXT: &[Parameter] =
    &[Parameter { name: "text", kind: Kind::Text, description: "In the forms of PostgreSQL, with the month before the day." }];

pub(crate) static DATE_IN: Function = Function {
    interface: Interface {
        name: "date_in",
        section: SECTION,
        description: "Reads a date: `2024-02-29`, `Feb 29 2024`, `2/29/2024`, `0044-03-15 BC`, `infinity`; `text::date` does the same.",
        parameters: TEXT,
        required: 1,
        example: ("SELECT date_in('Feb 29 2024')", "2024-02-29"),
    },
    returns: Returns::Always(DataType::Date32),
    kernel: |arguments| Ok(Arc::new(read(arguments, date_of)?.collect::<Result<Date32Array, Error>>()?) as ArrayRef),
};

pub(crate) static TIME_IN: Function = Function {
    interface: Interface {
        name: "time_in",
        section: SECTION,
        description: "Reads a time of day: `12:34:56.789`, `10:30 PM`, `103000`; `text::time` does the same.",
        parameters: TEXT,
        required: 1,
        example: ("SELECT time_in('10:30 PM')", "22:30:00"),
    },
    returns: Returns::Always(DataType::Time64(TimeUnit::Microsecond)),
    kernel: |arguments| Ok(Arc::new(read(arguments, time_of)?.collect::<Result<Time64MicrosecondArray, Error>>()?) as ArrayRef),
};

pub(crate) static TIMESTAMP_IN: Function = Function {
    interface: Interface {
        name: "timestamp_in",
        section: SECTION,
        description: "Reads a timestamp, whose time zone counts nothing: `2024-02-29 12:34`, `Feb 29 2024 3:00 PM`; `text::timestamp` does the same.",
        parameters: TEXT,
        required: 1,
        example: ("SELECT timestamp_in('Feb 29 2024 3:00 PM')", "2024-02-29T15:00:00"),
    },
    returns: Returns::Always(DataType::Timestamp(TimeUnit::Microsecond, None)),
    kernel: |arguments| {
        let instants = read(arguments, |text| timestamp_of(text, false))?.collect::<Result<TimestampMicrosecondArray, Error>>()?;
        Ok(Arc::new(instants) as ArrayRef)
    },
};

pub(crate) static TIMESTAMPTZ_IN: Function = Function {
    interface: Interface {
        name: "timestamptz_in",
        section: SECTION,
        description: "Reads an instant, in UTC if it has no zone: `2024-02-29 12:34+02`, `2024-02-29 12:34 Europe/Berlin`; `text::timestamptz` does the same.",
        parameters: TEXT,
        required: 1,
        example: ("SELECT timestamptz_in('2024-02-29 12:34+02')", "2024-02-29T10:34:00Z"),
    },
    returns: Returns::Computed(|_, _| Ok(timestamptz_type())),
    kernel: |arguments| {
        let instants = read(arguments, |text| timestamp_of(text, true))?.collect::<Result<TimestampMicrosecondArray, Error>>()?;
        Ok(Arc::new(instants.with_data_type(arguments.return_type().clone())) as ArrayRef)
    },
};

fn read<'a, T: 'a>(
    arguments: &'a Arguments,
    value: impl Fn(&str) -> Result<T, Error> + 'a,
) -> Result<impl Iterator<Item = Result<Option<T>, Error>> + 'a> {
    let texts = arguments.text(0)?;
    Ok((0..arguments.num_rows()).map(move |row| texts.get(row).map(&value).transpose()))
}
