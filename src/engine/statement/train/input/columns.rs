//! One batch of rows as a training reads it: each column in one of its forms.

use std::cell::Cell;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, Int64Type};

use super::{CHOSEN_LOGPS, Content, Form, GivenReference, PAIR_IDS, REFERENCE, REJECTED_LOGPS, Row, TOKEN_MASK, Wanted, Weight};
use crate::engine::statement::arrow;
use crate::engine::statement::train::chat::{Chat, Problem, Said, check_completion, check_prompt};
use crate::engine::typing::sql_type_name;
use crate::error::{Error, Result};
use crate::models::chat_template::ChatMessage;
use crate::training::ReferenceLogps;

/// What rounding may leave of the probability 1.
const LOGPS_MAX: f64 = 1e-3;

/// The columns of one batch of rows.
pub struct Columns<'a> {
    pub of: &'a str,
    pub batch: &'a RecordBatch,
    pub rows_before: usize,
    pub vocab_size: usize,
    pub chat: &'a Chat,
    pub learns_prompts: bool,
    /// For a reward model.
    pub is_scored: bool,
    /// Rows whose reference is another model than the base, so far.
    pub num_of_others: &'a Cell<usize>,
}

impl Columns<'_> {
    pub fn rows(&self, wanted: Wanted) -> Result<Vec<Row>> {
        let (prompts, completions) = match wanted.form {
            Form::Texts => self.written(&["completion"])?,
            Form::Parts => (self.plain_prompts("parts")?, vec![self.parts()?]),
            Form::Ids => (self.prompts_of_ids(wanted)?, vec![self.completion_ids(wanted)?]),
            Form::Pairs => self.written(&["chosen", "rejected"])?,
            Form::PairIds => (self.prompts_of_ids(wanted)?, self.completions_of_ids()?),
            Form::Steps => self.written(&["step"])?,
        };
        let optional = |is_there: bool, name: &str, instead: &str| is_there.then(|| self.numbers(name, instead)).transpose();
        let weights = optional(wanted.has_weight, "weight", "a number; COALESCE(weight, 1) where there is none")?;
        let rewards = optional(wanted.has_reward, "reward", "a number; COALESCE(reward, 0) where there is none")?;
        let scores = optional(wanted.has_score, "score", "a number; filter such rows out with WHERE")?;
        for (name, numbers) in [("reward", &rewards), ("score", &scores)] {
            self.check_finite(name, numbers.as_ref())?;
        }
        let mut references = if wanted.has_reference { self.references(wanted)? } else { Vec::new() }.into_iter();
        let labels = (wanted.form == Form::Steps).then(|| self.labels()).transpose()?;
        let value =
            |numbers: &Option<Float64Array>, row: usize, otherwise: f64| numbers.as_ref().map_or(otherwise, |numbers| numbers.value(row));
        let mut completions: Vec<_> = completions.into_iter().map(Vec::into_iter).collect();
        let rows = prompts.into_iter().enumerate().map(|(row, prompt)| Row {
            prompt,
            completions: completions.iter_mut().filter_map(Iterator::next).collect(),
            weight: value(&weights, row, 1.0) as f32,
            reward: value(&rewards, row, 0.0),
            score: value(&scores, row, 0.0),
            label: value(&labels, row, 0.0),
            reference: references.next().flatten(),
        });
        Ok(rows.collect())
    }

    /// What each row says of the reference.
    fn references(&self, wanted: Wanted) -> Result<Vec<Option<GivenReference>>> {
        let (chosen, rejected) = (self.logps(CHOSEN_LOGPS, wanted)?, self.logps(REJECTED_LOGPS, wanted)?);
        let both = |row: usize| Some(ReferenceLogps { chosen: chosen[row]?, rejected: rejected[row]? });
        let ids = if wanted.has_pair_ids { Some(PAIR_IDS.map(|name| self.ids_or_null(name))) } else { None };
        let ids = match ids {
            Some([chosen, rejected]) => Some((chosen?, rejected?)),
            None => None,
        };
        let ids_of = |row: usize| ids.as_ref().and_then(|(chosen, rejected)| Some([chosen[row].clone()?, rejected[row].clone()?]));
        if !wanted.names_reference {
            let given = |row: usize| both(row).map(|logps| GivenReference { ids: ids_of(row), ..logps.into() });
            return Ok((0..chosen.len()).map(given).collect());
        }
        let names = self.typed(REFERENCE, "text", is_text, &DataType::Utf8)?;
        let names = names.as_string::<i32>();
        let given = |row: usize| {
            let logps = both(row)?;
            if !names.is_valid(row) || names.value(row) != self.chat.model() {
                self.num_of_others.update(|others| others + 1);
                return None;
            }
            Some(GivenReference { logps, is_of_base: true, ids: ids_of(row) })
        };
        Ok((0..chosen.len()).map(given).collect())
    }

    /// A column of log-probabilities. There may be none of a row whose reference has a name.
    fn logps(&self, name: &str, wanted: Wanted) -> Result<Vec<Option<f64>>> {
        let column = self.typed(name, "a number", DataType::is_numeric, &DataType::Float64)?;
        let numbers = column.as_primitive::<Float64Type>();
        if !wanted.names_reference {
            self.check_no_null(
                name,
                numbers,
                "a number; or a column reference beside it, with which they are computed where there is none",
            )?;
        }
        let read = |(row, value): (usize, Option<f64>)| match value {
            Some(value) if !value.is_finite() => Err(self.invalid(name, row, value, "a finite number")),
            Some(value) if value > LOGPS_MAX => Err(self.invalid(name, row, value, "the logarithm of a probability, at most 0")),
            value => Ok(value),
        };
        numbers.iter().enumerate().map(read).collect()
    }

    /// Prompts of completions that are token ids. Of a policy that does not tell the tokens of a prompt the text is read, if it is there.
    fn prompts_of_ids(&self, wanted: Wanted) -> Result<Vec<Content>> {
        let of_ids = |ids: Vec<u32>| Content::Ids(ids, vec![]);
        if !wanted.has_prompt_ids {
            return self.plain_prompts("token ids");
        }
        let ids = self.ids_or_null("prompt_ids")?;
        if !wanted.has_prompt || ids.iter().all(Option::is_some) {
            return Ok(self.ids("prompt_ids")?.into_iter().map(of_ids).collect());
        }
        let texts = self.plain_prompts("token ids")?;
        Ok(texts.into_iter().zip(ids).map(|(text, ids)| ids.map_or(text, of_ids)).collect())
    }

    /// Chosen and rejected as token ids.
    fn completions_of_ids(&self) -> Result<Vec<Vec<Content>>> {
        let column =
            |name: &str| -> Result<Vec<Content>> { Ok(self.ids(name)?.into_iter().map(|ids| Content::Ids(ids, vec![])).collect()) };
        PAIR_IDS.iter().map(|name| column(name)).collect()
    }

    /// Prompts, and by name the columns of what follows them: texts as they are, and messages by the chat template of the base.
    fn written(&self, names: &[&str]) -> Result<(Vec<Content>, Vec<Vec<Content>>)> {
        let prompts = self.said("prompt")?;
        let columns = names.iter().map(|name| self.said(name)).collect::<Result<Vec<_>>>()?;
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        let (mut all_prompts, mut all_completions) = (Vec::with_capacity(prompts.len()), vec![Vec::new(); names.len()]);
        for (row, prompt) in prompts.into_iter().enumerate() {
            let completions = columns.iter_mut().filter_map(Iterator::next).collect();
            let (prompt, completions) = self.contents(row, names, prompt, completions)?;
            all_prompts.push(prompt);
            all_completions.iter_mut().zip(completions).for_each(|(column, completion)| column.push(completion));
        }
        Ok((all_prompts, all_completions))
    }

    /// What one row has: texts, or messages, in all of its columns.
    fn contents(&self, row: usize, names: &[&str], prompt: Said, completions: Vec<Said>) -> Result<(Content, Vec<Content>)> {
        let (mut texts, mut conversations) = (Vec::new(), Vec::new());
        for completion in completions {
            match completion {
                Said::Text(text) => texts.push(Content::Text(text)),
                Said::Messages(messages) => conversations.push(messages),
            }
        }
        match prompt {
            Said::Text(prompt) if conversations.is_empty() => Ok((Content::Text(prompt), texts)),
            Said::Messages(prompt) if texts.is_empty() => self.conversation(row, names, &prompt, conversations),
            _ => Err(self.invalid("prompt", row, "messages and a text side by side", "messages in all columns of a row, or texts in all")),
        }
    }

    fn conversation(
        &self,
        row: usize,
        names: &[&str],
        prompt: &[ChatMessage],
        completions: Vec<Vec<ChatMessage>>,
    ) -> Result<(Content, Vec<Content>)> {
        let refuse = |name: &str, problem: Problem| self.invalid(name, row, problem.found, problem.expected);
        check_prompt(prompt).map_err(|problem| refuse("prompt", problem))?;
        for (&name, completion) in names.iter().zip(&completions) {
            check_completion(completion, self.is_scored).map_err(|problem| refuse(name, problem))?;
        }
        if self.is_scored {
            let prompt = self.chat.prompt(prompt).map_err(|problem| refuse("prompt", problem))?;
            let steps = completions.into_iter().flatten().map(|message| Content::Text(message.content)).collect();
            return Ok((Content::Text(prompt), steps));
        }
        let (prompt, completions) = self.chat.texts(prompt, &completions).map_err(|problem| refuse("prompt", problem))?;
        Ok((Content::Text(prompt), completions.into_iter().map(Content::Turn).collect()))
    }

    /// Prompts of completions that come in `what`, which no template writes.
    fn plain_prompts(&self, what: &str) -> Result<Vec<Content>> {
        let plain = |(row, said): (usize, Said)| match said {
            Said::Text(text) => Ok(Content::Text(text)),
            Said::Messages(_) => {
                Err(self.invalid("prompt", row, "messages", format!("a text beside {what}, as apply_chat_template() writes it")))
            }
        };
        self.said("prompt")?.into_iter().enumerate().map(plain).collect()
    }

    /// A column of texts, some of which may be messages, or of lists of messages.
    fn said(&self, name: &str) -> Result<Vec<Said>> {
        if let Some(item) = list_of_structs(self.column(name)?.data_type()) {
            return self.messages(name, item);
        }
        let texts = self.texts(name)?;
        let read = |row: usize| {
            let said = Said::read(texts.value(row));
            said.map_err(|problem| self.invalid(name, row, problem.found, problem.expected))
        };
        (0..texts.len()).map(read).collect()
    }

    /// `item`: the field of the lists' structs.
    fn messages(&self, name: &str, item: &FieldRef) -> Result<Vec<Said>> {
        let column = cast(self.column(name)?, &DataType::List(FieldRef::clone(item))).map_err(arrow)?;
        let lists = column.as_list::<i32>();
        self.check_no_null(name, lists, "messages; filter such rows out with WHERE")?;
        let messages = lists.values().as_struct();
        let [roles, contents] = self.fields(name, messages)?;
        let message = |at: usize| {
            let present = messages.is_valid(at) && roles.is_valid(at) && contents.is_valid(at);
            present.then(|| ChatMessage::new(roles.value(at), contents.value(at)))
        };
        let read = |row: usize| {
            let [start, end] = [row, row + 1].map(|at| lists.value_offsets()[at] as usize);
            let messages: Option<Vec<ChatMessage>> = (start..end).map(message).collect();
            let incomplete = || self.invalid(name, row, "a message with NULL in it", "a role and a content in each message");
            messages.map(Said::Messages).ok_or_else(incomplete)
        };
        (0..lists.len()).map(read).collect()
    }

    /// `role` and `content` of all messages, which have nothing else.
    fn fields(&self, name: &str, messages: &StructArray) -> Result<[StringArray; 2]> {
        let text = |field: &str| -> Result<Option<StringArray>> {
            let column = messages.column_by_name(field).filter(|column| is_text(column.data_type()) || column.data_type().is_null());
            let Some(column) = column else { return Ok(None) };
            Ok(Some(cast(column, &DataType::Utf8).map_err(arrow)?.as_string::<i32>().clone()))
        };
        match (text("role")?, text("content")?) {
            (Some(roles), Some(contents)) if messages.num_columns() == 2 => Ok([roles, contents]),
            _ => Err(Error::WrongType {
                what: format!("column {name} of {}", self.of),
                found: sql_type_name(self.column(name)?.data_type()),
                expected: "text, or a list of structs with role and content, both text, alone".to_owned(),
            }),
        }
    }

    fn column(&self, name: &str) -> Result<&ArrayRef> {
        self.batch.column_by_name(name).ok_or_else(|| Error::Internal(format!("no column {name}")))
    }

    /// How good each step is.
    fn labels(&self) -> Result<Float64Array> {
        let fits = |found: &DataType| found.is_numeric() || matches!(found, DataType::Boolean);
        let column = self.typed("label", "a number from 0 to 1, or true and false", fits, &DataType::Float64)?;
        let labels = column.as_primitive::<Float64Type>().clone();
        self.check_no_null("label", &labels, "a number from 0 to 1; filter such rows out with WHERE")?;
        match labels.values().iter().enumerate().find(|(_, label)| !(0.0..=1.0).contains(*label)) {
            Some((row, label)) => {
                Err(self.invalid("label", row, label, "a number from 0 to 1, as soft_label and hard_label of step_labels() are"))
            }
            None => Ok(labels),
        }
    }

    /// `parts` with their `mask`, a value for each.
    fn parts(&self) -> Result<Vec<Content>> {
        let (parts, masks) = (self.lists("parts", "text[]", is_text, DataType::Utf8)?, self.masks("mask")?);
        let contents = masks.into_iter().enumerate().map(|(row, mask)| {
            let texts = parts.value(row);
            let texts = texts.as_string::<i32>();
            self.check_mask("mask", row, &mask, texts.len(), "part")?;
            Ok(Content::Parts(mask.into_iter().enumerate().map(|(at, weight)| (texts.value(at).to_owned(), weight)).collect()))
        });
        contents.collect()
    }

    /// `token_mask` is of tokens by its name; `mask` may stand beside it for `parts`.
    fn completion_ids(&self, wanted: Wanted) -> Result<Vec<Content>> {
        let ids = self.ids("completion_ids")?;
        let name = match wanted {
            Wanted { has_token_mask: true, .. } => TOKEN_MASK,
            Wanted { has_mask: true, .. } => "mask",
            _ => return Ok(ids.into_iter().map(|ids| Content::Ids(ids, vec![])).collect()),
        };
        let contents = ids.into_iter().zip(self.masks(name)?).enumerate().map(|(row, (ids, mask))| {
            self.check_mask(name, row, &mask, ids.len(), "token")?;
            Ok(Content::Ids(ids, mask))
        });
        contents.collect()
    }

    fn check_mask(&self, name: &str, row: usize, mask: &[Weight], expected: usize, what: &str) -> Result<()> {
        if mask.len() != expected {
            return Err(self.invalid(name, row, format!("{} values", mask.len()), format!("{expected}, one for each {what}")));
        }
        match self.learns_prompts || mask.iter().any(|weight| weight.value() > 0.0) {
            true => Ok(()),
            false => Err(self.invalid(
                name,
                row,
                "nothing above 0",
                format!("at least one {what} that is learned; filter such rows out with WHERE"),
            )),
        }
    }

    fn ids(&self, name: &str) -> Result<Vec<Vec<u32>>> {
        let expected = "integer[]; filter such rows out with WHERE";
        let read = |(row, ids): (usize, Option<Vec<u32>>)| ids.ok_or_else(|| self.invalid(name, row, "NULL", expected));
        self.ids_or_null(name)?.into_iter().enumerate().map(read).collect()
    }

    fn ids_or_null(&self, name: &str) -> Result<Vec<Option<Vec<u32>>>> {
        let lists = self.lists_or_null(name, "integer[]", DataType::is_integer, DataType::Int64)?;
        let read = |row: usize| -> Result<Option<Vec<u32>>> {
            if lists.is_null(row) {
                return Ok(None);
            }
            let ids = lists.value(row);
            let ids = ids.as_primitive::<Int64Type>().values();
            let known = |id: &i64| u32::try_from(*id).ok().filter(|id| (*id as usize) < self.vocab_size);
            let wrong =
                |id: &i64| self.invalid(name, row, id, format!("token ids of the base, from 0 to {}", self.vocab_size.saturating_sub(1)));
            ids.iter().map(|id| known(id).ok_or_else(|| wrong(id))).collect::<Result<_>>().map(Some)
        };
        (0..lists.len()).map(read).collect()
    }

    /// How much each part or token counts.
    fn masks(&self, name: &str) -> Result<Vec<Vec<Weight>>> {
        let is_weight = |found: &DataType| found.is_numeric() || matches!(found, DataType::Boolean);
        let lists = self.lists(name, "numbers, in an array", is_weight, DataType::Float32)?;
        let read = |row: usize| -> Result<Vec<Weight>> {
            let weights = lists.value(row);
            let weight = |weight: &f32| match *weight >= 0.0 && weight.is_finite() {
                // Adding 0 leaves a negative zero none.
                true => Ok(Weight::of(*weight + 0.0)),
                false => Err(self.invalid(name, row, weight, "0 for what is only read, 1 for what is learned, or another number >= 0")),
            };
            weights.as_primitive::<Float32Type>().values().iter().map(weight).collect()
        };
        (0..lists.len()).map(read).collect()
    }

    fn texts(&self, name: &str) -> Result<StringArray> {
        let column = self.typed(name, "text", is_text, &DataType::Utf8)?.as_string::<i32>().clone();
        self.check_no_null(name, &column, "a text; filter such rows out with WHERE")?;
        Ok(column)
    }

    fn numbers(&self, name: &str, expected: &str) -> Result<Float64Array> {
        let column = self.typed(name, "a number", DataType::is_numeric, &DataType::Float64)?.as_primitive::<Float64Type>().clone();
        self.check_no_null(name, &column, expected)?;
        Ok(column)
    }

    fn lists(&self, name: &str, expected: &str, is_item: impl Fn(&DataType) -> bool, item: DataType) -> Result<ListArray> {
        let lists = self.lists_or_null(name, expected, is_item, item)?;
        self.check_no_null(name, &lists, &format!("{expected}; filter such rows out with WHERE"))?;
        Ok(lists)
    }

    fn lists_or_null(&self, name: &str, expected: &str, is_item: impl Fn(&DataType) -> bool, item: DataType) -> Result<ListArray> {
        let is_list = |found: &DataType| match found {
            DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
                is_item(field.data_type()) || field.data_type().is_null()
            }
            _ => false,
        };
        let column = self.typed(name, expected, is_list, &DataType::new_list(item, true))?.as_list::<i32>().clone();
        match (0..column.len()).find(|row| column.is_valid(*row) && column.value(*row).null_count() > 0) {
            Some(row) => Err(self.invalid(name, row, "a list with NULL in it", format!("{expected} without NULL"))),
            None => Ok(column),
        }
    }

    /// The column as `to`, if it is of a type that fits; NULL without a type fits all.
    fn typed(&self, name: &str, expected: &str, fits: impl Fn(&DataType) -> bool, to: &DataType) -> Result<ArrayRef> {
        let column = self.column(name)?;
        if !fits(column.data_type()) && !column.data_type().is_null() {
            return Err(Error::WrongType {
                what: format!("column {name} of {}", self.of),
                found: sql_type_name(column.data_type()),
                expected: expected.to_owned(),
            });
        }
        cast(column, to).map_err(arrow)
    }

    fn check_no_null(&self, name: &str, column: &dyn Array, expected: &str) -> Result<()> {
        match (0..column.len()).find(|row| column.is_null(*row)) {
            Some(row) => Err(self.invalid(name, row, "NULL", expected)),
            None => Ok(()),
        }
    }

    fn check_finite(&self, name: &str, numbers: Option<&Float64Array>) -> Result<()> {
        let found = numbers.and_then(|numbers| numbers.values().iter().enumerate().find(|(_, number)| !number.is_finite()));
        match found {
            Some((row, number)) => Err(self.invalid(name, row, number, "a finite number")),
            None => Ok(()),
        }
    }

    /// `row` counts from 0 within the batch.
    fn invalid(&self, name: &str, row: usize, found: impl ToString, expected: impl Into<String>) -> Error {
        let name = format!("{name} of {}, row {}", self.of, self.rows_before + row + 1);
        Error::InvalidParameter { name, found: found.to_string(), expected: expected.into() }
    }
}

/// The field of the structs, if the column has lists of such.
fn list_of_structs(found: &DataType) -> Option<&FieldRef> {
    match found {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            matches!(item.data_type(), DataType::Struct(_)).then_some(item)
        }
        _ => None,
    }
}

fn is_text(found: &DataType) -> bool {
    matches!(found, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}
