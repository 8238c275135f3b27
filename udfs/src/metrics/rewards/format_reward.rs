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
            of 'r3rag' 0 or -0.9. ReasonRAG has none.",
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
    grammar: Grammar,
    kept: f64,
    broken: f64,
}

const FORMATS: &[(&str, Format)] = &[
    ("prorag", Format { grammar: QUERIES_WITH_SUB_ANSWERS, kept: 1.0, broken: -1.0 }),
    ("search_r1", Format { grammar: QUERIES, kept: 0.2, broken: 0.0 }),
    ("r3rag", Format { grammar: QUERIES, kept: 0.0, broken: -0.9 }),
];

impl Format {
    fn reward(self, actions: &[&str]) -> f64 {
        if is_well_formed(self.grammar, actions) { self.kept } else { self.broken }
    }
}
