//! Files of records as a stream of batches: one task reads blocks, others take them apart, and the batches come in the order of the files.
//!
//! In memory at once: a block of about 1 MiB and its columns for each core, however large the files are. Dropping the stream ends the reading.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::spawn_blocking;

use super::delimited::Layout;
use super::input::Input;
use super::postgres::text_in;
use super::rows::{BadLine, Columns, Decoded, OnError};
use super::{CsvOptions, bad_line, binary, csv, delimited, json_column, jsonl};
use crate::engine::progress::Notices;
use crate::error::{Error, Result};

/// Formats of lines of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    Jsonl,
    Csv(CsvOptions),
}

/// Formats of records that are read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordFormat {
    Text(TextFormat),
    /// PostgreSQL's `text` and `csv`.
    Delimited(Arc<Layout>),
    /// PostgreSQL's `binary`.
    Binary,
}

/// Records of one format, and the columns that they have.
#[derive(Debug)]
pub struct TextFiles {
    pub input: Input,
    pub format: RecordFormat,
    pub columns: Columns,
    pub on_error: OnError,
}

/// Reads the columns of `projection`, whose schema is `schema`. How many lines were left out goes to `notices` at the end.
///
/// # Errors
/// Through the stream: [`Error::Io`], and [`Error::BadInput`] with file and line.
pub fn scan(files: Arc<TextFiles>, projection: Vec<usize>, schema: SchemaRef, notices: Notices) -> SendableRecordBatchStream {
    let num_tasks = std::thread::available_parallelism().map_or(2, usize::from);
    let reader = Reader { files: Arc::clone(&files), projection, next_file: 0, current: None };
    let blocks = stream::try_unfold(reader, |mut reader| in_background(move || Ok(reader.next()?.map(|block| (block, reader)))));
    let decoded = {
        let (files, schema) = (Arc::clone(&files), Arc::clone(&schema));
        // An error of the reader takes its place in the line: the blocks before it come first.
        blocks.map(move |block: Result<Block>| {
            let (files, schema) = (Arc::clone(&files), Arc::clone(&schema));
            async move {
                let block = block?;
                in_background(move || block.decode(&files, &schema)).await
            }
        })
    };
    let skipped = Skipped { notices, count: 0, first: None };
    let batches = stream::try_unfold((decoded.buffered(num_tasks).boxed(), skipped), move |(mut decoded, mut skipped)| {
        let position = Arc::clone(&files.input.position);
        async move {
            let next: Option<DecodedBlock> = decoded.try_next().await?;
            Ok::<_, Error>(next.map(|DecodedBlock { path, bytes_read, columns: Decoded { batch, bad } }| {
                skipped.add(&path, bad);
                position.reach(bytes_read, batch.num_rows() as u64);
                (batch, (decoded, skipped))
            }))
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches.map_err(DataFusionError::from)))
}

async fn in_background<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(Error::Internal(format!("reading a file: {error}"))))
}

/// The blocks of one file after the other.
struct Reader {
    files: Arc<TextFiles>,
    projection: Vec<usize>,
    next_file: usize,
    current: Option<OpenFile>,
}

enum OpenFile {
    Jsonl(jsonl::Blocks, Arc<jsonl::Keys>),
    Csv(Box<csv::Blocks>, Arc<csv::Fields>),
    Delimited(Box<delimited::Blocks>, Arc<csv::Fields>),
    Binary(Box<binary::Blocks>),
}

