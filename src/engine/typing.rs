//! Types between SQL text and Arrow, where DataFusion's own coercions are wrong or missing.

use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit};
use rolloutdb_udfs::postgres::{ANY_WIDTH, ValueType, has_own_text_form};
use rolloutdb_udfs::vector::{any_vector_field, is_any_vector};
use rolloutdb_udfs::{TextType, is_plain_numeric, type_name};

use super::casts::{NUMERIC_IN, as_text, by_digits, is_time, named_text, read_time, rounded};
use crate::error::{Error, Result};

/// The name of a type as one writes it in SQL: `vector(384)`, `text[]`, `bigint`.
pub fn sql_type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int16 => "smallint".to_owned(),
        DataType::Int32 => "integer".to_owned(),
        DataType::Int64 => "bigint".to_owned(),
        DataType::Float32 => "real".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        DataType::Binary | DataType::LargeBinary => "bytea".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time".to_owned(),
        DataType::Interval(_) => "interval".to_owned(),
        DataType::Timestamp(_, None) => "timestamp".to_owned(),
        DataType::Timestamp(_, Some(_)) => "timestamptz".to_owned(),
        DataType::Decimal128(precision, scale) => format!("numeric({precision},{scale})"),
        DataType::FixedSizeList(item, width) if *item.data_type() == DataType::Float16 => format!("halfvec({width})"),
        DataType::FixedSizeList(_, width) => format!("vector({width})"),
        DataType::List(item) => format!("{}[]", sql_type_name(item.data_type())),
        other => type_name(other),
    }
}

/// The same of a field, which also says whether its text is `json`, `jsonb`, `uuid` or of a limited length, and whether its digits were declared.
pub fn sql_type_of(field: &Field) -> String {
    let without_modifier = || match ValueType::of(field) {
        ValueType::Vector(ANY_WIDTH) => Some("vector".to_owned()),
        ValueType::Halfvec(ANY_WIDTH) => Some("halfvec".to_owned()),
        _ => is_plain_numeric(field).then(|| "numeric".to_owned()),
    };
    named_text(field).or_else(without_modifier).unwrap_or_else(|| sql_type_name(field.data_type()))
}

/// The type to which a constant for a column is cast before [`assign`] reads it. A cast to `varchar(3)` would cut it.
pub fn constant_type_name(column: &Field) -> String {
    if is_plain_numeric(column) { sql_type_of(column) } else { sql_type_name(column.data_type()) }
}

/// The same for a parameter, of which clients are told that it is json or a uuid.
pub fn parameter_type_name(column: &Field) -> String {
    let text_type = TextType::of(column).or_else(|| TextType::of_items(column));
    match text_type {
        Some(text_type) if text_type.length().is_none() => sql_type_of(column),
        _ => constant_type_name(column),
    }
}

