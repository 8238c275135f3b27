//! Texts and names that sqlparser prints as others: of two quotes in a row, and of a backslash before a quote, it believes that they are escaped already, and
//! prints them as they are; of literals of bytes, any text. What is printed is what a view and a default are kept as, so that they would come to mean something
//! else.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Error, Result};
use crate::parser::syntax_error;

/// Whether sqlparser prints this text, or this name, between quotes of this kind as another one.
pub(crate) fn prints_as_another(text: &str, quote: char) -> bool {
    let mut before = None;
    text.chars().any(|character| {
        let is_taken = character == quote && (before == Some(quote) || before == Some('\\'));
        before = Some(character);
        is_taken
    })
}

/// Writes a text with escapes that would be printed as another one. sqlparser also takes a text for a name, as in `SELECT 1 'one'`, but none with escapes.
///
/// `N'..'` and `U&'..'` are texts too, the second with its escapes read already.
pub(crate) fn escape_texts(tokens: &mut [TokenWithSpan]) {
    for token in tokens {
        if let Token::NationalStringLiteral(text) | Token::UnicodeStringLiteral(text) = &mut token.token {
            token.token = Token::SingleQuotedString(std::mem::take(text));
        }
        if let Token::SingleQuotedString(text) = &mut token.token
            && prints_as_another(text, '\'')
        {
            token.token = Token::EscapedStringLiteral(std::mem::take(text));
        }
    }
}

/// Refuses a quoted name that would be printed as another one: there is no second way to write it.
pub(crate) fn check_names(tokens: &[TokenWithSpan]) -> Result<()> {
    let is_misprinted = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => word.quote_style.is_some_and(|quote| prints_as_another(&word.value, quote)),
        _ => false,
    };
    match tokens.iter().any(is_misprinted) {
        true => Err(Error::not_supported_but("a name with two quotation marks in a row, or one after a backslash,", "choose another name")),
        false => Ok(()),
    }
}

/// Refuses `X'0g'` and `B'2'`, as PostgreSQL does: sqlparser takes any text between the quotes, and prints a quote among it as it is.
pub(crate) fn check_digits(text: &str, tokens: &[TokenWithSpan]) -> Result<()> {
    for token in tokens {
        let wrong = match &token.token {
            Token::HexStringLiteral(digits) => digits.chars().find(|digit| !digit.is_ascii_hexdigit()).zip(Some("hexadecimal")),
            Token::SingleQuotedByteStringLiteral(digits) => digits.chars().find(|digit| !matches!(digit, '0' | '1')).zip(Some("binary")),
            Token::DoubleQuotedByteStringLiteral(_)
            | Token::TripleSingleQuotedByteStringLiteral(_)
            | Token::TripleDoubleQuotedByteStringLiteral(_) => {
                // In PostgreSQL `b"x"` is a name and another one for it.
                let message = "a literal of bits stands in single quotes; write a name apart from a quoted one after it";
                return Err(syntax_error(text, message.to_owned(), token.span.start));
            }
            _ => None,
        };
        if let Some((character, kind)) = wrong {
            return Err(syntax_error(text, format!("\"{character}\" is not a {kind} digit"), token.span.start));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn literals_of_bytes_and_bits_have_digits_only() {
        for (text, expected) in [
            ("SELECT X'0g'", "\"g\" is not a hexadecimal digit"),
            ("SELECT 1, x'''''1'", "\"'\" is not a hexadecimal digit"),
            ("SELECT B'012'", "\"2\" is not a binary digit"),
            ("SELECT b\"\"\"\"", "stands in single quotes"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for text in ["SELECT X'00fF'", "SELECT X''", "SELECT B'01'", "SELECT 'X' || N'0g'"] {
            parse(text).expect(text);
        }
    }

    #[test]
    fn texts_of_all_kinds_are_texts() {
        let printed = |text: &str| parse(text).expect(text)[0].to_string();
        assert_eq!(printed("SELECT N'it''s', U&'d\\0061t', n'a''''b'"), r"SELECT 'it''s', 'dat', E'a\'\'b'");
    }
}
