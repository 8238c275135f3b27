//! Reads one step. Headers count at the beginning of a line; what follows the first query or answer is dropped.

use crate::agent::protocol::lines::{after_header, first_line, lines};

pub const ANALYSIS: &str = "problem analysis";
pub const QUERY: &str = "retrieval query";
pub const DOCUMENTS: &str = "retrieval documents";
pub const ANSWER: &str = "final answer";

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reading<'a> {
    /// Step headers up to the outcome.
    pub num_steps: usize,
    /// Its lines, joined by spaces.
    pub analysis: String,
    pub outcome: Option<Outcome<'a>>,
}

/// The query or the answer of a step.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    pub is_query: bool,
    /// One line; may be blank.
    pub content: &'a str,
    /// Byte of the response after it.
    pub end: usize,
}

pub fn read(response: &str) -> Reading<'_> {
    let mut reading = Reading::default();
    let mut is_analysis = false;
    for line in lines(response, 0) {
        // A header may share the line of the step's.
        let text = match after_step_header(line.text) {
            Some(_) if reading.num_steps > 0 || is_analysis => break,
            Some(rest) => {
                reading.num_steps = 1;
                rest
            }
            None => line.text,
        };
        let header = |name| after_header(text, name);
        if let Some((is_query, rest)) = header(QUERY).map(|rest| (true, rest)).or_else(|| header(ANSWER).map(|rest| (false, rest))) {
            reading.outcome = Some(outcome(response, is_query, rest, line.end));
            break;
        }
        if header(DOCUMENTS).is_some() {
            break;
        }
        let analysis = header(ANALYSIS);
        is_analysis |= analysis.is_some();
        if is_analysis {
            reading.analysis += " ";
            reading.analysis += analysis.unwrap_or(text);
        }
    }
    reading
}

/// The content is the rest of the header's line, which ends at `end`, or, if that is blank, the next line that is not.
fn outcome<'a>(response: &'a str, is_query: bool, rest: &'a str, end: usize) -> Outcome<'a> {
    if !rest.trim().is_empty() {
        return Outcome { is_query, content: rest, end };
    }
    let next = first_line(response, end).filter(|line| !is_header(line.text));
    next.map_or(Outcome { is_query, content: rest, end }, |line| Outcome { is_query, content: line.text, end: line.end })
}

/// Whether the first line that is not blank is a header's.
pub fn begins_with_header(response: &str) -> bool {
    first_line(response, 0).is_some_and(|line| is_header(line.text))
}

fn is_header(line: &str) -> bool {
    after_step_header(line).is_some() || [ANALYSIS, QUERY, DOCUMENTS, ANSWER].iter().any(|name| after_header(line, name).is_some())
}

/// What follows `Step 3:` at the beginning of a line.
fn after_step_header(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(|letter: char| letter.is_ascii_whitespace() || matches!(letter, '*' | '#'));
    let rest = line.get(..4).filter(|word| word.eq_ignore_ascii_case("step")).map(|_| &line[4..])?;
    let number = rest.trim_start_matches([' ', '\t']);
    let after = number.trim_start_matches(|digit: char| digit.is_ascii_digit());
    (number.len() < rest.len() && after.len() < number.len()).then(|| after.trim_start_matches([' ', '*', ':']))
}
