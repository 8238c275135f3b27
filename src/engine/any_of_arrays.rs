//! `x = ANY(array)` and `x <> ALL(array)`, which are not known where a NULL among the items may be what was looked for. DataFusion finds an item or does not.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Query, Select, Statement, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use rolloutdb_sql::call;
use rolloutdb_udfs::postgres::parse_array;

use super::arrays_of_queries::query_of;

/// Writes them as IN, or with a look for the NULL where that counts.
pub fn write_out(statement: &mut Statement) {
    let _ = statement.visit(&mut Comparisons);
}

struct Comparisons;

impl VisitorMut for Comparisons {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.selection.iter_mut().chain(&mut select.having).for_each(as_condition);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(Membership { value, array, is_negated }) = Membership::of(expr) {
            let value = value.clone();
            *expr = match Items::of(array) {
                Some(Items::Written(list)) if list.is_empty() => Expr::value(Value::Boolean(is_negated)),
                Some(Items::Written(list)) => Expr::InList { expr: Box::new(value), list, negated: is_negated },
                Some(Items::OfQuery(subquery)) => Expr::InSubquery { expr: Box::new(value), subquery, negated: is_negated },
                None if is_negated => {
                    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(is_item(&value, array)))) }
                }
                None => Expr::Nested(Box::new(is_item(&value, array))),
            };
        }
        ControlFlow::Continue(())
    }
}

/// Of the conditions of WHERE that all have to hold, in which what is not known is as good as false: so indexes see what is looked for.
fn as_condition(condition: &mut Expr) {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            as_condition(left);
            as_condition(right);
        }
        Expr::Nested(inner) => as_condition(inner),
        other => {
            if let Some(Membership { value, array, is_negated: false }) = Membership::of(other)
                && Items::of(array).is_none()
            {
                *other = has_item(value, array);
            }
        }
    }
}

struct Membership<'a> {
    value: &'a Expr,
    array: &'a Expr,
    is_negated: bool,
}

impl<'a> Membership<'a> {
    /// `None`: another expression, or one over a subquery.
    fn of(expr: &'a Expr) -> Option<Self> {
        let (value, array, is_negated) = match expr {
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right, false),
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
            _ => return None,
        };
        (!matches!(array.as_ref(), Expr::Subquery(_))).then_some(Self { value, array, is_negated })
    }
}

enum Items {
    /// Between the brackets of `ARRAY[..]`, or the braces of `'{..}'`.
    Written(Vec<Expr>),
    /// `ARRAY(SELECT ..)`
    OfQuery(Box<Query>),
}

impl Items {
    /// `None`: a value has them.
    fn of(array: &Expr) -> Option<Self> {
        match array {
            Expr::Nested(inner) => Self::of(inner),
            Expr::Array(array) if !array.elem.iter().any(|item| matches!(item, Expr::Array(_))) => Some(Self::Written(array.elem.clone())),
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
                let items = parse_array(text)?.texts.into_iter();
                Some(Self::Written(items.map(|item| Expr::value(item.map_or(Value::Null, Value::SingleQuotedString))).collect()))
            }
            Expr::Function(function) => query_of(function).map(|query| Self::OfQuery(Box::new(query.clone()))),
            _ => None,
        }
    }
}

fn has_item(value: &Expr, array: &Expr) -> Expr {
    call("array_has", [array.clone(), value.clone()])
}

/// `CASE WHEN array_has(array, value) THEN true WHEN array_position(array, NULL) IS NOT NULL THEN NULL ELSE array_has(array, value) END`
fn is_item(value: &Expr, array: &Expr) -> Expr {
    let place_of_null = call("array_position", [array.clone(), Expr::value(Value::Null)]);
    let when = |condition: Expr, result: Value| CaseWhen { condition, result: Expr::value(result) };
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![when(has_item(value, array), Value::Boolean(true)), when(Expr::IsNotNull(Box::new(place_of_null)), Value::Null)],
        else_result: Some(Box::new(has_item(value, array))),
    }
}
