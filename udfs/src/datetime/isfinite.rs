use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;

use super::{SECTION, TIME, TimeType, is_infinite, micros};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "isfinite",
        section: SECTION,
        description: "Whether a date or timestamp is neither `infinity` nor `-infinity`; every interval is finite.",
        parameters: &[TIME],
        required: 1,
        example: ("SELECT isfinite(DATE '2024-02-29')", "true"),
    },
    returns: Returns::Always(DataType::Boolean),
    kernel: |arguments| {
        let rows = 0..arguments.num_rows();
        let column: BooleanArray = match TimeType::of_argument(&FUNCTION, 0, arguments.column(0)?.array().data_type())? {
            TimeType::Interval => {
                let intervals = arguments.interval(0)?;
                rows.map(|row| intervals.get(row).map(|_| true)).collect()
            }
            _ => {
                let instants = micros(arguments, 0)?;
                rows.map(|row| instants.get(row).map(|micros| !is_infinite(micros))).collect()
            }
        };
        Ok(Arc::new(column) as ArrayRef)
    },
};
