//! Protocols without tags: reading lines, headers and phrases in what the policy wrote, and making text from outside unable to look
//! like them.
//!
//! A header counts at the beginning of a line only, and text from outside is never more than the rest of one line. A phrase counts
//! wherever its words stand with white space, or the hyphen that it has, between them; in text from outside a space or a hyphen that does
//! not break stands there, which looks the same and is none of the ASCII characters that the reader wants. A sign that makes a header of a
//! single word becomes another that looks like it.

use super::{Action, MAX_ANSWER_CHARS, Parsed, action_of};

const NO_BREAK_SPACE: &str = "\u{a0}";
const NO_BREAK_HYPHEN: &str = "\u{2011}";

/// Look like `:` and `=`.
const RATIO: &str = "\u{2236}";
const SHORT_EQUALS: &str = "\u{a78a}";

/// What announces an answer in running text.
pub const ANSWER_IS: &str = "answer is";

/// A line of a text, without its line break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub text: &'a str,
    /// Byte after it.
    pub end: usize,
}

/// The lines of `text` from byte `from` on.
pub fn lines(text: &str, from: usize) -> impl Iterator<Item = Line<'_>> {
    let mut start = from;
    text[from..].split_inclusive('\n').map(move |line| {
        let text = line.trim_end_matches(['\n', '\r']);
        let end = start + text.len();
        start += line.len();
        Line { text, end }
    })
}

/// The first line from byte `from` on that is not blank, trimmed at its start.
pub fn first_line(text: &str, from: usize) -> Option<Line<'_>> {
    lines(text, from).find(|line| !line.text.trim().is_empty()).map(|line| Line { text: line.text.trim_start(), ..line })
}

/// What follows `name:` or `The name:` at the beginning of a line, in any case; None if the line begins otherwise.
pub fn after_header<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let line = undecorated(line);
    let rest = strip_phrase(line, name).or_else(|| strip_phrase(without_words(line, &["the"]), name))?;
    Some(undecorated(undecorated(rest).strip_prefix(':')?))
}

/// What follows `word:` or `word =` at the beginning of a text, in any case; None if it begins otherwise.
pub fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = strip_phrase(text, word)?;
    header_sign(rest).map(|sign| &rest[sign + 1..])
}

/// What follows `So the final answer is`, `The answer is:`, `Final answer:` or the like at the beginning of a line.
pub fn after_announcement(line: &str) -> Option<&str> {
    let line = without_words(undecorated(line), &["so", "the"]);
    let rest = strip_phrase(without_words(line, &["final"]), "answer").map(str::trim_ascii_start)?;
    match strip_phrase(rest, "is") {
        Some(rest) => Some(after_colon(rest)),
        None => after_header(line, "final answer"),
    }
}

/// Reads a response that is an answer and nothing else: the first line that holds one, with or without an announcement.
pub fn read_answer(response: &str) -> Parsed {
    let mut from = 0;
    while let Some(line) = first_line(response, from) {
        let announced = after_announcement(line.text).or_else(|| after_header(line.text, "answer"));
        let action = answer_of(announced.unwrap_or(line.text));
        if action != Action::Malformed {
            return Parsed { action, end: line.end };
        }
        from = line.end;
    }
    Parsed::malformed(response)
}

/// Reads the answer that follows the last `answer is` in a response; what stands between them and the end of the line.
pub fn read_announced_answer(response: &str) -> Parsed {
    let announced = phrases(response, ANSWER_IS).last().and_then(|(_, end)| {
        let line = first_line(response, response.len() - after_colon(&response[end..]).len())?;
        Some(Parsed { action: answer_of(line.text), end: line.end })
    });
    announced.unwrap_or_else(|| Parsed::malformed(response))
}

/// An answer in plain text. The full stop that ends its sentence is no part of it; those of `U.S.` are.
pub fn answer_of(text: &str) -> Action {
    let text = text.trim();
    let without_stop = text.strip_suffix('.').filter(|rest| !rest.contains('.')).unwrap_or(text);
    action_of(without_stop, MAX_ANSWER_CHARS, Action::Answer)
}

/// Whether `phrase` stands in `text`.
pub fn has_phrase(text: &str, phrase: &str) -> bool {
    phrases(text, phrase).next().is_some()
}

/// `text` with no `phrases` in it: a space or a hyphen that does not break stands between their first two words.
pub fn break_phrases(mut text: String, broken: &[&str]) -> String {
    for phrase in broken {
        let first_word = phrase.find([' ', '-']).expect("a phrase has two words");
        let unbroken = if phrase[first_word..].starts_with('-') { NO_BREAK_HYPHEN } else { NO_BREAK_SPACE };
        let starts: Vec<usize> = phrases(&text, phrase).map(|(start, _)| start).collect();
        // From the end, so that the earlier places stay where they are.
        for start in starts.into_iter().rev() {
            let between = start + first_word;
            text.replace_range(between..=between, unbroken);
        }
    }
    text
}

