//! A stream of record batches as a stream of `DataRow` messages.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::{StreamExt, stream};
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldInfo, SendableRowStream};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::data::DataRow;
use rolloutdb_udfs::postgres::ValueType;

use super::columns::{PreparedColumn, WireColumn};
use super::response::{client_error, wire_error};
use crate::engine::Origin;
use crate::error::Error;

/// Rows are written into one piece of memory of about this size, from which messages are taken: an allocation for many rows, and no more
/// rows made than a client that wants a few may throw away.
const CHUNK_BYTES: usize = 32 * 1024;

/// From here on a row is counted.
const LONG_ROW: usize = 16 << 20;

/// The longest row, as PostgreSQL has it: what one piece of memory of its may hold.
const ROW_BYTES_MAX: usize = 0x3fff_ffff;

/// Rows on their way to a client, and the columns that `RowDescription` shows for them.
pub(super) struct WireRows {
    pub(super) fields: Arc<Vec<FieldInfo>>,
    pub(super) stream: SendableRowStream,
}

impl WireRows {
    /// `memory`: of the session. `described`: the columns that the client has been told already. A stream may come with other types, where a type depends
    /// on a parameter; its columns are then cast to those. `None`: the stream's own columns hold.
    ///
    /// # Errors
    /// A table of a prepared statement has other columns by now (0A000).
    pub(super) fn new(
        batches: SendableRecordBatchStream,
        described: Option<&SchemaRef>,
        format: &Format,
        memory: &Arc<dyn MemoryPool>,
    ) -> PgWireResult<Self> {
        let described = described.cloned().unwrap_or_else(|| batches.schema());
        if described.fields().len() != batches.schema().fields().len() {
            return Err(wire_error(Error::ResultTypeChanged));
        }
        let columns = wire_columns(&shown(&described, &batches.schema()), format);
        let fields = Arc::new(columns.iter().map(|column| column.field().clone()).collect::<Vec<_>>());
        let memory = Arc::clone(memory);
        let rows = batches.flat_map(move |batch| {
            let rows = batch.map_err(|error| wire_error(error.into())).and_then(|batch| BatchRows::new(&batch, &columns, &memory));
            match rows {
                Ok(rows) => stream::iter(rows).left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            }
        });
        Ok(Self { fields, stream: Box::pin(rows) })
    }
}

