//! `TABLE name`, which is `SELECT * FROM name`. sqlparser drops two tokens behind the name, `LIMIT 1` for one.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

/// Writes `SELECT * FROM` for TABLE where a query begins: at the start of a statement, behind a parenthesis, EXPLAIN, UNION and the like, and behind the AS of
/// CREATE and PREPARE.
pub(crate) fn expand_table_commands(tokens: &mut Vec<TokenWithSpan>) {
    let places = places(tokens);
    if places.is_empty() {
        return;
    }
    let mut places = places.into_iter().peekable();
    for (place, token) in std::mem::take(tokens).into_iter().enumerate() {
        if places.next_if_eq(&place).is_none() {
            tokens.push(token);
            continue;
        }
        let select = [keyword("SELECT"), space(), Token::Mul, space(), keyword("FROM")];
        tokens.extend(select.map(|word| TokenWithSpan::new(word, token.span)));
    }
}

/// Where a query begins with TABLE, in order.
fn places(tokens: &[TokenWithSpan]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut begins_query = true;
    // Behind CREATE and PREPARE, the first AS outside of parentheses stands before a query; a later one gives a column its name.
    let mut awaits_query = false;
    let (mut begins_statement, mut depth) = (true, 0_usize);
    for (place, token) in tokens.iter().enumerate() {
        let word = &token.token;
        match word {
            Token::Whitespace(_) => continue,
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_definition = awaits_query && depth == 0 && is_word(word, "AS");
        let keeps = ["ALL", "DISTINCT", "ANALYZE", "VERBOSE"].iter().any(|modifier| is_word(word, modifier));
        let opens = is_definition
            || matches!(word, Token::SemiColon | Token::LParen)
            || (begins_statement && is_word(word, "EXPLAIN"))
            || ["UNION", "EXCEPT", "INTERSECT"].iter().any(|operator| is_word(word, operator));
        if begins_query && is_word(word, "TABLE") && is_name(tokens, place + 1) {
            places.push(place);
        }
        awaits_query = match word {
            Token::SemiColon => false,
            _ if begins_statement => is_word(word, "CREATE") || is_word(word, "PREPARE"),
            _ => awaits_query && !is_definition,
        };
        begins_statement = matches!(word, Token::SemiColon);
        begins_query = opens || (keeps && begins_query);
    }
    places
}

/// Whether the next token that is not whitespace is a name.
fn is_name(tokens: &[TokenWithSpan], from: usize) -> bool {
    let next = tokens.iter().skip(from).find(|token| !matches!(token.token, Token::Whitespace(_)));
    matches!(next, Some(TokenWithSpan { token: Token::Word(_), .. }))
}

fn keyword(word: &str) -> Token {
    Token::make_keyword(word)
}

fn space() -> Token {
    Token::Whitespace(Whitespace::Space)
}

fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn a_table_is_all_of_its_rows() {
        for (short, long) in [
            ("TABLE t", "SELECT * FROM t"),
            ("table s.t ORDER BY a LIMIT 1", "SELECT * FROM s.t ORDER BY a LIMIT 1"),
            ("TABLE \"T\"; TABLE u", "SELECT * FROM \"T\"; SELECT * FROM u"),
            ("TABLE t UNION ALL TABLE u EXCEPT TABLE v", "SELECT * FROM t UNION ALL SELECT * FROM u EXCEPT SELECT * FROM v"),
            ("SELECT count(*) FROM (TABLE t) x", "SELECT count(*) FROM (SELECT * FROM t) x"),
            ("CREATE VIEW v AS TABLE t", "CREATE VIEW v AS SELECT * FROM t"),
            ("CREATE TABLE u AS TABLE t", "CREATE TABLE u AS SELECT * FROM t"),
            ("EXPLAIN ANALYZE TABLE t; TABLE u", "EXPLAIN ANALYZE SELECT * FROM t; SELECT * FROM u"),
        ] {
            assert_eq!(parse(short).expect("a query"), parse(long).expect("a query"), "{short}");
        }
    }

    #[test]
    fn elsewhere_it_is_what_it_was() {
        for text in [
            "CREATE TABLE t (a bigint)",
            "CREATE VIEW v AS SELECT 1 AS table",
            "DROP TABLE t",
            "TRUNCATE TABLE t",
            "ALTER TABLE t ADD COLUMN b text",
            "SELECT 1 AS table",
        ] {
            let printed: Vec<String> = parse(text).expect("a statement").iter().map(ToString::to_string).collect();
            assert!(!printed.concat().contains("SELECT * FROM"), "{printed:?}");
        }
        assert!(parse("TABLE").is_err());
    }
}
