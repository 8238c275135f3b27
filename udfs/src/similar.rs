//! `similar_to` and `like_escape`: what `SIMILAR TO` and `LIKE .. ESCAPE` are.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StringArray};
use arrow::datatypes::DataType;
use regex::{Regex, RegexBuilder};

use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

const ESCAPE: Parameter = Parameter {
    name: "escape",
    kind: Kind::Text,
    description: "One character, behind which every other stands for itself, or an empty text for none. Backslash where it is left out.",
};

pub(crate) static SIMILAR_TO: Function = Function {
    interface: Interface {
        name: "similar_to",
        section: "Text",
        description: "Whether a whole text is one that a regular expression of SQL describes: `%` is any text, `_` any character, and `|`, `*`, `+`, `?`, `{m,n}`, \
            `(..)` and `[..]` are as in other regular expressions; `text SIMILAR TO pattern` does the same. NULL for NULL.",
        parameters: &[
            Parameter { name: "text", kind: Kind::Text, description: "The text." },
            Parameter { name: "pattern", kind: Kind::Text, description: "The regular expression." },
            ESCAPE,
        ],
        required: 2,
        example: ("SELECT similar_to('abc', '%(b|d)_')", "true"),
    },
    returns: Returns::Always(DataType::Boolean),
    kernel: |arguments| {
        let (texts, patterns) = (arguments.text(0)?, arguments.text(1)?);
        let escapes = if arguments.has(2) { Some(arguments.text(2)?) } else { None };
        let mut known: Option<(&str, &str, Regex)> = None;
        let mut found = Vec::with_capacity(arguments.num_rows());
        for row in 0..arguments.num_rows() {
            let escape = escapes.as_ref().map_or(Some("\\"), |escapes| escapes.get(row));
            let (Some(text), Some(pattern), Some(escape)) = (texts.get(row), patterns.get(row), escape) else {
                found.push(None);
                continue;
            };
            if known.as_ref().is_none_or(|known| (known.0, known.1) != (pattern, escape)) {
                known = Some((pattern, escape, similar_regex(pattern, escape)?));
            }
            found.push(known.as_ref().map(|(_, _, regex)| regex.is_match(text)));
        }
        Ok(Arc::new(BooleanArray::from(found)) as ArrayRef)
    },
};

