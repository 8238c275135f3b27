//! Forms of PostgreSQL's that the planner has under another name: `OPERATOR(pg_catalog.=)`, `current_schema` without parentheses, `FETCH FIRST n ROWS ONLY`.

use crate::ast::{BinaryOperator, Expr, Fetch, LimitClause, Query, Value};
use crate::calls::call_without_list;
use crate::error::{Error, Result};

/// Functions that are called without parentheses and that sqlparser takes for columns.
const WITHOUT_PARENTHESES: [&str; 2] = ["current_role", "current_schema"];

/// The call that `current_role` or `current_schema` is; `current_user` and its like sqlparser knows.
pub(crate) fn call_without_parentheses(expr: &Expr) -> Option<Expr> {
    let Expr::Identifier(ident) = expr else { return None };
    if ident.quote_style.is_some() || !WITHOUT_PARENTHESES.iter().any(|name| ident.value.eq_ignore_ascii_case(name)) {
        return None;
    }
    Some(call_without_list(ident.clone()))
}

/// `a OPERATOR(pg_catalog.=) b` as `(a = b)`: in parentheses, since the operator's own name may bind more or less tightly.
///
/// # Errors
/// [`Error::NotSupported`] for an operator that is none of ours.
pub(crate) fn plain_operator(expr: &Expr) -> Result<Option<Expr>> {
    let Expr::BinaryOp { left, op: BinaryOperator::PGCustomBinaryOperator(parts), right } = expr else { return Ok(None) };
    let op = named_operator(parts).ok_or_else(|| {
        let written = format!("OPERATOR({})", parts.join("."));
        Error::not_supported_but(written, "write the operator itself, which is one of pg_catalog")
    })?;
    let (left, right) = (enclosed(left), enclosed(right));
    Ok(Some(Expr::Nested(Box::new(Expr::BinaryOp { left, op, right }))))
}

fn enclosed(operand: &Expr) -> Box<Expr> {
    let is_one = matches!(
        operand,
        Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Value(_)
            | Expr::Nested(_)
            | Expr::Function(_)
            | Expr::Subquery(_)
            | Expr::Cast { .. }
    );
    Box::new(if is_one { operand.clone() } else { Expr::Nested(Box::new(operand.clone())) })
}

fn named_operator(parts: &[String]) -> Option<BinaryOperator> {
    let name = match parts {
        [schema, name] if schema.eq_ignore_ascii_case("pg_catalog") => name,
        // pgvector's are where the extension was made.
        [schema, name]
            if schema.eq_ignore_ascii_case("public") && matches!(name.as_str(), "<->" | "<=>" | "<#>" | "<+>" | "<~>" | "<%>") =>
        {
            name
        }
        [name] => name,
        _ => return None,
    };
    Some(match name.as_str() {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "&&" => BinaryOperator::PGOverlap,
        "@>" => BinaryOperator::AtArrow,
        "<@" => BinaryOperator::ArrowAt,
        "->" => BinaryOperator::Arrow,
        "->>" => BinaryOperator::LongArrow,
        "#>" => BinaryOperator::HashArrow,
        "#>>" => BinaryOperator::HashLongArrow,
        "<->" => BinaryOperator::LtDashGt,
        "<=>" | "<#>" | "<+>" | "<~>" | "<%>" => BinaryOperator::Custom(name.clone()),
        _ => return None,
    })
}

/// Makes `LIMIT n` of `FETCH FIRST n ROWS ONLY`, as PostgreSQL shows it.
///
/// # Errors
/// [`Error::NotSupported`] for WITH TIES and percentages, and where LIMIT is there already.
pub(crate) fn fetch_as_limit(query: &mut Query) -> Result<()> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return Ok(()) };
    if with_ties || percent {
        let instead = "write ROWS ONLY, or a condition on rank() in a query round it";
        return Err(Error::not_supported_but("FETCH FIRST .. WITH TIES and .. PERCENT", instead));
    }
    let rows = quantity.unwrap_or_else(|| Expr::value(Value::Number("1".to_owned(), false)));
    match query.limit_clause.get_or_insert(LimitClause::LimitOffset { limit: None, offset: None, limit_by: vec![] }) {
        LimitClause::LimitOffset { limit: limit @ None, .. } => *limit = Some(rows),
        _ => return Err(Error::not_supported_but("FETCH FIRST beside LIMIT", "leave one of them out")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Ident;
    use crate::parse;

    fn printed(text: &str) -> String {
        parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[0].to_string()
    }

    #[test]
    fn forms_are_written_as_the_planner_has_them() {
        for (text, expected) in [
            ("SELECT 1 OPERATOR(pg_catalog.+) 2", "SELECT (1 + 2)"),
            ("SELECT a + 1 OPERATOR(pg_catalog.*) b", "SELECT ((a + 1) * b)"),
            ("SELECT * FROM t WHERE a OPERATOR(=) 'x' AND b", "SELECT * FROM t WHERE (a = 'x') AND b"),
            ("SELECT a FROM t ORDER BY a FETCH FIRST 3 ROWS ONLY", "SELECT a FROM t ORDER BY a LIMIT 3"),
            ("SELECT a FROM t OFFSET 2 FETCH NEXT ROW ONLY", "SELECT a FROM t LIMIT 1 OFFSET 2"),
            ("SELECT current_schema, Current_Role", "SELECT current_schema, Current_Role"),
        ] {
            assert_eq!(printed(text), expected);
            assert_eq!(printed(expected), expected);
        }
        assert_eq!(call_without_parentheses(&Expr::Identifier(Ident::with_quote('"', "current_schema"))), None);
        for text in [
            "SELECT 1 OPERATOR(public.=) 2",
            "SELECT 1 OPERATOR(pg_catalog.^) 2",
            "SELECT 1 FETCH FIRST 2 ROWS WITH TIES",
            "SELECT 1 LIMIT 1 FETCH FIRST ROW ONLY",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("not supported yet"), "{text}: {error}");
        }
    }
}
