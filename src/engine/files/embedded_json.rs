//! Values of `json` and `jsonb` columns in JSON that is written: as values, not as texts, so that they are read back as what they are.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder};
use rolloutdb_udfs::TextType;

/// Writes these columns, and arrays of such values.
#[derive(Debug)]
pub struct EmbeddedJson;

impl EmbeddedJson {
    pub fn factory() -> Arc<dyn EncoderFactory> {
        Arc::new(Self)
    }
}

impl EncoderFactory for EmbeddedJson {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let is_json = |kind: Option<TextType>| matches!(kind, Some(TextType::Json | TextType::Jsonb));
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Utf8 if is_json(TextType::of(field)) => Box::new(Values(array.as_string())),
            DataType::List(_) if is_json(TextType::of_items(field)) => Box::new(Lists(array)),
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.logical_nulls())))
    }
}

struct Values<'a>(&'a StringArray);

impl Encoder for Values<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        put(self.0.value(row), out);
    }
}

struct Lists<'a>(&'a dyn Array);

impl Encoder for Lists<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let items = self.0.as_list::<i32>().value(row);
        out.push(b'[');
        for (position, item) in items.as_string::<i32>().iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            put(item.unwrap_or("null"), out);
        }
        out.push(b']');
    }
}

/// A `json` text may go over several lines, which would be several values of a file. Between its tokens a blank is as good; within strings there is no
/// bare end of a line.
fn put(text: &str, out: &mut Vec<u8>) {
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
}