pub(crate) static LIKE_ESCAPE: Function = Function {
    interface: Interface {
        name: "like_escape",
        section: "Text",
        description: "A pattern of LIKE with another escape than the backslash as one that has the backslash; `text LIKE pattern ESCAPE escape` reads it so. NULL for NULL.",
        parameters: &[Parameter { name: "pattern", kind: Kind::Text, description: "A pattern of LIKE." }, ESCAPE],
        required: 2,
        example: ("SELECT like_escape('10!%', '!')", "10\\%"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let (patterns, escapes) = (arguments.text(0)?, arguments.text(1)?);
        let escaped = (0..arguments.num_rows()).map(|row| {
            let both = patterns.get(row).zip(escapes.get(row));
            both.map(|(pattern, escape)| like_pattern(pattern, escape)).transpose()
        });
        Ok(Arc::new(escaped.collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

/// The pattern of LIKE with the backslash for its escape.
///
/// # Errors
/// [`Error::Escape`] for more than one character, and for one at the end, where PostgreSQL refuses it when a text comes so far.
pub fn like_pattern(pattern: &str, escape: &str) -> Result<String, Error> {
    let escape = escape_character(escape)?;
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            found if Some(found) == escape => {
                let next = characters.next().ok_or(Error::Escape { reason: "a pattern of LIKE must not end with its escape" })?;
                out.extend(['\\', next]);
            }
            '\\' => out.push_str("\\\\"),
            other => out.push(other),
        }
    }
    Ok(out)
}

/// Whether a text is described by a pattern of SIMILAR TO.
///
/// # Errors
/// As `similar_regex`.
pub fn is_similar(text: &str, pattern: &str, escape: &str) -> Result<bool, Error> {
    Ok(similar_regex(pattern, escape)?.is_match(text))
}

fn escape_character(escape: &str) -> Result<Option<char>, Error> {
    let mut characters = escape.chars();
    match (characters.next(), characters.next()) {
        (first, None) => Ok(first),
        _ => Err(Error::Escape { reason: "it must be empty or one character" }),
    }
}

/// # Errors
/// [`Error::Escape`] for more than one character, [`Error::Regex`] for a pattern that is no regular expression of SQL, [`Error::PatternPart`] for what
/// PostgreSQL takes there and this engine does not.
fn similar_regex(pattern: &str, escape: &str) -> Result<Regex, Error> {
    let translation = Translation { escape: escape_character(escape)?, characters: pattern.chars().peekable(), out: "^(?:".to_owned() };
    let regex = translation.run()?;
    RegexBuilder::new(&regex).dot_matches_new_line(true).build().map_err(|error| wrong(&error.to_string()))
}

fn wrong(reason: &str) -> Error {
    // The library shows the expression with a mark below it; its last line says what is wrong.
    let last = reason.lines().last().unwrap_or_default();
    Error::Regex { reason: last.strip_prefix("error: ").unwrap_or(last).to_owned() }
}

/// The most times that `{m,n}` asks for, as in PostgreSQL.
const REPEAT_MAX: u32 = 255;

struct Translation<'a> {
    escape: Option<char>,
    characters: std::iter::Peekable<std::str::Chars<'a>>,
    out: String,
}

impl Translation<'_> {
    fn run(mut self) -> Result<String, Error> {
        // Whether something stands before that can be repeated.
        let mut is_item = false;
        while let Some(character) = self.characters.next() {
            is_item = match character {
                found if Some(found) == self.escape => self.escaped()?,
                // It is repeated already.
                '%' => self.repeat(".*")?,
                '_' => self.push("."),
                '[' => self.class()?,
                // What is in parentheses is not kept, as in PostgreSQL.
                '(' => !self.push("(?:"),
                '|' => !self.push("|"),
                ')' => self.push(")"),
                '{' if !self.characters.peek().is_some_and(char::is_ascii_digit) => self.literal('{'),
                '*' | '+' | '?' | '{' if !is_item => return Err(wrong("quantifier operand invalid")),
                '{' => self.bounds()?,
                '*' | '+' | '?' => self.repeat(&character.to_string())?,
                other => self.literal(other),
            };
        }
        self.out.push_str(")$");
        Ok(self.out)
    }

    /// How often the item before comes. A question mark behind would say that few are tried first.
    fn repeat(&mut self, quantifier: &str) -> Result<bool, Error> {
        if self.characters.peek() == Some(&'?') {
            return Err(Error::PatternPart { function: "SIMILAR TO", part: format!("{quantifier}?") });
        }
        self.out.push_str(quantifier);
        Ok(false)
    }

    fn push(&mut self, text: &str) -> bool {
        self.out.push_str(text);
        true
    }

    fn literal(&mut self, character: char) -> bool {
        self.out.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
        true
    }

    /// What stands behind the escape. Letters and digits there are classes of PostgreSQL's own regular expressions, a quotation mark parts a text for SUBSTRING.
    fn escaped(&mut self) -> Result<bool, Error> {
        match self.characters.next() {
            Some(character) if character.is_alphanumeric() || character == '"' => {
                Err(Error::PatternPart { function: "SIMILAR TO", part: format!("{}{character}", self.escape.unwrap_or('\\')) })
            }
            Some(character) => Ok(self.literal(character)),
            // PostgreSQL leaves an escape at the end out.
            None => Ok(true),
        }
    }

    /// `[a-z]`, `[^ab]`, `[[:alpha:]_]`.
    fn class(&mut self) -> Result<bool, Error> {
        let unfinished = || wrong("a bracket [ is not closed");
        self.out.push('[');
        if self.characters.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        if self.characters.peek() == Some(&']') {
            return Err(Error::PatternPart { function: "SIMILAR TO", part: "[]".to_owned() });
        }
        loop {
            let character = self.characters.next().ok_or_else(unfinished)?;
            match character {
                ']' => break,
                '[' if matches!(self.characters.peek(), Some(':')) => {
                    let name: String = self.characters.by_ref().skip(1).take_while(|character| *character != ':').collect();
                    if self.characters.next() != Some(']') {
                        return Err(unfinished());
                    }
                    self.out.push_str(&format!("[:{name}:]"));
                }
                // Releases of PostgreSQL differ in what follows.
                '[' => return Err(Error::PatternPart { function: "SIMILAR TO", part: "[[".to_owned() }),
                '-' => self.out.push('-'),
                found if Some(found) == self.escape => {
                    let next = self.characters.next().ok_or_else(unfinished)?;
                    if next.is_alphanumeric() {
                        return Err(Error::PatternPart { function: "SIMILAR TO", part: format!("{found}{next}") });
                    }
                    self.in_class(next);
                }
                other => self.in_class(other),
            }
        }
        self.out.push(']');
        Ok(true)
    }

    /// One character of a class; the library has operators between classes, such as `&&`, and a hyphen at an end is one.
    fn in_class(&mut self, character: char) {
        if character.is_ascii_punctuation() {
            self.out.push('\\');
        }
        self.out.push(character);
    }

    /// `{2}`, `{2,}`, `{2,5}`.
    fn bounds(&mut self) -> Result<bool, Error> {
        let bounds: String = self.characters.by_ref().take_while(|character| *character != '}').collect();
        let number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse::<u32>().ok())?;
        let invalid = || wrong("invalid repetition count(s)");
        let (least, most) = match bounds.split_once(',') {
            Some((least, "")) => (number(least), None),
            Some((least, most)) => (number(least), Some(number(most).ok_or_else(invalid)?)),
            None => (number(&bounds), None),
        };
        let least = least.filter(|least| *least <= REPEAT_MAX).ok_or_else(invalid)?;
        if most.is_some_and(|most| most > REPEAT_MAX || most < least) {
            return Err(invalid());
        }
        self.repeat(&format!("{{{bounds}}}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first ones from PostgreSQL's documentation; all checked against PostgreSQL 15.
    #[test]
    fn texts_are_similar_as_in_postgres() {
        for (text, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "a", false),
            ("abc", "%(b|d)%", true),
            ("abc", "(b|c)%", false),
            ("-abc-", "%\\mabc\\M%", false),
            ("a.c", "a.c", true),
            ("abc", "a.c", false),
            ("a\nc", "a_c", true),
            ("a%c", "a\\%c", true),
            ("abc", "a\\%c", false),
            ("aaa", "a{2,3}", true),
            ("a", "a{2}", false),
            ("", "(a|b)?", true),
            ("x-y", "[w-z]-[^a-x]", true),
            ("&", "[a&&b]", true),
            ("^$", "^$", true),
            ("ab", "a|ab", true),
            ("foo", "[[:alpha:]]+", true),
        ] {
            match is_similar(text, pattern, "\\") {
                Ok(found) => assert_eq!(found, expected, "{text} {pattern}"),
                Err(error) => assert!(matches!(error, Error::PatternPart { .. }), "{text} {pattern}: {error}"),
            }
        }
        assert_eq!(is_similar("a%", "a#%", "#"), Ok(true));
        assert_eq!(is_similar("a\\b", "a\\b", ""), Ok(true));
        for pattern in ["a**", "%*", "*a", "(a", "a)", "[a", "a{2x}", "a{3,2}", "a{256}", "(|*)"] {
            assert!(matches!(is_similar("a", pattern, "\\"), Err(Error::Regex { .. })), "{pattern}");
        }
        assert!(matches!(is_similar("a", "a", "xx"), Err(Error::Escape { .. })));
    }

    #[test]
    fn escapes_of_like_become_backslashes() {
        for (pattern, escape, expected) in [
            ("10!%", "!", "10\\%"),
            ("a!!b", "!", "a\\!b"),
            ("a\\%", "!", "a\\\\%"),
            ("a\\%", "\\", "a\\%"),
            ("a\\%", "", "a\\\\%"),
            ("!\\", "!", "\\\\"),
        ] {
            assert_eq!(like_pattern(pattern, escape).as_deref(), Ok(expected), "{pattern}");
        }
        assert!(like_pattern("a!", "!").is_err() && like_pattern("a", "!!").is_err());
    }
}
