//! What a trajectory keeps of its format, and the orders of actions that are one ([`super::Protocol::is_well_formed`]).

use rolloutdb_udfs::metrics::KeptFormat;

use super::{Action, Protocol, State};

/// What a trajectory keeps of its protocol's format; of each step the state in which the policy was asked, and its response.
pub fn kept_format<'a>(protocol: &dyn Protocol, steps: impl IntoIterator<Item = (State, &'a str)>) -> KeptFormat {
    let mut actions: Vec<Action> = Vec::new();
    let mut of_steps = true;
    for (state, response) in steps {
        of_steps &= protocol.is_well_formed_response(state, response);
        actions.push(protocol.parse(state, response).action);
    }
    KeptFormat { steps: of_steps, trajectory: of_steps && protocol.is_well_formed(&actions) }
}

/// The actions before the answer; None if the last one is no answer.
pub fn before_answer(actions: &[Action]) -> Option<&[Action]> {
    actions.split_last().filter(|(last, _)| matches!(last, Action::Answer(_))).map(|(_, earlier)| earlier)
}

/// Whether an answer follows any number of actions that all satisfy `is_step`.
pub fn steps_then_answer(actions: &[Action], is_step: fn(&Action) -> bool) -> bool {
    before_answer(actions).is_some_and(|earlier| earlier.iter().all(is_step))
}

/// Whether an answer follows any number of queries, each with an action after it that satisfies `is_reading`.
///
/// `may_be_cut`: the last query may have none, since the step limit made the next step the answer.
pub fn queries_read_then_answer(actions: &[Action], is_reading: fn(&Action) -> bool, may_be_cut: bool) -> bool {
    before_answer(actions).is_some_and(|earlier| {
        earlier.chunks(2).all(|turn| match turn {
            [Action::Query(_), reading] => is_reading(reading),
            [Action::Query(_)] => may_be_cut,
            _ => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(letters: &str) -> Vec<Action> {
        let action = |letter| match letter {
            'Q' => Action::Query("q".to_owned()),
            'E' => Action::Evidence(None),
            'S' => Action::SubAnswer("s".to_owned()),
            'T' => Action::Thought("t".to_owned()),
            'A' => Action::Answer("a".to_owned()),
            _ => Action::Malformed,
        };
        letters.chars().map(action).collect()
    }

    /// Which of the trajectories each protocol takes for well formed.
    #[test]
    fn grammars() {
        let trajectories =
            ["A", "QA", "QQA", "QEA", "QEQA", "QEQEA", "QSA", "QSQSA", "QSQA", "SQA", "TA", "TTA", "MA", "QMA", "AA", "Q", "M", ""];
        let accepted = |protocol: &str| {
            let protocol = crate::agent::protocol::protocol(protocol).unwrap();
            let is_accepted = |letters: &&str| protocol.is_well_formed(&actions(letters));
            trajectories.iter().copied().filter(is_accepted).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(accepted("reasonrag"), "A QA QEA QEQA QEQEA");
        assert_eq!(accepted("search_r1"), "A QA QQA");
        assert_eq!(accepted("prorag"), "A QSA QSQSA");
        assert_eq!(accepted("r3rag"), "A QA QQA");
        assert_eq!(accepted("self_ask"), "A QA QSA QSQSA QSQA");
        for protocol in ["direct", "cot", "naive_rag"] {
            assert_eq!(accepted(protocol), "A");
        }
        for protocol in ["ircot", "iter_retgen"] {
            assert_eq!(accepted(protocol), "A TA TTA");
        }
    }
}
