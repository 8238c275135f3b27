//! The questions of an online training: what its trajectories begin with, and what their answers are compared with.

use std::collections::HashSet;

use arrow::array::Array;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Query;
use futures::TryStreamExt;
use rolloutdb_sql::Train;
use serde::Serialize;

use super::super::input::warn_of_questions;
use super::super::lineage::TableVersions;
use crate::engine::planning::{plan_query, require_columns};
use crate::engine::session::Session;
use crate::engine::statement::rollouts::{golden_answers, texts};
use crate::error::{Error, Result};

/// A question, and the answers that are right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TrainingQuestion {
    /// With the seed and the step, decides how it is sampled: the column `id`, or else the place of the row.
    pub id: String,
    pub question: String,
    /// At least one.
    pub golden_answers: Vec<String>,
}

/// The rows of both queries of a statement.
#[derive(Debug, Default)]
pub struct Questions {
    pub learned: Vec<TrainingQuestion>,
    /// Of VALIDATE USING; none without it.
    pub measured: Vec<TrainingQuestion>,
    /// What both read.
    pub tables: TableVersions,
}

/// Reads `USING (query)` and `VALIDATE USING (query)`: `question`, `golden_answers` (text or text[]) and, if wanted, `id`.
///
/// # Errors
/// [`Error::MissingColumn`], [`Error::WrongType`]; [`Error::InvalidParameter`] naming the row without a question or without an answer, and for an id that is
/// NULL or in two rows; [`Error::NotReady`] without a row.
pub async fn read(session: &Session, train: &Train, parameters: &[ScalarValue]) -> Result<Questions> {
    let mut questions = Questions::default();
    let of = format!("TRAIN {}", train.method);
    questions.learned = Box::pin(rows(session, &of, &train.query, parameters, &mut questions.tables)).await?;
    if let Some(query) = &train.validate {
        let of = format!("VALIDATE of {of}");
        questions.measured = Box::pin(rows(session, &of, query, parameters, &mut questions.tables)).await?;
    }
    Ok(questions)
}

async fn rows(
    session: &Session,
    of: &str,
    query: &Query,
    parameters: &[ScalarValue],
    tables: &mut TableVersions,
) -> Result<Vec<TrainingQuestion>> {
    let planned = plan_query(session, query, parameters).await?;
    require_columns(of, &planned.plan, &["question", "golden_answers"])?;
    warn_of_questions(session, of, &planned.plan);
    let has_id = planned.plan.schema().fields().iter().any(|field| field.name() == "id");
    tables.add(&planned.plan)?;
    let mut stream = planned.stream().await?;
    let mut found = Vec::new();
    while let Some(batch) = stream.try_next().await? {
        let ids = has_id.then(|| texts(&batch, "id")).transpose()?;
        let (asked, golds) = (texts(&batch, "question")?, golden_answers(&batch)?);
        for (row, golden_answers) in golds.into_iter().enumerate() {
            let number = found.len() + 1;
            let missing = |name: &str, expected: &str| Error::InvalidParameter {
                name: format!("{name} of {of}, row {number}"),
                found: "NULL or empty".to_owned(),
                expected: expected.to_owned(),
            };
            let question = if asked.is_null(row) { "" } else { asked.value(row) };
            if question.trim().is_empty() {
                return Err(missing("question", "a text; filter such rows out with WHERE"));
            }
            if golden_answers.is_empty() {
                return Err(missing("golden_answers", "at least one answer to compare with"));
            }
            let id = match &ids {
                Some(ids) if ids.is_null(row) => return Err(missing("id", "a value in each row, or no such column")),
                Some(ids) => ids.value(row).to_owned(),
                None => String::new(),
            };
            found.push(TrainingQuestion { id, question: question.to_owned(), golden_answers });
        }
    }
    if found.is_empty() {
        return Err(Error::NotReady(format!("{of} needs at least one question; its query gives none")));
    }
    if query.order_by.is_none() {
        // Such a query may give its rows in any order. They are sorted, so that the same seed gives the same model.
        found.sort();
    }
    match has_id {
        true => check_ids(of, &found)?,
        false => found.iter_mut().enumerate().for_each(|(index, question)| question.id = index.to_string()),
    }
    Ok(found)
}

/// Two questions of one id would be sampled alike.
fn check_ids(of: &str, questions: &[TrainingQuestion]) -> Result<()> {
    let mut ids = HashSet::new();
    match questions.iter().find(|question| !ids.insert(&question.id)) {
        None => Ok(()),
        Some(question) => Err(Error::InvalidParameter {
            name: format!("id of {of}"),
            found: format!("'{}' in two rows", question.id),
            expected: "another id for each question".to_owned(),
        }),
    }
}
