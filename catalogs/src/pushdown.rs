//! Which filters go down to Lance: plain comparisons of a column with constants, what an array has, and their AND, OR and NOT.
//!
//! Everything else stays with DataFusion: Lance evaluates a filter itself, without our functions, without async calls
//! and without subqueries, and may answer it from an index.

use arrow::array::Array;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{Between, BinaryExpr, InList, Like, Placeholder, ScalarFunction};
use datafusion::logical_expr::{Expr, Operator};

use crate::index::is_label_list;

/// Whether Lance answers `filter` over a table of `schema` exactly.
pub(crate) fn can_push_down(filter: &Expr, schema: &SchemaRef) -> bool {
    let push = |expr: &Expr| can_push_down(expr, schema);
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => push(left) && push(right),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            is_comparison(*op) && (compares(left, [right.as_ref()], schema) || compares(right, [left.as_ref()], schema))
        }
        Expr::Not(inner) => push(inner),
        Expr::Column(_) => column_type(filter, schema) == Some(&DataType::Boolean),
        Expr::IsNull(inner) | Expr::IsNotNull(inner) => column_type(inner, schema).is_some_and(is_comparable),
        Expr::Between(Between { expr, low, high, .. }) => compares(expr, [low.as_ref(), high.as_ref()], schema),
        Expr::InList(InList { expr, list, .. }) => compares(expr, list, schema),
        Expr::Like(Like { expr, pattern, escape_char: None, case_insensitive: false, .. }) => {
            column_type(expr, schema) == Some(&DataType::Utf8) && compares(expr, [pattern.as_ref()], schema)
        }
        Expr::ScalarFunction(function) => looks_up_labels(function, schema),
        _ => false,
    }
}

/// `array_has`, `array_has_any` and `array_has_all` of a column and constants that are not NULL, which an index takes for a value to find.
fn looks_up_labels(function: &ScalarFunction, schema: &SchemaRef) -> bool {
    let [column, Expr::Literal(sought, _)] = function.args.as_slice() else { return false };
    let Some(DataType::List(item)) = column_type(column, schema).filter(|data_type| is_label_list(data_type)) else { return false };
    match function.name() {
        "array_has" => &sought.data_type() == item.data_type() && is_plain(item.data_type()) && means_the_same(sought),
        "array_has_any" | "array_has_all" => match sought {
            ScalarValue::List(list) => {
                let values = list.values();
                let are_values = list.len() == 1 && list.null_count() == 0 && !values.is_empty() && values.null_count() == 0;
                // Of floats one would have to look at each: -0.0 again.
                are_values && values.data_type() == item.data_type() && is_plain(item.data_type()) && !item.data_type().is_floating()
            }
            _ => false,
        },
        _ => false,
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Whether `column` is a column and all `values` are constants or parameters of its very type, so that no cast comes in between.
fn compares<'a>(column: &Expr, values: impl IntoIterator<Item = &'a Expr>, schema: &SchemaRef) -> bool {
    let Some(data_type) = column_type(column, schema).filter(|data_type| is_comparable(data_type)) else { return false };
    values.into_iter().all(|value| match value {
        Expr::Literal(value, _) => &value.data_type() == data_type && means_the_same(value),
        // A statement with a NULL for a parameter is planned anew; zeros of floats need to be seen.
        Expr::Placeholder(Placeholder { field: Some(field), .. }) => {
            field.data_type() == data_type && is_plain(data_type) && !data_type.is_floating()
        }
        _ => false,
    })
}

/// Lance takes -0.0 and 0.0 for one number, DataFusion does not; and a NULL has no place in an index.
fn means_the_same(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float32(Some(number)) => number.is_finite() && *number != 0.0,
        ScalarValue::Float64(Some(number)) => number.is_finite() && *number != 0.0,
        other => !other.is_null(),
    }
}

fn column_type<'a>(expr: &Expr, schema: &'a SchemaRef) -> Option<&'a DataType> {
    let Expr::Column(Column { name, .. }) = expr else { return None };
    schema.field_with_name(name).ok().map(|field| field.data_type())
}

/// Whether Lance, and an index of its, compares values of this type as DataFusion does. Of timestamps, numerics and bytes it does with constants of the
/// very type: unit, time zone, precision and scale.
pub(crate) fn is_comparable(data_type: &DataType) -> bool {
    let is_exact = matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Decimal128(..) | DataType::Binary);
    is_exact || is_plain(data_type)
}

fn is_plain(data_type: &DataType) -> bool {
    let is_text_or_time = matches!(data_type, DataType::Utf8 | DataType::Boolean | DataType::Date32);
    is_text_or_time || data_type.is_integer() || matches!(data_type, DataType::Float32 | DataType::Float64)
}
