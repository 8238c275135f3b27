//! What a training reads: the columns of its queries, each in one of its forms.

use std::cmp::Ordering;
use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::Query;
use futures::TryStreamExt;
use rolloutdb_sql::Train;

use super::super::arrow;
use super::chat::{Chat, Problem, Said, check_completion, check_prompt};
use super::lineage::TableVersions;
use super::task::Method;
use crate::engine::planning::{plan_query, require_columns};
use crate::engine::session::Session;
use crate::engine::typing::sql_type_name;
use crate::error::{Error, Result, nearest};
use crate::models::chat_template::ChatMessage;
use crate::training::{ReferenceLogps, RewardLoss, RftOptions};

const CHOSEN_LOGPS: &str = "reference_chosen_logps";
const REJECTED_LOGPS: &str = "reference_rejected_logps";
/// What rounding may leave of the probability 1.
const LOGPS_MAX: f64 = 1e-3;
/// Columns that some method or form reads.
const READ: [&str; 15] = [
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "step",
    "label",
    "parts",
    "mask",
    "prompt_ids",
    "completion_ids",
    "weight",
    "reward",
    "score",
    CHOSEN_LOGPS,
    REJECTED_LOGPS,
];
/// Shorter names are like many others.
const MISSPELT_MIN: usize = 5;

/// Rewards that an error names, the largest first.
const REWARDS_SHOWN: usize = 5;

/// What a model reads, or is to write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    Text(String),
    /// A completion that a chat template has written to its end.
    Turn(String),
    /// Texts one after the other, and whether each one is learned.
    Parts(Vec<(String, bool)>),
    /// Token ids, and whether each one is learned; no such list: all.
    Ids(Vec<u32>, Vec<bool>),
}

/// One row of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub prompt: Content,
    /// The completion, or the chosen and the rejected one.
    pub completions: Vec<Content>,
    pub weight: f32,
    pub reward: f64,
    pub score: f64,
    /// Of a step.
    pub label: f64,
    pub reference: Option<ReferenceLogps>,
}

/// The rows of both queries of a statement.
#[derive(Debug, Default)]
pub struct Input {
    pub rows: Vec<Row>,
    /// Of VALIDATE USING; none without it.
    pub validation: Vec<Row>,
    /// What both read.
    pub tables: TableVersions,
    /// Rows of USING that the rewards or scores of RFT leave out.
    pub num_left_out: usize,
}

/// Reads `USING (query)` and `VALIDATE USING (query)`. `vocab_size`: token ids are smaller. `chat`: of the base.
///
/// # Errors
/// [`Error::MissingColumn`], [`Error::WrongType`], [`Error::InvalidParameter`] naming the row; [`Error::NotReady`] without a row to learn from or to
/// measure on; those of the queries.
pub async fn read(
    session: &Session,
    train: &Train,
    parameters: &[ScalarValue],
    method: &Method,
    vocab_size: usize,
    chat: &Chat,
) -> Result<Input> {
    let mut input = Input::default();
    let source = Source { of: format!("TRAIN {}", train.method), query: &train.query, method, is_validation: false, vocab_size, chat };
    let rows = source.rows(session, parameters, &mut input.tables).await?;
    let num_rows = rows.len();
    input.rows = match method {
        Method::Rft(rft) => good_enough(rows, rft)?,
        Method::Sft(_) | Method::Dpo(_) | Method::Prm(_) => rows,
    };
    input.num_left_out = num_rows - input.rows.len();
    if let Some(query) = &train.validate {
        let source = Source { of: format!("VALIDATE of TRAIN {}", train.method), query, is_validation: true, ..source };
        input.validation = source.rows(session, parameters, &mut input.tables).await?;
        check_same_kind(&source.of, &input)?;
    }
    Ok(input)
}

/// Whether rows have two completions or one: pairs and labelled steps have no loss in common.
fn check_same_kind(of: &str, input: &Input) -> Result<()> {
    let num_completions = |rows: &[Row]| rows.first().map_or(0, |row| row.completions.len());
    let kind = |rows: &[Row]| if num_completions(rows) == 2 { "pairs" } else { "steps with labels" };
    if num_completions(&input.rows) == num_completions(&input.validation) {
        return Ok(());
    }
    let expected = format!("{}, as the query of USING gives them", kind(&input.rows));
    Err(Error::InvalidParameter { name: format!("rows of {of}"), found: kind(&input.validation).to_owned(), expected })
}

