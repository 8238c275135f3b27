//! `step_prompt(state, question, thoughts, passages [, prompts [, protocol]])`: the prompt that an agent would show its policy in that step.
//!
//! `thoughts` are the trimmed responses of the steps before, one in a line; for the protocols that write a transcript, all of it that stands between the
//! first prompt and the passages of this step. `passages` are what the latest search found; for a protocol that shows what earlier ones found too, an array
//! for each search.
//!
//! Demonstrations get the same prompts as the agent's own steps, by the same code, whatever the prompt set.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, ListArray, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};

use crate::agent::protocol::{EarlierStep, Protocol, Retrieved, Transition, protocol};
use crate::agent::{Context, Passage, PromptSet, State};
use crate::error::Error;

const DEFAULT_PROMPTS: &str = "default";
const DEFAULT_PROTOCOL: &str = "reasonrag";

/// The protocols that write every earlier step anew, as they read it, and those of them that show what each search found.
const SHOW_EACH_STEP: [&str; 2] = ["r3rag", "self_ask"];
const SHOW_EACH_SEARCH: [&str; 1] = ["r3rag"];

pub fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(StepPrompt::new())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StepPrompt {
    signature: Signature,
}

impl StepPrompt {
    fn new() -> Self {
        let list = |item: DataType| DataType::List(Arc::new(Field::new("item", item, true)));
        let (texts, lists) = (list(DataType::Utf8), list(list(DataType::Utf8)));
        let with = |passages: &DataType, more: usize| {
            let required = vec![DataType::Utf8, DataType::Utf8, DataType::Utf8, passages.clone()];
            TypeSignature::Exact([required, vec![DataType::Utf8; more]].concat())
        };
        let variants = [texts, lists].iter().flat_map(|passages| (0..=2).map(|more| with(passages, more)).collect::<Vec<_>>()).collect();
        Self { signature: Signature::one_of(variants, Volatility::Immutable) }
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
        let known: HashMap<&str, State> = protocol.states().iter().map(|state| (state.as_str(), *state)).collect();
        let mut rendered = Vec::with_capacity(num_rows);
        for row in 0..num_rows {
            if states.is_null(row) || questions.is_null(row) {
                rendered.push(None);
                continue;
            }
            let state = *known.get(states.value(row)).ok_or_else(|| unknown_state(states.value(row), protocol.as_ref()))?;
            let found = found(arrays[3].as_list::<i32>(), row);
            let thoughts = if thoughts.is_null(row) { "" } else { thoughts.value(row) };
            let context = context(protocol.as_ref(), &prompts, state, questions.value(row), thoughts, found)?;
            rendered.push(Some(protocol.prompt(&prompts, &context)?));
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(rendered))))
    }
}

/// Passages of one search.
type Passages = Arc<[Passage]>;

/// What was found before the step.
enum Found {
    /// By the latest search.
    Latest(Passages),
    /// By each search, oldest first.
    Each(Vec<Passages>),
}

fn found(column: &ListArray, row: usize) -> Found {
    if column.is_null(row) {
        return Found::Latest(Arc::new([]));
    }
    let items = column.value(row);
    match items.as_list_opt::<i32>() {
        None => Found::Latest(passages(items.as_string::<i32>())),
        // A step that did not search has no array.
        Some(lists) => Found::Each(lists.iter().flatten().map(|texts| passages(texts.as_string::<i32>())).collect()),
    }
}

/// Two that say the same are one.
fn passages(texts: &StringArray) -> Passages {
    texts.iter().flatten().map(|text| Passage { id: text.to_owned(), title: None, contents: text.to_owned() }).collect()
}

