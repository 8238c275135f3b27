use std::sync::Arc;

use arrow::array::{BooleanArray, Float64Array, Int64Array};
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};

use crate::arguments::{Arguments, Column};
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::metrics::answer::{GOLDS, best_of};
use crate::metrics::variant::Variant;
use crate::metrics::word::word;
use crate::metrics::{SECTION, exact_match, f1_score};
use crate::search::spre;

const DEFAULT_ALPHA: f64 = 0.9;

/// Where ProRAG's reward of an answer begins.
const F1_MIN: f64 = 0.2;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "outcome_reward",
        section: SECTION,
        description: "Reward of a trajectory for its answer, as a published system gives it. 'reasonrag': `f1 * alpha ^ steps`. 'prorag': 0 if F1 is \
            below 0.2, else `2 * f1`; with `well_formed`, 1 more or 1 less. 'search_r1': 1 if the answer matches exactly, else 0; with \
            `well_formed`, 1 (0.8 if malformed) if it matches, 0.2 (0.1) if not. 'r3rag', of the last step: 2 if the answer matches \
            exactly, else 0; -0.9 if malformed. Without an answer, F1 is 0 and nothing matches, and 'search_r1' \
            pays 0. F1 and matches are the system's own (of 'search_r1' those of 'flashrag').",
        parameters: &[
            Parameter { name: "answer", kind: Kind::Text, description: "The policy's answer; NULL if it gave none." },
            GOLDS,
            Parameter { name: "variant", kind: Kind::Text, description: "'reasonrag', 'prorag', 'search_r1' or 'r3rag'." },
            Parameter {
                name: "well_formed",
                kind: Kind::Boolean,
                description: "Whether the trajectory follows its format, see `well_formed`; of 'r3rag' whether its steps do, see `steps_well_formed`. NULL or \
                    not given leaves the format out.",
            },
            Parameter { name: "steps", kind: Kind::Integer, description: "Of the trajectory, 0 or more; 'reasonrag' needs them." },
            Parameter {
                name: "alpha",
                kind: Kind::Number,
                description: "'reasonrag': decay per step, above 0 and at most 1; 0.9 by default.",
            },
        ],
        required: 3,
        example: ("SELECT outcome_reward('in Paris', 'Paris', 'prorag', well_formed => true)", "2.333333333333333"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        let Some(system) = word(arguments, 2, SYSTEMS)? else {
            return Ok(Arc::new(Float64Array::new_null(arguments.num_rows())));
        };
        let inputs = Inputs::new(arguments, system)?;
        let (answers, golds) = (arguments.text(0)?, arguments.texts(1)?);
        let mut rewards = Float64Array::builder(arguments.num_rows());
        for row in 0..arguments.num_rows() {
            let golds = golds.get(row).filter(|golds| !golds.is_empty());
            rewards.append_option(golds.map(|golds| inputs.reward(row, answers.get(row), &golds)).transpose()?);
        }
        Ok(Arc::new(rewards.finish()))
    },
};

/// Whose reward a trajectory gets for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeReward {
    /// `f1 * alpha ^ steps` (arXiv:2505.14069).
    ReasonRag,
    /// arXiv:2601.21912.
    ProRag,
    /// arXiv:2503.09516; with the format arXiv:2505.15117.
    SearchR1,
    /// Of the last step (arXiv:2505.23794).
    R3Rag,
}

/// The end of a trajectory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome<'a> {
    /// The policy's answer; None if it gave none.
    pub answer: Option<&'a str>,
    /// At least one.
    pub golds: &'a [&'a str],
    /// Whether the trajectory follows its format, of [`OutcomeReward::R3Rag`] whether its steps do; None leaves the format out.
    pub well_formed: Option<bool>,
    /// Policy calls, which [`OutcomeReward::ReasonRag`] reads, as it does `alpha`: the decay per step, above 0 and at most 1.
    pub steps: f64,
    pub alpha: f64,
}

impl OutcomeReward {
    /// The number that `outcome_reward` gives.
    pub fn of(self, outcome: &Outcome<'_>) -> f64 {
        let Outcome { answer, golds, well_formed, steps, alpha } = *outcome;
        match self {
            Self::ReasonRag => spre(f1(Variant::ReasonRag, answer, golds), steps, alpha),
            Self::ProRag => prorag(f1(Variant::ProRag, answer, golds), well_formed),
            Self::SearchR1 => search_r1(answer.map(|answer| is_match(Variant::FlashRag, answer, golds)), well_formed),
            Self::R3Rag => r3rag(answer.is_some_and(|answer| is_match(Variant::R3Rag, answer, golds)), well_formed),
        }
    }
}

const SYSTEMS: &[(&str, OutcomeReward)] = &[
    ("reasonrag", OutcomeReward::ReasonRag),
    ("prorag", OutcomeReward::ProRag),
    ("search_r1", OutcomeReward::SearchR1),
    ("r3rag", OutcomeReward::R3Rag),
];

/// The optional arguments.
struct Inputs<'a> {
    arguments: &'a Arguments<'a>,
    system: OutcomeReward,
    well_formed: Option<Column<BooleanArray>>,
    steps: Option<Column<Int64Array>>,
    alpha: Option<Column<Float64Array>>,
}

