//! Defaults of `lag` and `lead`: `lag(n, 1, 0.5)` and `lag(n, 1, m)`. DataFusion casts a constant to the type of the column, which cuts its fraction, and knows
//! no other default. PostgreSQL finds one type for both, as CASE does.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Statement, UnaryOperator, Value, ValueWithSpan, VisitMut,
    VisitorMut,
};

/// Writes such calls as CASE: the default where there is no row at the offset.
pub fn write_out(statement: &mut Statement) {
    let _ = statement.visit(&mut Calls);
}

struct Calls;

impl VisitorMut for Calls {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = &*expr
            && let Some(written) = with_default_apart(function)
        {
            *expr = written;
        }
        ControlFlow::Continue(())
    }
}

fn with_default_apart(function: &Function) -> Option<Expr> {
    let name = function.name.0.last()?.as_ident()?.value.to_ascii_lowercase();
    let FunctionArguments::List(list) = &function.args else { return None };
    let [value, offset, FunctionArg::Unnamed(FunctionArgExpr::Expr(default))] = list.args.as_slice() else { return None };
    let is_one = matches!(name.as_str(), "lag" | "lead") && function.over.is_some() && function.null_treatment.is_none();
    if !is_one || !list.clauses.is_empty() || is_of_any_type(default) {
        return None;
    }
    let of = |value: FunctionArg| {
        let mut call = function.clone();
        if let FunctionArguments::List(list) = &mut call.args {
            list.args = vec![value, offset.clone()];
        }
        Box::new(Expr::Function(call))
    };
    let there = FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::value(Value::Boolean(true))));
    Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: Expr::IsNull(of(there)), result: default.clone() }],
        else_result: Some(of(value.clone())),
    })
}

/// Constants that every column that takes them takes as they are: NULL, a text, a small whole number.
fn is_of_any_type(default: &Expr) -> bool {
    match default {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => digits.parse::<i16>().is_ok(),
        Expr::Value(ValueWithSpan { value: Value::Placeholder(_), .. }) => false,
        Expr::Value(_) => true,
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => is_of_any_type(expr),
        Expr::Nested(inner) => is_of_any_type(inner),
        _ => false,
    }
}
