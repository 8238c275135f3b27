//! The parts of a JSON value as rows: `json_array_elements`, `json_array_elements_text`, `json_object_keys`, `json_each`, `json_each_text`, and the
//! same names with `jsonb`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, StringBuilder, UInt32Builder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use rolloutdb_udfs::{TextType, json};

use crate::engine::apply::arguments::{Arguments, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction};
use crate::engine::apply::{Applied, ApplyFunction};
use crate::error::Result;

const PARAMETERS: &[Parameter] = &[Parameter::value("json", DataType::Utf8)];

pub fn functions() -> Vec<Arc<dyn TableFunction>> {
    let part = |name, text_type, columns| -> Arc<dyn TableFunction> { Arc::new(JsonParts { name, text_type, columns }) };
    let (json, jsonb) = (TextType::Json, TextType::Jsonb);
    vec![
        part("json_array_elements", json, Columns::Items { as_text: false }),
        part("jsonb_array_elements", jsonb, Columns::Items { as_text: false }),
        part("json_array_elements_text", json, Columns::Items { as_text: true }),
        part("jsonb_array_elements_text", jsonb, Columns::Items { as_text: true }),
        part("json_object_keys", json, Columns::Keys),
        part("jsonb_object_keys", jsonb, Columns::Keys),
        part("json_each", json, Columns::Entries { as_text: false }),
        part("jsonb_each", jsonb, Columns::Entries { as_text: false }),
        part("json_each_text", json, Columns::Entries { as_text: true }),
        part("jsonb_each_text", jsonb, Columns::Entries { as_text: true }),
    ]
}

/// What becomes of one value.
#[derive(Debug, Clone, Copy)]
enum Columns {
    /// One row per item of an array: `value`.
    Items { as_text: bool },
    /// One row per key of an object: `key`.
    Keys,
    /// One row per key of an object: `key`, `value`.
    Entries { as_text: bool },
}

#[derive(Debug, Clone, Copy)]
struct JsonParts {
    name: &'static str,
    text_type: TextType,
    columns: Columns,
}

impl TableFunction for JsonParts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn bind(&self, _: &Arguments) -> Result<Bound> {
        Ok(Bound::Apply(Arc::new(*self)))
    }
}

#[async_trait]
impl ApplyFunction for JsonParts {
    fn name(&self) -> &str {
        self.name
    }

    fn schema(&self) -> SchemaRef {
        let value = |as_text| match as_text {
            true => Field::new("value", DataType::Utf8, true),
            false => self.text_type.field("value", true),
        };
        let key = Field::new("key", DataType::Utf8, true);
        Arc::new(Schema::new(match self.columns {
            Columns::Items { as_text } => vec![value(as_text)],
            Columns::Keys => vec![key],
            Columns::Entries { as_text } => vec![key, value(as_text)],
        }))
    }

    /// NULL has no parts.
    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> Result<Applied> {
        let texts = arguments[0].as_string::<i32>();
        let mut parts = Parts::default();
        for row in (0..num_rows).filter(|row| texts.is_valid(*row)) {
            // Keys of jsonb are there once, and in an order of their own.
            let normal = match self.text_type {
                TextType::Jsonb => Some(json::normalize(texts.value(row)).map_err(DataFusionError::from)?),
                _ => None,
            };
            parts.add(normal.as_deref().unwrap_or(texts.value(row)), self.columns, row as u32)?;
        }
        let (keys, values): (ArrayRef, ArrayRef) = (Arc::new(StringArray::from(parts.keys)), Arc::new(parts.values.finish()));
        let columns = match self.columns {
            Columns::Items { .. } => vec![values],
            Columns::Keys => vec![keys],
            Columns::Entries { .. } => vec![keys, values],
        };
        let batch = RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?;
        Ok(Applied { batch, input_rows: parts.rows.finish() })
    }
}

#[derive(Default)]
struct Parts {
    keys: Vec<String>,
    values: StringBuilder,
    rows: UInt32Builder,
}

impl Parts {
    fn add(&mut self, text: &str, columns: Columns, row: u32) -> Result<()> {
        match columns {
            Columns::Items { as_text } => {
                for item in json::items(text).map_err(DataFusionError::from)? {
                    self.add_value(item, as_text)?;
                    self.rows.append_value(row);
                }
            }
            Columns::Keys | Columns::Entries { .. } => {
                for (key, value) in json::entries(text).map_err(DataFusionError::from)? {
                    self.keys.push(key);
                    self.add_value(value, matches!(columns, Columns::Entries { as_text: true }))?;
                    self.rows.append_value(row);
                }
            }
        }
        Ok(())
    }

    fn add_value(&mut self, json: &str, as_text: bool) -> Result<()> {
        match as_text {
            true => self.values.append_option(json::to_text(json).map_err(DataFusionError::from)?),
            false => self.values.append_value(json),
        }
        Ok(())
    }
}
