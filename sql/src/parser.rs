//! A thin layer over sqlparser's parser: words that are no keywords there (`MODEL`, `ROLLOUTS`), names folded as in Postgres,
//! errors with their place.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{self, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::ast::{self, Ident, ObjectName, Query, With};
use crate::async_word::mark_async;
use crate::depth::{check_brackets, check_chains};
use crate::dialect::RolloutDialect;
use crate::error::{Error, Result, char_offset};
use crate::identity_options::order_identity_options;
use crate::joined_texts::join_texts;
use crate::length::check_length;
use crate::name::{fold, is_reserved};
use crate::numbers::check_numbers;
use crate::quotes::{check_digits, check_names, escape_texts};
use crate::recursive_names::name_first_parts;
use crate::rewrite::rewrite;
use crate::table_command::expand_table_commands;

/// Levels of parentheses and subqueries that are followed; sqlparser's own default of 50 is short for generated SQL.
const NESTING_MAX: usize = 128;

static DIALECT: RolloutDialect = RolloutDialect::new();

/// pgvector's `<+>`, of which sqlparser makes three operators.
fn join_taxicab_operator(tokens: &mut Vec<TokenWithSpan>) {
    const PARTS: [Token; 3] = [Token::Lt, Token::Plus, Token::Gt];
    let mut place = 0;
    while place + PARTS.len() <= tokens.len() {
        // Blanks are tokens too: these three stand without any between them.
        if tokens[place..].iter().zip(&PARTS).all(|(token, part)| token.token == *part) {
            tokens[place].token = Token::CustomBinaryOperator("<+>".to_owned());
            tokens.drain(place + 1..place + PARTS.len());
        }
        place += 1;
    }
}

/// Reads one text from left to right.
pub(crate) struct Parser<'a> {
    inner: parser::Parser<'a>,
    text: &'a str,
}

impl<'a> Parser<'a> {
    /// Splits the text into tokens.
    pub fn new(text: &'a str) -> Result<Self> {
        check_length(text)?;
        check_brackets(text)?;
        let mut tokens = Vec::new();
        Tokenizer::new(&DIALECT, text)
            .tokenize_with_location_into_buf_with_mapper(&mut tokens, distance_operator)
            .map_err(|error| syntax_error(text, lower_first(&error.message), error.location))?;
        join_taxicab_operator(&mut tokens);
        check_chains(&tokens)?;
        join_texts(text, &mut tokens)?;
        check_names(&tokens)?;
        check_numbers(text, &tokens)?;
        check_digits(text, &tokens)?;
        expand_table_commands(&mut tokens);
        mark_async(&mut tokens);
        mark_tags(&mut tokens);
        free_names(&mut tokens);
        order_identity_options(&mut tokens);
        escape_texts(&mut tokens);
        let inner = parser::Parser::new(&DIALECT).with_recursion_limit(NESTING_MAX).with_tokens_with_locations(tokens);
        Ok(Self { inner, text })
    }

    pub fn skip_semicolons(&mut self) {
        while self.inner.consume_token(&Token::SemiColon) {}
    }

    pub fn at_end_of_text(&self) -> bool {
        self.inner.peek_token_ref().token == Token::EOF
    }

    pub fn at_end_of_statement(&self) -> bool {
        matches!(self.inner.peek_token_ref().token, Token::EOF | Token::SemiColon)
    }

    /// The word `n` tokens ahead, in capitals; `None` for signs, literals and quoted names.
    pub fn peek_word(&self, n: usize) -> Option<String> {
        match &self.inner.peek_nth_token_ref(n).token {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
            _ => None,
        }
    }

    /// Whether the next words are these (in capitals, separated by one space).
    pub fn is_at(&self, words: &str) -> bool {
        words.split(' ').enumerate().all(|(n, word)| self.peek_word(n).as_deref() == Some(word))
    }

    /// Reads the words (in capitals, separated by one space) if they come next.
    pub fn eat(&mut self, words: &str) -> bool {
        let found = self.is_at(words);
        if found {
            words.split(' ').for_each(|_| self.inner.advance_token());
        }
        found
    }

    /// Reads the words, which must come next; the error names the first that is missing.
    pub fn expect(&mut self, words: &str) -> Result<()> {
        words.split(' ').try_for_each(|word| if self.eat(word) { Ok(()) } else { Err(self.expected(word)) })
    }

    pub fn eat_token(&mut self, token: &Token) -> bool {
        self.inner.consume_token(token)
    }