/// A query, and what is wanted of it.
struct Source<'a> {
    /// As messages name it.
    of: String,
    query: &'a Query,
    method: &'a Method,
    is_validation: bool,
    vocab_size: usize,
    chat: &'a Chat,
}

/// How the query gives prompts and completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Texts,
    Parts,
    Ids,
    Pairs,
    Steps,
}

/// The columns that are read.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    form: Form,
    has_mask: bool,
    has_weight: bool,
    has_reward: bool,
    has_score: bool,
    has_reference: bool,
}

impl Source<'_> {
    async fn rows(&self, session: &Session, parameters: &[ScalarValue], tables: &mut TableVersions) -> Result<Vec<Row>> {
        let planned = plan_query(session, self.query, parameters).await?;
        let wanted = self.wanted(&planned.plan)?;
        self.warn_of_misspelt(session, &planned.plan);
        tables.add(&planned.plan)?;
        let mut stream = planned.stream().await?;
        let mut rows = Vec::new();
        while let Some(batch) = stream.try_next().await? {
            let columns = Columns {
                of: &self.of,
                batch: &batch,
                rows_before: rows.len(),
                vocab_size: self.vocab_size,
                chat: self.chat,
                learns_prompts: self.method.prompt_weight() > 0.0,
                is_scored: matches!(self.method, Method::Prm(_)),
            };
            rows.extend(columns.rows(wanted)?);
        }
        if rows.is_empty() {
            return Err(Error::NotReady(format!("{} needs at least one example; its query gives none", self.of)));
        }
        if self.query.order_by.is_none() {
            // Such a query may give its rows in any order. They are sorted, so that the same seed gives the same model.
            rows.sort_by(by_content);
        }
        Ok(rows)
    }

    fn wanted(&self, plan: &LogicalPlan) -> Result<Wanted> {
        let has = |name: &str| plan.schema().fields().iter().any(|field| field.name() == name);
        let require = |names: &[&str]| require_columns(&self.of, plan, names);
        let has_ids = match [has("prompt_ids"), has("completion_ids")] {
            // One of them belongs to a form that is not whole, unless there is another that is.
            [true, false] | [false, true] => !has("completion") && !has("parts"),
            [both, _] => both,
        };
        let form = match self.method {
            Method::Dpo(_) => Form::Pairs,
            Method::Prm(prm) => match prm.loss.map_or(has("chosen") || has("rejected"), RewardLoss::needs_pairs) {
                true => Form::Pairs,
                false => Form::Steps,
            },
            _ if has_ids => Form::Ids,
            // A mask of a text alone would be lost without a word.
            _ if has("parts") || has("mask") => Form::Parts,
            _ => Form::Texts,
        };
        match form {
            Form::Texts => require(&["prompt", "completion"])?,
            Form::Parts => require(&["prompt", "parts", "mask"])?,
            Form::Ids => require(&["prompt_ids", "completion_ids"])?,
            Form::Pairs => require(&["prompt", "chosen", "rejected"])?,
            Form::Steps => require(&["prompt", "step", "label"])?,
        }
        let is_sampled = !self.is_validation && matches!(self.method, Method::Rft(_));
        let needs_score = matches!(self.method, Method::Rft(RftOptions { min_score: Some(_), .. }));
        if is_sampled {
            require(if needs_score { &["reward", "score"] } else { &["reward"] })?;
        }
        let has_reference = matches!(self.method, Method::Dpo(_)) && (has(CHOSEN_LOGPS) || has(REJECTED_LOGPS));
        if has_reference {
            require(&[CHOSEN_LOGPS, REJECTED_LOGPS])?;
        }
        Ok(Wanted {
            form,
            has_mask: has("mask"),
            has_weight: !matches!(form, Form::Pairs | Form::Steps) && has("weight"),
            has_reward: is_sampled,
            has_score: is_sampled && has("score"),
            has_reference,
        })
    }

    /// Columns that are not read beside others that could be: one of them may be the other, misspelt.
    fn warn_of_misspelt(&self, session: &Session, plan: &LogicalPlan) {
        let optional: &[&str] = match self.method {
            Method::Dpo(_) => &[CHOSEN_LOGPS, REJECTED_LOGPS],
            Method::Sft(_) => &["weight"],
            Method::Rft(_) => &["weight", "score"],
            Method::Prm(_) => &[],
        };
        let fields = plan.schema().fields();
        let absent: Vec<String> =
            optional.iter().filter(|name| fields.iter().all(|field| field.name() != *name)).map(|name| (*name).to_owned()).collect();
        for name in fields.iter().map(|field| field.name()).filter(|name| name.len() >= MISSPELT_MIN && !READ.contains(&name.as_str())) {
            if let Some(meant) = nearest(name, &absent) {
                session.notices().warning(format!("column \"{name}\" is not read by {}; did you mean \"{meant}\"?", self.of));
            }
        }
    }
}

