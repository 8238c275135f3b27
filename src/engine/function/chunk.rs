//! `chunk(text)`: a text in pieces, one row each. The cutting is `rolloutdb_udfs::chunk`'s; tokens are those of a model's tokenizer.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Builder, RecordBatch, StringBuilder, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use rolloutdb_udfs::chunk::{characters, packed_sentences, windows, words};

use crate::engine::apply::arguments::{Arguments, Names, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction};
use crate::engine::apply::{Applied, ApplyFunction};
use crate::error::{Error, Result};
use crate::models::{Registry, Tokenizer};

/// In words: the length of DPR's passages of Wikipedia, which most corpora have since.
const DEFAULT_SIZE: i64 = 100;
const SIZE_MAX: i64 = 1_000_000;

pub fn functions(models: &Arc<Registry>) -> Vec<Arc<dyn TableFunction>> {
    vec![Arc::new(ChunkFunction { models: Arc::clone(models) })]
}

#[derive(Debug)]
struct ChunkFunction {
    models: Arc<Registry>,
}

impl TableFunction for ChunkFunction {
    fn name(&self) -> &'static str {
        "chunk"
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[
            Parameter::value("text", DataType::Utf8),
            Parameter::constant("size", DataType::Int64),
            Parameter::constant("overlap", DataType::Int64),
            Parameter::constant("by", DataType::Utf8),
            Parameter::naming("model", Names::Model),
        ];
        PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let size = arguments.integer_within("size", DEFAULT_SIZE, 1..=SIZE_MAX)?;
        let overlap = arguments.integer_within("overlap", 0, 0..=size - 1)?;
        let model = arguments.text("model");
        let invalid = |name: &str, found: &str, expected: &str| {
            let name = format!("{name} of chunk()");
            Err(Error::InvalidParameter { name, found: found.to_owned(), expected: expected.to_owned() })
        };
        let by = match (arguments.text("by").unwrap_or("words"), model) {
            ("tokens", None) => return invalid("model", "nothing", "the model whose tokens count"),
            ("tokens", Some(model)) => By::Tokens(Tokenizer::load(&self.models.get(model)?.directory)?),
            (_, Some(model)) => return invalid("model", &format!("'{model}'"), "no model, unless by => 'tokens'"),
            ("words", None) => By::Words,
            ("characters", None) => By::Characters,
            ("sentences", None) => By::Sentences,
            (other, None) => return invalid("by", &format!("'{other}'"), "'words', 'sentences', 'characters' or 'tokens'"),
        };
        let details = format!("size={size}, overlap={overlap}, by={}", arguments.text("by").unwrap_or("words"));
        Ok(Bound::Apply(Arc::new(ChunkCall { size: size as usize, overlap: overlap as usize, by: Arc::new(by), details })))
    }
}

#[derive(Debug)]
enum By {
    Words,
    Characters,
    Sentences,
    Tokens(Tokenizer),
}

impl By {
    fn chunks(&self, text: &str, size: usize, overlap: usize) -> Result<Vec<Range<usize>>> {
        Ok(match self {
            Self::Words => windows(&words(text), size, overlap),
            Self::Characters => windows(&characters(text), size, overlap),
            Self::Sentences => packed_sentences(text, size, overlap),
            Self::Tokens(tokenizer) => windows(&tokenizer.token_ranges(text)?, size, overlap),
        })
    }
}

#[derive(Debug)]
struct ChunkCall {
    size: usize,
    overlap: usize,
    by: Arc<By>,
    details: String,
}

#[async_trait]
impl ApplyFunction for ChunkCall {
    fn name(&self) -> &str {
        "chunk"
    }

    fn details(&self) -> String {
        self.details.clone()
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("chunk_id", DataType::Int64, false),
            Field::new("chunk", DataType::Utf8, false),
            Field::new("start_char", DataType::Int64, false),
            Field::new("end_char", DataType::Int64, false),
        ]))
    }

    /// Whole documents may be long, and all pieces of a call are in memory at once.
    fn batch_rows(&self) -> usize {
        32
    }

    /// NULL has no pieces.
    async fn call(&self, arguments: Vec<ArrayRef>, _: usize) -> Result<Applied> {
        let (texts, by, schema) = (Arc::clone(&arguments[0]), Arc::clone(&self.by), self.schema());
        let (size, overlap) = (self.size, self.overlap);
        let cut = move || {
            let mut pieces = Pieces::default();
            for (row, text) in texts.as_string::<i32>().iter().enumerate() {
                if let Some(text) = text {
                    pieces.add(row as u32, text, &by.chunks(text, size, overlap)?);
                }
            }
            pieces.finish(schema)
        };
        tokio::task::spawn_blocking(cut).await.map_err(|error| Error::Internal(error.to_string()))?
    }
}

#[derive(Default)]
struct Pieces {
    input_rows: Vec<u32>,
    ids: Int64Builder,
    texts: StringBuilder,
    starts: Int64Builder,
    ends: Int64Builder,
}

impl Pieces {
    /// `chunks`: ascending ranges of bytes.
    fn add(&mut self, row: u32, text: &str, chunks: &[Range<usize>]) {
        let (mut start, mut end) = (Offset::default(), Offset::default());
        for (chunk, id) in chunks.iter().zip(1..) {
            self.input_rows.push(row);
            self.ids.append_value(id);
            self.texts.append_value(&text[chunk.clone()]);
            self.starts.append_value(start.advance(text, chunk.start));
            self.ends.append_value(end.advance(text, chunk.end));
        }
    }

    fn finish(mut self, schema: SchemaRef) -> Result<Applied> {
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.ids.finish()), Arc::new(self.texts.finish()), Arc::new(self.starts.finish()), Arc::new(self.ends.finish())];
        let batch = RecordBatch::try_new(schema, columns).map_err(DataFusionError::from)?;
        Ok(Applied { batch, input_rows: UInt32Array::from(self.input_rows) })
    }
}

/// A place in a text that only moves forward.
#[derive(Default)]
struct Offset {
    bytes: usize,
    characters: i64,
}

impl Offset {
    /// The characters before a byte.
    fn advance(&mut self, text: &str, bytes: usize) -> i64 {
        self.characters += text[self.bytes..bytes].chars().count() as i64;
        self.bytes = bytes;
        self.characters
    }
}
