//! Where sentences end.
//!
//! Unicode's rule (UAX #29) does most of it. It knows no abbreviations, of which encyclopaedic English is full: what it cuts after `J.`, `Dr.` or `U.S.`
//! is put together again, unless the next word is one that begins sentences far more often than it follows an abbreviation.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// Lower case, without the last period.
const ABBREVIATIONS: &[&str] = &[
    "adm", "al", "approx", "apr", "aug", "bros", "brig", "capt", "cf", "cmdr", "co", "col", "comdr", "corp", "dec", "dept", "dr", "ed",
    "eds", "est", "etc", "feb", "fr", "ft", "gen", "gov", "hon", "inc", "jan", "jr", "jul", "jun", "lt", "ltd", "maj", "mar", "messrs",
    "mr", "mrs", "ms", "mt", "nov", "oct", "pres", "prof", "pvt", "rep", "rev", "sen", "sep", "sept", "sgt", "sr", "st", "ste", "supt",
    "vs",
];

/// Abbreviations only before a number.
const NUMBERED: &[&str] = &["c", "ca", "fig", "no", "nos", "op", "p", "pp", "vol", "vols"];

/// Words that begin a sentence after an abbreviation.
const BEGINNINGS: &[&str] = &[
    "A", "After", "Although", "An", "As", "At", "But", "By", "During", "For", "From", "He", "Her", "His", "However", "In", "It", "Its",
    "On", "She", "Since", "That", "The", "Their", "There", "These", "They", "This", "Those", "We", "When", "While", "With", "You",
];

/// The sentences of a text without the white space round them. A line break ends a sentence.
pub fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut sentences: Vec<Range<usize>> = Vec::new();
    let mut ends_line = true;
    for (start, piece) in text.split_sentence_bound_indices() {
        let trimmed = piece.trim();
        let start = start + (piece.len() - piece.trim_start().len());
        let sentence = start..start + trimmed.len();
        let continues = |last: &&mut Range<usize>| !ends_line && goes_on(&text[(*last).clone()], trimmed);
        match sentences.last_mut().filter(continues) {
            _ if trimmed.is_empty() => {}
            Some(last) => last.end = sentence.end,
            None => sentences.push(sentence),
        }
        ends_line = piece.ends_with(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
    }
    sentences
}

/// Whether the sentence that Unicode ends after `before` goes on with `after`: a small letter does not begin one (`"Is it?" asked he.`), and the period
/// of an abbreviation does not end one.
fn goes_on(before: &str, after: &str) -> bool {
    if after.starts_with(char::is_lowercase) {
        return true;
    }
    let last_word = before.split_whitespace().next_back().unwrap_or_default();
    let Some(word) = last_word.trim_start_matches(['(', '[', '"', '\'', '“']).strip_suffix('.') else { return false };
    let first_word = after.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default();
    let is_initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
    // U.S, Ph.D, e.g
    let has_periods =
        word.contains('.') && word.split('.').all(|part| (1..=2).contains(&part.chars().count()) && part.chars().all(char::is_alphabetic));
    let lower = word.to_lowercase();
    let is_known = ABBREVIATIONS.contains(&lower.as_str())
        || (NUMBERED.contains(&lower.as_str()) && first_word.starts_with(|first: char| first.is_ascii_digit()));
    (is_initial || has_periods || is_known) && !BEGINNINGS.contains(&first_word)
}
