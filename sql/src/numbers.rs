//! Numbers that run into what follows them.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::Result;
use crate::parser::syntax_error;

/// Refuses `2_` and `2abc`, as PostgreSQL does: sqlparser takes `2abc` for a number and its name, and prints `2_` before a word as another text.
///
/// # Errors
/// [`Syntax`](crate::Error::Syntax).
pub(crate) fn check_numbers(text: &str, tokens: &[TokenWithSpan]) -> Result<()> {
    let is_name = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if word.quote_style.is_none());
    let runs_on = |(place, token): &(usize, &TokenWithSpan)| match &token.token {
        Token::Number(number, _) => number.ends_with('_') || tokens.get(place + 1).is_some_and(is_name),
        _ => false,
    };
    match tokens.iter().enumerate().find(runs_on) {
        Some((_, number)) => Err(syntax_error(text, "a number runs into what follows it".to_owned(), number.span.start)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn a_number_ends_where_a_name_begins() {
        for text in [
            "SELECT 2_",
            "SELECT 2abc",
            "SELECT 1.5e",
            "SELECT CASE WHEN true THEN 1 ELSE 2_END",
            "SELECT 1 LIMIT 10OFFSET 2",
            "SELECT 1_000_",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("a number runs into"), "{text}: {error}");
        }
        for text in ["SELECT 1_000", "SELECT 1e10 a", "SELECT 1::text", "SELECT a[1:2]", "SELECT .5+2", "SELECT 1\"a\"", "SELECT 2"] {
            parse(text).expect(text);
        }
    }
}
