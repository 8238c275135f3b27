//! A trajectory as one prompt and one completion, where the protocol only ever appends to what the policy has seen.

use std::sync::Arc;

use arrow::array::{Int32Builder, ListBuilder, StringBuilder};
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::metrics::SECTION;

/// The action of a step that its protocol cannot read.
const MALFORMED: &str = "malformed";

const PROMPTS: Parameter = Parameter {
    name: "prompts",
    kind: Kind::TextList,
    description: "What the policy was asked in each step, first to last; NULL gives NULL.",
};

const COMPLETIONS: Parameter = Parameter { name: "completions", kind: Kind::TextList, description: "What it wrote, as many." };

pub(crate) static PARTS: Function = Function {
    interface: Interface {
        name: "completion_parts",
        section: SECTION,
        description: "The steps of a trajectory as parts of one completion of its first prompt: in turn what the policy wrote and what was put in before \
            its next step, such as passages; see `completion_mask`. NULL where a prompt does not go on from the one before and its completion: of \
            protocols that ask anew in each step.",
        parameters: &[PROMPTS, COMPLETIONS],
        required: 2,
        example: ("SELECT completion_parts(ARRAY['Q', 'Q s1 [p]'], ARRAY[' s1', ' s2'])", "[ s1,  [p],  s2]"),
    },
    returns: Returns::Computed(|_, _| Ok(DataType::new_list(DataType::Utf8, true))),
    kernel: |arguments| {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for_each_row(arguments, |parts| {
            let is_valid = parts.is_some();
            parts.unwrap_or_default().into_iter().for_each(|part| lists.values().append_value(part));
            lists.append(is_valid);
        })?;
        Ok(Arc::new(lists.finish()))
    },
};

pub(crate) static MASK: Function = Function {
    interface: Interface {
        name: "completion_mask",
        section: SECTION,
        description: "For each of the `completion_parts` 1 if the policy wrote it, 0 if it was put in: what a loss should count.",
        parameters: &[
            PROMPTS,
            COMPLETIONS,
            Parameter {
                name: "actions",
                kind: Kind::TextList,
                description: "The action of each step: what was written in a `malformed` one counts 0 too.",
            },
        ],
        required: 2,
        example: ("SELECT completion_mask(ARRAY['Q', 'Q s1 [p]'], ARRAY[' s1', ' s2'])", "[1, 0, 1]"),
    },
    returns: Returns::Computed(|_, _| Ok(DataType::new_list(DataType::Int32, true))),
    kernel: |arguments| {
        let mut lists = ListBuilder::new(Int32Builder::new());
        let actions = arguments.has(2).then(|| arguments.texts(2)).transpose()?;
        let mut row = 0;
        for_each_row(arguments, |parts| {
            let is_valid = parts.is_some();
            let actions = actions.as_ref().and_then(|actions| actions.elements(row)).unwrap_or_default();
            let is_malformed = |step: usize| actions.get(step).is_some_and(|action| *action == Some(MALFORMED));
            let counts = |at: usize| at.is_multiple_of(2) && !is_malformed(at / 2);
            (0..parts.map_or(0, |parts| parts.len())).for_each(|at| lists.values().append_value(i32::from(counts(at))));
            lists.append(is_valid);
            row += 1;
        })?;
        Ok(Arc::new(lists.finish()))
    },
};

fn for_each_row(arguments: &Arguments, mut take: impl FnMut(Option<Vec<&str>>)) -> Result<()> {
    let (prompts, completions) = (arguments.texts(0)?, arguments.texts(1)?);
    for row in 0..arguments.num_rows() {
        let (prompts, completions) = (prompts.get(row), completions.get(row));
        take(prompts.as_ref().zip(completions.as_ref()).and_then(|(prompts, completions)| parts(prompts, completions)));
    }
    Ok(())
}

/// Completion, what was put in, completion, ...: one less than twice the steps; None if there are no steps, or a prompt is not the one before,
/// its completion, and more.
fn parts<'a>(prompts: &[&'a str], completions: &[&'a str]) -> Option<Vec<&'a str>> {
    let first = *completions.first()?;
    if prompts.len() != completions.len() {
        return None;
    }
    let mut parts = vec![first];
    for step in 1..prompts.len() {
        parts.push(prompts[step].strip_prefix(prompts[step - 1])?.strip_prefix(completions[step - 1])?);
        parts.push(completions[step]);
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn only_of_prompts_that_go_on() {
        assert_eq!(parts(&["q", "qa[d]", "qa[d]b[e]"], &["a", "b", "c"]), Some(vec!["a", "[d]", "b", "[e]", "c"]));
        assert_eq!(parts(&["q"], &["a"]), Some(vec!["a"]));
        assert_eq!(parts(&["q", "anew"], &["a", "b"]), None);
        assert_eq!(parts(&["q", "q"], &["a"]), None);
        assert_eq!(parts(&[], &[]), None);
    }
}
