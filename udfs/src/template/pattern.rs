//! Patterns in parts: words that stand for something, and characters for themselves.

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Word(Word),
    /// A blank, which more or fewer blanks may stand for when a text is read.
    Space(char),
    /// A sign between words, of which the same holds.
    Separator(char),
    /// Anything else for itself.
    Character(char),
}

/// A word with what stands before and behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// As it is written: `Month` and `MONTH` are two.
    pub name: &'static str,
    /// `FM`: without blanks and zeros that fill up.
    pub is_filled: bool,
    /// `TM`: names in the language of the server, which is English.
    pub is_translated: bool,
    /// `TH` or `th`.
    pub ordinal: Option<Case>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Lower,
}

/// Words of dates and times, in the order in which PostgreSQL tries them: of those with one first letter, the first that fits.
const TIME_WORDS: &[&str] = &[
    "A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "CC", "DAY", "DDD", "DD", "DY", "Day", "Dy", "D", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6",
    "FX", "HH24", "HH12", "HH", "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J", "MI", "MM", "MONTH", "MON", "MS", "Month", "Mon", "OF",
    "P.M.", "PM", "Q", "RM", "SSSSS", "SSSS", "SS", "TZH", "TZM", "TZ", "US", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y", "a.d.", "a.m.",
    "ad", "am", "b.c.", "bc", "cc", "day", "ddd", "dd", "dy", "d", "ff1", "ff2", "ff3", "ff4", "ff5", "ff6", "fx", "hh24", "hh12", "hh",
    "iddd", "id", "iw", "iyyy", "iyy", "iy", "i", "j", "mi", "mm", "month", "mon", "ms", "of", "p.m.", "pm", "q", "rm", "sssss", "ssss",
    "ss", "tzh", "tzm", "tz", "us", "ww", "w", "y,yyy", "yyyy", "yyy", "yy", "y",
];

/// Words of numbers, in the same order.
const NUMBER_WORDS: &[&str] = &[
    ",", ".", "0", "9", "B", "C", "D", "EEEE", "FM", "G", "L", "MI", "PL", "PR", "RN", "SG", "SP", "S", "TH", "V", "b", "c", "d", "eeee",
    "fm", "g", "l", "mi", "pl", "pr", "rn", "sg", "sp", "s", "th", "v",
];

/// The parts of a pattern for dates and times.
pub(super) fn time_parts(pattern: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while !rest.is_empty() {
        let mut word = Word::default();
        if let Some(after) = strip_any(rest, &["FM", "fm"]) {
            (word.is_filled, rest) = (true, after);
        } else if let Some(after) = strip_any(rest, &["TM", "tm"]) {
            (word.is_translated, rest) = (true, after);
        }
        let Some((name, after)) = take_word(rest, TIME_WORDS) else {
            rest = take_characters(rest, true, &mut parts);
            continue;
        };
        (word.name, rest) = (name, after);
        if let Some(after) = rest.strip_prefix("TH") {
            (word.ordinal, rest) = (Some(Case::Upper), after);
        } else if let Some(after) = rest.strip_prefix("th") {
            (word.ordinal, rest) = (Some(Case::Lower), after);
        } else if let Some(after) = rest.strip_prefix("SP") {
            // PostgreSQL reads it and does nothing.
            rest = after;
        }
        parts.push(Part::Word(word));
    }
    parts
}

/// The parts of a pattern for numbers.
pub(super) fn number_parts(pattern: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while !rest.is_empty() {
        rest = match take_word(rest, NUMBER_WORDS) {
            Some((name, after)) => {
                parts.push(Part::Word(Word { name, ..Word::default() }));
                after
            }
            None => take_characters(rest, false, &mut parts),
        };
    }
    parts
}

fn strip_any<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().find_map(|word| text.strip_prefix(word))
}

fn take_word<'a>(text: &'a str, words: &[&'static str]) -> Option<(&'static str, &'a str)> {
    words.iter().find_map(|word| Some((*word, text.strip_prefix(word)?)))
}

/// Takes a text in double quotes, or one character, and gives what stands behind.
fn take_characters<'a>(text: &'a str, has_separators: bool, parts: &mut Vec<Part>) -> &'a str {
    let mut characters = text.chars();
    match characters.next() {
        Some('"') => {
            while let Some(character) = characters.next() {
                match character {
                    '"' => break,
                    // It quotes the next character, if there is one.
                    '\\' => parts.push(Part::Character(characters.next().unwrap_or('\\'))),
                    other => parts.push(Part::Character(other)),
                }
            }
        }
        Some('\\') if characters.as_str().starts_with('"') => {
            characters.next();
            parts.push(Part::Character('"'));
        }
        Some(blank) if is_space(blank) => parts.push(Part::Space(blank)),
        Some(sign) if has_separators && is_separator(sign) => parts.push(Part::Separator(sign)),
        Some(other) => parts.push(Part::Character(other)),
        None => {}
    }
    characters.as_str()
}

pub(super) fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// A printable sign of ASCII that is neither a letter nor a digit.
pub(super) fn is_separator(character: char) -> bool {
    matches!(character, '\x21'..='\x7e') && !character.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &'static str) -> Part {
        Part::Word(Word { name, ..Word::default() })
    }

    #[test]
    fn a_pattern_is_words_and_what_is_between() {
        let parts = time_parts(r#"YYYY-FMMonth "of" x\"é DDth"#);
        let month = Part::Word(Word { name: "Month", is_filled: true, ..Word::default() });
        let day = Part::Word(Word { name: "DD", ordinal: Some(Case::Lower), ..Word::default() });
        let characters = |text: &str| text.chars().map(Part::Character).collect::<Vec<_>>();
        let expected = [
            vec![word("YYYY"), Part::Separator('-'), month, Part::Space(' ')],
            characters("of"),
            vec![Part::Space(' ')],
            characters("x\"é"),
            vec![Part::Space(' '), day],
        ];
        assert_eq!(parts, expected.concat());
        // A word in neither case alone is none, and what it begins with may be one.
        assert_eq!(time_parts("Yyyy"), [word("Y"), word("yyy")]);
        assert_eq!(time_parts("Hh"), characters("Hh"));
        assert_eq!(time_parts("\"open"), characters("open"));
        assert_eq!(number_parts("FM9.d x"), [word("FM"), word("9"), word("."), word("d"), Part::Space(' '), Part::Character('x')]);
    }
}
