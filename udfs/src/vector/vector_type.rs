//! `vector(n)` as a column type: its Arrow type, its literals, and the planner that reads it from SQL.

use std::sync::Arc;

use arrow::array::{FixedSizeListArray, Float32Array};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;

use crate::Error;

/// Widest vector, as in pgvector.
pub const DIMENSIONS_MAX: usize = 16_000;

/// Arrow type of `vector(n)`: `FixedSizeList<Float32, n>` with the nullable child field `item`. `n` in 1..=[`DIMENSIONS_MAX`].
pub fn vector_type(n: usize) -> DataType {
    let n = i32::try_from(n).expect("a width is at most DIMENSIONS_MAX");
    DataType::FixedSizeList(item_field(), n)
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

/// Reads the SQL type `vector(n)`; every other type is left to DataFusion.
#[derive(Debug, Default)]
pub struct VectorTypePlanner;

impl TypePlanner for VectorTypePlanner {
    /// # Errors
    /// [`Error::VectorType`] for `vector` without a width (an Arrow column has one) or with one out of range.
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        let ast::DataType::Custom(name, modifiers) = sql_type else { return Ok(None) };
        if !name.to_string().eq_ignore_ascii_case("vector") {
            return Ok(None);
        }
        let width = width(modifiers).ok_or_else(|| Error::VectorType { found: sql_type.to_string(), max: DIMENSIONS_MAX })?;
        Ok(Some(Arc::new(Field::new("", vector_type(width), true))))
    }
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
        VectorTypePlanner.plan_type_field(&parsed)
    }

    #[test]
    fn reads_vector_types_only() {
        assert_eq!(plan("vector(3)").unwrap().expect("planned").data_type(), &vector_type(3));
        assert_eq!(plan("VECTOR(16000)").unwrap().expect("planned").data_type(), &vector_type(16_000));
        assert!(plan("text").unwrap().is_none());
        assert!(plan("halfvec(3)").unwrap().is_none());
    }

    #[test]
    fn wants_one_width_in_range() {
        for sql in ["vector", "vector(0)", "vector(16001)", "vector(3, 4)", "vector(wide)"] {
            let message = plan(sql).expect_err(sql).to_string();
            assert!(message.contains("vector needs one width from 1 to 16000"), "{sql}: {message}");
        }
    }
}
