//! The questions of GENERATE ROLLOUTS.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use futures::TryStreamExt;
use rolloutdb_sql::GenerateRollouts;

use super::STATEMENT;
use crate::agent::Question;
use crate::engine::lineage::Sources;
use crate::engine::planning::{plan_query, require_columns};
use crate::engine::session::Session;
use crate::engine::statement::arrow;
use crate::error::{Error, Result};

/// The rows of the query: `id`, `question`, `golden_answers` (text or text[]); and what it reads.
///
/// # Errors
/// [`Error::MissingColumn`]; [`Error::InvalidParameter`] for a NULL or repeated id.
pub async fn questions(session: &Session, generate: &GenerateRollouts, parameters: &[ScalarValue]) -> Result<(Vec<Question>, Sources)> {
    let planned = plan_query(session, &generate.query, parameters).await?;
    require_columns(STATEMENT, &planned.plan, &["id", "question", "golden_answers"])?;
    let mut read = Sources::default();
    read.add(&planned.plan)?;
    let batches: Vec<RecordBatch> = planned.stream().await?.try_collect().await?;
    let mut questions = Vec::new();
    let mut ids = HashSet::new();
    for batch in &batches {
        let ids_column = texts(batch, "id")?;
        let question_column = texts(batch, "question")?;
        let golds = golden_answers(batch)?;
        for (row, golden_answers) in golds.into_iter().enumerate() {
            let id =
                ids_column.is_valid(row).then(|| ids_column.value(row).to_owned()).ok_or_else(|| bad_id("NULL", "a value in each row"))?;
            if !ids.insert(id.clone()) {
                return Err(bad_id(&format!("'{id}' in two rows"), "another id for each question"));
            }
            let question = question_column.is_valid(row).then(|| question_column.value(row).to_owned());
            questions.push(Question { id, question, golden_answers });
        }
    }
    if questions.is_empty() {
        return Err(Error::NotReady("GENERATE ROLLOUTS needs at least one question; the query gives none".to_owned()));
    }
    Ok((questions, read))
}

fn bad_id(found: &str, expected: &str) -> Error {
    Error::InvalidParameter { name: "id of GENERATE ROLLOUTS".to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}

/// The column called `name`, whatever its type is, as texts.
///
/// # Errors
/// [`Error::Internal`] if there is none.
pub fn texts(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let column = batch.column_by_name(name).ok_or_else(|| Error::Internal(format!("no column {name}")))?;
    Ok(cast(column, &DataType::Utf8).map_err(arrow)?.as_string::<i32>().clone())
}

/// The accepted answers of each row, a text or an array of them; none for NULL.
///
/// # Errors
/// [`Error::WrongType`].
pub fn golden_answers(batch: &RecordBatch) -> Result<Vec<Vec<String>>> {
    let column = batch.column_by_name("golden_answers").ok_or_else(|| Error::Internal("no column golden_answers".to_owned()))?;
    match column.data_type() {
        DataType::List(_) | DataType::LargeList(_) => {
            let target = DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
            let lists = cast(column, &target).map_err(arrow)?;
            let lists = lists.as_list::<i32>();
            Ok((0..lists.len())
                .map(|row| {
                    if lists.is_null(row) {
                        vec![]
                    } else {
                        lists.value(row).as_string::<i32>().iter().flatten().map(str::to_owned).collect()
                    }
                })
                .collect())
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let golds = texts(batch, "golden_answers")?;
            Ok(golds.iter().map(|gold| gold.map(str::to_owned).into_iter().collect()).collect())
        }
        other => Err(Error::WrongType {
            what: "golden_answers".to_owned(),
            found: crate::engine::typing::sql_type_name(other),
            expected: "text or text[]".to_owned(),
        }),
    }
}
