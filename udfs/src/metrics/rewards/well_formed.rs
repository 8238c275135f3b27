use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;

use super::formats::{FormatFunction, PROTOCOL, RESPONSES, STATES, kept};
use crate::function::Interface;
use crate::metrics::SECTION;

pub(crate) static TRAJECTORY: FormatFunction = FormatFunction {
    interface: Interface {
        name: "well_formed",
        section: SECTION,
        description: "Whether a trajectory follows its protocol to the end: every response is what the protocol asks for in its state (see \
            `steps_well_formed`), one answer is the last step, and before it come, in 'reasonrag', queries, each followed by evidence, in 'prorag' and \
            'self_ask' queries, each followed by a sub-answer, in 'search_r1' and 'r3rag' queries alone, in 'ircot' and 'iter_retgen' thoughts alone, in \
            'direct', 'cot' and 'naive_rag' nothing. In 'reasonrag' and 'self_ask' the last query may have nothing after it, if the steps were used up.",
        parameters: &[PROTOCOL, STATES, RESPONSES],
        required: 3,
        example: (
            "SELECT well_formed('search_r1', ARRAY['begin_reasoning'], ARRAY['<think>I know it.</think><answer>Paris</answer>'])",
            "true",
        ),
    },
    returns: DataType::Boolean,
    kernel: |arguments, formats| {
        let rows = kept(arguments, formats)?.into_iter().map(|kept| kept.map(|kept| kept.trajectory));
        Ok(Arc::new(rows.collect::<BooleanArray>()))
    },
};

pub(crate) static STEPS: FormatFunction = FormatFunction {
    interface: Interface {
        name: "steps_well_formed",
        section: SECTION,
        description: "Whether a response, or each of several, is what the protocol asks for in its state, nothing missing and nothing beside it: in \
            'search_r1' a `<think>` and then one `<search>` or `<answer>`, in 'prorag' the rest of the step and then the one block that is due, in 'r3rag' one \
            `Step i:` with an analysis and then a query or an answer (where the answer was asked for, that alone will do); in the others a response that \
            their reader can use. Stricter than an `action` that is not 'malformed': a response with an answer that can be found is used, and may break the \
            format all the same.",
        parameters: &[PROTOCOL, STATES, RESPONSES],
        required: 3,
        example: ("SELECT steps_well_formed('r3rag', 'reasoning', 'The retrieval query: who made Jaws')", "false"),
    },
    returns: DataType::Boolean,
    kernel: |arguments, formats| {
        let rows = kept(arguments, formats)?.into_iter().map(|kept| kept.map(|kept| kept.steps));
        Ok(Arc::new(rows.collect::<BooleanArray>()))
    },
};
