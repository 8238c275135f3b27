//! `ASYNC` at the end of a statement that writes the rows of a query. The parser would take it for the alias of the last table or column.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Words behind which a column or table must follow: `ORDER BY async`.
const BEFORE_NAMES: &[&str] = &[
    "ALL",
    "AND",
    "AS",
    "BETWEEN",
    "BY",
    "CASE",
    "CROSS",
    "DISTINCT",
    "ELSE",
    "EXCEPT",
    "FROM",
    "HAVING",
    "ILIKE",
    "IN",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "LATERAL",
    "LIKE",
    "LIMIT",
    "NATURAL",
    "NOT",
    "OFFSET",
    "ON",
    "OR",
    "RETURNING",
    "SELECT",
    "SET",
    "TABLE",
    "THEN",
    "TO",
    "UNION",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
];

/// Makes the word one that is no alias where it ends a statement that writes. A name may be called so in quotes, or behind AS.
pub(crate) fn mark_async(tokens: &mut [TokenWithSpan]) {
    let mut start = 0;
    while start < tokens.len() {
        let is_end = |token: &TokenWithSpan| matches!(token.token, Token::SemiColon | Token::EOF);
        let end = tokens[start..].iter().position(is_end).map_or(tokens.len(), |length| start + length);
        mark_last(&mut tokens[start..end]);
        start = end + 1;
    }
}

fn mark_last(statement: &mut [TokenWithSpan]) {
    let is_text = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    let mut from_end = statement.iter().enumerate().rev().filter(|(_, token)| is_text(token));
    let (Some((last, token)), Some((_, before))) = (from_end.next(), from_end.next()) else { return };
    if !is_word(&token.token, "ASYNC") || !ends_operand(&before.token) || !writes_rows(statement) {
        return;
    }
    if let Token::Word(word) = &mut statement[last].token {
        // The parser takes it for no alias, and reads SORT only before BY.
        word.keyword = Keyword::SORT;
    }
}

/// Whether a name or a value may end with it.
fn ends_operand(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.quote_style.is_some() || !BEFORE_NAMES.iter().any(|known| word.value.eq_ignore_ascii_case(known)),
        Token::Number(..) | Token::Placeholder(_) | Token::RParen | Token::RBracket => true,
        Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) | Token::DollarQuotedString(_) => true,
        _ => false,
    }
}

/// Whether it is an INSERT, UPDATE, DELETE, MERGE or CREATE TABLE, perhaps behind WITH, EXPLAIN or PREPARE.
fn writes_rows(statement: &[TokenWithSpan]) -> bool {
    let mut words = statement.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
    let Some(first) = words.next() else { return false };
    let changes = |token: &Token| ["INSERT", "UPDATE", "DELETE", "MERGE"].iter().any(|word| is_word(token, word));
    if is_word(first, "CREATE") {
        return words.take(3).any(|token| is_word(token, "TABLE"));
    }
    if changes(first) {
        return true;
    }
    let may_hold_one = ["WITH", "EXPLAIN", "PREPARE"].iter().any(|word| is_word(first, word));
    let mut depth = 0_usize;
    may_hold_one
        && words.any(|token| {
            match token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && changes(token)
        })
}

fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}
