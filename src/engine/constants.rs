//! Constants in the text of a statement that DataFusion reads otherwise than PostgreSQL: intervals in more forms than Arrow knows, numbers whose digits
//! a double would not keep, and strings of bits.

use std::ops::ControlFlow;

use arrow::datatypes::IntervalMonthDayNano;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, ExactNumberInfo, Expr, Interval, Statement, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use rolloutdb_udfs::postgres::parse_interval;

use rolloutdb_sql::call;

use crate::error::{Error, Result};

/// The most digits of a number.
const DIGITS_MAX: usize = 38;

/// The least bigint without its sign, which is no bigint itself.
const LEAST_BIGINT: &str = "9223372036854775808";

/// Writes such constants as DataFusion reads them.
///
/// # Errors
/// [`rolloutdb_udfs::Error::TimeText`] for a text that is no interval.
pub fn rewrite(statement: &mut Statement) -> Result<()> {
    match statement.visit(&mut Constants) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Constants;

impl VisitorMut for Constants {
    type Break = Error;

    /// A number below a cast goes with it, so that outer expressions come first.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Cast { expr: number, data_type, .. } if is_numeric(data_type) => {
                // Few digits without a point are kept as they are.
                if let Some(digits) = digits(number).filter(|digits| digits.contains('.') || digits.len() > 15) {
                    **number = quoted(digits);
                }
            }
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: number } if digits(number).is_some_and(|digits| digits == LEAST_BIGINT) => {
                *expr = Expr::value(Value::Number(format!("-{LEAST_BIGINT}"), false));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let rewritten = match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => wide_integer(number),
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedByteStringLiteral(digits), .. }) => Ok(Some(bits(digits.clone()))),
            Expr::Value(ValueWithSpan { value: Value::HexStringLiteral(digits), .. }) => {
                let four = |digit: char| digit.to_digit(16).map_or_else(String::new, |value| format!("{value:04b}"));
                Ok(Some(bits(digits.chars().map(four).collect())))
            }
            Expr::Interval(interval) => read_interval(interval).map(|read| read.map(interval_constant)),
            // DataFusion would put the sign before the first part alone.
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => match inner.as_ref() {
                Expr::Interval(interval) => read_interval(interval).map(|read| read.and_then(negated).map(interval_constant)),
                _ => Ok(None),
            },
            _ => Ok(None),
        };
        match rewritten {
            Ok(Some(rewritten)) => *expr = rewritten,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error.into()),
        }
        ControlFlow::Continue(())
    }
}

/// A string of bits, of which a text is cast to its type: `bit(3)` for `B'101'`. No `bit(n)` is empty.
fn bits(digits: String) -> Expr {
    let type_name = if digits.is_empty() { "varbit".to_owned() } else { format!("bit({})", digits.len()) };
    call("text_cast", [quoted(digits), quoted(type_name)])
}

fn is_numeric(data_type: &SqlType) -> bool {
    matches!(data_type, SqlType::Numeric(_) | SqlType::Decimal(_) | SqlType::Dec(_))
}

/// A number as it is written, without an exponent.
fn digits(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => (!number.contains(['e', 'E'])).then(|| number.clone()),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            digits(expr).filter(|number| !number.starts_with('-')).map(|number| format!("-{number}"))
        }
        Expr::Nested(inner) => digits(inner),
        _ => None,
    }
}

/// A whole number beyond bigint is a numeric; one with more digits than that has is refused, for a double would keep sixteen of them.
fn wide_integer(number: &str) -> Result<Option<Expr>, rolloutdb_udfs::Error> {
    let is_whole = number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_whole || number.parse::<i64>().is_ok() {
        return Ok(None);
    }
    if number.trim_start_matches('0').len() > DIGITS_MAX {
        return Err(rolloutdb_udfs::Error::ValueRange { type_name: "numeric(38,0)", text: number.chars().take(60).collect() });
    }
    Ok(Some(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(quoted(number.to_owned())),
        data_type: SqlType::Numeric(ExactNumberInfo::PrecisionAndScale(DIGITS_MAX as u64, 0)),
        array: false,
        format: None,
    }))
}

/// `None`: not a quoted text, or with more modifiers than a unit.
fn read_interval(interval: &Interval) -> Result<Option<IntervalMonthDayNano>, rolloutdb_udfs::Error> {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = interval.value.as_ref() else { return Ok(None) };
    if interval.leading_precision.is_some() || interval.last_field.is_some() || interval.fractional_seconds_precision.is_some() {
        return Ok(None);
    }
    let whole = match &interval.leading_field {
        Some(unit) => format!("{text} {unit}"),
        None => text.clone(),
    };
    match parse_interval(&whole) {
        Some(read) => Ok(Some(read)),
        None => Err(rolloutdb_udfs::Error::TimeText { type_name: "interval", text: whole.chars().take(60).collect() }),
    }
}

fn negated(interval: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    Some(IntervalMonthDayNano::new(months.checked_neg()?, days.checked_neg()?, nanoseconds.checked_neg()?))
}

/// In a form that both Arrow and [`parse_interval`] read without loss; an interval that was read counts whole microseconds.
fn interval_constant(interval: IntervalMonthDayNano) -> Expr {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    Expr::Interval(Interval {
        value: Box::new(quoted(format!("{months} months {days} days {} microseconds", nanoseconds / 1_000))),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    })
}

fn quoted(text: String) -> Expr {
    Expr::value(Value::SingleQuotedString(text))
}