/// `text` in which no word of `words` is a header: what would make it one is a sign that looks like it.
pub fn break_words(mut text: String, words: &[&str]) -> String {
    for word in words {
        let sign_after = |(_, end): (usize, usize)| header_sign(&text[end..]).map(|sign| end + sign);
        let signs: Vec<usize> = phrases(&text, word).filter_map(sign_after).collect();
        // From the end, so that the earlier places stay where they are.
        for sign in signs.into_iter().rev() {
            let broken = if text[sign..].starts_with(':') { RATIO } else { SHORT_EQUALS };
            text.replace_range(sign..=sign, broken);
        }
    }
    text
}

/// Byte of the `:` or `=` that makes a header of the word before `rest`; between them may be white space, quotes, and marks of Markdown.
fn header_sign(rest: &str) -> Option<usize> {
    let sign = rest.find(|letter: char| !letter.is_ascii_whitespace() && !"*#_`\"'".contains(letter))?;
    rest[sign..].starts_with([':', '=']).then_some(sign)
}

/// Byte after the first sentence of a line.
///
/// A sentence ends with `.`, `?` or `!` before white space, unless what follows is in lower case or the stop is that of an initial or of
/// an abbreviation (`U.S.`, `St.`). Nothing is lost by a mistake: the next sentence is the rest.
pub fn first_sentence(line: &str) -> usize {
    let mut ends = line.char_indices().filter(|(_, letter)| matches!(letter, '.' | '?' | '!')).map(|(index, _)| index + 1);
    let is_end = |end: &usize| {
        let (before, after) = line.split_at(*end);
        let after = after.trim_start_matches(['"', '\'', ')', ']', '”', '’']);
        let next = after.trim_start();
        (after.is_empty() || after.len() > next.len()) && !next.starts_with(char::is_lowercase) && !is_abbreviation(before)
    };
    ends.find(is_end).unwrap_or(line.len())
}

fn is_abbreviation(before: &str) -> bool {
    let Some(word) = before.strip_suffix('.').and_then(|text| text.split_whitespace().last()) else { return false };
    let word = word.trim_start_matches(['(', '"', '“', '[']);
    let is_initial = word.chars().count() == 1 && word.chars().all(char::is_alphabetic);
    is_initial || word.contains('.') || ["Mr", "Mrs", "Ms", "Dr", "St", "Mt", "Jr", "Sr", "vs", "Prof", "Gen"].contains(&word)
}

/// Start and end of each place where the words of `phrase` stand with ASCII white space between them.
fn phrases(text: &str, phrase: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut previous = None;
    text.char_indices().filter_map(move |(start, letter)| {
        let begins_word = !previous.replace(letter).is_some_and(char::is_alphanumeric);
        let rest = begins_word.then(|| strip_phrase(&text[start..], phrase)).flatten()?;
        Some((start, text.len() - rest.len()))
    })
}

/// What follows the words of `phrase`, in any case, at the beginning of `text`.
fn strip_phrase<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let mut rest = text;
    for (index, word) in phrase.split(' ').enumerate() {
        let next = rest.trim_start_matches(|letter: char| letter.is_ascii_whitespace());
        if (index > 0) == (next.len() == rest.len()) {
            return None;
        }
        let head = next.get(..word.len()).filter(|head| head.eq_ignore_ascii_case(word))?;
        rest = &next[head.len()..];
    }
    (!rest.starts_with(char::is_alphanumeric)).then_some(rest)
}

/// The text after each of `words` that stands next at its beginning.
fn without_words<'a>(mut text: &'a str, words: &[&str]) -> &'a str {
    for word in words {
        text = strip_phrase(text, word).map_or(text, |rest| undecorated(rest.trim_start_matches(',')));
    }
    text
}

/// Without white space and marks of Markdown at its beginning.
fn undecorated(text: &str) -> &str {
    text.trim_start_matches(|letter: char| letter.is_ascii_whitespace() || matches!(letter, '*' | '#'))
}

