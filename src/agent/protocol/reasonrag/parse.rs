//! Reads a response: the **first** complete tag that the state allows is the action, and what follows it is dropped.
//!
//! First and not last, because policies go on by inventing the evidence and the next step themselves; those were never
//! retrieved. Contents are taken whole: an answer `U.S.` keeps its dots (the published code cuts answers at the first one).
//! Only generated text comes here, never a prompt, so retrieved text cannot act.

use super::TAGS;
use crate::agent::protocol::markup::{Tagged, bounded, tagged};
use crate::agent::protocol::{Action, Parsed, State};

/// Longer queries are cut.
pub const MAX_QUERY_CHARS: usize = 512;
/// Longer answers are cut.
const MAX_ANSWER_CHARS: usize = 1024;
/// Longer evidence is cut.
const MAX_EVIDENCE_CHARS: usize = 4096;

pub fn parse(state: State, response: &str) -> Parsed {
    tagged(response, TAGS)
        .find(|tagged| allows(state, tagged.name))
        .map_or(Parsed { action: Action::Malformed, end: response.len() }, |tagged| Parsed { action: action(&tagged), end: tagged.end })
}

/// `answer_generation` reads a query as well: a policy that was asked to answer and still wants to search did follow the
/// protocol, and its trajectory ends with `max_steps` and not with `malformed`.
fn allows(state: State, tag: &str) -> bool {
    match state {
        State::EvidenceExtraction => tag == "evidence",
        State::BeginReasoning | State::Reasoning | State::AnswerGeneration => tag == "query" || tag == "answer",
    }
}

fn action(tagged: &Tagged<'_>) -> Action {
    match tagged.name {
        "evidence" => Action::Evidence(evidence(tagged.content)),
        _ if tagged.content.trim().is_empty() => Action::Malformed,
        "query" => Action::Query(bounded(tagged.content, MAX_QUERY_CHARS).to_owned()),
        _ => Action::Answer(bounded(tagged.content, MAX_ANSWER_CHARS).to_owned()),
    }
}

/// `None`, in any case and with a dot or without, says that no passage helps; so does an empty tag.
fn evidence(content: &str) -> Option<String> {
    let content = bounded(content, MAX_EVIDENCE_CHARS);
    let is_none = content.is_empty() || content.trim_end_matches('.').eq_ignore_ascii_case("none");
    (!is_none).then(|| content.to_owned())
}
