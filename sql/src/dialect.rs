//! sqlparser's PostgreSQL dialect, with a few things mended.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, TrimWhereField};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// PostgreSQL, in which `a IS DISTINCT FROM b AND c` is `(a IS DISTINCT FROM b) AND c`: sqlparser reads everything to the end as the
/// right side, which silently gives other rows.
#[derive(Debug)]
pub(crate) struct RolloutDialect(PostgreSqlDialect);

impl RolloutDialect {
    pub const fn new() -> Self {
        Self(PostgreSqlDialect {})
    }

    /// Behind `a BETWEEN SYMMETRIC`: between two bounds, whichever is the lower one.
    fn between_symmetric(&self, parser: &mut Parser, left: &Expr, negated: bool) -> Result<Expr, ParserError> {
        let first = parser.parse_subexpr(self.prec_value(Precedence::Between))?;
        parser.expect_keyword(Keyword::AND)?;
        let second = parser.parse_subexpr(self.prec_value(Precedence::Between))?;
        let between = |low: &Expr, high: &Expr| {
            let (expr, low, high) = (Box::new(left.clone()), Box::new(low.clone()), Box::new(high.clone()));
            Box::new(Expr::Between { expr, negated, low, high })
        };
        let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
        let both = Expr::BinaryOp { left: between(&first, &second), op, right: between(&second, &first) };
        Ok(Expr::Nested(Box::new(both)))
    }
}

/// `trim(BOTH FROM a)`, in which sqlparser wants to be told what is trimmed: blanks.
fn trim_of_blanks(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let keyword = |n: usize| match &parser.peek_nth_token_ref(n).token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let trim_where = match keyword(2) {
        Keyword::BOTH => Some(TrimWhereField::Both),
        Keyword::LEADING => Some(TrimWhereField::Leading),
        Keyword::TRAILING => Some(TrimWhereField::Trailing),
        Keyword::FROM => None,
        _ => return None,
    };
    let from = if trim_where.is_some() { 3 } else { 2 };
    if keyword(0) != Keyword::TRIM || parser.peek_nth_token_ref(1).token != Token::LParen || keyword(from) != Keyword::FROM {
        return None;
    }
    (0..=from).for_each(|_| parser.advance_token());
    let trim = parser.parse_expr().and_then(|expr| {
        parser.expect_token(&Token::RParen)?;
        Ok(Expr::Trim { expr: Box::new(expr), trim_where, trim_what: None, trim_characters: None })
    });
    Some(trim)
}

/// Methods of `PostgreSqlDialect` that differ from the trait's defaults.
macro_rules! as_in_postgres {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self $(, $argument: $kind)*) -> $result {
            self.0.$name($($argument),*)
        })*
    };
}

impl Dialect for RolloutDialect {
    /// The parser asks by type whether it reads PostgreSQL.
    fn dialect(&self) -> TypeId {
        self.0.dialect()
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        trim_of_blanks(parser)
    }

    fn parse_infix(&self, parser: &mut Parser, left: &Expr, _precedence: u8) -> Option<Result<Expr, ParserError>> {
        for is_negated in [false, true] {
            let negation: &[Keyword] = if is_negated { &[Keyword::NOT] } else { &[] };
            if parser.parse_keywords(&[negation, &[Keyword::BETWEEN, Keyword::SYMMETRIC]].concat()) {
                return Some(self.between_symmetric(parser, left, is_negated));
            }
        }
        let build = if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            Expr::IsDistinctFrom
        } else if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) {
            Expr::IsNotDistinctFrom
        } else {
            return None;
        };
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| build(Box::new(left.clone()), Box::new(right))))
    }

    /// The ON of `INSERT ... SELECT a ON CONFLICT` is no name for the column, nor is the RETURNING that may follow.
    fn is_column_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        !matches!(keyword, Keyword::ON | Keyword::RETURNING) && self.0.is_column_alias(keyword, parser)
    }

    /// A name of an argument is an identifier, as in PostgreSQL. With expressions for names the parser reads every argument twice, once for a name: a
    /// time that doubles with each call within a call.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    /// `t VERSION AS OF 3`, `t FOR SYSTEM_TIME AS OF '...'`
    fn supports_table_versioning(&self) -> bool {
        true
    }

    as_in_postgres! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        is_reserved_for_identifier(keyword: Keyword) -> bool;
        is_custom_operator_part(ch: char) -> bool;
        get_next_precedence(parser: &Parser) -> Option<Result<u8, ParserError>>;
        prec_value(precedence: Precedence) -> u8;
        supports_unicode_string_literal() -> bool;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}

#[cfg(test)]
mod tests {
    use crate::{parse, parse_expression};

    #[test]
    fn forms_of_postgres_are_read_and_print_as_they_are_read() {
        for (text, expected) in [
            ("3 BETWEEN SYMMETRIC 5 AND 1", "(3 BETWEEN 5 AND 1 OR 3 BETWEEN 1 AND 5)"),
            ("a NOT BETWEEN SYMMETRIC 5 AND b AND c", "(a NOT BETWEEN 5 AND b AND a NOT BETWEEN b AND 5) AND c"),
            ("trim(BOTH FROM a)", "TRIM(BOTH a)"),
            ("trim(FROM a)", "TRIM(a)"),
            ("trim(LEADING 'x' FROM a)", "TRIM(LEADING 'x' FROM a)"),
            ("U&'d\\0061t'", "'dat'"),
        ] {
            let read = parse_expression(text).expect(text);
            assert_eq!(read.to_string(), expected, "{text}");
            assert_eq!(parse_expression(expected).expect(expected).to_string(), expected);
        }
        assert!(parse("SELECT * FROM generate_series(1, 3) WITH ORDINALITY").is_ok());
    }
}