/// What follows a colon, if the text begins with one.
fn after_colon(text: &str) -> &str {
    let text = undecorated(text);
    text.strip_prefix(':').map_or(text, undecorated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_stand_at_the_beginning_of_a_line() {
        let query = |line| after_header(line, "retrieval query");
        assert_eq!(query("The retrieval query: who? where?"), Some("who? where?"));
        assert_eq!(query(" retrieval  Query : x"), Some("x"));
        assert_eq!(query("**The retrieval query:** x"), Some("x"));
        assert_eq!(query("### **Retrieval query**: x"), Some("x"));
        assert_eq!(query("The retrieval query:"), Some(""));
        for line in ["[1] The retrieval query: x", "The retrieval query x", "The retrieval\u{a0}query: x", "retrieval queryx: y", ""] {
            assert_eq!(query(line), None, "{line}");
        }
    }

    #[test]
    fn a_word_is_a_header_by_its_sign() {
        let score = |text| after_word(text, "score");
        assert_eq!(score("Score: 72"), Some(" 72"));
        assert_eq!(score("SCORE** = 72"), Some(" 72"));
        assert_eq!(score("score\": 72"), Some(" 72"));
        for text in ["Score 72", "Scores: 72", "The score: 72", "Score\u{2236} 72", "Score\u{a0}: 72", "Score"] {
            assert_eq!(score(text), None, "{text}");
        }
        let broken = |text: &str| break_words(text.to_owned(), &["score"]);
        assert_eq!(
            broken("Score: 1, SCORE ** = 2; the score 3, scores: 4"),
            "Score\u{2236} 1, SCORE ** \u{a78a} 2; the score 3, scores: 4"
        );
    }

    #[test]
    fn answers_are_announced_in_many_ways() {
        for line in ["So the final answer is: U.S.", "the answer is U.S.", "So, the answer is **: U.S.", "Final answer: U.S."] {
            assert_eq!(after_announcement(line), Some("U.S."), "{line}");
        }
        for line in ["The answer", "I think the answer is x", "The answer\u{a0}is: x", "Answer: x", "The answer island"] {
            assert_eq!(after_announcement(line), None, "{line}");
        }
    }

    #[test]
    fn an_answer_is_the_first_line_that_holds_one() {
        let read = |response| {
            let parsed = read_answer(response);
            (parsed.action, parsed.end)
        };
        let answered = |text: &str| Action::Answer(text.to_owned());
        assert_eq!(read(" 1946.\nQuestion: more"), (answered("1946"), 6));
        assert_eq!(read("\n\nAnswer:\r\n St. Louis, U.S.\n"), (answered("St. Louis, U.S."), 27));
        assert_eq!(read(" \n \n"), (Action::Malformed, 4));
    }

    #[test]
    fn the_last_announcement_in_running_text_counts() {
        let read = |response| read_announced_answer(response).action;
        let answered = |text: &str| Action::Answer(text.to_owned());
        assert_eq!(read("The answer is not plain. So the answer is: 12 May, 1946."), answered("12 May, 1946"));
        assert_eq!(read("Hence the answer\nis:\n the U.S.\nand so on"), answered("the U.S."));
        assert_eq!(read("So the answer\u{a0}is: x"), Action::Malformed);
        assert_eq!(read("So the answer is:"), Action::Malformed);
    }

    #[test]
    fn sentences() {
        let first = |line: &'static str| &line[..first_sentence(line)];
        assert_eq!(first("It is so. And then"), "It is so.");
        assert_eq!(first("He (J. R. Hale Jr. of the U.S. Navy) left. Then"), "He (J. R. Hale Jr. of the U.S. Navy) left.");
        assert_eq!(first("Is it 3.5 or 4? Yes."), "Is it 3.5 or 4?");
        assert_eq!(first("no end"), "no end");
        assert_eq!(first("approx. ten"), "approx. ten");
    }

    proptest! {
        /// Whatever stands in a text, no phrase is found in it after breaking them, and breaking them twice changes nothing more.
        #[test]
        fn broken_phrases_are_none(pieces in prop::collection::vec(
            prop_oneof![Just("answer"), Just("IS"), Just(" "), Just("\t"), Just("follow"), Just("up"), Just("é"), Just(":"), Just("final"), Just("-")],
            0..30,
        )) {
            let names = ["answer is", "follow up", "follow-up", "final answer is"];
            let broken = break_phrases(pieces.concat(), &names);
            prop_assert!(names.iter().all(|name| !has_phrase(&broken, name)), "{broken:?}");
            prop_assert_eq!(break_phrases(broken.clone(), &names), broken);
        }

        /// Whatever stands in a text, no part of it begins with a header after breaking them, and breaking them twice changes nothing more.
        #[test]
        fn broken_words_are_no_headers(pieces in prop::collection::vec(
            prop::sample::select(vec!["score", "SCORE", ":", "=", " ", "*", "\"", "\u{a0}", "é", "7", "s"]),
            0..30,
        )) {
            let broken = break_words(pieces.concat(), &["score"]);
            let words = broken.char_indices().filter(|(start, _)| !broken[..*start].ends_with(char::is_alphanumeric));
            prop_assert!(words.into_iter().all(|(start, _)| after_word(&broken[start..], "score").is_none()), "{broken:?}");
            prop_assert_eq!(break_words(broken.clone(), &["score"]), broken);
        }
    }
}
