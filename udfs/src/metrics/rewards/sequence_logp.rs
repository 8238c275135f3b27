//! The log-probability of a whole response, from those of its tokens.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::error::Result;

use crate::Error;
use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns, is_text};
use crate::metrics::SECTION;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "sequence_logp",
        section: SECTION,
        description: "The natural log-probability of a sequence: the sum of those of its tokens. NULL without tokens, as for a policy that does not tell.",
        parameters: &[Parameter {
            name: "token_logprobs",
            kind: Kind::Vector,
            description: "Of each token, as `token_logprobs` of a table of rollouts has them.",
        }],
        required: 1,
        example: ("SELECT sequence_logp(ARRAY[-0.5, -1.25])", "-1.75"),
    },
    returns: Returns::Computed(|found, _| match found.first() {
        // A vector may be a text; this is none.
        Some(text) if is_text(text) => Err(Error::ArgumentType {
            function: "sequence_logp",
            argument: "token_logprobs",
            found: "text".to_owned(),
            expected: "a list of numbers",
        }
        .into()),
        _ => Ok(DataType::Float64),
    }),
    kernel: sums,
};

fn sums(arguments: &Arguments) -> Result<ArrayRef> {
    let column = arguments.column(0)?;
    let lists = cast(column.array(), &DataType::new_list(DataType::Float64, true))?;
    let lists = lists.as_list::<i32>();
    let sum = |row: usize| {
        let row = if column.is_constant() { 0 } else { row };
        let tokens = lists.is_valid(row).then(|| lists.value(row))?;
        let tokens = tokens.as_primitive::<Float64Type>();
        (!tokens.is_empty() && tokens.null_count() == 0).then(|| tokens.values().iter().sum::<f64>())
    };
    Ok(Arc::new((0..arguments.num_rows()).map(sum).collect::<Float64Array>()))
}
