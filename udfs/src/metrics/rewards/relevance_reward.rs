use std::sync::Arc;

use arrow::array::Float64Array;
use arrow::datatypes::DataType;

use super::outcome_reward::is_match;
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::metrics::SECTION;
use crate::metrics::answer::GOLDS;
use crate::metrics::variant::Variant;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "relevance_reward",
        section: SECTION,
        description: "R3-RAG's reward of a step before the last (arXiv:2505.23794): how relevant its passages are, times 1.6 if the trajectory's \
            answer matches exactly, 0.8 if not, 0.9 if there is none, 1 if a step is malformed. So it pays more to give no answer \
            than a wrong one, as published. NULL without a relevance.",
        parameters: &[
            Parameter {
                name: "relevance",
                kind: Kind::Number,
                description: "Of the passages that the step found, 0 to 1: `judge_relevance`.",
            },
            Parameter { name: "answer", kind: Kind::Text, description: "The trajectory's answer; NULL if it gave none." },
            GOLDS,
            Parameter {
                name: "well_formed",
                kind: Kind::Boolean,
                description: "Whether the steps of the trajectory follow their format, see `steps_well_formed`; true by default.",
            },
        ],
        required: 3,
        example: ("SELECT relevance_reward(0.5, 'Paris', ARRAY['Paris', 'Paris, France'])", "0.8"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        let (relevances, answers, golds) = (arguments.number(0)?, arguments.text(1)?, arguments.texts(2)?);
        let well_formed = arguments.has(3).then(|| arguments.boolean(3)).transpose()?;
        let mut rewards = Float64Array::builder(arguments.num_rows());
        for row in 0..arguments.num_rows() {
            let relevance = relevances.get(row);
            if let Some(relevance) = relevance.filter(|relevance| !(0.0..=1.0).contains(relevance)) {
                return Err(arguments.interface.argument_error(0, relevance, "0 to 1").into());
            }
            let golds = golds.get(row).filter(|golds| !golds.is_empty());
            let well_formed = well_formed.as_ref().and_then(|column| column.get(row)).unwrap_or(true);
            let is_match = |golds: Vec<&str>| answers.get(row).map(|answer| is_match(Variant::R3Rag, answer, &golds));
            let reward = |(relevance, golds): (f64, Vec<&str>)| relevance * relevance_factor(is_match(golds), well_formed);
            rewards.append_option(relevance.zip(golds).map(reward));
        }
        Ok(Arc::new(rewards.finish()))
    },
};

/// What the end of a trajectory makes of the relevance of its steps (R3-RAG, arXiv:2505.23794). `is_match`: whether its answer is
/// [`OutcomeReward::R3Rag`](super::OutcomeReward)'s, None without an answer.
pub fn relevance_factor(is_match: Option<bool>, well_formed: bool) -> f64 {
    match (well_formed, is_match) {
        (false, _) => 1.0,
        (true, Some(true)) => 1.6,
        (true, Some(false)) => 0.8,
        (true, None) => 0.9,
    }
}

#[cfg(test)]
mod tests {
    use super::relevance_factor;

    #[test]
    fn has_the_published_factors() {
        let ends = [(Some(true), true), (Some(false), true), (None, true), (None, false)];
        assert_eq!(ends.map(|(is_match, well_formed)| relevance_factor(is_match, well_formed)), [1.6, 0.8, 0.9, 1.0]);
    }
}
