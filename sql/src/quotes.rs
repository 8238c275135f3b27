//! Texts and names that sqlparser prints as others: of two quotes in a row, and of a backslash before a quote, it believes that they are escaped already, and
//! prints them as they are. What is printed is what a view and a default are kept as, so that they would come to mean something else.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Error, Result};

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
pub(crate) fn escape_texts(tokens: &mut [TokenWithSpan]) {
    for token in tokens {
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