/// The context of a step after `thoughts`.
fn context(
    protocol: &dyn Protocol,
    prompts: &PromptSet,
    state: State,
    question: &str,
    thoughts: &str,
    found: Found,
) -> crate::error::Result<Context> {
    if SHOW_EACH_STEP.contains(&protocol.name()) {
        return Ok(Context { state, ..after_each_step(protocol, prompts, question, thoughts, found)? });
    }
    let Found::Latest(passages) = found else {
        let found = "text[][]".to_owned();
        return Err(Error::WrongType { what: "passages of step_prompt".to_owned(), found, expected: one_search_expected(protocol) });
    };
    let mut context = Context::new(question, state);
    context.thoughts = thoughts.lines().map(Into::into).collect();
    context.query = context.thoughts.last().and_then(|thought| protocol.parse(State::Reasoning, thought).action.query().map(Into::into));
    context.passages = passages;
    let found = Retrieved { query: context.query.clone().unwrap_or_default(), passages: Arc::clone(&context.passages) };
    let found = (!found.passages.is_empty()).then_some(found);
    if thoughts.is_empty() {
        context.opening = found;
    } else {
        let first = Context::new(question, protocol.initial_state(usize::MAX));
        let (prompt, action) = (protocol.prompt(prompts, &first)?.into(), protocol.parse(first.state, thoughts).action);
        context.history = vec![Arc::new(EarlierStep { prompt, response: thoughts.into(), action, retrieved: found })];
    }
    Ok(context)
}

fn one_search_expected(protocol: &dyn Protocol) -> String {
    format!("text[], what the latest search found, for protocol {}", protocol.name())
}

/// The context after the steps that `thoughts` holds, as the protocol reads them one after the other.
fn after_each_step(
    protocol: &dyn Protocol,
    prompts: &PromptSet,
    question: &str,
    thoughts: &str,
    found: Found,
) -> crate::error::Result<Context> {
    let mut context = Context::new(question, protocol.initial_state(usize::MAX));
    let mut searches = Vec::new();
    let mut rest = thoughts;
    while !rest.trim().is_empty() {
        let parsed = protocol.parse(context.state, rest);
        let (response, after) = rest.split_at(parsed.end);
        rest = after;
        let (query, next) = match protocol.transition(&context, &parsed.action, usize::MAX) {
            Transition::Retrieve { query, next } => (Some(query), next),
            Transition::To(next) => (None, next),
            Transition::End(_) => return Err(ended(response)),
        };
        if query.is_some() {
            searches.push(context.history.len());
        }
        let retrieved = query.map(|query| Retrieved { query: query.into(), passages: Arc::new([]) });
        let prompt = protocol.prompt(prompts, &context)?.into();
        context = context.followed(EarlierStep { prompt, response: response.trim().into(), action: parsed.action, retrieved }, next);
    }
    if let Found::Latest(latest) = &found {
        context.passages = Arc::clone(latest);
    }
    for (step, passages) in by_search(protocol, &searches, found)? {
        let earlier = Arc::make_mut(&mut context.history[step]);
        if let Some(retrieved) = &mut earlier.retrieved {
            retrieved.passages = Arc::clone(&passages);
        }
        context.passages = passages;
    }
    Ok(context)
}

/// Each step that searched, and what it found, as far as that is told.
fn by_search(protocol: &dyn Protocol, searches: &[usize], found: Found) -> crate::error::Result<Vec<(usize, Passages)>> {
    match found {
        Found::Each(each) if each.len() == searches.len() => Ok(searches.iter().copied().zip(each).collect()),
        Found::Latest(latest) if searches.len() < 2 || !SHOW_EACH_SEARCH.contains(&protocol.name()) => {
            Ok(searches.last().map(|last| (*last, latest)).into_iter().collect())
        }
        given => {
            let found = match given {
                Found::Latest(_) => "one array".to_owned(),
                Found::Each(each) => format!("{} arrays", each.len()),
            };
            let expected = format!("text[][] with one array for each of the {} searches before the step", searches.len());
            Err(Error::InvalidParameter { name: "passages of step_prompt".to_owned(), found, expected })
        }
    }
}

fn ended(response: &str) -> Error {
    let expected = "the responses of the steps before this one, none of which ends the trajectory".to_owned();
    Error::InvalidParameter { name: "thoughts of step_prompt".to_owned(), found: format!("'{}'", response.trim()), expected }
}

fn unknown_state(name: &str, protocol: &dyn Protocol) -> Error {
    Error::UnknownObject {
        kind: "state",
        name: name.to_owned(),
        known: protocol.states().iter().map(|state| state.as_str().to_owned()).collect(),
    }
}
