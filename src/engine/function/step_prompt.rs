//! `step_prompt(state, question, thoughts, passages [, prompts [, protocol]])`: the prompt that an agent would show its policy in that step.
//!
//! `thoughts` are the trimmed responses of the steps before, one in a line; for the protocols that write a transcript, all of it that stands between the
//! first prompt and the passages of this step.
//!
//! Demonstrations get the same prompts as the agent's own steps, by the same code, whatever the prompt set.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};

use crate::agent::protocol::{EarlierStep, Protocol, Retrieved, protocol};
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
            let context = context(protocol.as_ref(), &prompts, state, questions.value(row), thoughts, shown)?;
            rendered.push(Some(protocol.prompt(&prompts, &context)?));
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(rendered))))
    }
}

fn shown_passages(texts: &StringArray) -> Vec<Passage> {
    let passage = |(number, contents): (usize, &str)| Passage { id: number.to_string(), title: None, contents: contents.to_owned() };
    texts.iter().flatten().enumerate().map(passage).collect()
}

/// The context of a step after `thoughts`: earlier responses, one in a line; or, for a protocol that goes on from one earlier step, its response.
fn context(
    protocol: &dyn Protocol,
    prompts: &PromptSet,
    state: State,
    question: &str,
    thoughts: &str,
    passages: Vec<Passage>,
) -> crate::error::Result<Context> {
    let mut context = Context::new(question, state);
    context.thoughts = thoughts.lines().map(Into::into).collect();
    context.query = context.thoughts.last().and_then(|thought| protocol.parse(State::Reasoning, thought).action.query().map(Into::into));
    context.passages = passages.into();
    let found = Retrieved { query: context.query.clone().unwrap_or_default(), passages: Arc::clone(&context.passages) };
    let found = (!found.passages.is_empty()).then_some(found);
    if thoughts.is_empty() {
        context.opening = found;
    } else {
        let first = Context::new(question, protocol.initial_state(usize::MAX));
        let parsed = protocol.parse(first.state, thoughts);
        let renders_each_step = matches!(protocol.name(), "r3rag" | "self_ask");
        if renders_each_step && !thoughts[parsed.end..].trim().is_empty() {
            let message = format!("step_prompt() of protocol {} after more than one earlier step; it knows one", protocol.name());
            return Err(crate::error::Error::NotSupported(message));
        }
        let (prompt, action) = (protocol.prompt(prompts, &first)?.into(), parsed.action);
        context.history = vec![Arc::new(EarlierStep { prompt, response: thoughts.into(), action, retrieved: found })];
    }
    Ok(context)
}

fn unknown_state(name: &str, protocol: &dyn Protocol) -> Error {
    Error::UnknownObject {
        kind: "state",
        name: name.to_owned(),
        known: protocol.states().iter().map(|state| state.as_str().to_owned()).collect(),
    }
}
