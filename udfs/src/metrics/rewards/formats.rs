//! What protocols ask a policy for is the engine's to know; a function about formats asks it.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;

use crate::arguments::Arguments;
use crate::function::{Interface, Kind, Parameter};

/// Knows the formats of protocols.
pub trait Formats: Debug + Send + Sync {
    /// What each trajectory keeps of the format of `protocol`.
    ///
    /// # Errors
    /// For a protocol that there is not, and for a state that it does not have.
    fn kept(&self, protocol: &str, trajectories: &[Vec<WrittenStep<'_>>]) -> Result<Vec<KeptFormat>>;
}

/// What a policy wrote when it was asked in a state of its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenStep<'a> {
    pub state: &'a str,
    pub response: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptFormat {
    /// Whether each response is what its state asks for, nothing missing and nothing beside it.
    pub steps: bool,
    /// Whether they are a whole trajectory besides: in an order that the protocol has, the last one an answer.
    pub trajectory: bool,
}

pub(super) const PROTOCOL: Parameter = Parameter { name: "protocol", kind: Kind::Text, description: "Name of the protocol; a constant." };

pub(super) const STATES: Parameter = Parameter {
    name: "states",
    kind: Kind::TextList,
    description: "`state` of every step, first to last, as in the tables of rollouts and in `trajectories`; NULL gives NULL.",
};

pub(super) const RESPONSES: Parameter = Parameter {
    name: "responses",
    kind: Kind::TextList,
    description: "What the policy wrote in each of them, as many: `response`, or the `completions` of `trajectories`; NULL gives NULL, and in \
        an array is no step: the root of a tree has no response.",
};

/// A function whose arguments begin with [`PROTOCOL`], [`STATES`] and [`RESPONSES`].
#[derive(Debug)]
pub(crate) struct FormatFunction {
    pub interface: Interface,
    pub returns: DataType,
    /// A column of `Arguments::num_rows`.
    pub kernel: fn(&Arguments, &dyn Formats) -> Result<ArrayRef>,
}

impl FormatFunction {
    pub fn udf(&'static self, formats: &Arc<dyn Formats>) -> ScalarUDF {
        ScalarUDF::new_from_impl(Registered {
            function: self,
            formats: Arc::clone(formats),
            signature: self.interface.signature(Volatility::Immutable),
            documentation: self.interface.documentation(),
        })
    }
}

/// What each row keeps; None where an argument is NULL.
///
/// # Errors
/// Those of [`Formats::kept`]; [`crate::Error::Argument`] for a row with more states than responses, or fewer, or with a response without a state.
pub(super) fn kept(arguments: &Arguments, formats: &dyn Formats) -> Result<Vec<Option<KeptFormat>>> {
    let num_rows = arguments.num_rows();
    let Some(protocol) = arguments.constant_text(0)? else { return Ok(vec![None; num_rows]) };
    let (states, responses) = (arguments.texts(1)?, arguments.texts(2)?);
    let (mut trajectories, mut is_known) = (Vec::new(), Vec::with_capacity(num_rows));
    for row in 0..num_rows {
        let texts = states.elements(row).zip(responses.elements(row));
        is_known.push(texts.is_some());
        if let Some((states, responses)) = texts {
            trajectories.push(steps(arguments.interface, &states, &responses)?);
        }
    }
    let mut kept = formats.kept(&protocol, &trajectories)?.into_iter();
    Ok(is_known.into_iter().map(|is_known| if is_known { kept.next() } else { None }).collect())
}

/// Pairs them by position. Where nothing was written, as at the root of a tree, there is no step.
fn steps<'a>(interface: &Interface, states: &[Option<&'a str>], responses: &[Option<&'a str>]) -> Result<Vec<WrittenStep<'a>>> {
    if states.len() != responses.len() {
        let expected = format!("{}, one for each of the states", states.len());
        return Err(interface.argument_error(2, format!("an array of {}", responses.len()), expected).into());
    }
    let written = states.iter().zip(responses).filter_map(|(state, response)| response.map(|response| (*state, response)));
    let step = |(state, response): (Option<&'a str>, &'a str)| match state {
        Some(state) => Ok(WrittenStep { state, response }),
        None => Err(interface.argument_error(1, "an array with NULL beside a response", "the state of each response").into()),
    };
    written.map(step).collect()
}

/// A [`FormatFunction`] as DataFusion wants it. Two are equal if they have the same name.
#[derive(Debug)]
struct Registered {
    function: &'static FormatFunction,
    formats: Arc<dyn Formats>,
    signature: Signature,
    documentation: Documentation,
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.function.interface.name == other.function.interface.name
    }
}

impl Eq for Registered {}

impl Hash for Registered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.interface.name.hash(state);
    }
}

impl ScalarUDFImpl for Registered {
    fn name(&self) -> &str {
        self.function.interface.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.interface.check(arg_types)?;
        Ok(self.function.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let num_rows = if is_constant { 1 } else { args.number_rows };
        let arguments = Arguments::new(&self.function.interface, &args, num_rows);
        let column = (self.function.kernel)(&arguments, self.formats.as_ref())?;
        if is_constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&column, 0)?));
        }
        Ok(ColumnarValue::Array(column))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
