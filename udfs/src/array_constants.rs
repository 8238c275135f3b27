//! Quoted constants beside arrays: in `tags = '{a,b}'` the constant is an array, as in PostgreSQL.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, lit};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::text_type::TextType;
use crate::{array_in, text_in};

/// Reads such constants as arrays of the type on the other side, before types are compared.
#[derive(Debug, Default)]
pub struct ArrayConstantPlanner;

impl ExprPlanner for ArrayConstantPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        Ok(PlannerResult::Original(if is_comparison(&expr.op) { read_beside(expr, schema) } else { expr }))
    }
}

/// The operands with a quoted constant beside an array as an array.
pub(crate) fn read_beside(mut expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    match (is_quoted(&expr.left), is_quoted(&expr.right)) {
        (true, false) => expr.left = read(expr.left, &expr.right, schema),
        (false, true) => expr.right = read(expr.right, &expr.left, schema),
        _ => {}
    }
    expr
}

fn is_comparison(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

fn is_quoted(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

/// The constant as an array, if `other` is one of a type that texts are read as.
fn read(constant: Expr, other: &Expr, schema: &DFSchema) -> Expr {
    let Ok((_, field)) = other.to_field(schema) else { return constant };
    let DataType::List(item) = field.data_type() else { return constant };
    let items = TextType::of_items(&field);
    let Some(name) = item_name(item).filter(|_| items.is_none_or(|items| items.length().is_none())) else { return constant };
    let array = call(&array_in::FUNCTION, constant, format!("{name}[]"));
    match items {
        Some(items) => call(&text_in::TEXT_CAST, array, format!("{items}[]")),
        None => array,
    }
}

fn call(function: &'static crate::function::Function, value: Expr, type_name: String) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function.udf()), vec![value, lit(type_name)]))
}

fn item_name(item: &Field) -> Option<String> {
    Some(match item.data_type() {
        DataType::Utf8 => "text".to_owned(),
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int16 => "smallint".to_owned(),
        DataType::Int32 => "integer".to_owned(),
        DataType::Int64 => "bigint".to_owned(),
        DataType::Float32 => "real".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        DataType::Decimal128(precision, scale) => format!("numeric({precision},{scale})"),
        DataType::Binary => "bytea".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Time64(_) => "time".to_owned(),
        DataType::Interval(_) => "interval".to_owned(),
        DataType::Timestamp(_, None) => "timestamp".to_owned(),
        DataType::Timestamp(_, Some(_)) => "timestamptz".to_owned(),
        _ => return None,
    })
}