impl Reader {
    fn next(&mut self) -> Result<Option<Block>> {
        loop {
            let records = match &mut self.current {
                Some(OpenFile::Jsonl(blocks, keys)) => blocks.next()?.map(|block| Records::Jsonl(block, Arc::clone(keys))),
                Some(OpenFile::Csv(blocks, fields)) => blocks.next()?.map(|block| Records::Csv(block, Arc::clone(fields))),
                Some(OpenFile::Delimited(blocks, fields)) => blocks.next()?.map(|block| Records::Delimited(block, Arc::clone(fields))),
                Some(OpenFile::Binary(blocks)) => blocks.next()?.map(|block| Records::Binary(block, self.projection.clone())),
                None => None,
            };
            if let Some(records) = records {
                return Ok(Some(Block { file: self.next_file - 1, bytes_read: self.files.input.bytes_read(), records }));
            }
            let Some(path) = self.files.input.paths.get(self.next_file) else { return Ok(None) };
            let (file, columns) = (self.files.input.open(path)?, &self.files.columns);
            self.current = Some(match &self.files.format {
                RecordFormat::Text(TextFormat::Jsonl) => {
                    let keys = jsonl::Keys::new(columns, &self.projection);
                    OpenFile::Jsonl(jsonl::Blocks::new(path, file, self.files.on_error)?, Arc::new(keys))
                }
                RecordFormat::Text(TextFormat::Csv(options)) => {
                    let blocks = csv::Blocks::new(path, file, *options)?;
                    let fields = csv::Fields::new(path, blocks.header(), columns, &self.projection)?;
                    OpenFile::Csv(Box::new(blocks), Arc::new(fields))
                }
                RecordFormat::Delimited(layout) => {
                    let blocks = delimited::Blocks::new(path, file, Arc::clone(layout), columns)?;
                    let fields = csv::Fields::new(path, blocks.header(), columns, &self.projection)?;
                    OpenFile::Delimited(Box::new(blocks), Arc::new(fields))
                }
                RecordFormat::Binary => OpenFile::Binary(Box::new(binary::Blocks::new(path, file, columns)?)),
            });
            self.next_file += 1;
        }
    }
}

struct Block {
    /// Index of the file.
    file: usize,
    /// Of all files, by when it was cut.
    bytes_read: u64,
    records: Records,
}

/// A block as columns, and the path of its file.
struct DecodedBlock {
    path: PathBuf,
    bytes_read: u64,
    columns: Decoded,
}

enum Records {
    Jsonl(jsonl::Block, Arc<jsonl::Keys>),
    Csv(csv::Block, Arc<csv::Fields>),
    Delimited(delimited::Block, Arc<csv::Fields>),
    /// With the positions of the wanted columns.
    Binary(binary::Block, Vec<usize>),
}

impl Block {
    fn decode(self, files: &TextFiles, schema: &SchemaRef) -> Result<DecodedBlock> {
        let TextFiles { columns, on_error, .. } = files;
        let decoded = match &self.records {
            Records::Jsonl(block, keys) => jsonl::rows(block, keys, columns, *on_error).decode(columns, schema, json_column::read_field),
            Records::Csv(block, fields) => csv::rows(block, fields, *on_error).decode(columns, schema, csv::read_column),
            Records::Delimited(block, fields) => {
                let split = delimited::split(block);
                delimited::rows(&split, block.layout(), fields, columns, *on_error).decode(columns, schema, text_in::read_field)
            }
            Records::Binary(block, projection) => block.decode(projection, schema),
        };
        let path = &files.input.paths[self.file];
        let decoded = decoded.map(|columns| DecodedBlock { path: path.clone(), bytes_read: self.bytes_read, columns });
        decoded.map_err(|bad| bad_line(path, bad))
    }
}

/// Lines that were left out. Tells of them when it is dropped: at the end of the stream, or when nobody wants more of it.
struct Skipped {
    notices: Notices,
    count: usize,
    first: Option<Error>,
}

impl Skipped {
    fn add(&mut self, path: &std::path::Path, bad: Vec<BadLine>) {
        self.count += bad.len();
        if let (None, Some(first)) = (&self.first, bad.into_iter().next()) {
            self.first = Some(bad_line(path, first));
        }
    }
}

impl Drop for Skipped {
    fn drop(&mut self) {
        if let Some(first) = &self.first {
            let lines = if self.count == 1 { "line" } else { "lines" };
            self.notices.notice(format!("{} {lines} skipped; the first: {first}", self.count));
        }
    }
}