/// The columns that the client has been told of. Of a numeric it knows that it is one, and its digits are those that the values have.
fn shown(described: &SchemaRef, found: &SchemaRef) -> SchemaRef {
    let is_numeric = |field: &Field| matches!(ValueType::of(field), ValueType::Numeric(_));
    let fields = described.fields().iter().zip(found.fields()).map(|(told, found)| match is_numeric(told) && is_numeric(found) {
        true => {
            let field = found.as_ref().clone().with_name(told.name());
            Arc::new(Origin::of(told).map_or(field.clone(), |origin| origin.set(&field)))
        }
        false => Arc::clone(told),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// How the columns of `schema` look on the wire.
pub(super) fn wire_columns(schema: &SchemaRef, format: &Format) -> Vec<WireColumn> {
    schema.fields().iter().enumerate().map(|(index, field)| WireColumn::new(field, format.format_for(index))).collect()
}

/// The command tag of a statement that gave `count` rows. Only these commands carry a number in Postgres, and clients read it
/// as the number of rows.
pub(super) fn completion_tag(command: &str, count: usize) -> String {
    match command {
        "SELECT" | "FETCH" | "MOVE" | "UPDATE" | "DELETE" | "MERGE" | "COPY" => format!("{command} {count}"),
        "INSERT" => format!("INSERT 0 {count}"),
        _ => command.to_string(),
    }
}

/// The rows of one batch, written some at a time.
struct BatchRows {
    columns: Vec<PreparedColumn>,
    /// The rows of the batch that are not written yet.
    unwritten: Range<usize>,
    /// Rows that are written and not taken, and the length of each.
    written: BytesMut,
    lengths: std::vec::IntoIter<usize>,
    /// For a long row as it is written, and once more as it is sent.
    _memory: Option<MemoryReservation>,
}

impl BatchRows {
    fn new(batch: &RecordBatch, columns: &[WireColumn], memory: &Arc<dyn MemoryPool>) -> PgWireResult<Self> {
        let prepared =
            columns.iter().zip(batch.columns()).map(|(column, array)| column.prepare(array)).collect::<PgWireResult<Vec<_>>>()?;
        let longest = longest_row(batch, &prepared);
        if longest > ROW_BYTES_MAX {
            return Err(too_long(longest));
        }
        let memory = match longest {
            0..LONG_ROW => None,
            _ => {
                let reserved = MemoryConsumer::new("a row for the client").register(memory);
                reserved.try_grow(2 * longest).map_err(|error| wire_error(error.into()))?;
                Some(reserved)
            }
        };
        Ok(Self {
            columns: prepared,
            unwritten: 0..batch.num_rows(),
            written: BytesMut::new(),
            lengths: Vec::new().into_iter(),
            _memory: memory,
        })
    }

    fn next_row(&mut self) -> PgWireResult<Option<DataRow>> {
        if self.lengths.as_slice().is_empty() && !self.unwritten.is_empty() {
            self.write_some()?;
        }
        let Some(length) = self.lengths.next() else { return Ok(None) };
        // The protocol has no more columns than fit.
        Ok(Some(DataRow::new(self.written.split_to(length), self.columns.len() as i16)))
    }

    fn write_some(&mut self) -> PgWireResult<()> {
        let mut bytes = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 8);
        let mut lengths = Vec::new();
        while bytes.len() < CHUNK_BYTES
            && let Some(row) = self.unwritten.next()
        {
            let start = bytes.len();
            if let Err(error) = self.columns.iter().try_for_each(|column| column.write(row, &mut bytes)) {
                bytes.truncate(start);
                self.unwritten = 0..0;
                return Err(error);
            }
            lengths.push(bytes.len() - start);
        }
        if let Some(length) = lengths.iter().find(|length| **length > ROW_BYTES_MAX) {
            return Err(too_long(*length));
        }
        self.written = BytesMut::from(Bytes::from(bytes));
        self.lengths = lengths.into_iter();
        Ok(())
    }
}

fn too_long(length: usize) -> PgWireError {
    client_error("54000", format!("a row of {length} bytes is too long for a message; select fewer columns, or parts of them"))
}

/// How many bytes texts and bytes, and the texts of arrays and records, take in the longest row; 0 if all of them are fewer than those of a long one.
fn longest_row(batch: &RecordBatch, columns: &[PreparedColumn]) -> usize {
    let bytes = |rows: Range<usize>| batch.columns().iter().map(|column| text_bytes(column, rows.clone())).sum::<usize>();
    let nested: Vec<&PreparedColumn> = columns.iter().filter(|column| column.may_be_long()).collect();
    if bytes(0..batch.num_rows()) < LONG_ROW && nested.is_empty() {
        return 0;
    }
    let of_nested = |row: usize| nested.iter().map(|column| column.nested_text_bytes(row)).fold(0, usize::saturating_add);
    (0..batch.num_rows()).map(|row| bytes(row..row + 1).saturating_add(of_nested(row))).max().unwrap_or(0)
}

fn text_bytes(column: &ArrayRef, rows: Range<usize>) -> usize {
    fn between<O: OffsetSizeTrait>(offsets: &[O], rows: &Range<usize>) -> usize {
        (offsets[rows.end] - offsets[rows.start]).as_usize()
    }
    // The length stands in the first bytes of a view.
    let of_views = |views: &[u128]| views[rows.clone()].iter().map(|view| *view as u32 as usize).sum();
    match column.data_type() {
        DataType::Utf8 => between(column.as_string::<i32>().value_offsets(), &rows),
        DataType::LargeUtf8 => between(column.as_string::<i64>().value_offsets(), &rows),
        DataType::Binary => between(column.as_binary::<i32>().value_offsets(), &rows),
        DataType::LargeBinary => between(column.as_binary::<i64>().value_offsets(), &rows),
        DataType::Utf8View => of_views(column.as_string_view().views()),
        DataType::BinaryView => of_views(column.as_binary_view().views()),
        _ => 0,
    }
}

impl Iterator for BatchRows {
    type Item = PgWireResult<DataRow>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}
