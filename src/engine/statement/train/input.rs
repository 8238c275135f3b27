//! What a training reads: the columns of its queries, each in one of its forms.

mod columns;
mod good_enough;
mod reference;
mod unread;

use std::cell::Cell;
use std::cmp::Ordering;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::Query;
use futures::TryStreamExt;
use rolloutdb_sql::Train;

use super::chat::Chat;
use super::lineage::TableVersions;
use super::task::Method;
use crate::engine::planning::{plan_query, require_columns};
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::training::{RewardLoss, RftOptions};
use columns::Columns;
use good_enough::good_enough;
pub use reference::{Given, GivenReference};
pub use unread::warn_of_questions;

const CHOSEN_LOGPS: &str = "reference_chosen_logps";
const REJECTED_LOGPS: &str = "reference_rejected_logps";
/// Whose these are: `name@version`.
const REFERENCE: &str = "reference";
/// How much each of `completion_ids` counts, in the name that tables of rollouts have for it.
const TOKEN_MASK: &str = "token_mask";
/// The tokens of a pair.
const PAIR_IDS: [&str; 2] = ["chosen_ids", "rejected_ids"];

/// What a model reads, or is to write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    Text(String),
    /// A completion that a chat template has written to its end.
    Turn(String),
    /// Texts one after the other, and how much each one counts.
    Parts(Vec<(String, Weight)>),
    /// Token ids, and how much each one counts; no such list: all count 1.
    Ids(Vec<u32>, Vec<Weight>),
}

/// How much a part or a token counts in the loss, finite and 0 or more: the bits of an f32, whose order is that of such numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

impl Weight {
    pub const fn of(value: f32) -> Self {
        Self(value.to_bits())
    }

    pub const fn value(self) -> f32 {
        f32::from_bits(self.0)
    }
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
    pub reference: Option<GivenReference>,
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
    /// Pairs of token ids.
    PairIds,
    Steps,
}

/// The columns that are read.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    form: Form,
    has_mask: bool,
    has_token_mask: bool,
    has_weight: bool,
    has_reward: bool,
    has_score: bool,
    has_reference: bool,
    /// Whether the query says whose they are: of another model, or without numbers, they are computed.
    names_reference: bool,
    has_pair_ids: bool,
    has_prompt_ids: bool,
    /// Beside `prompt_ids`, of which some may be NULL then.
    has_prompt: bool,
}

impl Source<'_> {
    async fn rows(&self, session: &Session, parameters: &[ScalarValue], tables: &mut TableVersions) -> Result<Vec<Row>> {
        let planned = plan_query(session, self.query, parameters).await?;
        let wanted = self.wanted(&planned.plan)?;
        unread::warn(session, &self.of, self.method, &planned.plan);
        if wanted.has_token_mask && matches!(wanted.form, Form::Texts | Form::Parts) {
            let of = &self.of;
            session.notices().warning(format!(
                "column \"{TOKEN_MASK}\" is not read by {of}, which learns texts here; it is read beside prompt_ids and completion_ids"
            ));
        }
        tables.add(&planned.plan)?;
        let mut stream = planned.stream().await?;
        let (mut rows, num_of_others) = (Vec::new(), Cell::new(0));
        while let Some(batch) = stream.try_next().await? {
            let columns = Columns {
                of: &self.of,
                batch: &batch,
                rows_before: rows.len(),
                vocab_size: self.vocab_size,
                chat: self.chat,
                learns_prompts: self.method.prompt_weight() > 0.0,
                is_scored: matches!(self.method, Method::Prm(_)),
                num_of_others: &num_of_others,
            };
            rows.extend(columns.rows(wanted)?);
        }
        if rows.is_empty() {
            return Err(Error::NotReady(format!("{} needs at least one example; its query gives none", self.of)));
        }
        if num_of_others.get() > 0 {
            let (of, base, num_rows) = (&self.of, self.chat.model(), rows.len());
            session.notices().notice(format!(
                "{of}: the reference columns of {} of {num_rows} rows are not taken: they are of another model than {base}, by which they are computed",
                num_of_others.get()
            ));
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
            Method::Dpo(_) if !(has("chosen") || has("rejected")) && PAIR_IDS.iter().any(|name| has(name)) => Form::PairIds,
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
            Form::PairIds => require(&[if has("prompt_ids") { "prompt_ids" } else { "prompt" }, PAIR_IDS[0], PAIR_IDS[1]])?,
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
            has_token_mask: has(TOKEN_MASK),
            has_weight: !matches!(form, Form::Pairs | Form::PairIds | Form::Steps) && has("weight"),
            has_reward: is_sampled,
            has_score: is_sampled && has("score"),
            has_reference,
            names_reference: has_reference && has(REFERENCE),
            has_pair_ids: PAIR_IDS.iter().all(|name| has(name)),
            has_prompt_ids: has("prompt_ids"),
            has_prompt: has("prompt"),
        })
    }
}

/// By all that is learned from a row.
fn by_content(a: &Row, b: &Row) -> Ordering {
    let logps = |row: &Row| row.reference.as_ref().map_or([0.0; 2], |given| [given.logps.chosen, given.logps.rejected]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::ReferenceLogps;

    pub(super) fn sample(prompt: &str, completion: &str, reward: f64, score: f64) -> Row {
        let text = |text: &str| Content::Text(text.to_owned());
        Row { prompt: text(prompt), completions: vec![text(completion)], weight: 1.0, reward, score, label: 0.0, reference: None }
    }

    pub(super) fn completions(rows: &[Row]) -> Vec<&str> {
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
    fn rows_are_ordered_by_all_that_is_learned() {
        let mut rows = vec![sample("q", "a", 0.0, 0.0), sample("p", "b", 0.0, 0.0), sample("p", "a", 1.0, 0.0), sample("p", "a", 0.0, 0.0)];
        let logps = ReferenceLogps { chosen: -1.0, rejected: -2.0 };
        rows[3].reference = Some(logps.into());
        let mut other = vec![rows[2].clone(), rows[0].clone(), rows[3].clone(), rows[1].clone()];
        rows.sort_by(by_content);
        other.sort_by(by_content);
        assert_eq!(rows, other);
        assert_eq!(completions(&rows), ["a", "a", "b", "a"]);
        assert_eq!(rows[0].reference, Some(logps.into()));
    }
}
