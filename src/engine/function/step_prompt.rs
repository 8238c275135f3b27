//! `step_prompt(state, question, thoughts, passages [, prompts [, protocol]])`: the prompt that an agent would show its policy in that step.
//!
//! Demonstrations get the same prompts as the agent's own steps, by the same code, whatever the prompt set.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};

use crate::agent::protocol::{Protocol, protocol};
use crate::agent::{Context, Passage, PromptSet, State};
use crate::error::Error;

const DEFAULT_PROMPTS: &str = "default";
const DEFAULT_PROTOCOL: &str = "reasonrag";

pub fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(StepPrompt::new())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StepPrompt {
    signature: Signature,
}

impl StepPrompt {
    fn new() -> Self {
        let passages = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
        let required = vec![DataType::Utf8, DataType::Utf8, DataType::Utf8, passages];
        let with = |more: usize| TypeSignature::Exact([required.clone(), vec![DataType::Utf8; more]].concat());
        Self { signature: Signature::one_of(vec![with(0), with(1), with(2)], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for StepPrompt {
    fn name(&self) -> &str {
        "step_prompt"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let num_rows = args.number_rows;
        let constant = |index: usize, default: &str| match args.args.get(index) {
            None => Ok(default.to_owned()),
            Some(ColumnarValue::Scalar(value)) => Ok(value.try_as_str().flatten().unwrap_or(default).to_owned()),
            Some(ColumnarValue::Array(_)) => plan_err!("prompts and protocol of step_prompt() must be constants"),
        };
        let protocol = protocol(&constant(5, DEFAULT_PROTOCOL)?)?;
        let prompts = PromptSet::builtin(&constant(4, DEFAULT_PROMPTS)?, protocol.as_ref())?;
        let arrays = args.args.iter().take(4).map(|value| value.clone().into_array(num_rows)).collect::<Result<Vec<_>>>()?;
        let (states, questions, thoughts) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>(), arrays[2].as_string::<i32>());
        let passages = arrays[3].as_list::<i32>();
        let known: HashMap<&str, State> = protocol.states().iter().map(|state| (state.as_str(), *state)).collect();
        let mut rendered = Vec::with_capacity(num_rows);
        for row in 0..num_rows {
            if states.is_null(row) || questions.is_null(row) {
                rendered.push(None);
                continue;
            }
            let state = *known.get(states.value(row)).ok_or_else(|| unknown_state(states.value(row), protocol.as_ref()))?;
            let shown = if passages.is_null(row) { vec![] } else { shown_passages(passages.value(row).as_string::<i32>()) };
            let thoughts = if thoughts.is_null(row) { "" } else { thoughts.value(row) };
            let thoughts: Vec<Arc<str>> = thoughts.lines().map(Into::into).collect();
            let query = thoughts.last().and_then(|thought| latest_query(protocol.as_ref(), thought));
            let context = Context { question: questions.value(row).into(), state, steps: 0, thoughts, query, passages: shown.into() };
            rendered.push(Some(protocol.prompt(&prompts, &context)?));
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(rendered))))
    }
}

fn shown_passages(texts: &StringArray) -> Vec<Passage> {
    let passage = |contents: &str| Passage { id: String::new(), title: None, contents: contents.to_owned() };
    texts.iter().flatten().map(passage).collect()
}

/// What a thought asks the retriever for.
fn latest_query(protocol: &dyn Protocol, thought: &str) -> Option<Arc<str>> {
    protocol.parse(State::Reasoning, thought).action.query().map(Into::into)
}

fn unknown_state(name: &str, protocol: &dyn Protocol) -> Error {
    Error::UnknownObject {
        kind: "state",
        name: name.to_owned(),
        known: protocol.states().iter().map(|state| state.as_str().to_owned()).collect(),
    }
}
