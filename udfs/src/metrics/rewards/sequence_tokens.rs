//! The tokens of a trajectory as one sequence, where the protocol only ever appends to what the policy has seen.
//!
//! A prompt is encoded as a whole in each step, so that its tokens may be other ones than those that were sampled before it, most of all where a passage
//! begins. The sequence is the last prompt as it was read and what was sampled after it; an earlier token counts where it was sampled just so.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Builder, ListArray, ListBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type};
use datafusion::error::Result;

use crate::arguments::Arguments;
use crate::function::{Function, Interface, Kind, Parameter, Returns, type_name};
use crate::metrics::SECTION;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "prompt_ids",
        kind: Kind::Any,
        description: "A list for each step, first to last: the tokens that the policy read. NULL, or a NULL in it, gives NULL.",
    },
    Parameter { name: "token_ids", kind: Kind::Any, description: "As many lists: the tokens that it sampled." },
    Parameter { name: "token_masks", kind: Kind::Any, description: "As many lists: for each of these 1 if the response is of it, else 0." },
];

/// A sequence of tokens, of which the first are the first prompt's.
#[derive(Debug, PartialEq, Eq)]
struct Sequence {
    prompt: Vec<i32>,
    tokens: Vec<i32>,
    /// By token.
    mask: Vec<i32>,
}

/// What one step has.
struct Step {
    prompt: Vec<i32>,
    tokens: Vec<i32>,
    mask: Vec<i32>,
}

pub(crate) static PROMPT: Function = Function {
    interface: Interface {
        name: "sequence_prompt_ids",
        section: SECTION,
        description: "The tokens of a trajectory's first prompt, after which `sequence_token_ids` stand: the steps as one sequence, where each prompt goes on \
            from the one before.",
        parameters: PARAMETERS,
        required: 3,
        example: ("SELECT sequence_prompt_ids(ARRAY[[1, 2]], ARRAY[[3, 4]], ARRAY[[1, 0]])", "[1, 2]"),
    },
    returns: Returns::Computed(list_type),
    kernel: |arguments| column(arguments, |sequence| sequence.prompt),
};

pub(crate) static TOKENS: Function = Function {
    interface: Interface {
        name: "sequence_token_ids",
        section: SECTION,
        description: "The tokens that follow `sequence_prompt_ids`: what was sampled and what was put in, as the last step read it, and what that step sampled.",
        parameters: PARAMETERS,
        required: 3,
        example: ("SELECT sequence_token_ids(ARRAY[[1, 2]], ARRAY[[3, 4]], ARRAY[[1, 0]])", "[3, 4]"),
    },
    returns: Returns::Computed(list_type),
    kernel: |arguments| column(arguments, |sequence| sequence.tokens),
};

pub(crate) static MASK: Function = Function {
    interface: Interface {
        name: "sequence_token_mask",
        section: SECTION,
        description: "For each of the `sequence_token_ids` 1 if the policy sampled just this token there and it is part of a response, else 0: what a loss \
            should count.",
        parameters: PARAMETERS,
        required: 3,
        example: ("SELECT sequence_token_mask(ARRAY[[1, 2]], ARRAY[[3, 4]], ARRAY[[1, 0]])", "[1, 0]"),
    },
    returns: Returns::Computed(list_type),
    kernel: |arguments| column(arguments, |sequence| sequence.mask),
};

fn nested() -> DataType {
    DataType::new_list(DataType::new_list(DataType::Int32, true), true)
}

fn list_type(found: &[DataType], _: &[Option<&datafusion::scalar::ScalarValue>]) -> Result<DataType> {
    let is_list = |found: &DataType, is_item: fn(&DataType) -> bool| match found {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => is_item(item.data_type()),
        other => other.is_null(),
    };
    let is_integers = |found: &DataType| match found {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().is_integer() || item.data_type().is_null()
        }
        other => other.is_null(),
    };
    let wrong = PARAMETERS.iter().zip(found).find(|(_, found)| !is_list(found, is_integers));
    match wrong {
        None => Ok(DataType::new_list(DataType::Int32, true)),
        Some((parameter, found)) => Err(crate::Error::ArgumentType {
            function: "sequence_token_ids",
            argument: parameter.name,
            found: type_name(found),
            expected: "integer[][], a list for each step",
        }
        .into()),
    }
}

/// A list for each row.
fn column(arguments: &Arguments, part: fn(Sequence) -> Vec<i32>) -> Result<ArrayRef> {
    let lists = [0, 1, 2].map(|index| lists(arguments, index));
    let [prompts, tokens, masks] = lists;
    let (prompts, tokens, masks) = (prompts?, tokens?, masks?);
    let mut rows = ListBuilder::new(Int32Builder::new());
    for row in 0..arguments.num_rows() {
        let steps = steps(&prompts, &tokens, &masks, row);
        let found = steps.as_deref().and_then(sequence).map(part);
        let is_valid = found.is_some();
        rows.values().append_slice(&found.unwrap_or_default());
        rows.append(is_valid);
    }
    Ok(Arc::new(rows.finish()))
}

