//! Regular expressions with PostgreSQL's flags and its escapes for borders of words.

use regex::{Regex, RegexBuilder};

use crate::Error;

/// # Errors
/// [`Error::Regex`] for a pattern that is none, and for a flag that is none.
pub(super) fn compiled(pattern: &str, flags: &str) -> Result<Regex, Error> {
    let pattern = with_borders(pattern);
    let mut builder = RegexBuilder::new(&pattern);
    // Unlike in Perl, a period is any character, a line's end too.
    builder.dot_matches_new_line(true);
    for flag in flags.chars() {
        match flag {
            'i' => builder.case_insensitive(true),
            'c' => builder.case_insensitive(false),
            'x' => builder.ignore_whitespace(true),
            's' => builder.dot_matches_new_line(true).multi_line(false),
            'n' | 'm' => builder.dot_matches_new_line(false).multi_line(true),
            'p' => builder.dot_matches_new_line(false),
            'w' => builder.multi_line(true),
            'e' | 't' => &mut builder,
            _ => return Err(Error::Regex { reason: format!("there is no flag \"{flag}\"") }),
        };
    }
    builder.build().map_err(|error| Error::Regex { reason: error.to_string() })
}

/// `\m`, `\M`, `\y`, `\Y` and `\Z` in the words of the engine.
fn with_borders(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        let Some(escaped) = escape.chars().next() else {
            out.push('\\');
            return out;
        };
        rest = &escape[escaped.len_utf8()..];
        match escaped {
            'm' => out.push_str("\\b{start}"),
            'M' => out.push_str("\\b{end}"),
            'y' => out.push_str("\\b"),
            'Y' => out.push_str("\\B"),
            'Z' => out.push_str("\\z"),
            other => out.extend(['\\', other]),
        }
    }
    out.push_str(rest);
    out
}

/// One pattern for all rows of a call is compiled once.
#[derive(Default)]
pub(super) struct Patterns {
    last: Option<(String, String, Regex)>,
}

impl Patterns {
    pub fn get(&mut self, pattern: &str, flags: &str) -> Result<Regex, Error> {
        if let Some((known, known_flags, regex)) = &self.last
            && known == pattern
            && known_flags == flags
        {
            return Ok(regex.clone());
        }
        let regex = compiled(pattern, flags)?;
        self.last = Some((pattern.to_owned(), flags.to_owned(), regex.clone()));
        Ok(regex)
    }
}