impl<'a> Inputs<'a> {
    fn new(arguments: &'a Arguments<'a>, system: OutcomeReward) -> Result<Self> {
        Ok(Self {
            arguments,
            system,
            well_formed: arguments.has(3).then(|| arguments.boolean(3)).transpose()?,
            steps: arguments.has(4).then(|| arguments.integer(4)).transpose()?,
            alpha: arguments.has(5).then(|| arguments.number(5)).transpose()?,
        })
    }

    fn reward(&self, row: usize, answer: Option<&str>, golds: &[&str]) -> Result<f64> {
        let well_formed = self.well_formed.as_ref().and_then(|column| column.get(row));
        // The others have no use for them, and take any.
        let (steps, alpha) = match self.system {
            OutcomeReward::ReasonRag => (self.steps(row)?, self.alpha(row)?),
            OutcomeReward::ProRag | OutcomeReward::SearchR1 | OutcomeReward::R3Rag => (0.0, DEFAULT_ALPHA),
        };
        Ok(self.system.of(&Outcome { answer, golds, well_formed, steps, alpha }))
    }

    fn steps(&self, row: usize) -> Result<f64> {
        let steps = self.steps.as_ref().and_then(|column| column.get(row));
        match steps {
            Some(steps) if steps >= 0 => Ok(steps as f64),
            Some(steps) => Err(self.error(4, steps, "0 or more")),
            None => Err(self.error(4, "NULL", "the steps of the trajectory, which 'reasonrag' needs")),
        }
    }

    fn alpha(&self, row: usize) -> Result<f64> {
        let alpha = self.alpha.as_ref().and_then(|column| column.get(row)).unwrap_or(DEFAULT_ALPHA);
        if alpha > 0.0 && alpha <= 1.0 { Ok(alpha) } else { Err(self.error(5, alpha, "above 0 and at most 1")) }
    }

    fn error(&self, index: usize, found: impl ToString, expected: &str) -> DataFusionError {
        self.arguments.interface.argument_error(index, found, expected).into()
    }
}

/// ProRAG (arXiv:2601.21912), `acc + fmt`, in [-1, 3].
fn prorag(f1: f64, well_formed: Option<bool>) -> f64 {
    let outcome = if f1 < F1_MIN { 0.0 } else { 2.0 * f1 };
    outcome + well_formed.map_or(0.0, |well_formed| if well_formed { 1.0 } else { -1.0 })
}

/// Search-R1 (arXiv:2503.09516; with the format arXiv:2505.15117). `is_match`: None without an answer.
///
/// The published code looks for answers in the prompt too, which holds an example of one: a trajectory without an answer earns 0.1
/// there, or 1 if the example is right. Here it earns 0, as was meant.
fn search_r1(is_match: Option<bool>, well_formed: Option<bool>) -> f64 {
    match (is_match, well_formed) {
        (None, _) => 0.0,
        (Some(is_match), None) => f64::from(is_match),
        (Some(true), Some(true)) => 1.0,
        (Some(true), Some(false)) => 0.8,
        (Some(false), Some(true)) => 0.2,
        (Some(false), Some(false)) => 0.1,
    }
}

/// R3-RAG (arXiv:2505.23794), of the last step.
fn r3rag(is_match: bool, well_formed: Option<bool>) -> f64 {
    match (is_match, well_formed) {
        (_, Some(false)) => -0.9,
        (true, _) => 2.0,
        (false, _) => 0.0,
    }
}

fn f1(variant: Variant, answer: Option<&str>, golds: &[&str]) -> f64 {
    answer.map_or(0.0, |answer| best_of(variant, answer, golds, f1_score::score))
}

/// Whether the answer equals a gold one by the variant's normalisation.
pub(super) fn is_match(variant: Variant, answer: &str, golds: &[&str]) -> bool {
    best_of(variant, answer, golds, exact_match::score) == 1.0
}

#[cfg(test)]
mod tests {
    use super::{prorag, r3rag, search_r1};

    #[test]
    fn prorag_pays_from_a_fifth_on() {
        assert_eq!([prorag(0.19, None), prorag(0.2, None), prorag(1.0, None)], [0.0, 0.4, 2.0]);
        assert_eq!([prorag(0.0, Some(false)), prorag(1.0, Some(true))], [-1.0, 3.0], "its range");
    }

    #[test]
    fn search_r1_pays_nothing_without_an_answer() {
        assert_eq!([search_r1(None, Some(true)), search_r1(None, Some(false)), search_r1(None, None)], [0.0; 3]);
        let table = [(true, true), (true, false), (false, true), (false, false)];
        assert_eq!(table.map(|(is_match, well_formed)| search_r1(Some(is_match), Some(well_formed))), [1.0, 0.8, 0.2, 0.1]);
    }

    #[test]
    fn r3rag_punishes_what_it_cannot_read() {
        assert_eq!([r3rag(true, Some(true)), r3rag(false, None), r3rag(true, Some(false))], [2.0, 0.0, -0.9]);
    }
}
