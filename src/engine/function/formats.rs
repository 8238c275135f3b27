//! The formats of protocols for `well_formed()` and the rewards: what each state asks for is the protocol's to say.

use std::sync::Arc;

use datafusion::error::Result;
use rolloutdb_udfs::metrics::{Formats, KeptFormat, WrittenStep};

use crate::agent::State;
use crate::agent::protocol::{Protocol, kept_format, protocol};
use crate::error::Error;

pub fn formats() -> Arc<dyn Formats> {
    Arc::new(Protocols)
}

#[derive(Debug)]
struct Protocols;

impl Formats for Protocols {
    fn kept(&self, name: &str, trajectories: &[Vec<WrittenStep<'_>>]) -> Result<Vec<KeptFormat>> {
        let protocol = protocol(name)?;
        let kept = |steps: &Vec<WrittenStep<'_>>| {
            let states = steps.iter().map(|step| state_of(protocol.as_ref(), step.state)).collect::<crate::error::Result<Vec<State>>>()?;
            let steps = states.into_iter().zip(steps.iter().map(|step| step.response));
            Ok(kept_format(protocol.as_ref(), steps))
        };
        Ok(trajectories.iter().map(kept).collect::<crate::error::Result<Vec<_>>>()?)
    }
}

/// # Errors
/// [`Error::UnknownOption`]: the step was taken in another protocol.
fn state_of(protocol: &dyn Protocol, name: &str) -> crate::error::Result<State> {
    let states = protocol.states();
    states.iter().copied().find(|state| state.as_str() == name).ok_or_else(|| Error::UnknownOption {
        kind: "state",
        name: name.to_owned(),
        of: format!("protocol {}", protocol.name()),
        known: states.iter().map(|state| state.as_str().to_owned()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether all steps, and the trajectory, keep the format.
    fn check(protocol: &str, steps: &[(&str, &str)]) -> (bool, bool) {
        let steps: Vec<WrittenStep<'_>> = steps.iter().copied().map(|(state, response)| WrittenStep { state, response }).collect();
        let kept = Protocols.kept(protocol, &[steps]).unwrap();
        (kept[0].steps, kept[0].trajectory)
    }

    #[test]
    fn an_answer_outside_of_its_format_breaks_it() {
        assert_eq!(check("prorag", &[("begin_reasoning", "no step <answer>x</answer>")]), (false, false));
        assert_eq!(check("prorag", &[("begin_reasoning", "I know it.</step>\n<answer>x</answer>")]), (true, true));
        assert_eq!(check("search_r1", &[("begin_reasoning", "<answer>x</answer>")]), (false, false));
        assert_eq!(check("search_r1", &[("begin_reasoning", "<think>I know it.</think><answer>x</answer>")]), (true, true));
        assert_eq!(check("r3rag", &[("reasoning", "Step 1:\nThe final answer: x")]), (false, false));
        assert_eq!(check("r3rag", &[("reasoning", "Step 1:\nThe problem analysis: I know it.\nThe final answer: x")]), (true, true));
        assert_eq!(check("reasonrag", &[("begin_reasoning", "So <answer>x</answer>")]), (true, true));
    }

    #[test]
    fn steps_may_be_well_formed_in_a_wrong_order() {
        let query = ("begin_reasoning", "Who?</step><subquery>Jaws</subquery>");
        let sub_answer = ("evidence_extraction", "It says so.</step><subanswer>Spielberg</subanswer>");
        let answer = ("reasoning", "All is there.</step><answer>Spielberg</answer>");
        assert_eq!(check("prorag", &[query, sub_answer, answer]), (true, true));
        assert_eq!(check("prorag", &[query, sub_answer]), (true, false), "no answer");
        assert_eq!(check("prorag", &[query, answer]), (true, false), "nobody read what was found");
        let early = ("evidence_extraction", "All is there.</step><answer>Spielberg</answer>");
        assert_eq!(check("prorag", &[query, early]), (false, false), "a sub-answer was due");
        assert_eq!(check("prorag", &[]), (true, false));
    }

    #[test]
    fn states_of_another_protocol_are_no_broken_format() {
        let steps = vec![WrittenStep { state: "correction", response: "<answer>x</answer>" }];
        let error = Error::from(Protocols.kept("r3rag", &[steps]).unwrap_err()).to_string();
        assert_eq!(error, r#"unknown state "correction" of protocol r3rag; it has: reasoning, answer_generation"#);
        let error = Error::from(Protocols.kept("r3-rag", &[]).unwrap_err()).to_string();
        assert!(error.contains(r#"unknown protocol "r3-rag" of an agent; did you mean "r3rag"?"#), "{error}");
    }
}
