//! Quoted constants that are compared with bytes, a uuid, a time, an interval, bits or a vector take that type, as in PostgreSQL: `mark = '\x0a'` is about one byte, not
//! four letters, and `day > 'Sep 29 2001'` about a day.

mod of_one_type;
mod of_values;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Between, Case, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
pub use of_one_type::read as read_arguments;
pub use of_values::write_out;
use rolloutdb_udfs::kept_type;
use rolloutdb_udfs::postgres::ValueType;

use super::casts::{is_time, named_text, read_time};
use super::typing::{assign, call, is_text};
use crate::error::Result;

/// The plan with such constants read by the function of their type, which is an error for one that is none of it.
pub fn typed(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let typed = plan.transform_up_with_subqueries(|node| {
        if !node.expressions().iter().any(|expression| expression.exists(|inner| Ok(is_quoted(inner))).unwrap_or(true)) {
            return Ok(Transformed::no(node));
        }
        let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let typed = expression.transform_up(|inner| Ok(comparison(inner, &schema, state)?))?;
            Ok(if typed.transformed { Transformed::yes(name.restore(typed.data)) } else { typed })
        })
    })?;
    Ok(typed.data)
}

fn comparison(expression: Expr, schema: &DFSchema, state: &SessionState) -> Result<Transformed<Expr>> {
    let read = |value: Box<Expr>, reader: Option<&Reader>| match reader {
        Some(Reader::Function(function)) if is_quoted(&value) => call(state, function, vec![*value]).map(Box::new),
        Some(Reader::Time(data_type)) if is_quoted(&value) => read_time(state, *value, data_type).map(Box::new),
        _ => Ok(value),
    };
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let (of_left, of_right) = (reader(&left, schema), reader(&right, schema));
            if of_left.is_none() && of_right.is_none() {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            }
            let (left, right) = (read(left, of_right.as_ref())?, read(right, of_left.as_ref())?);
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let reader = reader(&expr, schema);
            let list =
                list.into_iter().map(|value| read(Box::new(value), reader.as_ref()).map(|value| *value)).collect::<Result<Vec<_>>>()?;
            Ok(Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), reader.is_some()))
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let reader = reader(&expr, schema);
            let (low, high) = (read(low, reader.as_ref())?, read(high, reader.as_ref())?);
            Ok(Transformed::new_transformed(Expr::Between(Between { expr, negated, low, high }), reader.is_some()))
        }
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let mut results = when_then_expr.iter().map(|(_, then)| then).chain(&else_expr);
            let wanted = results.find_map(|value| type_of_result(value, schema));
            let read = |value: Box<Expr>| match &wanted {
                Some(wanted) if is_quoted(&value) => assign(state, *value, schema, wanted).map(Box::new),
                _ => Ok(value),
            };
            let arms = when_then_expr.into_iter().map(|(when, then)| Ok((when, read(then)?)));
            let when_then_expr = arms.collect::<Result<Vec<_>>>()?;
            let else_expr = else_expr.map(read).transpose()?;
            Ok(Transformed::new_transformed(Expr::Case(Case { expr, when_then_expr, else_expr }), wanted.is_some()))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// What a constant among the results of CASE is, beside this one. Numbers are left to DataFusion, which finds the wider of two types.
fn type_of_result(value: &Expr, schema: &DFSchema) -> Option<FieldRef> {
    let (_, field) = value.to_field(schema).ok().filter(|_| !is_quoted(value))?;
    let data_type = field.data_type();
    let is_plain = data_type.is_null() || data_type.is_numeric() || (is_text(data_type) && named_text(&field).is_none());
    (!is_plain).then_some(field)
}

/// Of vectors.
fn vector_reader(expression: &Expr, schema: &DFSchema) -> Option<Reader> {
    let (_, field) = expression.to_field(schema).ok()?;
    match ValueType::of(&field) {
        ValueType::Vector(_) => Some(Reader::Function("vector_in")),
        ValueType::Halfvec(_) => Some(Reader::Function("halfvec_in")),
        _ => None,
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// How a text is read as a value of an expression's type.
enum Reader {
    Function(&'static str),
    Time(DataType),
}

fn reader(expression: &Expr, schema: &DFSchema) -> Option<Reader> {
    if is_quoted(expression) {
        return None;
    }
    if let Some(reader) = vector_reader(expression, schema) {
        return Some(reader);
    }
    match expression.get_type(schema).ok()? {
        DataType::Binary => Some(Reader::Function("bytea_in")),
        DataType::Interval(_) => Some(Reader::Function("interval_in")),
        data_type if is_time(&data_type) => Some(Reader::Time(data_type)),
        _ => kept_type(expression, schema).is_some_and(|named| named.is_uuid()).then_some(Reader::Function("uuid_in")),
    }
}

fn is_quoted(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}
