//! Texts that go on in another line: `'a'` and, in the next line, `'b'` are `'ab'`.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::error::{Error, Result};
use crate::parser::syntax_error;

/// Makes one text of those with a line break between them, and refuses those with none, as PostgreSQL does: sqlparser takes a second one for a name.
///
/// # Errors
/// [`Syntax`](Error::Syntax); [`NotSupported`](Error::NotSupported) for a backslash in what goes on from `E'..'`, which is an escape there.
pub(crate) fn join_texts(text: &str, tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    if !tokens.iter().any(|token| is_text(&token.token)) {
        return Ok(());
    }
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // The place of a text behind which there is nothing but whitespace.
    let mut open: Option<usize> = None;
    for token in std::mem::take(tokens) {
        match (&token.token, open) {
            (Token::Whitespace(_), _) => joined.push(token),
            (Token::SingleQuotedString(more), Some(place)) if breaks_line(&joined[place + 1..]) => {
                append(&mut joined[place].token, more)?;
                joined.truncate(place + 1);
            }
            (next, Some(_)) if is_text(next) => {
                let message = "two texts stand next to each other; write || between them, or a line break, which makes them one";
                return Err(syntax_error(text, message.to_owned(), token.span.start));
            }
            (next, _) => {
                open = is_text(next).then_some(joined.len());
                joined.push(token);
            }
        }
    }
    *tokens = joined;
    Ok(())
}

fn is_text(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::DollarQuotedString(_)
    )
}

/// Whether there is a line break among blanks and comments to the end of a line. A comment between `/*` and `*/` parts texts.
fn breaks_line(between: &[TokenWithSpan]) -> bool {
    let breaks =
        |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(Whitespace::Newline | Whitespace::SingleLineComment { .. }));
    let parts = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(Whitespace::MultiLineComment(_)));
    between.iter().any(breaks) && !between.iter().any(parts)
}

fn append(token: &mut Token, more: &str) -> Result<()> {
    match token {
        Token::EscapedStringLiteral(_) | Token::UnicodeStringLiteral(_) if more.contains('\\') => {
            Err(Error::not_supported_but("a backslash in the next line of a text with escapes", "write || between the texts"))
        }
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::NationalStringLiteral(text)
        | Token::UnicodeStringLiteral(text)
        | Token::HexStringLiteral(text)
        | Token::SingleQuotedByteStringLiteral(text) => {
            text.push_str(more);
            Ok(())
        }
        _ => Err(Error::not_supported_but("a text that goes on behind $$", "write || between the texts")),
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn texts_go_on_in_the_next_line() {
        for (text, expected) in [
            ("SELECT 'a'\n'b'", "SELECT 'ab'"),
            ("SELECT 'a' \n\t 'b'\r\n 'c' AS d", "SELECT 'abc' AS d"),
            ("SELECT 'a' -- more\n 'b'", "SELECT 'ab'"),
            ("SELECT 'it''s'\n''''", "SELECT 'it''s'''"),
            ("SELECT E'a\\n'\n'b'", "SELECT E'a\\nb'"),
            ("SELECT X'0a'\n'ff'", "SELECT X'0aff'"),
            ("SELECT 'a',\n'b'", "SELECT 'a', 'b'"),
            ("SELECT 'a' \"b\"", "SELECT 'a' AS \"b\""),
        ] {
            let parsed = parse(text).expect(text);
            assert_eq!(parsed[0].to_string(), expected, "{text}");
        }
        for text in ["SELECT 'a' 'b'", "SELECT 'a' /* \n */ 'b'", "SELECT 'a'\n E'b'", "SELECT $$a$$ 'b'", "SELECT 'a'\n/* */'b'"] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("two texts"), "{text}: {error}");
        }
        assert!(parse("SELECT E'a'\n'\\n'").is_err() && parse("SELECT X'0'\n'g'").is_err() && parse("SELECT $$a$$\n'b'").is_err());
    }
}