    pub fn peek_token(&self) -> &Token {
        &self.inner.peek_token_ref().token
    }

    /// The token `n` tokens ahead.
    pub fn peek_nth_token(&self, n: usize) -> &Token {
        &self.inner.peek_nth_token_ref(n).token
    }

    pub fn next_token(&mut self) -> Token {
        self.inner.next_token().token
    }

    pub fn is_left_parenthesis(&self) -> bool {
        *self.peek_token() == Token::LParen
    }

    /// Whether `(` comes next and no query after it: a list of columns.
    pub fn is_at_columns(&self) -> bool {
        let starts_query = match self.peek_word(1) {
            Some(word) => ["SELECT", "VALUES", "WITH", "TABLE"].contains(&word.as_str()),
            None => self.inner.peek_nth_token_ref(1).token == Token::LParen,
        };
        self.is_left_parenthesis() && !starts_query
    }

    /// Whether `word` comes next, and a name after it: where `word` may be a name too.
    pub fn is_before_name(&self, word: &str) -> bool {
        let is_name = match &self.inner.peek_nth_token_ref(1).token {
            Token::Word(next) => next.quote_style.is_some() || !matches!(next.value.to_ascii_uppercase().as_str(), "CASCADE" | "RESTRICT"),
            other => quoted_text(other).is_some(),
        };
        self.is_at(word) && is_name
    }

    pub fn unsigned(&mut self, what: &str) -> Result<u64> {
        let number = match self.peek_token() {
            Token::Number(digits, _) => digits.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.expected(what))?;
        self.next_token();
        Ok(number)
    }

