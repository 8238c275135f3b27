use std::sync::Arc;

use arrow::array::Float64Array;
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::metrics::SECTION;
use crate::metrics::word::word;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "step_reward",
        section: SECTION,
        description: "Reward of one step, as a published system gives it. 'prorag' (arXiv:2601.21912): the score of a process reward model as a probability, by \
            the logistic function; with `well_formed`, 1 more or 2 less. NULL without a score. That of R3-RAG is `relevance_reward`.",
        parameters: &[
            Parameter {
                name: "score",
                kind: Kind::Number,
                description: "Of the step, by a process reward model that was shown what came before it: `rerank(model, prompt, response)`.",
            },
            Parameter { name: "variant", kind: Kind::Text, description: "'prorag'." },
            Parameter {
                name: "well_formed",
                kind: Kind::Boolean,
                description: "Whether the step follows its format, see `steps_well_formed`. NULL or not given leaves the format out.",
            },
            Parameter {
                name: "scale",
                kind: Kind::Text,
                description: "'logit', the default, or 'probability' of a score that is one already, 0 to 1: of a `rerank` model that ends in a sigmoid, or of \
                    a node that was valued by `value = 'prm'`.",
            },
        ],
        required: 2,
        example: ("SELECT step_reward(0.0, 'prorag', well_formed => true)", "1.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        let Some(reward) = word(arguments, 1, SYSTEMS)? else {
            return Ok(Arc::new(Float64Array::new_null(arguments.num_rows())));
        };
        let scale = word(arguments, 3, SCALES)?.unwrap_or(Scale::Logit);
        let scores = arguments.number(0)?;
        let well_formed = arguments.has(2).then(|| arguments.boolean(2)).transpose()?;
        let mut rewards = Float64Array::builder(arguments.num_rows());
        for row in 0..arguments.num_rows() {
            let score = scores.get(row);
            if let Some(score) = score.filter(|score| scale == Scale::Probability && !(0.0..=1.0).contains(score)) {
                return Err(arguments.interface.argument_error(0, score, "0 to 1, or scale => 'logit'").into());
            }
            let well_formed = well_formed.as_ref().and_then(|column| column.get(row));
            rewards.append_option(score.map(|score| reward(scale.probability(score), well_formed)));
        }
        Ok(Arc::new(rewards.finish()))
    },
};

/// Of a step of that probability, with its format or without.
type StepReward = fn(f64, Option<bool>) -> f64;

const SYSTEMS: &[(&str, StepReward)] = &[("prorag", prorag_step_reward)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Logit,
    Probability,
}

const SCALES: &[(&str, Scale)] = &[("logit", Scale::Logit), ("probability", Scale::Probability)];

impl Scale {
    fn probability(self, score: f64) -> f64 {
        match self {
            Self::Logit => 1.0 / (1.0 + (-score).exp()),
            Self::Probability => score,
        }
    }
}

/// ProRAG's reward of a step (arXiv:2601.21912), in (-2, 2): the probability that a process reward model gives it, and for its format 1 more or 2 less.
///
/// The published code compares the blocks of a step with lists that begin at another one, so that every step has 2 less there. Here a step that
/// follows the format has 1 more, as was meant.
pub fn prorag_step_reward(probability: f64, well_formed: Option<bool>) -> f64 {
    probability + well_formed.map_or(0.0, |well_formed| if well_formed { 1.0 } else { -2.0 })
}

#[cfg(test)]
mod tests {
    use super::{Scale, prorag_step_reward};

    #[test]
    fn prorag_adds_the_format() {
        let reward = |well_formed| prorag_step_reward(0.25, well_formed);
        assert_eq!([None, Some(true), Some(false)].map(reward), [0.25, 1.25, -1.75]);
    }

    #[test]
    fn logits_become_probabilities_once() {
        assert_eq!([Scale::Logit.probability(0.0), Scale::Probability.probability(0.75)], [0.5, 0.75]);
        assert!((Scale::Logit.probability(2.0) - 0.880_797).abs() < 1e-6);
        assert_eq!([Scale::Logit.probability(-1e4), Scale::Logit.probability(1e4)], [0.0, 1.0]);
    }
}
