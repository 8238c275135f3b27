//! `rollout.models`, all that there are, and `rollout.loaded_models`, those in memory.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::error::DataFusionError;
use rolloutdb_sql::Privilege;

use super::lineage::without_stands_on;
use super::privileges::{Access, Object};
use super::system::{count, text};
use crate::error::Result;
use crate::models::{LoadedModel, ModelInfo, Registry, Runtime};

pub fn models_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("name"),
        Field::new("version", DataType::Int32, false),
        text("task"),
        text("architecture"),
        count("parameter_count"),
        text("source"),
        Field::new("lineage", DataType::Utf8, true),
        count("created_at_ms"),
    ]))
}

/// How a model was made is for those who may use it.
pub fn models(registry: &Registry, reader: Option<&Access>) -> Result<RecordBatch> {
    let models = registry.list()?;
    let is_shown = |model: &ModelInfo| reader.is_some_and(|reader| reader.has(&Object::model(&model.name), Privilege::Usage));
    let texts = |read: &dyn Fn(&ModelInfo) -> String| Arc::new(StringArray::from_iter_values(models.iter().map(read)));
    let batch = RecordBatch::try_new(
        models_schema(),
        vec![
            texts(&|model| model.name.clone()),
            Arc::new(Int32Array::from_iter_values(models.iter().map(|model| model.version as i32))),
            texts(&|model| model.task.to_string()),
            texts(&|model| model.architecture.clone()),
            Arc::new(Int64Array::from_iter_values(models.iter().map(|model| model.parameter_count as i64))),
            texts(&|model| model.source.clone()),
            Arc::new(
                models.iter().map(|model| is_shown(model).then(|| without_stands_on(&model.lineage).to_string())).collect::<StringArray>(),
            ),
            Arc::new(Int64Array::from_iter_values(models.iter().map(|model| model.created_at_ms))),
        ],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}

pub fn loaded_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("name"),
        Field::new("version", DataType::Int32, false),
        text("task"),
        text("device"),
        count("bytes"),
        count("prefix_bytes"),
        count("preemptions"),
        count("uses"),
        Field::new("last_use", DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())), false),
    ]))
}

/// The most recently used first.
pub fn loaded_models(models: &Runtime) -> Result<RecordBatch> {
    let loaded = models.loaded();
    let texts = |read: &dyn Fn(&LoadedModel) -> String| Arc::new(StringArray::from_iter_values(loaded.iter().map(read)));
    let counts = |read: &dyn Fn(&LoadedModel) -> u64| Arc::new(Int64Array::from_iter_values(loaded.iter().map(|model| read(model) as i64)));
    let microseconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    let used = TimestampMicrosecondArray::from_iter_values(loaded.iter().map(|model| microseconds(model.last_use))).with_timezone("+00:00");
    let batch = RecordBatch::try_new(
        loaded_schema(),
        vec![
            texts(&|model| model.info.name.clone()),
            Arc::new(Int32Array::from_iter_values(loaded.iter().map(|model| model.info.version as i32))),
            texts(&|model| model.info.task.to_string()),
            texts(&|model| model.place.description()),
            counts(&|model| model.bytes),
            counts(&|model| model.kept_bytes),
            counts(&|model| model.preemptions),
            counts(&|model| model.uses),
            Arc::new(used),
        ],
    );
    Ok(batch.map_err(DataFusionError::from)?)
}
