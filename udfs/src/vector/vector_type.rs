//! `vector(n)` and `halfvec(n)` as column types: their Arrow types, their literals, and the planner that reads them from SQL.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{FixedSizeListArray, Float32Array};
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;

use crate::postgres::{ANY_WIDTH, PG_TYPE, ValueType};
use crate::{Error, sql_type};

/// Widest vector, as in pgvector.
pub const DIMENSIONS_MAX: usize = 16_000;

/// Arrow type of `vector(n)`: `FixedSizeList<Float32, n>` with the nullable child field `item`. `n` in 1..=[`DIMENSIONS_MAX`].
pub fn vector_type(n: usize) -> DataType {
    let n = i32::try_from(n).expect("a width is at most DIMENSIONS_MAX");
    DataType::FixedSizeList(item_field(), n)
}

/// Arrow type of `halfvec(n)`: `FixedSizeList<Float16, n>` with the nullable child field `item`. `n` in 1..=[`DIMENSIONS_MAX`].
pub fn halfvec_type(n: usize) -> DataType {
    let n = i32::try_from(n).expect("a width is at most DIMENSIONS_MAX");
    DataType::FixedSizeList(Arc::new(Field::new_list_field(DataType::Float16, true)), n)
}

/// Arrow type of `vector` without a width, whose values have each a width of their own: a list, so that what is known to have one stays a type of its
/// own. No column has it.
pub fn any_vector_type() -> DataType {
    DataType::List(item_field())
}

/// The same of `halfvec`.
pub fn any_halfvec_type() -> DataType {
    DataType::new_list(DataType::Float16, true)
}

/// A field of `vector` without a width; its metadata tells it from an array of numbers.
pub fn any_vector_field(name: &str) -> Field {
    Field::new(name, any_vector_type(), true).with_metadata(pg_type("vector"))
}

/// The same of `halfvec`.
pub fn any_halfvec_field(name: &str) -> Field {
    Field::new(name, any_halfvec_type(), true).with_metadata(pg_type("halfvec"))
}

/// Whether a field is one of these two.
pub fn is_any_vector(field: &Field) -> bool {
    matches!(ValueType::of(field), ValueType::Vector(ANY_WIDTH) | ValueType::Halfvec(ANY_WIDTH))
}

fn pg_type(name: &str) -> HashMap<String, String> {
    HashMap::from([(PG_TYPE.to_owned(), name.to_owned())])
}

/// A vector as a literal of type `vector(values.len())`.
pub fn vector_literal(values: &[f32]) -> ScalarValue {
    let width = i32::try_from(values.len()).expect("a width is at most DIMENSIONS_MAX");
    let values = Arc::new(Float32Array::from(values.to_vec()));
    ScalarValue::FixedSizeList(Arc::new(FixedSizeListArray::new(item_field(), width, values, None)))
}

pub(super) fn item_field() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float32, true))
}

/// Reads the SQL types that DataFusion does not have, or reads otherwise than PostgreSQL; every other type is left to it.
#[derive(Debug, Default)]
pub struct ColumnTypePlanner;

impl TypePlanner for ColumnTypePlanner {
    /// # Errors
    /// [`Error::VectorType`] for a width out of range and for arrays of vectors without one, [`Error::TextLength`].
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        if let Some(field) = vector_of_any_width(sql_type)? {
            return Ok(Some(Arc::new(field)));
        }
        let data_type = match sql_type {
            ast::DataType::Custom(name, modifiers) => match name.to_string().to_lowercase().as_str() {
                "vector" => vector_type(checked_width("vector", modifiers, sql_type)?),
                "halfvec" => halfvec_type(checked_width("halfvec", modifiers, sql_type)?),
                _ => return Ok(None),
            },
            // DataFusion counts nanoseconds, which end in the year 2262, and knows no zone unless it is set.
            ast::DataType::Timestamp(None | Some(6), zone) => DataType::Timestamp(TimeUnit::Microsecond, utc(zone)),
            other => return sql_type::field(other),
        };
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// An instant is kept in UTC, as in PostgreSQL.
fn utc(zone: &ast::TimezoneInfo) -> Option<Arc<str>> {
    matches!(zone, ast::TimezoneInfo::Tz | ast::TimezoneInfo::WithTimeZone).then(|| "+00:00".into())
}

/// The field of `vector` or `halfvec` without a width, or of an array of them; `None` for every other type.
///
/// # Errors
/// [`Error::VectorType`] for arrays of such arrays.
fn vector_of_any_width(sql_type: &ast::DataType) -> Result<Option<Field>, Error> {
    match sql_type {
        ast::DataType::Custom(name, modifiers) if modifiers.is_empty() => Ok(match name.to_string().to_lowercase().as_str() {
            "vector" => Some(any_vector_field("")),
            "halfvec" => Some(any_halfvec_field("")),
            _ => None,
        }),
        ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(item, _)) => match vector_of_any_width(item)? {
            Some(item) if is_any_vector(&item) => {
                let item = Arc::new(item.with_name(Field::LIST_FIELD_DEFAULT_NAME));
                Ok(Some(Field::new("", DataType::List(item), true)))
            }
            Some(_) => Err(Error::VectorType { name: "vector", found: sql_type.to_string(), max: DIMENSIONS_MAX }),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

fn checked_width(name: &'static str, modifiers: &[String], sql_type: &ast::DataType) -> Result<usize, Error> {
    width(modifiers).ok_or_else(|| Error::VectorType { name, found: sql_type.to_string(), max: DIMENSIONS_MAX })
}

fn width(modifiers: &[String]) -> Option<usize> {
    let [modifier] = modifiers else { return None };
    modifier.parse().ok().filter(|width| (1..=DIMENSIONS_MAX).contains(width))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

    use super::*;

    fn plan(sql: &str) -> Result<Option<FieldRef>> {
        let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).expect("tokens").parse_data_type().expect("a type");
        ColumnTypePlanner.plan_type_field(&parsed)
    }

    #[test]
    fn reads_vector_types_only() {
        assert_eq!(plan("vector(3)").unwrap().expect("planned").data_type(), &vector_type(3));
        assert_eq!(plan("VECTOR(16000)").unwrap().expect("planned").data_type(), &vector_type(16_000));
        assert_eq!(plan("halfvec(3)").unwrap().expect("planned").data_type(), &halfvec_type(3));
        assert!(plan("text").unwrap().is_none());
        assert!(is_any_vector(&plan("vector").unwrap().expect("planned")));
        assert!(is_any_vector(&plan("HalfVec").unwrap().expect("planned")));
        assert!(!is_any_vector(&Field::new("", any_vector_type(), true)), "an array of numbers");
    }

    #[test]
    fn wants_one_width_in_range() {
        for sql in ["vector[][]", "vector(0)", "vector(16001)", "vector(3, 4)", "vector(wide)"] {
            let message = plan(sql).expect_err(sql).to_string();
            assert!(message.contains("vector needs one width from 1 to 16000"), "{sql}: {message}");
        }
    }
}
