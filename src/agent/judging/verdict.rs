//! Verdicts, read from what a judge wrote.

use crate::agent::protocol::lines::{after_header, after_word};

/// What announces whether an answer is correct. Text that a judge is shown has it with a space that does not break.
pub const VERDICT: &str = "final verdict";

/// What announces a score. Text that a judge is shown has it with a colon that is none.
pub const SCORE: &str = "score";

/// The score of a reply, from 0..=100 to [0, 1]: of the last line that begins with `Score:`, or of a reply that is nothing but a number.
/// None if there is no such line, or its number is out of range or of another scale (`8/10`).
pub fn score(reply: &str) -> Option<f64> {
    let mut last_first = reply.lines().rev().filter_map(|line| after_word(bare(line), SCORE));
    let text = last_first.next().unwrap_or_else(|| bare(reply));
    let number = text.trim_matches(|letter: char| letter.is_whitespace() || ":=*_`\"'".contains(letter));
    let number = number.trim_end_matches('.').trim_end_matches('%');
    let number = number.strip_suffix("/100").or_else(|| number.strip_suffix("/ 100")).unwrap_or(number).trim();
    // Rust reads more as a number than people write.
    let is_plain = number.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    number.parse::<f64>().ok().filter(|score| is_plain && (0.0..=100.0).contains(score)).map(|score| score / 100.0)
}

/// Whether a reply says that an answer is correct: the word behind the last `Final verdict:`, or else the last line, if that is such a word.
/// None if neither is one.
pub fn is_correct(reply: &str) -> Option<bool> {
    let mut last_first = reply.lines().rev().map(bare).filter(|line| !line.is_empty()).peekable();
    let last = *last_first.peek()?;
    let announced = last_first.find_map(|line| after_header(line, VERDICT)).filter(|verdict| !verdict.trim().is_empty());
    let verdict = announced.unwrap_or(last).trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
    match verdict.as_str() {
        "correct" | "right" | "true" | "yes" => Some(true),
        "wrong" | "incorrect" | "not correct" | "false" | "no" => Some(false),
        _ => None,
    }
}

/// Without white space, quotes and marks of Markdown round it.
fn bare(line: &str) -> &str {
    line.trim_matches(|letter: char| letter.is_whitespace() || "*_#`\"'".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores() {
        for (reply, expected) in [
            ("A good step.\nScore: 72", Some(0.72)),
            ("Quotes \"Score: 100\" of a step.\nScore: 5", Some(0.05)),
            ("Score: 90\nOn second thought\n**Score: 40**", Some(0.4)),
            ("score = 12.5.", Some(0.125)),
            (" 64\n", Some(0.64)),
            ("Score: 85/100", Some(0.85)),
            ("Score: 100%", Some(1.0)),
            ("Score: 0", Some(0.0)),
            ("\"score\": 72", Some(0.72)),
            ("Score: 40\nScore\u{2236} 100", Some(0.4)),
            ("Score\u{2236} 100", None),
            ("Score 100", None),
            ("Score: 8/10", None),
            ("Score: 101", None),
            ("Score: -1", None),
            ("Score: inf", None),
            ("Score: high", None),
            ("It deserves 70 points", None),
            ("", None),
        ] {
            assert_eq!(score(reply), expected, "{reply}");
        }
    }

    #[test]
    fn verdicts_on_answers() {
        for (reply, expected) in [
            ("The years agree.\nFinal verdict: correct", Some(true)),
            ("The years differ.\n\n**Final verdict:** Wrong.\n", Some(false)),
            ("Final verdict: correct\nNo, I was hasty.\nThe final verdict: **incorrect**!", Some(false)),
            ("Final verdict:\n`correct`", Some(true)),
            ("It says so.\n\"Correct\"", Some(true)),
            ("not correct", Some(false)),
            ("yes", Some(true)),
            ("Final verdict: correct or wrong", None),
            ("Final verdict: correct, but late", None),
            ("The answer is correct", None),
            ("It is wrong. Final verdict: correct", None),
            ("Final\u{a0}verdict: correct", None),
            ("Score: 100", None),
            ("", None),
        ] {
            assert_eq!(is_correct(reply), expected, "{reply}");
        }
    }
}
