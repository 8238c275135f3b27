//! PostgreSQL's JSON operators in SQL: `->`, `->>`, `#>`, `#>>`, `#-`, `?`, `?|`, `?&`, `jsonb || jsonb`, and `@>`, `<@` and `-` where JSON is on their left.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::{
    json_change, json_concat, json_contains, json_exists, json_exists_keys, json_extract_path, json_extract_path_text, json_get,
    json_get_text,
};
use crate::Error;
use crate::TextType;
use crate::function::{Function, is_text};
use crate::kept_type::kept_type;

/// Turns the operators into calls of the functions of this module.
#[derive(Debug, Default)]
pub struct JsonOperatorPlanner;

impl ExprPlanner for JsonOperatorPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let function = match expr.op {
            BinaryOperator::StringConcat => concatenation(&expr, schema)?,
            _ => function(&expr, schema)?,
        };
        let Some(function) = function else { return Ok(PlannerResult::Original(expr)) };
        let takes_path = matches!(expr.op, BinaryOperator::HashArrow | BinaryOperator::HashLongArrow | BinaryOperator::HashMinus);
        if expr.op == BinaryOperator::ArrowAt {
            let call = ScalarFunction::new_udf(Arc::new(function.udf()), vec![expr.right, expr.left]);
            return Ok(PlannerResult::Planned(Expr::ScalarFunction(call)));
        }
        let right = if takes_path { path(expr.right) } else { expr.right };
        let call = ScalarFunction::new_udf(Arc::new(function.udf()), vec![expr.left, right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

fn function(expr: &RawBinaryExpr, schema: &DFSchema) -> Result<Option<&'static Function>> {
    Ok(match &expr.op {
        BinaryOperator::Arrow => Some(&json_get::FUNCTION),
        BinaryOperator::LongArrow => Some(&json_get_text::FUNCTION),
        BinaryOperator::HashArrow => Some(&json_extract_path::FUNCTION),
        BinaryOperator::HashLongArrow => Some(&json_extract_path_text::FUNCTION),
        BinaryOperator::Question => Some(&json_exists::FUNCTION),
        BinaryOperator::QuestionPipe => Some(&json_exists_keys::ANY),
        BinaryOperator::QuestionAnd => Some(&json_exists_keys::ALL),
        BinaryOperator::HashMinus => Some(&json_change::DELETE_PATH),
        // Of arrays, both are DataFusion's.
        BinaryOperator::AtArrow => {
            (is_json(&expr.left, schema) && is_text(&expr.right.get_type(schema)?)).then_some(&json_contains::FUNCTION)
        }
        BinaryOperator::ArrowAt => {
            let (left, right) = (is_json(&expr.left, schema), is_json(&expr.right, schema));
            let are_texts = is_text(&expr.left.get_type(schema)?) && is_text(&expr.right.get_type(schema)?);
            (are_texts && (left || right)).then_some(&json_contains::FUNCTION)
        }
        BinaryOperator::Minus => is_json(&expr.left, schema).then_some(&json_change::DELETE),
        _ => None,
    })
}

/// Two values of jsonb, or one beside a constant or a parameter, are joined; with a text of another kind they are texts.
///
/// # Errors
/// [`Error::NoOperator`] for two values of json.
fn concatenation(expr: &RawBinaryExpr, schema: &DFSchema) -> Result<Option<&'static Function>> {
    let text_type = |operand: &Expr| Ok::<_, DataFusionError>(TextType::of(&operand.to_field(schema)?.1));
    let is_open = |operand: &Expr| match operand {
        Expr::Literal(value, _) => value.try_as_str().is_some() || value.is_null(),
        Expr::Placeholder(placeholder) => placeholder.field.is_none(),
        _ => false,
    };
    match (text_type(&expr.left)?, text_type(&expr.right)?) {
        (Some(TextType::Jsonb), Some(TextType::Jsonb)) => Ok(Some(&json_concat::FUNCTION)),
        (Some(TextType::Jsonb), None) if is_open(&expr.right) => Ok(Some(&json_concat::FUNCTION)),
        (None, Some(TextType::Jsonb)) if is_open(&expr.left) => Ok(Some(&json_concat::FUNCTION)),
        (Some(left @ (TextType::Json | TextType::Jsonb)), Some(right @ (TextType::Json | TextType::Jsonb))) => {
            let hint = "values of jsonb are joined: value::jsonb || other::jsonb";
            Err(Error::NoOperator { operator: "||", left: left.to_string(), right: right.to_string(), hint }.into())
        }
        _ => Ok(None),
    }
}

/// What has no type yet, as a parameter may, is none.
fn is_json(operand: &Expr, schema: &DFSchema) -> bool {
    kept_type(operand, schema).is_some_and(|named| named.is_json())
}

/// PostgreSQL's text form of a path, `'{a,1}'`, is read here; every other operand is what it is.
fn path(operand: Expr) -> Expr {
    let Expr::Literal(value, _) = &operand else { return operand };
    match value.try_as_str().flatten().and_then(|text| text.strip_prefix('{')?.strip_suffix('}')) {
        Some(steps) => {
            let steps = if steps.trim().is_empty() { None } else { Some(steps.split(',')) };
            let steps: Vec<_> = steps.into_iter().flatten().map(|step| step.trim().trim_matches('"').into()).collect();
            Expr::Literal(ScalarValue::List(ScalarValue::new_list_nullable(&steps, &DataType::Utf8)), None)
        }
        None => operand,
    }
}