/// By all that is learned from a row.
fn by_content(a: &Row, b: &Row) -> Ordering {
    let logps = |row: &Row| row.reference.map_or([0.0; 2], |logps| [logps.chosen, logps.rejected]);
    let ([a_chosen, a_rejected], [b_chosen, b_rejected]) = (logps(a), logps(b));
    (&a.prompt, &a.completions)
        .cmp(&(&b.prompt, &b.completions))
        .then(a.weight.total_cmp(&b.weight))
        .then(a.reward.total_cmp(&b.reward))
        .then(a.score.total_cmp(&b.score))
        .then(a.label.total_cmp(&b.label))
        .then(a_chosen.total_cmp(&b_chosen))
        .then(a_rejected.total_cmp(&b_rejected))
}

/// The rows that RFT learns from: of reward and score enough, and of each prompt the best.
///
/// # Errors
/// [`Error::NotReady`] if there are none, with the rewards that there are.
fn good_enough(rows: Vec<Row>, options: &RftOptions) -> Result<Vec<Row>> {
    let is_kept = kept(&rows, options);
    if !is_kept.contains(&true) {
        return Err(Error::NotReady(none_is_good(&rows, options)));
    }
    Ok(rows.into_iter().zip(is_kept).filter_map(|(row, is_kept)| is_kept.then_some(row)).collect())
}

fn kept(rows: &[Row], options: &RftOptions) -> Vec<bool> {
    let is_good = |row: &Row| row.reward >= options.min_reward && options.min_score.is_none_or(|least| row.score >= least);
    let mut by_prompt: HashMap<&Content, Vec<usize>> = HashMap::new();
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| is_good(row)) {
        by_prompt.entry(&row.prompt).or_default().push(index);
    }
    let mut is_kept = vec![false; rows.len()];
    for mut indices in by_prompt.into_values() {
        // Stable: of equals the first in the order of the rows.
        indices.sort_by(|a, b| rows[*b].reward.total_cmp(&rows[*a].reward).then(rows[*b].score.total_cmp(&rows[*a].score)));
        indices.iter().take(options.per_prompt.unwrap_or(usize::MAX)).for_each(|index| is_kept[*index] = true);
    }
    is_kept
}

fn none_is_good(rows: &[Row], options: &RftOptions) -> String {
    let mut counts: Vec<(f64, usize)> = Vec::new();
    let mut rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
    rewards.sort_by(|a, b| b.total_cmp(a));
    for reward in rewards {
        match counts.last_mut() {
            Some((last, count)) if *last == reward => *count += 1,
            _ => counts.push((reward, 1)),
        }
    }
    let mut found: Vec<String> = counts.iter().take(REWARDS_SHOWN).map(|(reward, count)| format!("{count} with {reward}")).collect();
    if counts.len() > REWARDS_SHOWN {
        found.push("the others with less".to_owned());
    }
    let score = options.min_score.map(|least| format!(" and a score of at least {least}")).unwrap_or_default();
    let advice = if options.min_score.is_some() { "lower min_reward or min_score" } else { "lower min_reward" };
    format!(
        "TRAIN RFT needs rows with a reward of at least {}{score}; its query gives {} rows: {}; {advice}, or sample more",
        options.min_reward,
        rows.len(),
        found.join(", ")
    )
}

/// The columns of one batch of rows.
struct Columns<'a> {
    of: &'a str,
    batch: &'a RecordBatch,
    rows_before: usize,
    vocab_size: usize,
    chat: &'a Chat,
    learns_prompts: bool,
    /// For a reward model.
    is_scored: bool,
}

