//! CLEAR CACHE.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rolloutdb_sql::ClearCache;

use super::{arrow, rows};
use crate::engine::privileges::Object;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};
use crate::models::remote::AnswerSource;

pub fn schema() -> SchemaRef {
    let count = |name: &str| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![count("answers"), count("bytes")]))
}

/// One row: how many answers went, and the bytes of their records.
pub async fn execute(session: &Session, clear: &ClearCache) -> Result<Response> {
    let source = clear.model.as_deref().map(|model| answer_source(session, model)).transpose()?;
    let cleared = session.database().shared.models.clear_answers(source).await?;
    let count = |count: u64| Arc::new(Int64Array::from(vec![i64::try_from(count).unwrap_or(i64::MAX)]));
    let batch = RecordBatch::try_new(schema(), vec![count(cleared.answers), count(cleared.bytes)]);
    Ok(rows("CLEAR CACHE", batch.map_err(arrow)?))
}

/// Whose answers go. Another model may have them too: that is its owner's affair as well.
fn answer_source(session: &Session, model: &str) -> Result<AnswerSource> {
    let registry = &session.database().shared.registry;
    let info = registry.get(model)?;
    let Some(options) = &info.remote else {
        let (what, found) = (format!("model \"{model}\""), format!("a model from {}", info.source));
        return Err(Error::WrongType { what, found, expected: "a model from openai://, whose answers are kept".to_owned() });
    };
    let source = options.answer_source();
    for other in registry.list()? {
        let shares = other.name != info.name && other.remote.as_ref().is_some_and(|options| options.answer_source() == source);
        if shares && !session.access().owns(&Object::model(&other.name)) {
            let (name, other) = (&info.name, &other.name);
            let message =
                format!("model \"{name}\" has its answers in common with model \"{other}\": who clears them must be owner of both");
            return Err(Error::InsufficientPrivilege(message));
        }
    }
    Ok(source)
}
