//! `interval * number`, which DataFusion does not plan: PostgreSQL's product, in which a part of a month becomes days of 30 to the month, and a part of a day
//! becomes time.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

pub const TIMES: &str = "interval_times";
pub const OVER: &str = "interval_over";

const DAYS_PER_MONTH: f64 = 30.0;
const NANOSECONDS_PER_DAY: f64 = 86_400e9;

/// Both take an interval and a number.
pub fn functions() -> [ScalarUDF; 2] {
    [TIMES, OVER].map(|name| ScalarUDF::new_from_impl(IntervalTimes { name, signature: Signature::any(2, Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalTimes {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for IntervalTimes {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = args.args.iter().map(|value| value.clone().into_array(args.number_rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let intervals = cast(&arrays[0], &DataType::Interval(IntervalUnit::MonthDayNano))?;
        let factors = cast(&arrays[1], &DataType::Float64)?;
        let (intervals, factors) = (intervals.as_primitive::<IntervalMonthDayNanoType>(), factors.as_primitive::<Float64Type>());
        let scale: fn(f64, f64) -> f64 = if self.name == OVER { |part, number| part / number } else { |part, number| part * number };
        let mut products = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let both = intervals.is_valid(row) && factors.is_valid(row);
            products.push(if both { Some(scaled(intervals.value(row), |part| scale(part, factors.value(row)))?) } else { None });
        }
        Ok(ColumnarValue::Array(Arc::new(IntervalMonthDayNanoArray::from_iter(products))))
    }
}

fn scaled(interval: IntervalMonthDayNano, scale: impl Fn(f64) -> f64) -> Result<IntervalMonthDayNano> {
    let months = scale(f64::from(interval.months));
    let days = scale(f64::from(interval.days)) + months.fract() * DAYS_PER_MONTH;
    let nanoseconds = scale(interval.nanoseconds as f64) + days.fract() * NANOSECONDS_PER_DAY;
    let fits = |part: f64, max: f64| part.is_finite() && part.abs() <= max;
    if !fits(months, f64::from(i32::MAX)) || !fits(days, f64::from(i32::MAX)) || !fits(nanoseconds, i64::MAX as f64) {
        return exec_err!("interval out of range");
    }
    Ok(IntervalMonthDayNano::new(months.trunc() as i32, days.trunc() as i32, nanoseconds.round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_months_are_days_and_parts_of_days_are_time() {
        let hours = |hours: i64| hours * 3_600_000_000_000;
        let product = |interval, factor: f64| scaled(interval, |part| part * factor).expect("it is in range");
        assert_eq!(product(IntervalMonthDayNano::new(1, 1, 0), 1.5), IntervalMonthDayNano::new(1, 16, hours(12)));
        assert_eq!(product(IntervalMonthDayNano::new(0, 0, hours(2)), -0.5), IntervalMonthDayNano::new(0, 0, hours(-1)));
        assert_eq!(scaled(IntervalMonthDayNano::new(0, 49, 0), |part| part / 49.0).expect("in range"), IntervalMonthDayNano::new(0, 1, 0));
        assert!(scaled(IntervalMonthDayNano::new(0, 1, 0), |part| part / 0.0).is_err());
    }
}