impl Columns<'_> {
    fn rows(&self, wanted: Wanted) -> Result<Vec<Row>> {
        let (prompts, completions) = match wanted.form {
            Form::Texts => self.written(&["completion"])?,
            Form::Parts => (self.plain_prompts()?, vec![self.parts()?]),
            Form::Ids => {
                let prompts = self.ids("prompt_ids")?.into_iter().map(|ids| Content::Ids(ids, vec![])).collect();
                (prompts, vec![self.completion_ids(wanted.has_mask)?])
            }
            Form::Pairs => self.written(&["chosen", "rejected"])?,
            Form::Steps => self.written(&["step"])?,
        };
        let optional = |is_there: bool, name: &str, instead: &str| is_there.then(|| self.numbers(name, instead)).transpose();
        let weights = optional(wanted.has_weight, "weight", "a number; COALESCE(weight, 1) where there is none")?;
        let rewards = optional(wanted.has_reward, "reward", "a number; COALESCE(reward, 0) where there is none")?;
        let scores = optional(wanted.has_score, "score", "a number; filter such rows out with WHERE")?;
        let chosen = optional(wanted.has_reference, CHOSEN_LOGPS, "a number")?;
        let rejected = optional(wanted.has_reference, REJECTED_LOGPS, "a number")?;
        for (name, numbers) in [("reward", &rewards), ("score", &scores), (CHOSEN_LOGPS, &chosen), (REJECTED_LOGPS, &rejected)] {
            self.check_finite(name, numbers.as_ref())?;
        }
        for (name, numbers) in [(CHOSEN_LOGPS, &chosen), (REJECTED_LOGPS, &rejected)] {
            let above = numbers.iter().flat_map(|numbers| numbers.values().iter().enumerate()).find(|(_, value)| **value > LOGPS_MAX);
            if let Some((row, value)) = above {
                return Err(self.invalid(name, row, value, "the logarithm of a probability, at most 0"));
            }
        }
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
            reference: wanted
                .has_reference
                .then(|| ReferenceLogps { chosen: value(&chosen, row, 0.0), rejected: value(&rejected, row, 0.0) }),
        });
        Ok(rows.collect())
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

    /// Prompts of completions that come in parts, which no template writes.
    fn plain_prompts(&self) -> Result<Vec<Content>> {
        let plain = |(row, said): (usize, Said)| match said {
            Said::Text(text) => Ok(Content::Text(text)),
            Said::Messages(_) => Err(self.invalid("prompt", row, "messages", "a text beside parts, as apply_chat_template() writes it")),
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
            present.then(|| ChatMessage { role: roles.value(at).to_owned(), content: contents.value(at).to_owned() })
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
        let (parts, masks) = (self.lists("parts", "text[]", is_text, DataType::Utf8)?, self.masks()?);
        let contents = masks.into_iter().enumerate().map(|(row, mask)| {
            let texts = parts.value(row);
            let texts = texts.as_string::<i32>();
            self.check_mask(row, &mask, texts.len(), "part")?;
            Ok(Content::Parts(mask.into_iter().enumerate().map(|(at, counts)| (texts.value(at).to_owned(), counts)).collect()))
        });
        contents.collect()
    }

    fn completion_ids(&self, has_mask: bool) -> Result<Vec<Content>> {
        let ids = self.ids("completion_ids")?;
        if !has_mask {
            return Ok(ids.into_iter().map(|ids| Content::Ids(ids, vec![])).collect());
        }
        let contents = ids.into_iter().zip(self.masks()?).enumerate().map(|(row, (ids, mask))| {
            self.check_mask(row, &mask, ids.len(), "token")?;
            Ok(Content::Ids(ids, mask))
        });
        contents.collect()
    }

    fn check_mask(&self, row: usize, mask: &[bool], expected: usize, what: &str) -> Result<()> {
        if mask.len() != expected {
            return Err(self.invalid("mask", row, format!("{} values", mask.len()), format!("{expected}, one for each {what}")));
        }
        match self.learns_prompts || mask.contains(&true) {
            true => Ok(()),
            false => {
                Err(self.invalid("mask", row, "no 1", format!("at least one {what} that is learned; filter such rows out with WHERE")))
            }
        }
    }

    fn ids(&self, name: &str) -> Result<Vec<Vec<u32>>> {
        let lists = self.lists(name, "integer[]", DataType::is_integer, DataType::Int64)?;
        let read = |row: usize| -> Result<Vec<u32>> {
            let ids = lists.value(row);
            let ids = ids.as_primitive::<Int64Type>().values();
            let known = |id: &i64| u32::try_from(*id).ok().filter(|id| (*id as usize) < self.vocab_size);
            let wrong =
                |id: &i64| self.invalid(name, row, id, format!("token ids of the base, from 0 to {}", self.vocab_size.saturating_sub(1)));
            ids.iter().map(|id| known(id).ok_or_else(|| wrong(id))).collect()
        };
        (0..lists.len()).map(read).collect()
    }

    /// True where a part or token is learned.
    fn masks(&self) -> Result<Vec<Vec<bool>>> {
        let is_flag = |found: &DataType| found.is_integer() || matches!(found, DataType::Boolean);
        let lists = self.lists("mask", "integer[]", is_flag, DataType::Int64)?;
        let read = |row: usize| -> Result<Vec<bool>> {
            let flags = lists.value(row);
            let flag = |flag: &i64| match flag {
                0 => Ok(false),
                1 => Ok(true),
                other => Err(self.invalid("mask", row, other, "0 or 1")),
            };
            flags.as_primitive::<Int64Type>().values().iter().map(flag).collect()
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
        let is_list = |found: &DataType| match found {
            DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
                is_item(field.data_type()) || field.data_type().is_null()
            }
            _ => false,
        };
        let column = self.typed(name, expected, is_list, &DataType::new_list(item, true))?.as_list::<i32>().clone();
        self.check_no_null(name, &column, &format!("{expected}; filter such rows out with WHERE"))?;
        match (0..column.len()).find(|row| column.value(*row).null_count() > 0) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(prompt: &str, completion: &str, reward: f64, score: f64) -> Row {
        let text = |text: &str| Content::Text(text.to_owned());
        Row { prompt: text(prompt), completions: vec![text(completion)], weight: 1.0, reward, score, label: 0.0, reference: None }
    }

    fn completions(rows: &[Row]) -> Vec<&str> {
        let mut texts = Vec::new();
        for row in rows {
            match &row.completions[0] {
                Content::Text(text) => texts.push(text.as_str()),
                other => panic!("{other:?} is no text"),
            }
        }
        texts
    }

    #[test]
    fn rejection_sampling_keeps_the_best_of_each_prompt() {
        let rows = vec![
            sample("p", "a", 1.0, 0.1),
            sample("q", "b", 0.5, 0.9),
            sample("p", "c", 1.0, 0.7),
            sample("q", "d", 1.0, 0.2),
            sample("p", "e", 2.0, 0.0),
        ];
        let kept = |options: RftOptions| good_enough(rows.clone(), &options).expect("some rows are good enough");
        assert_eq!(completions(&kept(RftOptions::default())), ["a", "c", "d", "e"]);
        assert_eq!(completions(&kept(RftOptions { min_reward: 0.5, ..RftOptions::default() })), ["a", "b", "c", "d", "e"]);
        // The larger reward first, then the larger score; what is left stands in the order of the rows.
        assert_eq!(completions(&kept(RftOptions { per_prompt: Some(2), ..RftOptions::default() })), ["c", "d", "e"]);
        assert_eq!(completions(&kept(RftOptions { min_score: Some(0.2), ..RftOptions::default() })), ["c", "d"]);
    }

    #[test]
    fn where_no_sample_is_good_enough_the_error_tells_the_rewards() {
        let rewards = [0.0, 0.5, 0.0, 0.75, 0.1, 0.2, 0.3];
        let rows: Vec<Row> = rewards.iter().map(|reward| sample("p", "a", *reward, 0.0)).collect();
        let error = good_enough(rows, &RftOptions::default()).expect_err("no reward is 1");
        assert_eq!(
            error.to_string(),
            "TRAIN RFT needs rows with a reward of at least 1; its query gives 7 rows: 1 with 0.75, 1 with 0.5, 1 with 0.3, 1 with 0.2, 1 with 0.1, \
             the others with less; lower min_reward, or sample more"
        );
    }

    #[test]
    fn rows_are_ordered_by_all_that_is_learned() {
        let mut rows = vec![sample("q", "a", 0.0, 0.0), sample("p", "b", 0.0, 0.0), sample("p", "a", 1.0, 0.0), sample("p", "a", 0.0, 0.0)];
        rows[3].reference = Some(ReferenceLogps { chosen: -1.0, rejected: -2.0 });
        let mut other = vec![rows[2].clone(), rows[0].clone(), rows[3].clone(), rows[1].clone()];
        rows.sort_by(by_content);
        other.sort_by(by_content);
        assert_eq!(rows, other);
        assert_eq!(completions(&rows), ["a", "a", "b", "a"]);
        assert_eq!(rows[0].reference, Some(ReferenceLogps { chosen: -1.0, rejected: -2.0 }));
    }
}
