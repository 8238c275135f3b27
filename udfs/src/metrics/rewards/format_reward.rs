use std::sync::Arc;

use arrow::array::Float64Array;
use arrow::datatypes::DataType;

use super::formats::{FormatFunction, KeptFormat, RESPONSES, STATES, kept};
use crate::function::{Interface, Kind, Parameter};
use crate::metrics::SECTION;
use crate::metrics::word::word;

pub(crate) static FUNCTION: FormatFunction = FormatFunction {
    interface: Interface {
        name: "format_reward",
        section: SECTION,
        description: "Reward of a trajectory for its format, whatever its answer: of 'prorag' 1 if it is `well_formed`, else -1; of 'search_r1' 0.2 or 0; \
            of 'r3rag' 0 if its steps are (`steps_well_formed`), else -0.9, for a trajectory that finds no answer breaks no format there. ReasonRAG has none.",
        parameters: &[
            Parameter { name: "protocol", kind: Kind::Text, description: "'prorag', 'search_r1' or 'r3rag'; a constant." },
            STATES,
            RESPONSES,
        ],
        required: 3,
        example: ("SELECT format_reward('prorag', ARRAY['begin_reasoning'], ARRAY['no step <answer>Paris</answer>'])", "-1.0"),
    },
    returns: DataType::Float64,
    kernel: |arguments, formats| {
        let Some(format) = word(arguments, 0, FORMATS)? else {
            return Ok(Arc::new(Float64Array::new_null(arguments.num_rows())));
        };
        let rows = kept(arguments, formats)?.into_iter().map(|kept| kept.map(|kept| format.reward(kept)));
        Ok(Arc::new(rows.collect::<Float64Array>()))
    },
};

/// What it pays to keep a format and to break it.
#[derive(Debug, Clone, Copy)]
struct Format {
    /// Whether each step for itself is all that counts.
    of_steps: bool,
    kept: f64,
    broken: f64,
}

const FORMATS: &[(&str, Format)] = &[
    ("prorag", Format { of_steps: false, kept: 1.0, broken: -1.0 }),
    ("search_r1", Format { of_steps: false, kept: 0.2, broken: 0.0 }),
    ("r3rag", Format { of_steps: true, kept: 0.0, broken: -0.9 }),
];

impl Format {
    fn reward(self, kept: KeptFormat) -> f64 {
        let is_kept = if self.of_steps { kept.steps } else { kept.trajectory };
        if is_kept { self.kept } else { self.broken }
    }
}

#[cfg(test)]
mod tests {
    use super::{FORMATS, KeptFormat};

    #[test]
    fn has_the_published_numbers() {
        let ends = [(true, true), (true, false), (false, false)].map(|(steps, trajectory)| KeptFormat { steps, trajectory });
        let rewards: Vec<_> = FORMATS.iter().map(|(name, format)| (*name, ends.map(|kept| format.reward(kept)))).collect();
        assert_eq!(rewards, [("prorag", [1.0, -1.0, -1.0]), ("search_r1", [0.2, 0.0, 0.0]), ("r3rag", [0.0, 0.0, -0.9])]);
    }
}
