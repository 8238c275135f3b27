//! Distances in expressions: `embedding <=> $1`, `1 - (embedding <=> $1)`, and bounds on them.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, Subquery};
use rolloutdb_catalogs::Metric;
use rolloutdb_udfs::vector::parse_vector;

/// A distance from a column of vectors to something that is no column of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Distance {
    pub column: String,
    pub query: Expr,
    pub metric: Metric,
}

impl Distance {
    /// Of a sort key that puts the nearest first: `distance ASC`, or `1 - distance DESC`. The error is why it is none.
    pub fn of_key(key: &Expr, is_ascending: bool) -> Result<Self, String> {
        match (Self::signed(key), is_ascending) {
            (Some((distance, true)), true) | (Some((distance, false)), false) => Ok(distance),
            (Some(_), _) => Err("the farthest come first".to_owned()),
            (None, _) if Self::is_in(key) => Err(format!("the first sort key is an expression over the distance, {key}")),
            (None, _) => Err(format!("the first sort key is no distance, but {key}")),
        }
    }

    /// Whether an expression, or a side of a condition, is a constant less a distance. A NaN is then at the other end: it is greater than all numbers.
    pub fn is_subtracted_in(expression: &Expr) -> bool {
        let is_falling = |inner: &Expr| Ok(Self::signed(inner).is_some_and(|(_, grows)| !grows));
        expression.exists(is_falling).unwrap_or(true)
    }

    /// A distance, or a constant less a distance; and whether it grows with the distance.
    fn signed(expression: &Expr) -> Option<(Self, bool)> {
        match expression {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) if matches!(left.as_ref(), Expr::Literal(..)) => {
                Self::of_call(right).map(|distance| (distance, false))
            }
            call => Self::of_call(call).map(|distance| (distance, true)),
        }
    }

    fn of_call(call: &Expr) -> Option<Self> {
        let call = match call {
            // Another type would round: what is nearest by the distance need not be by its text or its integer.
            Expr::Cast(cast) if *cast.field.data_type() == DataType::Float64 => cast.expr.as_ref(),
            call => call,
        };
        let Expr::ScalarFunction(function) = call else { return None };
        let metric = metric_of(function.name())?;
        let (column, query) = match function.args.as_slice() {
            [Expr::Column(column), query] if is_query(query) => (column, query),
            [query, Expr::Column(column)] if is_query(query) => (column, query),
            _ => return None,
        };
        Some(Self { column: column.name.clone(), query: query.clone(), metric })
    }

    /// Whether a distance is anywhere in an expression.
    pub fn is_in(expression: &Expr) -> bool {
        let is_distance = |inner: &Expr| Ok(matches!(inner, Expr::ScalarFunction(function) if metric_of(function.name()).is_some()));
        expression.exists(is_distance).unwrap_or(false)
    }
}

/// Of a function, the metric whose distances are its values.
fn metric_of(function: &str) -> Option<Metric> {
    match function {
        "l2_distance" => Some(Metric::L2),
        "cosine_distance" => Some(Metric::Cosine),
        "negative_inner_product" => Some(Metric::Dot),
        _ => None,
    }
}

/// Whether it is the same for all rows: a constant, a parameter, a subquery of its own, columns of the relation before a LATERAL, or the value of a model call, which bears a
/// relation's name that no table has.
fn is_query(expression: &Expr) -> bool {
    match expression {
        Expr::Cast(cast) => is_query(&cast.expr),
        Expr::Column(column) => super::path::is_model_call(column),
        Expr::Literal(..) => true,
        Expr::ScalarSubquery(subquery) => subquery.outer_ref_columns.is_empty() && is_vector(subquery),
        other if other.contains_outer() => other.column_refs().is_empty(),
        placeholder => vector_parameter(placeholder).is_some(),
    }
}

fn is_vector(subquery: &Subquery) -> bool {
    let fields = subquery.subquery.schema().fields();
    fields.first().is_some_and(|field| matches!(field.data_type(), DataType::FixedSizeList(..)))
}

/// The placeholder of a vector.
pub fn vector_parameter(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Placeholder(Placeholder { id, field: Some(field) }) if matches!(field.data_type(), DataType::FixedSizeList(..)) => Some(id),
        _ => None,
    }
}

/// Whether a condition says that `distance` is less than what is the same for all rows (or at most), which the nearest rows fulfil before all others.
pub fn is_at_most(condition: &Expr, distance: &Distance) -> bool {
    use Operator::{Gt, GtEq, Lt, LtEq};
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return false };
    let (expression, is_upper_bound) = match (left.as_ref(), op, right.as_ref()) {
        (expression, Lt | LtEq, bound) | (bound, Gt | GtEq, expression) if is_bound(bound) => (expression, true),
        (expression, Gt | GtEq, bound) | (bound, Lt | LtEq, expression) if is_bound(bound) => (expression, false),
        _ => return false,
    };
    Distance::signed(expression).is_some_and(|(found, grows)| found == *distance && grows == is_upper_bound)
}

fn is_bound(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(..) | Expr::Placeholder(_) | Expr::OuterReferenceColumn(..))
}

/// In single precision, which holds every number of half precision; `None` for other numbers, and where one is NULL.
fn numbers_of(values: &ArrayRef) -> Option<Vec<f32>> {
    let values = match values.data_type() {
        DataType::Float16 => &cast(values, &DataType::Float32).ok()?,
        _ => values,
    };
    let values = values.as_primitive_opt::<Float32Type>()?;
    (values.null_count() == 0).then(|| values.values().to_vec())
}

/// The vector that a literal is, or says as text.
pub fn constant_vector(expression: &Expr) -> Option<Vec<f32>> {
    let value = match expression {
        Expr::Literal(value, _) => value,
        Expr::Cast(cast) => return constant_vector(&cast.expr),
        _ => return None,
    };
    match value {
        ScalarValue::FixedSizeList(list) if list.len() == 1 && list.null_count() == 0 => numbers_of(&list.value(0)),
        ScalarValue::List(list) if list.len() == 1 && list.null_count() == 0 => numbers_of(&list.value(0)),
        other => parse_vector(other.try_as_str().flatten()?).ok(),
    }
}