/// An argument as lists of lists; a constant has one row.
struct Lists {
    lists: ListArray,
    is_constant: bool,
}

fn lists(arguments: &Arguments, index: usize) -> Result<Lists> {
    let column = arguments.column(index)?;
    let lists = cast(column.array(), &nested())?.as_list::<i32>().clone();
    Ok(Lists { lists, is_constant: column.is_constant() })
}

impl Lists {
    /// None if it is NULL, or has a NULL in it.
    fn get(&self, row: usize) -> Option<Vec<Vec<i32>>> {
        let row = if self.is_constant { 0 } else { row };
        let steps = self.lists.is_valid(row).then(|| self.lists.value(row))?;
        let steps = steps.as_list::<i32>();
        let step = |at: usize| {
            let ids = steps.is_valid(at).then(|| steps.value(at))?;
            (ids.null_count() == 0).then(|| ids.as_primitive::<Int32Type>().values().to_vec())
        };
        (0..steps.len()).map(step).collect()
    }
}

/// None if something is missing: a policy that does not tell, or a table of an earlier version.
fn steps(prompts: &Lists, tokens: &Lists, masks: &Lists, row: usize) -> Option<Vec<Step>> {
    let (prompts, tokens, masks) = (prompts.get(row)?, tokens.get(row)?, masks.get(row)?);
    if tokens.len() != prompts.len() || masks.len() != prompts.len() {
        return None;
    }
    let step = |((prompt, tokens), mask): ((Vec<i32>, Vec<i32>), Vec<i32>)| {
        (!prompt.is_empty() && mask.len() == tokens.len()).then_some(Step { prompt, tokens, mask })
    };
    prompts.into_iter().zip(tokens).zip(masks).map(step).collect()
}

/// None without steps.
fn sequence(steps: &[Step]) -> Option<Sequence> {
    let (first, last) = (steps.first()?, steps.last()?);
    let mut prompt = [last.prompt.as_slice(), &last.tokens].concat();
    let mut mask = vec![0; prompt.len()];
    for step in steps.iter().filter(|step| prompt.starts_with(&step.prompt)) {
        let start = step.prompt.len();
        let same = step.tokens.iter().zip(&prompt[start..]).take_while(|(sampled, read)| sampled == read).count();
        mask[start..start + same].copy_from_slice(&step.mask[..same]);
    }
    // The end of the first prompt may be read as one token with what follows it.
    let shared = first.prompt.iter().zip(&prompt).take_while(|(one, other)| one == other).count();
    let (tokens, mask) = (prompt.split_off(shared), mask.split_off(shared));
    Some(Sequence { prompt, tokens, mask })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[(&[i32], &[i32], &[i32])]) -> Option<(Vec<i32>, Vec<i32>, Vec<i32>)> {
        let step = |(prompt, tokens, mask): &(&[i32], &[i32], &[i32])| Step {
            prompt: prompt.to_vec(),
            tokens: tokens.to_vec(),
            mask: mask.to_vec(),
        };
        let steps: Vec<Step> = steps.iter().map(step).collect();
        sequence(&steps).map(|Sequence { prompt, tokens, mask }| (prompt, tokens, mask))
    }

    #[test]
    fn a_token_counts_where_it_was_sampled() {
        assert_eq!(of(&[(&[1, 2], &[3, 4], &[1, 0])]), Some((vec![1, 2], vec![3, 4], vec![1, 0])));
        let whole: &[(&[i32], &[i32], &[i32])] = &[(&[1, 2], &[3, 4], &[1, 1]), (&[1, 2, 3, 4, 8, 9], &[5], &[1])];
        assert_eq!(of(whole), Some((vec![1, 2], vec![3, 4, 8, 9, 5], vec![1, 1, 0, 0, 1])));
        // The last token of the response and the passage after it are one token now.
        let merged: &[(&[i32], &[i32], &[i32])] = &[(&[1, 2], &[3, 4], &[1, 1]), (&[1, 2, 3, 7, 9], &[5], &[1])];
        assert_eq!(of(merged), Some((vec![1, 2], vec![3, 7, 9, 5], vec![1, 0, 0, 1])));
        // So are the end of the first prompt and the beginning of the response.
        let begun: &[(&[i32], &[i32], &[i32])] = &[(&[1, 2], &[3, 4], &[1, 1]), (&[1, 6, 4, 9], &[5], &[1])];
        assert_eq!(of(begun), Some((vec![1], vec![6, 4, 9, 5], vec![0, 0, 0, 1])));
        // What was written after the action is not in the next prompt.
        let after: &[(&[i32], &[i32], &[i32])] = &[(&[1, 2], &[3, 4], &[1, 0]), (&[1, 2, 3, 9], &[5], &[1])];
        assert_eq!(of(after), Some((vec![1, 2], vec![3, 9, 5], vec![1, 0, 1])));
        assert_eq!(of(&[]), None);
    }
}
