//! pgvector's operators in SQL: its distances `<->`, `<=>`, `<#>` and `<+>`, `+`, `-`, `*` and `||`, and comparisons.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::Error;
use crate::function::{Function, is_text, is_vector, type_name};
use crate::postgres::ValueType;

use super::built::VectorKind;
use super::vector_type::item_field;
use super::{
    arithmetic, compare, concat, cosine_distance, halfvec_in, l1_distance, l2_distance, negative_inner_product, parse_vector,
    vector_literal,
};

/// Turns operators between vectors into calls: `a <-> b` into `l2_distance(a, b)`, `a + b` into `vector_add(a, b)`, `a < b` into `vector_cmp(a, b) < 0`.
///
/// One operand has to be a vector; the other may be a constant in quotes, a parameter or NULL too. A text literal becomes a vector literal, so that a
/// wrong width is found in planning and nearest-neighbour rules see the query.
#[derive(Debug, Default)]
pub struct VectorOperatorPlanner;

impl ExprPlanner for VectorOperatorPlanner {
    /// # Errors
    /// [`Error::NoOperator`] if no operand of a distance is a vector. In particular `<=>`, which DataFusion would read as MySQL's
    /// null-safe equality, so that a mistyped distance would silently be true or false.
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if let Some((function, operator)) = distance(&expr.op) {
            return planned_distance(expr, function, operator, schema);
        }
        let Some(meaning) = Meaning::of(&expr.op) else { return Ok(PlannerResult::Original(expr)) };
        let Some(is_half) = precision_of_both(&expr.left, &expr.right, schema) else { return Ok(PlannerResult::Original(expr)) };
        let (left, right) = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        // Equal types are compared as they are, so that a join hashes them.
        if matches!(meaning, Meaning::Comparison(Operator::Eq | Operator::NotEq)) && left == right {
            return Ok(PlannerResult::Original(expr));
        }
        let arguments = vec![operand(expr.left, &right, is_half)?, operand(expr.right, &left, is_half)?];
        let call = |function: &'static Function| Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function.udf()), arguments));
        Ok(PlannerResult::Planned(match meaning {
            Meaning::Call(function) => call(function),
            Meaning::Comparison(operator) => {
                let compared = Box::new(call(&compare::VECTOR_CMP));
                Expr::BinaryExpr(BinaryExpr::new(compared, operator, Box::new(lit(0_i32))))
            }
        }))
    }

    /// Constants in quotes beside a vector in `ARRAY[..]` are vectors of its type.
    ///
    /// # Errors
    /// [`Error::Width`] for vectors of two widths, which no array holds here.
    fn plan_array_literal(&self, items: Vec<Expr>, schema: &DFSchema) -> Result<PlannerResult<Vec<Expr>>> {
        let kinds = items.iter().filter_map(|item| kind_of(item, schema)).collect::<Vec<_>>();
        let Some(first) = kinds.first().copied() else { return Ok(PlannerResult::Original(items)) };
        let items = items.into_iter().map(|item| if is_quoted(&item) { read_constant(item, first.is_half) } else { Ok(item) });
        let items = items.collect::<Result<Vec<_>>>()?;
        let mut widths = items.iter().filter_map(|item| kind_of(item, schema)?.width);
        if let Some(expected) = first.width
            && let Some(found) = widths.find(|found| *found != expected)
        {
            return Err(Error::Width { found, expected }.into());
        }
        Ok(PlannerResult::Original(items))
    }
}

/// What an operator between vectors means.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    Call(&'static Function),
    Comparison(Operator),
}

impl Meaning {
    fn of(operator: &BinaryOperator) -> Option<Self> {
        Some(match operator {
            BinaryOperator::Plus => Self::Call(&arithmetic::ADD),
            BinaryOperator::Minus => Self::Call(&arithmetic::SUB),
            BinaryOperator::Multiply => Self::Call(&arithmetic::MUL),
            BinaryOperator::StringConcat => Self::Call(&concat::FUNCTION),
            BinaryOperator::Eq => Self::Comparison(Operator::Eq),
            BinaryOperator::NotEq => Self::Comparison(Operator::NotEq),
            BinaryOperator::Lt => Self::Comparison(Operator::Lt),
            BinaryOperator::LtEq => Self::Comparison(Operator::LtEq),
            BinaryOperator::Gt => Self::Comparison(Operator::Gt),
            BinaryOperator::GtEq => Self::Comparison(Operator::GtEq),
            _ => return None,
        })
    }
}

/// Whether two operands are compared in half precision; `None` if they are not vectors, or one of them and what takes its type.
fn precision_of_both(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<bool> {
    let takes_type = |side: &Expr| is_quoted(side) || side.get_type(schema).is_ok_and(|found| found.is_null());
    match (kind_of(left, schema), kind_of(right, schema)) {
        (Some(left), Some(right)) => Some(left.is_half || right.is_half),
        (Some(kind), None) if takes_type(right) => Some(kind.is_half),
        (None, Some(kind)) if takes_type(left) => Some(kind.is_half),
        _ => None,
    }
}

/// `None` for an expression that is no vector and no halfvec.
fn kind_of(expression: &Expr, schema: &DFSchema) -> Option<VectorKind> {
    let (_, field) = expression.to_field(schema).ok()?;
    match ValueType::of(&field) {
        ValueType::Vector(_) | ValueType::Halfvec(_) => VectorKind::of_argument(&field, None).ok(),
        _ => None,
    }
}

fn is_quoted(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(value, _) if value.try_as_str().flatten().is_some())
}

/// A constant in quotes as a vector, or as a halfvec.
fn read_constant(constant: Expr, is_half: bool) -> Result<Expr> {
    match &constant {
        Expr::Literal(value, _) if !is_half => match value.try_as_str().flatten() {
            Some(text) => Ok(Expr::Literal(vector_literal(&parse_vector(text)?), None)),
            None => Ok(constant),
        },
        _ => Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(halfvec_in::FUNCTION.udf()), vec![constant]))),
    }
}

fn operand(operand: Expr, other: &DataType, is_half: bool) -> Result<Expr> {
    if is_quoted(&operand) { read_constant(operand, is_half) } else { vector_operand(operand, other) }
}

fn planned_distance(
    expr: RawBinaryExpr,
    function: &'static Function,
    operator: &'static str,
    schema: &DFSchema,
) -> Result<PlannerResult<RawBinaryExpr>> {
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

fn distance(operator: &BinaryOperator) -> Option<(&'static Function, &'static str)> {
    match operator {
        BinaryOperator::LtDashGt => Some((&l2_distance::FUNCTION, "<->")),
        BinaryOperator::Spaceship => Some((&cosine_distance::FUNCTION, "<=>")),
        // The dialect reads it as an operator of its own, which binds as tightly as in Postgres.
        BinaryOperator::Custom(name) if name == "<=>" => Some((&cosine_distance::FUNCTION, "<=>")),
        BinaryOperator::Custom(name) if name == "<#>" => Some((&negative_inner_product::FUNCTION, "<#>")),
        BinaryOperator::Custom(name) if name == "<+>" => Some((&l1_distance::FUNCTION, "<+>")),
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
            let field = Field::new(&id, data_type, true);
            Expr::Placeholder(Placeholder::new_with_field(id, Some(Arc::new(field))))
        }
        other => other,
    })
}
