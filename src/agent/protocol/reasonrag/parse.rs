//! Reads a response: the **first** complete tag that the state allows is the action, and what follows it is dropped.
//!
//! First and not last, because policies go on by inventing the evidence and the next step themselves; those were never
//! retrieved. Contents are taken whole: an answer `U.S.` keeps its dots (the published code cuts answers at the first one).
//! Only generated text comes here, never a prompt, so retrieved text cannot act.

use super::TAGS;
use crate::agent::protocol::markup::{Tagged, bounded, tagged};
use crate::agent::protocol::{Action, MAX_ANSWER_CHARS, MAX_EVIDENCE_CHARS, MAX_QUERY_CHARS, Parsed, State, action_of};

pub fn parse(state: State, response: &str) -> Parsed {
    tagged(response, TAGS)
        .find(|tagged| allows(state, tagged.name))
        .map_or_else(|| Parsed::malformed(response), |tagged| Parsed { action: action(&tagged), end: tagged.end })
}

/// `answer_generation` reads a query as well: a policy that was asked to answer and still wants to search did follow the
/// protocol, and its trajectory ends with `max_steps` and not with `malformed`.
fn allows(state: State, tag: &str) -> bool {
    match state {
        State::EvidenceExtraction => tag == "evidence",
        _ => tag == "query" || tag == "answer",
    }
}

fn action(tagged: &Tagged<'_>) -> Action {
    match tagged.name {
        "evidence" => Action::Evidence(evidence(tagged.content)),
        "query" => action_of(tagged.content, MAX_QUERY_CHARS, Action::Query),
        _ => action_of(tagged.content, MAX_ANSWER_CHARS, Action::Answer),
    }
}

/// `None`, in any case and with a dot or without, says that no passage helps; so does an empty tag.
fn evidence(content: &str) -> Option<String> {
    let content = bounded(content, MAX_EVIDENCE_CHARS);
    let is_none = content.is_empty() || content.trim_end_matches('.').eq_ignore_ascii_case("none");
    (!is_none).then(|| content.to_owned())
}
