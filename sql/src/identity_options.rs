//! The options of an identity column, which PostgreSQL takes in any order and sqlparser in one.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// What the options begin with, in sqlparser's order; NO goes before some of them.
const STARTS: [&str; 6] = ["INCREMENT", "MINVALUE", "MAXVALUE", "START", "CACHE", "CYCLE"];

/// Puts what stands between the parentheses of `AS IDENTITY (START 1 INCREMENT 1)` into sqlparser's order.
pub(crate) fn order_identity_options(tokens: &mut [TokenWithSpan]) {
    let mut position = 0;
    while let Some(start) = options_start(tokens, position) {
        let Some(length) = tokens[start..].iter().position(|token| token.token == Token::RParen) else { return };
        order(&mut tokens[start..start + length]);
        position = start + length;
    }
}

/// The place behind the next `ALWAYS AS IDENTITY (` or `BY DEFAULT AS IDENTITY (`. Elsewhere it is a name, as in `INSERT INTO identity (start)`.
fn options_start(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    // How many of the three words stand right before.
    let mut num_words = 0;
    for (place, token) in tokens.iter().enumerate().skip(from) {
        num_words = match &token.token {
            Token::Whitespace(_) => num_words,
            Token::LParen if num_words == 3 => return Some(place + 1),
            word if is_word(word, "ALWAYS") || is_word(word, "DEFAULT") => 1,
            word if num_words == 1 && is_word(word, "AS") => 2,
            word if num_words == 2 && is_word(word, "IDENTITY") => 3,
            _ => 0,
        };
    }
    None
}

fn order(options: &mut [TokenWithSpan]) {
    // What stands before the first of them stays there.
    let mut rank = 0;
    let mut ranked = Vec::with_capacity(options.len());
    for (place, token) in options.iter().enumerate() {
        let starts = match is_word(&token.token, "NO") {
            true => {
                options[place + 1..].iter().find(|next| !matches!(next.token, Token::Whitespace(_))).and_then(|next| rank_of(&next.token))
            }
            false => rank_of(&token.token),
        };
        rank = starts.unwrap_or(rank);
        ranked.push((rank, token.clone()));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    options.iter_mut().zip(ranked).for_each(|(option, (_, token))| *option = token);
}

fn rank_of(token: &Token) -> Option<usize> {
    STARTS.iter().position(|start| is_word(token, start)).map(|position| position + 1)
}

fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::parse;

    #[test]
    fn options_stand_in_any_order() {
        let plain = parse("CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY)");
        assert!(plain.is_ok(), "{plain:?}");
        for options in [
            "INCREMENT 1 START 1 MINVALUE 1 MAXVALUE 9223372036854775807 CACHE 1",
            "start with 1 increment by 1 no maxvalue no minvalue no cycle",
            "NO CYCLE CACHE 20",
        ] {
            let text = format!("CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY ( {options} ))");
            assert_eq!(parse(&text), plain, "{text}");
        }
        for options in ["START 2", "INCREMENT 2 START 1", "MAXVALUE 100", "CYCLE"] {
            let text = format!("CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY ({options}))");
            assert!(parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_keeps_its_list_in_order() {
        for (text, shown) in [
            (
                "CREATE TABLE identity (start integer, cache integer, increment integer)",
                "(start integer, cache integer, increment integer)",
            ),
            ("SELECT * FROM (VALUES (1, 2, 3)) AS identity (start, cache, increment)", "(start, cache, increment)"),
            ("INSERT INTO identity (id, start, increment) VALUES (1, 2, 3)", "(id, start, increment)"),
        ] {
            let parsed = parse(text).expect("the list belongs to a name");
            let parsed = parsed.iter().map(ToString::to_string).collect::<String>();
            assert!(parsed.to_lowercase().contains(shown), "{parsed}");
        }
    }

    #[test]
    fn many_words_take_no_longer_than_they_are_many() {
        for words in ["NO ", "NO/**/"] {
            let text = format!("CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY ({}))", words.repeat(40_000));
            let start = Instant::now();
            assert!(parse(&text).is_err());
            assert!(start.elapsed() < Duration::from_secs(20), "{:?} for {words:?}", start.elapsed());
        }
    }
}