/// `value` as a value of the column, as an assignment in PostgreSQL: text becomes a vector, numbers become each other; nothing becomes a list
/// by being wrapped, which Arrow's cast would do silently.
///
/// # Errors
/// [`Error::WrongType`] naming the column.
pub fn assign(state: &SessionState, value: Expr, schema: &DFSchema, column: &Field) -> Result<Expr> {
    let (_, found_field) = value.to_field(schema)?;
    let found = found_field.data_type().clone();
    let target = column.data_type();
    if let Some(name) = named_text(column) {
        return match &found {
            DataType::Null => Ok(cast(value, target.clone())),
            _ => assign_text(state, value, &found_field, column, &name),
        };
    }
    if is_any_vector(column) && !is_any_vector(&found_field) {
        let function = if target == any_vector_field("").data_type() { "vector_in" } else { "halfvec_in" };
        return call(state, function, vec![value]);
    }
    match (&found, target) {
        (found, target) if found == target => Ok(value),
        (DataType::Null, _) => Ok(cast(value, target.clone())),
        (_, DataType::Decimal128(..)) if is_plain_numeric(column) && matches!(value, Expr::Literal(..)) => {
            call(state, NUMERIC_IN, vec![by_digits(value)])
        }
        (found, DataType::FixedSizeList(item, width)) if *item.data_type() == DataType::Float16 && (is_text(found) || is_list(found)) => {
            call(state, "halfvec_in", vec![value, lit(i64::from(*width))])
        }
        (found, DataType::FixedSizeList(_, width)) if is_text(found) => call(state, "vector_in", vec![value, lit(i64::from(*width))]),
        (DataType::List(_) | DataType::LargeList(_), DataType::FixedSizeList(_, width)) => {
            call(state, "array_to_vector", vec![value, lit(i64::from(*width))])
        }
        (found, DataType::Utf8) if has_own_text_form(found) && !is_list(found) => as_text(state, value, found),
        // Arrow would take the characters for the bytes.
        (found, DataType::Binary) if is_text(found) => call(state, "bytea_in", vec![value]),
        (DataType::FixedSizeList(item, found_width), DataType::FixedSizeList(_, width))
            if item.data_type().is_floating() && found_width != width =>
        {
            let width_of = |width: i32| usize::try_from(width).unwrap_or_default();
            Err(rolloutdb_udfs::Error::Width { found: width_of(*found_width), expected: width_of(*width) }.into())
        }
        // Arrow would make infinities of what is beyond half precision.
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, width)) if *item.data_type() == DataType::Float16 => {
            call(state, "halfvec_in", vec![value, lit(i64::from(*width))])
        }
        // A quoted constant takes the column's type, as in PostgreSQL; a text column does not.
        (found, DataType::List(_)) if is_text(found) && matches!(value, Expr::Literal(..)) => read_array(state, value, target),
        (found, DataType::List(_) | DataType::FixedSizeList(..)) if !is_list(found) => Err(wrong(column, found)),
        (found, target) if is_list(found) && !is_list(target) => Err(wrong(column, found)),
        // Arrow knows no infinity.
        (DataType::Date32, DataType::Timestamp(_, zone)) => {
            let function = if zone.is_some() { "timestamptz_of_date" } else { "timestamp_of_date" };
            Ok(cast(call(state, function, vec![value])?, target.clone()))
        }
        (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(_))) => {
            Ok(cast(call(state, "timestamptz_of_timestamp", vec![value])?, target.clone()))
        }
        (DataType::Timestamp(..), DataType::Date32) => call(state, "date_of_timestamp", vec![value]),
        (found, target) if is_text(found) && is_time(target) => read_time(state, value, target),
        (found, DataType::Int16 | DataType::Int32 | DataType::Int64)
            if found.is_floating() || matches!(found, DataType::Decimal128(_, 1..)) =>
        {
            Ok(cast(rounded(state, value, found)?, target.clone()))
        }
        (found, target) if is_text(found) && (target.is_numeric() || *target == DataType::Boolean) => {
            if matches!(value, Expr::Literal(..)) { Ok(cast(value, target.clone())) } else { Err(wrong(column, found)) }
        }
        _ => Ok(cast(value, target.clone())),
    }
}

/// The same for a column of texts with a rule, or of arrays of them; `name`: of its type.
fn assign_text(state: &SessionState, value: Expr, found: &Field, column: &Field, name: &str) -> Result<Expr> {
    let text_type = TextType::of(column);
    let has_length = text_type.is_some_and(|text_type| text_type.length().is_some());
    match found.data_type() {
        // A length is checked in any case: what is computed from a column may still carry the name of its type.
        _ if !has_length && text_type.is_some() && TextType::of(found) == text_type => Ok(value),
        found if is_text(found) && text_type.is_some() => call(state, "text_in", vec![value, lit(name)]),
        DataType::List(item) if text_type.is_none() && (is_text(item.data_type()) || item.data_type().is_null()) => {
            call(state, "text_in", vec![value, lit(name)])
        }
        found if is_text(found) && matches!(value, Expr::Literal(..)) => {
            let array = read_array(state, value, column.data_type())?;
            call(state, "text_in", vec![array, lit(name)])
        }
        found if has_length && !is_list(found) => {
            let text = as_text(state, value, found)?;
            call(state, "text_in", vec![cast(text, DataType::Utf8), lit(name)])
        }
        found => Err(wrong(column, found)),
    }
}

/// A value that has the type of a column, with its vectors checked: they may come from a file, or from rows that were stored before NaN was refused.
pub fn checked_vector(state: &SessionState, value: Expr, column: &Field) -> Result<Expr> {
    match column.data_type() {
        DataType::FixedSizeList(item, width) if *item.data_type() == DataType::Float16 => {
            call(state, "halfvec_in", vec![value, lit(i64::from(*width))])
        }
        DataType::FixedSizeList(_, width) => call(state, "vector_in", vec![value, lit(i64::from(*width))]),
        _ => Ok(value),
    }
}

/// A text as an array of that type, which is a list.
pub fn read_array(state: &SessionState, text: Expr, wanted: &DataType) -> Result<Expr> {
    let array = call(state, "array_in", vec![text, lit(sql_type_name(wanted))])?;
    Ok(cast(array, wanted.clone()))
}

/// A call of one of our functions that read text.
pub fn call(state: &SessionState, function: &str, arguments: Vec<Expr>) -> Result<Expr> {
    let function =
        state.scalar_functions().get(function).cloned().ok_or_else(|| Error::Internal(format!("{function} is not registered")))?;
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments)))
}

pub fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

fn wrong(column: &Field, found: &DataType) -> Error {
    Error::WrongType { what: format!("value for column {}", column.name()), found: sql_type_name(found), expected: sql_type_of(column) }
}
