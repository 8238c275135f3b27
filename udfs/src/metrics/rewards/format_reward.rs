use std::sync::Arc;

use arrow::array::Float64Array;
use arrow::datatypes::DataType;

use super::well_formed::{ACTIONS, Grammar, QUERIES, QUERIES_WITH_SUB_ANSWERS, is_well_formed};
use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::metrics::SECTION;
use crate::metrics::word::word;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "format_reward",
        section: SECTION,
        description: "Reward of a trajectory for its format, whatever its answer: of 'prorag' 1 if it is `well_formed`, else -1; of 'search_r1' 0.2 or 0; \
            of 'r3rag' -0.9 if a step is malformed, else 0, for a trajectory that finds no answer breaks no format there. ReasonRAG has none.",
        parameters: &[Parameter { name: "protocol", kind: Kind::Text, description: "'prorag', 'search_r1' or 'r3rag'." }, ACTIONS],
        required: 2,
        example: ("SELECT format_reward('prorag', ARRAY['query_generation', 'malformed'])", "-1.0"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        let Some(format) = word(arguments, 0, FORMATS)? else {
            return Ok(Arc::new(Float64Array::new_null(arguments.num_rows())));
        };
        let actions = arguments.texts(1)?;
        let rows = (0..arguments.num_rows()).map(|row| actions.get(row).map(|actions| format.reward(&actions)));
        Ok(Arc::new(rows.collect::<Float64Array>()))
    },
};

/// A grammar, and what it pays to follow and to break it.
#[derive(Debug, Clone, Copy)]
struct Format {
    /// None: no step may be malformed, and that is all.
    grammar: Option<Grammar>,
    kept: f64,
    broken: f64,
}

const FORMATS: &[(&str, Format)] = &[
    ("prorag", Format { grammar: Some(QUERIES_WITH_SUB_ANSWERS), kept: 1.0, broken: -1.0 }),
    ("search_r1", Format { grammar: Some(QUERIES), kept: 0.2, broken: 0.0 }),
    ("r3rag", Format { grammar: None, kept: 0.0, broken: -0.9 }),
];

impl Format {
    fn reward(self, actions: &[&str]) -> f64 {
        let is_kept = match self.grammar {
            Some(grammar) => is_well_formed(grammar, actions),
            None => !actions.contains(&"malformed"),
        };
        if is_kept { self.kept } else { self.broken }
    }
}
