//! Quoted constants in arithmetic and in arrays: in `1 + '2'` the constant is a number, in `day - '2020-01-01'` a day, in `instant + '1 day'` an interval, as in
//! PostgreSQL. DataFusion knows no operator between these and texts.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Casts such constants to the type that the operator has beside the other operand; other planners go on with them.
#[derive(Debug, Default)]
pub struct QuotedOperandPlanner;

impl ExprPlanner for QuotedOperandPlanner {
    fn plan_binary_op(&self, mut expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let wanted = |other: &Expr, is_left: bool| other.get_type(schema).ok().and_then(|other| operand_type(&expr.op, &other, is_left));
        match (is_quoted(&expr.left), is_quoted(&expr.right)) {
            (true, false) => {
                if let Some(wanted) = wanted(&expr.right, true) {
                    expr.left = cast(expr.left, wanted);
                }
            }
            (false, true) => {
                if let Some(wanted) = wanted(&expr.left, false) {
                    expr.right = cast(expr.right, wanted);
                }
            }
            _ => {}
        }
        Ok(PlannerResult::Original(expr))
    }

    fn plan_array_literal(&self, exprs: Vec<Expr>, schema: &DFSchema) -> Result<PlannerResult<Vec<Expr>>> {
        let of_time =
            |item: &Expr| item.get_type(schema).ok().filter(|data_type| data_type.is_temporal() || *data_type == DataType::Boolean);
        let wanted = exprs.iter().find_map(of_time);
        let read = |item: Expr| match &wanted {
            Some(wanted) if is_quoted(&item) => cast(item, wanted.clone()),
            _ => item,
        };
        Ok(PlannerResult::Original(exprs.into_iter().map(read).collect()))
    }
}

fn is_quoted(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

/// The type of a constant beside `other`. `None`: PostgreSQL finds no operator, or more than one.
fn operand_type(op: &BinaryOperator, other: &DataType, is_left: bool) -> Option<DataType> {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus};
    match (op, other) {
        (Plus | Minus | Multiply | Divide | Modulo, number) if number.is_numeric() => Some(number.clone()),
        (Minus, DataType::Date32 | DataType::Timestamp(..)) => Some(other.clone()),
        (Plus, DataType::Timestamp(..)) => Some(DataType::Interval(IntervalUnit::MonthDayNano)),
        (Plus | Minus, DataType::Interval(_)) => Some(other.clone()),
        (Multiply, DataType::Interval(_)) => Some(DataType::Float64),
        (Divide, DataType::Interval(_)) if !is_left => Some(DataType::Float64),
        _ => None,
    }
}
