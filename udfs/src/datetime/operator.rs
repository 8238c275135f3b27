//! `+` and `-` of dates, times of day and intervals, where DataFusion's types are others than PostgreSQL's.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::{TimeType, arithmetic, time_of_day};
use crate::function::Function;

/// Dates and instants move as PostgreSQL moves them; a date and an interval are a timestamp, a time of day and an interval are a time of day, a date and a time of day are a timestamp.
#[derive(Debug, Default)]
pub struct TimeOperatorPlanner;

impl ExprPlanner for TimeOperatorPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Minus, Plus};
        use TimeType::{Date, Interval, Time, Timestamp, Timestamptz};
        if !matches!(expr.op, Plus | Minus) {
            return Ok(PlannerResult::Original(expr));
        }
        let time_type = |operand: &Expr| match operand.get_type(schema) {
            // A quoted constant has no type yet.
            Ok(DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) | Err(_) => None,
            Ok(found) => TimeType::of(&found),
        };
        let is_integer = |operand: &Expr| operand.get_type(schema).is_ok_and(|found| found.is_integer());
        let planned = match (time_type(&expr.left), &expr.op, time_type(&expr.right)) {
            (Some(Date | Timestamp | Timestamptz), Plus, Some(Interval)) => {
                call(&arithmetic::TIMESTAMP_PLUS_INTERVAL, expr.left, expr.right)
            }
            (Some(Interval), Plus, Some(Date | Timestamp | Timestamptz)) => {
                call(&arithmetic::TIMESTAMP_PLUS_INTERVAL, expr.right, expr.left)
            }
            (Some(Date | Timestamp | Timestamptz), Minus, Some(Interval)) => {
                call(&arithmetic::TIMESTAMP_MINUS_INTERVAL, expr.left, expr.right)
            }
            (Some(Date), Minus, Some(Date)) => call(&arithmetic::DATE_MINUS_DATE, expr.left, expr.right),
            (Some(Date | Timestamp | Timestamptz), Minus, Some(Date | Timestamp | Timestamptz)) => {
                call(&arithmetic::TIMESTAMP_MINUS_TIMESTAMP, expr.left, expr.right)
            }
            (Some(Date), Plus, None) if is_integer(&expr.right) => call(&arithmetic::DATE_PLUS_DAYS, expr.left, expr.right),
            (None, Plus, Some(Date)) if is_integer(&expr.left) => call(&arithmetic::DATE_PLUS_DAYS, expr.right, expr.left),
            (Some(Date), Minus, None) if is_integer(&expr.right) => call(&arithmetic::DATE_MINUS_DAYS, expr.left, expr.right),
            (Some(Time), Plus, Some(Interval)) => call(&time_of_day::TIME_PLUS_INTERVAL, expr.left, expr.right),
            (Some(Interval), Plus, Some(Time)) => call(&time_of_day::TIME_PLUS_INTERVAL, expr.right, expr.left),
            (Some(Time), Minus, Some(Interval)) => call(&time_of_day::TIME_MINUS_INTERVAL, expr.left, expr.right),
            (Some(Date), Plus, Some(Time)) => call(&time_of_day::DATE_AND_TIME, expr.left, expr.right),
            (Some(Time), Plus, Some(Date)) => call(&time_of_day::DATE_AND_TIME, expr.right, expr.left),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        Ok(PlannerResult::Planned(planned))
    }
}

fn call(function: &'static Function, left: Expr, right: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function.udf()), vec![left, right]))
}
