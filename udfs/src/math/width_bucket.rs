use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "width_bucket",
        section: super::SECTION,
        description: "In which of as many equal buckets between two bounds a number is, from 1; 0 below the first, one more than there are above the last.",
        parameters: &[
            super::NUMBER,
            Parameter { name: "low", kind: Kind::Number, description: "Where the first bucket begins." },
            Parameter {
                name: "high",
                kind: Kind::Number,
                description: "Where the last bucket ends; below `low` they are counted downwards.",
            },
            Parameter { name: "count", kind: Kind::Integer, description: "How many buckets, 1 or more." },
        ],
        required: 4,
        example: ("SELECT width_bucket(5.35, 0.024, 10.06, 5)", "3"),
    },
    returns: Returns::Always(DataType::Int32),
    kernel: |arguments| {
        let (values, lows, highs) = (arguments.number(0)?, arguments.number(1)?, arguments.number(2)?);
        let counts = arguments.integer(3)?;
        let of_row = |row: usize| {
            let numbers = values.get(row).zip(lows.get(row)).zip(highs.get(row)).zip(counts.get(row));
            numbers.map(|(((value, low), high), count)| bucket(value, low, high, count)).transpose()
        };
        Ok(Arc::new((0..arguments.num_rows()).map(of_row).collect::<Result<Int32Array, Error>>()?) as ArrayRef)
    },
};

fn bucket(value: f64, low: f64, high: f64, count: i64) -> Result<i32, Error> {
    let refused = |message| Err(Error::Buckets { message });
    let Some(count) = i32::try_from(count).ok().filter(|count| *count > 0) else { return refused("count must be greater than zero") };
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return refused("operand, lower bound, and upper bound cannot be NaN");
    }
    if low.is_infinite() || high.is_infinite() {
        return refused("lower and upper bounds must be finite");
    }
    if low == high {
        return refused("lower bound cannot equal upper bound");
    }
    let (is_before, is_behind) = if low < high { (value < low, value >= high) } else { (value > low, value <= high) };
    if is_before {
        return Ok(0);
    }
    if is_behind {
        return count.checked_add(1).ok_or_else(|| Error::ValueRange { type_name: "integer", text: (i64::from(count) + 1).to_string() });
    }
    // Rounding must not lead beyond the last.
    let bucket = (f64::from(count) * ((value - low) / (high - low))) as i32;
    Ok(bucket.min(count - 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_postgres() {
        for ((value, low, high, count), expected) in [
            ((5.35, 0.024, 10.06, 5), 3),
            ((-1.0, 0.0, 10.0, 5), 0),
            ((10.0, 0.0, 10.0, 5), 6),
            ((9.0, 10.0, 0.0, 5), 1),
            ((0.0, 10.0, 0.0, 5), 6),
            ((11.0, 10.0, 0.0, 5), 0),
        ] {
            assert_eq!(bucket(value, low, high, count), Ok(expected), "{value}");
        }
        for (low, high, count) in [(0.0, 10.0, 0), (1.0, 1.0, 5), (0.0, f64::INFINITY, 5)] {
            assert!(matches!(bucket(1.0, low, high, count), Err(Error::Buckets { .. })));
        }
    }
}
