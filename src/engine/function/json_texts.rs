//! `json_texts(json, key)`: the array of strings under a key of a JSON object, or in a place of a JSON array, as text[].
//!
//! Published question sets keep their supporting ids and titles inside a `metadata` object; this makes them comparable with what a search found. And
//! HotpotQA's passages are pairs of a title and an array of sentences.

use std::sync::Arc;

use arrow::array::{Array, AsArray, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serde_json::Value;

pub fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(JsonTexts { signature: Signature::exact(vec![DataType::Utf8, DataType::Utf8], Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonTexts {
    signature: Signature,
}

impl ScalarUDFImpl for JsonTexts {
    fn name(&self) -> &str {
        "json_texts"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))))
    }

    /// NULL where the text is no JSON object or array, has no such key or place (from 0), or the value there is no array; items that are no strings as their JSON text.
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = args.args.iter().map(|value| value.clone().into_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let (texts, keys) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>());
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..args.number_rows {
            let items = (texts.is_valid(row) && keys.is_valid(row)).then(|| items(texts.value(row), keys.value(row))).flatten();
            for item in items.iter().flatten() {
                lists.values().append_value(item);
            }
            lists.append(items.is_some());
        }
        Ok(ColumnarValue::Array(Arc::new(lists.finish())))
    }
}

fn items(text: &str, key: &str) -> Option<Vec<String>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let part = match &value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
        other => other.get(key)?,
    };
    let items = part.as_array()?;
    Some(items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect())
}
