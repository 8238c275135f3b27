//! COPY t FROM STDIN, COPY t|(query) TO STDOUT.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::common::ScalarValue;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast::Ident;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use rolloutdb_sql::{CopyFrom, CopySource, CopyTo, Options};

use super::copy::{Origin, append, copied_query};
use super::copy_format::{self, Way};
use super::insert::target_columns;
use super::{query, table_name};
use crate::engine::copy_streams::{CopyIn, CopyInput, CopyMessages, CopyOut};
use crate::engine::files::{self, FilesTable, Format, Input, OnError, ReadFiles, RecordFormat, RowWriter, TextFormat, WrittenRows};
use crate::engine::progress::{CopyPosition, Progress, Work};
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

/// Batches that are written as bytes before the client has taken those before them.
const BATCHES_AHEAD: usize = 2;

/// Checks what can be checked before the client sends anything.
pub async fn copy_in(session: &Session, copy: &CopyFrom) -> Result<Response> {
    let (format, _) = format_of(&copy.options)?;
    let (schema, name) = table_name(&copy.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    let targets = target_columns(&table, &copy.columns, None)?;
    copy_format::check_columns(&format, &table.definition().schema.project(&targets).map_err(super::arrow)?, &name)?;
    Ok(Response::CopyIn(CopyIn::new(session, copy, format == RecordFormat::Binary, targets.len())))
}

fn format_of(options: &Options) -> Result<(RecordFormat, OnError)> {
    let format = copy_format::of_client(options, Way::From)?;
    let on_error = copy_format::on_error(options, &Format::Records(format.clone()))?;
    Ok((format, on_error))
}

/// Writes the rows that the client sends, and gives the command tag.
pub async fn receive(session: &Session, copy: &CopyFrom, input: CopyInput) -> Result<String> {
    let (format, on_error) = format_of(&copy.options)?;
    let (schema, name) = table_name(&copy.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    let input = Input::client(format!("COPY {name}"), input);
    let position = Some(Arc::clone(&input.position));
    let read = ReadFiles::of_client(Arc::clone(&input.digest));
    let source =
        |columns: SchemaRef| Ok(FilesTable::provider(files::record_table(input, format, columns, on_error, session.notices()), read));
    let origin = Origin { name: &format!("COPY {name}"), kind: "PIPE", bytes_total: None, position };
    let count = append(session, &table, copy, origin, source).await?;
    Ok(format!("COPY {count}"))
}

pub async fn copy_out(session: &Session, copy: &CopyTo, parameters: &[ScalarValue]) -> Result<Response> {
    let format = copy_format::of_client(&copy.options, Way::To)?;
    let query = copied_query(&taken_back(session, &copy.source).await?)?;
    let (rows, total) = query::counted_rows(session, &query, parameters).await?;
    let rows = session.timeouts().limited_rows(rows);
    let schema = rows.schema();
    copy_format::check_columns(&format, &schema, "COPY")?;
    let num_columns = schema.fields().len();
    let is_binary = format == RecordFormat::Binary;
    let writer = match format {
        RecordFormat::Delimited(layout) => RowWriter::Delimited { layout, schema },
        RecordFormat::Binary => RowWriter::Binary { schema },
        RecordFormat::Text(TextFormat::Jsonl) => RowWriter::Jsonl,
        RecordFormat::Text(TextFormat::Csv(_)) => return Err(Error::Internal("a client's csv is PostgreSQL's".to_owned())),
    };
    let table = match &copy.source {
        CopySource::Table(table, _) => Some(table_name(table)?),
        CopySource::Query(_) => None,
    };
    let position = Arc::<CopyPosition>::default();
    let work = Work::Copy { command: "COPY TO", source: "PIPE", table, bytes_total: None, position: Some(Arc::clone(&position)) };
    let progress = Progress::of(session.notices(), work, "COPY TO STDOUT", "rows", total);
    let writer = Arc::new(writer);
    let rows = files::in_pieces(progress.watch(rows), session.memory_pool());
    let rows = written_ahead(rows, &writer);
    let messages = Messages { rows, writer, header: Vec::new(), stage: Stage::Begin };
    let mut num_bytes = 0;
    let messages = stream::try_unfold(messages, move |mut messages| async move {
        let next = messages.next(is_binary).await?;
        Ok::<_, Error>(next.map(|next| (next, messages)))
    });
    let messages = messages.inspect_ok(move |next: &CopyMessages| {
        num_bytes += next.bytes.len() as u64;
        position.reach(num_bytes, next.num_rows as u64);
    });
    Ok(Response::CopyOut(CopyOut { is_binary, num_columns, messages: messages.boxed() }))
}

/// Without a list of columns those that COPY FROM takes: generated ones are computed again. A view has all of its columns.
async fn taken_back(session: &Session, source: &CopySource) -> Result<CopySource> {
    let CopySource::Table(name, columns) = source else { return Ok(source.clone()) };
    let (schema, table) = table_name(name)?;
    let found = if columns.is_empty() { session.database().shared.catalog.table(&schema, &table).await.ok() } else { None };
    let Some(table) = found.filter(|table| !table.definition().generated.is_empty()) else { return Ok(source.clone()) };
    let definition = table.definition();
    let names = definition.schema.fields().iter().map(|field| field.name()).filter(|name| !definition.generated.contains_key(*name));
    Ok(CopySource::Table(name.clone(), names.map(|name| Ident::with_quote('"', name)).collect()))
}

/// Rows as bytes, in their order. The next ones are written while a client takes those before.
fn written_ahead(rows: SendableRecordBatchStream, writer: &Arc<RowWriter>) -> BoxStream<'static, Result<WrittenRows>> {
    let writer = Arc::clone(writer);
    let written = rows.map(move |batch| {
        let writer = Arc::clone(&writer);
        async move {
            let batch = batch?;
            let written = SpawnedTask::spawn_blocking(move || writer.rows(&batch)).await;
            written.map_err(|error| Error::Internal(format!("rows for a client: {error}")))?
        }
    });
    written.buffered(BATCHES_AHEAD).boxed()
}

/// Rows on their way to a client.
struct Messages {
    rows: BoxStream<'static, Result<WrittenRows>>,
    writer: Arc<RowWriter>,
    /// Of the binary format: a part of the first message, as PostgreSQL sends it.
    header: Vec<u8>,
    stage: Stage,
}

enum Stage {
    Begin,
    Rows,
    Done,
}

impl Messages {
    async fn next(&mut self, is_binary: bool) -> Result<Option<CopyMessages>> {
        loop {
            match self.stage {
                Stage::Begin => {
                    self.stage = Stage::Rows;
                    let begin = self.writer.begin();
                    if is_binary {
                        self.header = begin;
                    } else if !begin.is_empty() {
                        return Ok(Some(message(begin)));
                    }
                }
                Stage::Rows => {
                    let Some(written) = self.rows.next().await else {
                        self.stage = Stage::Done;
                        let end = [std::mem::take(&mut self.header), self.writer.end()].concat();
                        return Ok((!end.is_empty()).then(|| message(end)));
                    };
                    let WrittenRows { bytes, ends } = written?;
                    if !ends.is_empty() {
                        return Ok(Some(self.rows_after_header(bytes, ends)));
                    }
                }
                Stage::Done => return Ok(None),
            }
        }
    }

    fn rows_after_header(&mut self, bytes: Vec<u8>, mut ends: Vec<usize>) -> CopyMessages {
        let header = std::mem::take(&mut self.header);
        ends.iter_mut().for_each(|end| *end += header.len());
        let bytes = if header.is_empty() { bytes } else { [header, bytes].concat() };
        CopyMessages { bytes: Bytes::from(bytes), num_rows: ends.len(), ends }
    }
}

/// What is no row.
fn message(bytes: Vec<u8>) -> CopyMessages {
    CopyMessages { ends: vec![bytes.len()], bytes: Bytes::from(bytes), num_rows: 0 }
}
