//! `+` and `-` of dates, times of day and intervals, where DataFusion's types are others than PostgreSQL's.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::{TimeType, time_of_day, timestamp_type};
use crate::function::Function;

/// A date and an interval are a timestamp, a time of day and an interval are a time of day, a date and a time of day are a timestamp.
#[derive(Debug, Default)]
pub struct TimeOperatorPlanner;

impl ExprPlanner for TimeOperatorPlanner {
    fn plan_binary_op(&self, mut expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Minus, Plus};
        use TimeType::{Date, Interval, Time};
        if !matches!(expr.op, Plus | Minus) {
            return Ok(PlannerResult::Original(expr));
        }
        let time_type = |operand: &Expr| match operand.get_type(schema) {
            // A quoted constant has no type yet.
            Ok(DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) | Err(_) => None,
            Ok(found) => TimeType::of(&found),
        };
        let planned = match (time_type(&expr.left), &expr.op, time_type(&expr.right)) {
            (Some(Date), _, Some(Interval)) => {
                expr.left = cast(expr.left, timestamp_type());
                return Ok(PlannerResult::Original(expr));
            }
            (Some(Interval), Plus, Some(Date)) => {
                expr.right = cast(expr.right, timestamp_type());
                return Ok(PlannerResult::Original(expr));
            }
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
