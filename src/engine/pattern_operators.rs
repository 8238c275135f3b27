//! `SIMILAR TO` and `LIKE .. ESCAPE` as the functions that they are: DataFusion takes the pattern of the one for a regular expression as it stands, and refuses
//! the other. And numbers beside a pattern of `to_char` keep their digits.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Statement, UnaryOperator, Value,
    ValueWithSpan, VisitMut, VisitorMut,
};
use rolloutdb_sql::{call, cast};

/// Changes them in a statement.
pub fn write_out(statement: &mut Statement) {
    let _ = statement.visit(&mut Patterns);
}

struct Patterns;

impl VisitorMut for Patterns {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::SimilarTo { negated, expr: text, pattern, escape_char } => {
                let escape = escape_char.take().map(Expr::Value);
                let arguments = [text.as_ref().clone(), pattern.as_ref().clone()].into_iter().chain(escape);
                let similar = call("similar_to", arguments);
                *expr = if *negated { Expr::Nested(Box::new(not(similar))) } else { similar };
            }
            Expr::Like { any: false, pattern, escape_char, .. } | Expr::ILike { any: false, pattern, escape_char, .. } => {
                if let Some(escape) = escape_char.take() {
                    **pattern = call("like_escape", [pattern.as_ref().clone(), Expr::Value(escape)]);
                }
            }
            Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("to_char") => keep_digits(function),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }
}

/// `to_char(0.125, '0.99')` is about a numeric, whose half rounds up; a binary number's rounds to even.
fn keep_digits(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) = list.args.first_mut()
        && is_fraction(value)
    {
        *value = cast(value.clone(), SqlType::Numeric(ExactNumberInfo::None));
    }
}

fn is_fraction(expr: &Expr) -> bool {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => digits.contains('.'),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } | Expr::Nested(expr) => is_fraction(expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_calls() {
        for (text, expected) in [
            ("SELECT a SIMILAR TO 'b%'", "SELECT similar_to(a, 'b%')"),
            ("SELECT a NOT SIMILAR TO 'b#%' ESCAPE '#'", "SELECT (NOT similar_to(a, 'b#%', '#'))"),
            ("SELECT a NOT LIKE b ESCAPE '!' AND c ILIKE 'd'", "SELECT a NOT LIKE like_escape(b, '!') AND c ILIKE 'd'"),
            ("SELECT to_char(-0.125, '0.99')", "SELECT to_char(CAST(-0.125 AS NUMERIC), '0.99')"),
            ("SELECT to_char(a, 'YYYY')", "SELECT to_char(a, 'YYYY')"),
        ] {
            let parsed = rolloutdb_sql::parse(text).expect(text).pop();
            let Some(rolloutdb_sql::Statement::Query(query)) = parsed else { panic!("{text} is no query") };
            let mut statement = Statement::Query(query);
            write_out(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
