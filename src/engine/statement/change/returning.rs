//! RETURNING: what the statement asks for of the rows that it wrote or removed. They are kept in memory until it has committed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef, UInt64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{Ident, SelectItem};
use futures::TryStreamExt;
use rolloutdb_catalogs::{RowSink, Table};

use super::select_from_target;
use crate::engine::planning::{Planned, plan_rewrite, with_distinct_outputs};
use crate::engine::session::{Response, Session};
use crate::error::Result;

/// The rows that pass by.
pub struct KeptRows {
    schema: SchemaRef,
    batches: Arc<Mutex<Vec<RecordBatch>>>,
}

impl KeptRows {
    /// Keeps every row of the stream that it gives back.
    pub fn of(rows: SendableRecordBatchStream) -> (SendableRecordBatchStream, Self) {
        let schema = rows.schema();
        let kept = Self { schema: Arc::clone(&schema), batches: Arc::default() };
        let batches = Arc::clone(&kept.batches);
        let watched = rows.inspect_ok(move |batch| batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch.clone()));
        (Box::pin(RecordBatchStreamAdapter::new(schema, watched)), kept)
    }

    /// Keeps the rows that a write of `table` gives to the sink.
    pub fn of_written(table: &Table) -> (Self, RowSink) {
        let kept = Self { schema: TableProvider::schema(table), batches: Arc::default() };
        let (batches, schema) = (Arc::clone(&kept.batches), Arc::clone(&kept.schema));
        let sink = move |batch: &RecordBatch| {
            let plain = RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec());
            // The schemas differ in metadata only.
            batches.lock().unwrap_or_else(PoisonError::into_inner).push(plain.unwrap_or_else(|_| batch.clone()));
        };
        (kept, Box::new(sink))
    }

    /// Of rows whose first `skipped` columns are not the table's, and the very first is their address: keeps the others, of each row once. A row
    /// without an address is a new one.
    pub fn of_addressed(rows: SendableRecordBatchStream, skipped: usize) -> (SendableRecordBatchStream, Self) {
        let fields: Vec<_> = rows.schema().fields().iter().skip(skipped).cloned().collect();
        let kept = Self { schema: Arc::new(Schema::new(fields)), batches: Arc::default() };
        let (batches, plain, schema) = (Arc::clone(&kept.batches), Arc::clone(&kept.schema), rows.schema());
        let mut seen = HashSet::new();
        let watched = rows.and_then(move |batch| {
            let addresses = batch.column(0).as_primitive::<UInt64Type>();
            let is_new: BooleanArray = addresses.iter().map(|address| Some(address.is_none_or(|address| seen.insert(address)))).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let kept = RecordBatch::try_new_with_options(Arc::clone(&plain), batch.columns()[skipped..].to_vec(), &options);
            let kept = kept.and_then(|kept| filter_record_batch(&kept, &is_new));
            std::future::ready(match kept {
                Ok(kept) => {
                    batches.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
                    Ok(batch)
                }
                Err(error) => Err(error.into()),
            })
        });
        (Box::pin(RecordBatchStreamAdapter::new(schema, watched)), kept)
    }

    fn into_table(self) -> Result<Arc<dyn TableProvider>> {
        let batches = std::mem::take(&mut *self.batches.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Arc::new(MemTable::try_new(self.schema, vec![batches])?))
    }
}

/// The rows of a RETURNING clause; `alias` is what the statement calls its table.
pub async fn response(
    session: &Session,
    items: &[SelectItem],
    alias: &Ident,
    kept: KeptRows,
    parameters: &[ScalarValue],
    command: &str,
) -> Result<Response> {
    let planned = plan_named(session, items, alias, kept.into_table()?, parameters).await?;
    Ok(Response::Rows { stream: planned.stream().await?, tag: command.to_owned() })
}

/// The columns of a RETURNING clause, found without running anything.
pub async fn plan(session: &Session, items: &[SelectItem], alias: &Ident, table: &Table) -> Result<Planned> {
    let empty = MemTable::try_new(TableProvider::schema(table), vec![vec![]])?;
    plan_named(session, items, alias, Arc::new(empty), &[]).await
}

/// The items over `target`, with the names that PostgreSQL gives them.
async fn plan_named(
    session: &Session,
    items: &[SelectItem],
    alias: &Ident,
    target: Arc<dyn TableProvider>,
    parameters: &[ScalarValue],
) -> Result<Planned> {
    let query = select_from_target(alias, items.to_vec())?;
    let plan = |query| plan_rewrite(session, query, parameters, Arc::clone(&target), None);
    let (Planned { plan, state }, names) = with_distinct_outputs(&query, plan).await?;
    Ok(Planned { plan: names.restored(plan)?, state })
}
