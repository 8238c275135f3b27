//! A stream of record batches as a stream of `DataRow` messages.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::{StreamExt, stream};
use pgwire::api::portal::Format;
use pgwire::api::results::{DataRowEncoder, FieldInfo, SendableRowStream};
use pgwire::error::PgWireResult;
use pgwire::messages::data::DataRow;

use super::columns::{PreparedColumn, WireColumn};
use super::response::{client_error, wire_error};

/// Rows on their way to a client, and the columns that `RowDescription` shows for them.
pub(super) struct WireRows {
    pub(super) fields: Arc<Vec<FieldInfo>>,
    pub(super) stream: SendableRowStream,
}

impl WireRows {
    /// `described`: the columns that the client has been told already. A stream may come with other types, where a type depends
    /// on a parameter; its columns are then cast to those. `None`: the stream's own columns hold.
    ///
    /// # Errors
    /// A table of a prepared statement has other columns by now (0A000).
    pub(super) fn new(batches: SendableRecordBatchStream, described: Option<&SchemaRef>, format: &Format) -> PgWireResult<Self> {
        let described = described.cloned().unwrap_or_else(|| batches.schema());
        if described.fields().len() != batches.schema().fields().len() {
            return Err(client_error("0A000", "the columns of this prepared statement have changed; prepare it again".to_string()));
        }
        let columns = Arc::new(wire_columns(&described, format));
        let fields = Arc::new(columns.iter().map(|column| column.field().clone()).collect::<Vec<_>>());
        let row_fields = fields.clone();
        let rows = batches.flat_map(move |batch| {
            let rows = batch.map_err(|error| wire_error(error.into())).and_then(|batch| BatchRows::new(&batch, &columns, &row_fields));
            match rows {
                Ok(rows) => stream::iter(rows).left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            }
        });
        Ok(Self { fields, stream: Box::pin(rows) })
    }
}

/// How the columns of `schema` look on the wire.
pub(super) fn wire_columns(schema: &SchemaRef, format: &Format) -> Vec<WireColumn> {
    schema.fields().iter().enumerate().map(|(index, field)| WireColumn::new(field, format.format_for(index))).collect()
}

/// The command tag of a statement that gave `count` rows. Only these commands carry a number in Postgres, and clients read it
/// as the number of rows.
pub(super) fn completion_tag(command: &str, count: usize) -> String {
    match command {
        "SELECT" | "FETCH" | "UPDATE" | "DELETE" | "MERGE" | "COPY" => format!("{command} {count}"),
        "INSERT" => format!("INSERT 0 {count}"),
        _ => command.to_string(),
    }
}

/// The rows of one batch, encoded one at a time as they are asked for.
struct BatchRows {
    columns: Vec<PreparedColumn>,
    encoder: DataRowEncoder,
    next: usize,
    count: usize,
}

impl BatchRows {
    fn new(batch: &RecordBatch, columns: &[WireColumn], fields: &Arc<Vec<FieldInfo>>) -> PgWireResult<Self> {
        let prepared = columns.iter().zip(batch.columns()).map(|(column, array)| column.prepare(array)).collect::<PgWireResult<_>>()?;
        Ok(Self { columns: prepared, encoder: DataRowEncoder::new(fields.clone()), next: 0, count: batch.num_rows() })
    }

    fn encode(&mut self, row: usize) -> PgWireResult<DataRow> {
        for column in &self.columns {
            column.encode(row, &mut self.encoder)?;
        }
        Ok(self.encoder.take_row())
    }
}

impl Iterator for BatchRows {
    type Item = PgWireResult<DataRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.count {
            return None;
        }
        self.next += 1;
        Some(self.encode(self.next - 1))
    }
}