    /// Reads `( item, item, ... )`, at least one item.
    pub fn parenthesized<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.list(&Token::LParen, &Token::RParen, item)
    }

    /// Reads one or more items with commas between them, between two signs.
    pub fn list<T>(&mut self, open: &Token, close: &Token, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if !self.eat_token(open) {
            return Err(self.expected(&format!("\"{open}\"")));
        }
        let items = self.comma_separated(item)?;
        if self.eat_token(close) { Ok(items) } else { Err(self.expected(&format!("\",\" or \"{close}\""))) }
    }

    /// Reads one or more items with commas between them.
    pub fn comma_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_token(&Token::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Reads a name without dots: a word (folded to lower case), `"Quoted"` or `'quoted'`. `what` says which, for the error.
    pub fn name(&mut self, what: &str) -> Result<String> {
        let name = match self.peek_token() {
            Token::Word(word) if word.quote_style.is_some() => word.value.clone(),
            Token::Word(word) if !is_reserved(&word.value) => word.value.to_ascii_lowercase(),
            other => quoted_text(other).ok_or_else(|| self.expected(what))?.to_owned(),
        };
        if name.is_empty() {
            return Err(self.error_here(format!("{what} cannot be empty")));
        }
        self.inner.advance_token();
        Ok(name)
    }

    /// Reads the name of something to be made; `@` is left for versions.
    pub fn new_name(&mut self, what: &str) -> Result<String> {
        let has_sign = match self.peek_token() {
            Token::Word(word) => word.value.contains('@'),
            other => quoted_text(other).is_some_and(|text| text.contains('@')),
        };
        let refused = |parser: &Self| Err(parser.error_here(format!("{what} cannot contain \"@\"; versions are numbered by themselves")));
        if has_sign {
            return refused(self);
        }
        let name = self.name(what)?;
        if *self.peek_token() == Token::AtSign { refused(self) } else { Ok(name) }
    }

    /// Reads the name of a model or of one version of it: `policy`, `policy@3`, `'policy@3'`.
    pub fn reference(&mut self, what: &str) -> Result<String> {
        let name = self.name(what)?;
        if !self.eat_token(&Token::AtSign) {
            return Ok(name);
        }
        match self.next_token() {
            Token::Number(version, false) if version.chars().all(|c| c.is_ascii_digit()) => Ok(format!("{name}@{version}")),
            _ => {
                self.inner.prev_token();
                Err(self.expected("a version number after \"@\""))
            }
        }
    }

    /// Reads a column's name or the like, folded.
    pub fn ident(&mut self, what: &str) -> Result<Ident> {
        match self.peek_token() {
            Token::Word(word) if word.quote_style.is_some() || !is_reserved(&word.value) => {
                let ident = self.inner.parse_identifier();
                ident.map(fold).map_err(|error| self.translate(error))
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Reads the name of a table or the like, perhaps with its schema, folded.
    pub fn object_name(&mut self, what: &str) -> Result<ObjectName> {
        let mut parts = vec![self.ident(what)?];
        while self.eat_token(&Token::Period) {
            parts.push(self.ident(what)?);
        }
        Ok(ObjectName::from(parts))
    }

    /// Reads a string literal: `'..'`, `E'..'` or `$$..$$`.
    pub fn string(&mut self, what: &str) -> Result<String> {
        match self.optional_string() {
            Some(text) => Ok(text),
            None => Err(self.expected(what)),
        }
    }

    /// Reads a string literal if one comes next.
    pub fn optional_string(&mut self) -> Option<String> {
        let text = match self.peek_token() {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            Token::DollarQuotedString(text) => text.value.clone(),
            _ => return None,
        };
        self.inner.advance_token();
        Some(text)
    }

    /// Reads `(SELECT ...)`; `what` says what it is for.
    pub fn parenthesized_query(&mut self, what: &str) -> Result<Box<Query>> {
        if !self.eat_token(&Token::LParen) {
            return Err(self.expected(&format!("\"(\" and {what}")));
        }
        let query = self.query()?;
        if self.eat_token(&Token::RParen) { Ok(query) } else { Err(self.expected("\")\"")) }
    }

    /// Reads `WITH [RECURSIVE] a AS (...), ...`.
    pub fn with(&mut self) -> Result<With> {
        let mut with = self.ast(|parser| {
            let with_token = parser.expect_keyword(Keyword::WITH)?.into();
            let recursive = parser.parse_keyword(Keyword::RECURSIVE);
            let cte_tables = parser.parse_comma_separated(parser::Parser::parse_cte)?;
            Ok(With { with_token, recursive, cte_tables })
        })?;
        // The queries within were visited, but not what holds them.
        name_first_parts(&mut with);
        Ok(with)
    }

    /// Reads a query without parentheses of its own.
    pub fn query(&mut self) -> Result<Box<Query>> {
        self.ast(parser::Parser::parse_query)
    }

    /// Reads a statement that sqlparser knows.
    pub fn statement(&mut self) -> Result<ast::Statement> {
        self.ast(parser::Parser::parse_statement)
    }

    /// Reads something by a function of sqlparser's parser, and puts our meaning into it (see [`rewrite`]).
    pub fn ast<T: ast::VisitMut>(&mut self, parse: impl FnOnce(&mut parser::Parser<'a>) -> Result<T, ParserError>) -> Result<T> {
        let mut node = parse(&mut self.inner).map_err(|error| self.translate(error))?;
        rewrite(&mut node)?;
        Ok(node)
    }

    /// The error that `what` should have come next.
    pub fn expected(&self, what: &str) -> Error {
        self.error_here(format!("expected {what}"))
    }

    /// An error about the next token.
    pub fn error_here(&self, message: String) -> Error {
        self.error_at(self.inner.peek_token_ref().span.start, message)
    }

    /// An error about what was read from `place` on.
    pub fn error_at(&self, place: Location, message: String) -> Error {
        syntax_error(self.text, message, place)
    }

    /// Takes the place out of sqlparser's message, where it is written at the end.
    fn translate(&self, error: ParserError) -> Error {
        let text = match error {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
            ParserError::RecursionLimitExceeded => return Error::TooDeep { limit: NESTING_MAX, what: "levels of nesting" },
        };
        let (message, location) = split_location(&text);
        let location = location.unwrap_or_else(|| self.inner.peek_token_ref().span.start);
        syntax_error(self.text, our_words(message), location)
    }
}

/// `VERSION AS OF 'tag'`: the parser takes numbers and placeholders there. The quote marks it, and [`tag_of`] reads it.
fn mark_tags(tokens: &mut [TokenWithSpan]) {
    let words = ["VERSION", "AS", "OF"];
    let mut num_matched = 0;
    for token in tokens {
        match &mut token.token {
            Token::Whitespace(_) => {}
            Token::Word(word) if num_matched < 3 && word.value.eq_ignore_ascii_case(words[num_matched]) => num_matched += 1,
            Token::SingleQuotedString(tag) | Token::EscapedStringLiteral(tag) if num_matched == 3 => {
                token.token = Token::Placeholder(format!("'{tag}"));
                num_matched = 0;
            }
            Token::Word(word) => num_matched = usize::from(word.value.eq_ignore_ascii_case(words[0])),
            _ => num_matched = 0,
        }
    }
}

/// Makes plain names of words that sqlparser takes for more: `at` in `FROM orders at`, which says of when the rows are only before a parenthesis, and the
/// name of a function behind its schema, `pg_catalog.substring(a, 'b')`.
fn free_names(tokens: &mut [TokenWithSpan]) {
    let mut is_qualified = false;
    for position in 0..tokens.len() {
        let following = |n: usize| {
            let mut tokens = tokens[position + 1..].iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
            tokens.nth(n)
        };
        let is_word = |token: Option<&Token>, wanted: Keyword| matches!(token, Some(Token::Word(word)) if word.keyword == wanted);
        let is_free = match &tokens[position].token {
            Token::Word(word) if word.quote_style.is_none() => {
                let is_call = following(0) == Some(&Token::LParen);
                match word.keyword {
                    Keyword::AT => !is_call && !is_word(following(0), Keyword::TIME),
                    Keyword::BEFORE | Keyword::CHANGES => !is_call,
                    Keyword::NoKeyword => false,
                    _ => is_qualified && is_call,
                }
            }
            _ => false,
        };
        is_qualified = tokens[position].token == Token::Period;
        if let (Token::Word(word), true) = (&mut tokens[position].token, is_free) {
            word.keyword = Keyword::NoKeyword;
        }
    }
}

/// The tag that a placeholder stands for.
pub(crate) fn tag_of(placeholder: &str) -> Option<&str> {
    placeholder.strip_prefix('\'')
}

/// Gives `<=>` the precedence that Postgres gives to every operator outside the standard: tighter than comparison.
///
/// sqlparser reads `<=>` as MySQL's null-safe equality, so `0.3 > a <=> b` would be `(0.3 > a) <=> b`. As a custom operator it
/// also cannot fall into DataFusion's reading of `<=>` as `IS NOT DISTINCT FROM`: who does not claim it gets an error, not wrong rows.
fn distance_operator(token: TokenWithSpan) -> TokenWithSpan {
    match token.token {
        Token::Spaceship => TokenWithSpan::new(Token::CustomBinaryOperator("<=>".to_string()), token.span),
        _ => token,
    }
}

/// `message at Line: 3, Column: 7` gives the message and the place.
fn split_location(text: &str) -> (&str, Option<Location>) {
    let split = || {
        let (message, place) = text.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        Some((message, Location::new(line.parse().ok()?, column.parse().ok()?)))
    };
    split().map_or((text, None), |(message, location)| (message, Some(location)))
}

/// `Expected: ), found: ;` becomes `expected ")"`: what was found is told by [`Error::Syntax::near`](Error::Syntax).
fn our_words(message: &str) -> String {
    let Some(rest) = message.strip_prefix("Expected: ") else { return lower_first(message) };
    let expected = rest.rsplit_once(", found: ").map_or(rest, |(expected, _)| expected);
    let is_sign = !expected.contains(|c: char| c.is_alphanumeric());
    if is_sign { format!("expected \"{expected}\"") } else { format!("expected {expected}") }
}

pub(crate) fn syntax_error(text: &str, message: String, location: Location) -> Error {
    // sqlparser gives the end of the text line 0.
    let location = if location.line == 0 { end_of(text) } else { location };
    let near = token_text(text, char_offset(text, location.line, location.column));
    Error::Syntax { message, line: location.line, column: location.column, near }
}

fn end_of(text: &str) -> Location {
    let last_line = text.rsplit('\n').next().unwrap_or_default();
    Location::new(text.split('\n').count() as u64, last_line.chars().count() as u64 + 1)
}

/// The word, string or sign that starts at the given character, cut to a length that fits into a message.
fn token_text(text: &str, offset: usize) -> String {
    const LENGTH_MAX: usize = 40;
    let mut chars = text.chars().skip(offset).peekable();
    let Some(first) = chars.next() else { return String::new() };
    let mut token = String::from(first);
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    while let Some(&next) = chars.peek() {
        let in_quotes = matches!(first, '\'' | '"');
        if token.chars().count() == LENGTH_MAX || next == '\n' || !(in_quotes || is_word(first) && is_word(next)) {
            break;
        }
        token.push(next);
        chars.next();
        if in_quotes && next == first {
            break;
        }
    }
    token
}

/// The text of `'..'` or `E'..'`: the first is made the second where it would be printed as another text ([`crate::quotes`]).
fn quoted_text(token: &Token) -> Option<&str> {
    match token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Some(text),
        _ => None,
    }
}

fn lower_first(message: &str) -> String {
    let mut chars = message.trim_end_matches('.').chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
