//! pgvector's operators in SQL: `<->`, `<=>` and `<#>`.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::Error;
use crate::function::{Function, is_text, is_vector, type_name};

use super::vector_type::item_field;
use super::{cosine_distance, l2_distance, negative_inner_product, parse_vector, vector_literal};

/// Turns `a <-> b`, `a <=> b` and `a <#> b` into `l2_distance`, `cosine_distance` and `negative_inner_product`.
///
/// One operand has to be a vector; the other may be text, a parameter or NULL too. A text literal becomes a vector
/// literal, so that a wrong width is found in planning and nearest-neighbour rules see the query.
#[derive(Debug, Default)]
pub struct VectorOperatorPlanner;

impl ExprPlanner for VectorOperatorPlanner {
    /// # Errors
    /// [`Error::NoOperator`] if no operand is a vector. In particular `<=>`, which DataFusion would read as MySQL's
    /// null-safe equality, so that a mistyped distance would silently be true or false.
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let Some((function, operator)) = distance(&expr.op) else { return Ok(PlannerResult::Original(expr)) };
        let (left, right) = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        let one_is_vector = is_vector(&left) || is_vector(&right);
        if !(one_is_vector && may_be_vector(&left) && may_be_vector(&right)) {
            let hint = match operator {
                "<=>" => "it is the cosine distance of two vectors; for null-safe equality write IS NOT DISTINCT FROM",
                _ => "at least one side must be a vector, for example '[1,2,3]'::vector(3)",
            };
            return Err(Error::NoOperator { operator, left: type_name(&left), right: type_name(&right), hint }.into());
        }
        let arguments = vec![vector_operand(expr.left, &right)?, vector_operand(expr.right, &left)?];
        let call = ScalarFunction::new_udf(Arc::new(function.udf()), arguments);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

fn distance(operator: &BinaryOperator) -> Option<(&'static Function, &'static str)> {
    match operator {
        BinaryOperator::LtDashGt => Some((&l2_distance::FUNCTION, "<->")),
        BinaryOperator::Spaceship => Some((&cosine_distance::FUNCTION, "<=>")),
        // The dialect reads it as an operator of its own, which binds as tightly as in Postgres.
        BinaryOperator::Custom(name) if name == "<=>" => Some((&cosine_distance::FUNCTION, "<=>")),
        BinaryOperator::Custom(name) if name == "<#>" => Some((&negative_inner_product::FUNCTION, "<#>")),
        _ => None,
    }
}

/// NULL is also the type of a parameter that nobody has typed yet.
fn may_be_vector(data_type: &DataType) -> bool {
    is_vector(data_type) || is_text(data_type) || data_type.is_null()
}

/// `other`: the type of the other operand.
fn vector_operand(operand: Expr, other: &DataType) -> Result<Expr> {
    Ok(match operand {
        Expr::Literal(value, metadata) => match value.try_as_str().flatten() {
            Some(text) => Expr::Literal(vector_literal(&parse_vector(text)?), None),
            None => Expr::Literal(value, metadata),
        },
        // A vector of the other's width; where that is not known, its text.
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let data_type = match other {
                DataType::FixedSizeList(item, width) if *item.data_type() == DataType::Float16 => {
                    DataType::FixedSizeList(Arc::clone(item), *width)
                }
                DataType::FixedSizeList(_, width) => DataType::FixedSizeList(item_field(), *width),
                _ => DataType::Utf8,
            };
            let field = arrow::datatypes::Field::new(&id, data_type, true);
            Expr::Placeholder(Placeholder::new_with_field(id, Some(Arc::new(field))))
        }
        other => other,
    })
}
