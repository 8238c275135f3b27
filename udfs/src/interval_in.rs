use std::sync::Arc;

use arrow::array::{ArrayRef, IntervalMonthDayNanoArray};
use arrow::datatypes::{DataType, IntervalUnit};

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::postgres::parse_interval;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "interval_in",
        section: "Text",
        description: "Reads an interval in PostgreSQL's forms: `1 year 2 mons 3 days 04:05:06.7`, `90 minutes ago`, `1-2` for years and months, ISO 8601 \
            `P1Y2M3DT4H5M6S`; `text::interval` does the same.",
        parameters: &[Parameter { name: "text", kind: Kind::Text, description: "An interval as text." }],
        required: 1,
        example: ("SELECT text_out(interval_in('P1DT4H'))", "1 day 04:00:00"),
    },
    returns: Returns::Always(DataType::Interval(IntervalUnit::MonthDayNano)),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let read = |text: &str| {
            parse_interval(text).ok_or_else(|| Error::TimeText { type_name: "interval", text: text.chars().take(60).collect() })
        };
        let intervals = (0..arguments.num_rows()).map(|row| texts.get(row).map(read).transpose());
        Ok(Arc::new(intervals.collect::<Result<IntervalMonthDayNanoArray, Error>>()?) as ArrayRef)
    },
};
