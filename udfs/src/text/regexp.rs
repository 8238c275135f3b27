//! Parts of texts by regular expressions.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field};
use regex::Regex;

use super::pattern::Patterns;
use super::{SECTION, TEXT};
use crate::Error;
use crate::function::{Function, Interface, Kind, Parameter, Returns};

const PATTERN: Parameter = Parameter { name: "pattern", kind: Kind::Text, description: "A regular expression." };
const FLAGS: Parameter = Parameter {
    name: "flags",
    kind: Kind::Text,
    description: "`i`: in any case; `n`: a period is no line's end, `^` and `$` are at every line; `x`: blanks in the pattern mean nothing.",
};

pub(crate) static SUBSTRING: Function = Function {
    interface: Interface {
        name: "textregexsubstr",
        section: SECTION,
        description: "What a pattern finds first, or its first group if it has one; also `substring(text FROM 'pattern')`. NULL if it finds nothing.",
        parameters: &[TEXT, PATTERN],
        required: 2,
        example: ("SELECT textregexsubstr('Thomas', '...$')", "mas"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let (texts, patterns) = (arguments.text(0)?, arguments.text(1)?);
        let mut compiled = Patterns::default();
        let mut found = |row: usize| {
            let Some((text, pattern)) = texts.get(row).zip(patterns.get(row)) else { return Ok(None) };
            let regex = compiled.get(pattern, "")?;
            let group = usize::from(regex.captures_len() > 1);
            Ok(regex.captures(text).and_then(|groups| groups.get(group).map(|part| part.as_str().to_owned())))
        };
        Ok(Arc::new((0..arguments.num_rows()).map(&mut found).collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

pub(crate) static SUBSTR: Function = Function {
    interface: Interface {
        name: "regexp_substr",
        section: SECTION,
        description: "What a pattern finds, by default first and from the beginning. NULL if it finds nothing.",
        parameters: &[
            TEXT,
            PATTERN,
            Parameter { name: "start", kind: Kind::Integer, description: "The character from which it is looked for, from 1." },
            Parameter { name: "occurrence", kind: Kind::Integer, description: "Which one, from 1." },
            FLAGS,
            Parameter { name: "group", kind: Kind::Integer, description: "Which group of the pattern; 0 is all of it." },
        ],
        required: 2,
        example: ("SELECT regexp_substr('foobarbaz', 'ba(.)', 1, 2)", "baz"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let (texts, patterns) = (arguments.text(0)?, arguments.text(1)?);
        let integers = |index: usize| if arguments.has(index) { arguments.integer(index).map(Some) } else { Ok(None) };
        let (starts, occurrences, groups) = (integers(2)?, integers(3)?, integers(5)?);
        let flags = if arguments.has(4) { Some(arguments.text(4)?) } else { None };
        let mut compiled = Patterns::default();
        let mut found = |row: usize| {
            // One that is left out has its default, one that is NULL makes the result NULL.
            let number = |column: &Option<crate::arguments::Column<arrow::array::Int64Array>>, default: i64| match column {
                Some(column) => column.get(row),
                None => Some(default),
            };
            let flags = flags.as_ref().map_or(Some(""), |flags| flags.get(row));
            let (Some(text), Some(pattern), Some(flags)) = (texts.get(row), patterns.get(row), flags) else { return Ok(None) };
            let (Some(start), Some(occurrence), Some(group)) = (number(&starts, 1), number(&occurrences, 1), number(&groups, 0)) else {
                return Ok(None);
            };
            let (start, occurrence) = (SUBSTR.interface.positive(2, start)?, SUBSTR.interface.positive(3, occurrence)?);
            let group = usize::try_from(group).map_err(|_| SUBSTR.interface.argument_error(5, group, "0 or more"))?;
            let regex = compiled.get(pattern, flags)?;
            let Some(from) = text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(start - 1) else { return Ok(None) };
            let found = regex.captures_iter(&text[from..]).nth(occurrence - 1);
            Ok(found.and_then(|groups| groups.get(group).map(|part| part.as_str().to_owned())))
        };
        Ok(Arc::new((0..arguments.num_rows()).map(&mut found).collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

pub(crate) static SPLIT_TO_ARRAY: Function = Function {
    interface: Interface {
        name: "regexp_split_to_array",
        section: SECTION,
        description: "The parts of a text between what a pattern finds.",
        parameters: &[TEXT, PATTERN, FLAGS],
        required: 2,
        example: ("SELECT regexp_split_to_array('hello  world', '\\s+')", "[hello, world]"),
    },
    returns: Returns::Computed(|_, _| Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))),
    kernel: |arguments| {
        let (texts, patterns) = (arguments.text(0)?, arguments.text(1)?);
        let flags = if arguments.has(2) { Some(arguments.text(2)?) } else { None };
        let (mut compiled, mut lists) = (Patterns::default(), ListBuilder::new(StringBuilder::new()));
        for row in 0..arguments.num_rows() {
            let flags = flags.as_ref().map_or(Some(""), |flags| flags.get(row));
            let (Some(text), Some(pattern), Some(flags)) = (texts.get(row), patterns.get(row), flags) else {
                lists.append(false);
                continue;
            };
            for part in split(text, &compiled.get(pattern, flags)?) {
                lists.values().append_value(part);
            }
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()) as ArrayRef)
    },
};

/// As in PostgreSQL, nothing is found where it is empty and stands at the beginning, at the end or right behind what was found before.
fn split<'a>(text: &'a str, regex: &Regex) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut end = 0;
    for found in regex.find_iter(text) {
        if found.is_empty() && (found.start() == end || found.start() == text.len()) {
            continue;
        }
        parts.push(&text[end..found.start()]);
        end = found.end();
    }
    parts.push(&text[end..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::super::pattern::compiled;
    use super::*;

    #[test]
    fn texts_are_split_as_in_postgres() {
        let split_by = |text: &'static str, pattern: &str| split(text, &compiled(pattern, "").expect(pattern));
        assert_eq!(split_by("hello world", "\\s+"), ["hello", "world"]);
        assert_eq!(split_by("the quick", "\\s*"), ["t", "h", "e", "q", "u", "i", "c", "k"]);
        assert_eq!(split_by("abc", ""), ["a", "b", "c"]);
        assert_eq!(split_by(",a,", ","), ["", "a", ""]);
        assert_eq!(split_by("", ","), [""]);
    }

    #[test]
    fn patterns_know_borders_of_words_and_flags() {
        assert!(compiled("\\mfoo\\M", "").expect("a pattern").is_match("a foo b"));
        assert!(!compiled("\\mfoo\\M", "").expect("a pattern").is_match("afoo"));
        assert!(compiled("A.B", "i").expect("a pattern").is_match("a\nb"));
        assert!(!compiled("A.B", "in").expect("a pattern").is_match("a\nb"));
        assert!(matches!(compiled("(", ""), Err(Error::Regex { .. })));
        assert!(matches!(compiled("a", "q!"), Err(Error::Regex { .. })));
    }
}
