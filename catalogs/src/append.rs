//! Writing rows: one commit per statement, checked on the way, and nothing left of a write that fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::datasource::sink::DataSink;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::StreamExt;
use lance::Dataset;
use lance::dataset::{CommitBuilder, InsertBuilder, WriteMode};

use crate::constraint::{KeyCheck, OnDuplicate, StoredKeys};
use crate::conversion::convert;
use crate::leftovers::NewFiles;
use crate::storage::{Storage, Temporary};
use crate::{Error, Result, Table, TableDefinition};

impl Table {
    /// Appends rows to the newest version of the table, in one commit; the number of rows comes back. The columns of
    /// `rows` are matched by position and cast; missing trailing columns are NULL. This `Table` keeps its version.
    ///
    /// # Errors
    /// [`Error::NotNull`], [`Error::UniqueViolation`], [`Error::WrongType`]; an error of `rows` as it is;
    /// [`Error::Conflict`], [`Error::Storage`]. The table is unchanged after any of them.
    pub async fn append(&self, rows: SendableRecordBatchStream) -> Result<u64> {
        self.append_rows(rows, OnDuplicate::Fail, None).await
    }

    /// As [`Self::append`], but leaves out each row whose key is taken, by the constraint on `columns` (empty: by any). `written` is given the rows
    /// that are written. Returns their number.
    ///
    /// # Errors
    /// As [`Self::append`]; [`Error::NoConstraint`] when there is no constraint on `columns`.
    pub async fn append_new(&self, rows: SendableRecordBatchStream, columns: Vec<String>, written: Option<RowSink>) -> Result<u64> {
        self.definition().check_conflict_target(self.name(), &columns)?;
        self.append_rows(rows, OnDuplicate::Skip(columns), written).await
    }

    async fn append_rows(&self, rows: SendableRecordBatchStream, on_duplicate: OnDuplicate, written: Option<RowSink>) -> Result<u64> {
        let mut keys = self.lock_writer().await;
        let dataset = self.state.snapshot(&self.schema_state.storage).await?;
        self.check_definition(&dataset)?;
        // Taken out for the time of the write: when it is cancelled, the keys are read again.
        let kept = std::mem::take(&mut *keys);
        let keep_all = matches!(on_duplicate, OnDuplicate::Skip(_));
        let key_check = KeyCheck::new(self.name(), self.definition(), Some(dataset.as_ref()), kept, keep_all).await?;
        let files = NewFiles::watch(self.state.directory.join("data"));
        let stored_schema = Arc::new(Schema::from(dataset.schema()));
        let write = CheckedWrite::new(self.name(), stored_schema, key_check).with(on_duplicate, written);
        match self.write(&dataset, &write, rows).await {
            Err(error) => {
                *keys = write.into_keys(None);
                Err(error)
            }
            Ok(None) => {
                *keys = write.into_keys(None);
                Ok(0)
            }
            Ok(Some(transaction)) => {
                // From here a cancelled future may still have committed: the files must stay.
                files.keep();
                let num_rows = write.num_rows();
                let committed = CommitBuilder::new(dataset).execute(transaction).await;
                let committed = Arc::new(committed.map_err(|source| Error::storage(self.name(), source))?);
                *keys = write.into_keys(Some(committed.version().version));
                self.state.publish(committed).await;
                Ok(num_rows)
            }
        }
    }

    /// The rows were planned for the definition of this `Table`: another one may want other columns, or other values of them.
    fn check_definition(&self, newest: &Dataset) -> Result<()> {
        match TableDefinition::from_stored(self.name(), &Schema::from(newest.schema()))? == *self.definition() {
            true => Ok(()),
            false => Err(Error::Altered { table: self.name().to_owned() }),
        }
    }

    /// Writes the files of an append without committing them; `None` when there were no rows.
    async fn write(
        &self,
        dataset: &Arc<Dataset>,
        write: &CheckedWrite,
        rows: SendableRecordBatchStream,
    ) -> Result<Option<lance::dataset::transaction::Transaction>> {
        let params = self.schema_state.storage.write_params(WriteMode::Append);
        let written = InsertBuilder::new(dataset.clone())
            .with_params(&params)
            .execute_uncommitted_stream(write.stream(rows))
            .await
            .map_err(|source| write.error_of(source))?;
        if write.num_rows() == 0 {
            return Ok(None);
        }
        // The check is taken out of the shared place: no lock may be held across an await.
        let check = write.shared().keys.take();
        let finished = match &check {
            Some(check) => check.finish(dataset).await,
            None => Ok(()),
        };
        write.shared().keys = check;
        finished.map(|()| Some(written))
    }
}

/// Writes a new dataset under its temporary name.
///
/// # Errors
/// As [`Table::append`]; [`Error::NotSupported`] when Lance can not store a column.
pub(crate) async fn write_new(
    storage: &Storage,
    table: &str,
    target: &Temporary,
    definition: &TableDefinition,
    rows: SendableRecordBatchStream,
) -> Result<()> {
    let key_check = KeyCheck::new(table, definition, None, StoredKeys::default(), false).await?;
    let write = CheckedWrite::new(table, definition.to_stored(), key_check);
    let params = storage.write_params(WriteMode::Create);
    InsertBuilder::new(target.uri()?.as_str())
        .with_params(&params)
        .execute_stream(write.stream(rows))
        .await
        .map(|_| ())
        .map_err(|source| write.error_of(source))
}

/// The rows of one write on their way to Lance: converted, checked and counted.
#[derive(Clone)]
pub(crate) struct CheckedWrite {
    table: String,
    schema: SchemaRef,
    on_duplicate: OnDuplicate,
    shared: Arc<Mutex<Checks>>,
}

/// Sees rows as they are written.
pub type RowSink = Box<dyn FnMut(&RecordBatch) + Send>;

struct Checks {
    written: Option<RowSink>,
    keys: Option<KeyCheck>,
    num_rows: u64,
    /// Why the stream ended early. Lance would wrap it beyond recognition, so it takes this way round.
    error: Option<Error>,
}

impl CheckedWrite {
    pub(crate) fn new(table: &str, schema: SchemaRef, keys: Option<KeyCheck>) -> Self {
        let checks = Checks { written: None, keys, num_rows: 0, error: None };
        Self { table: table.to_owned(), schema, on_duplicate: OnDuplicate::Fail, shared: Arc::new(Mutex::new(checks)) }
    }

    fn with(mut self, on_duplicate: OnDuplicate, written: Option<RowSink>) -> Self {
        self.on_duplicate = on_duplicate;
        self.shared().written = written;
        self
    }

    fn shared(&self) -> MutexGuard<'_, Checks> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn num_rows(&self) -> u64 {
        self.shared().num_rows
    }

    pub(crate) fn stream(&self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let write = self.clone();
        let checked = rows.map(move |batch| match write.check(batch) {
            Ok(batch) => Ok(batch),
            Err(error) => {
                let stopped = DataFusionError::Execution(error.to_string());
                write.shared().error.get_or_insert(error);
                Err(stopped)
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), checked))
    }

    fn check(&self, batch: DataFusionResult<RecordBatch>) -> Result<RecordBatch> {
        let mut batch = convert(&self.table, &batch?, &self.schema)?;
        let mut shared = self.shared();
        if let Some(keys) = &mut shared.keys {
            if let OnDuplicate::Skip(columns) = &self.on_duplicate {
                batch = filter_record_batch(&batch, &keys.free_rows(&batch, columns)?)?;
            }
            keys.check(&batch)?;
        }
        if let Some(written) = &mut shared.written {
            written(&batch);
        }
        shared.num_rows += batch.num_rows() as u64;
        Ok(batch)
    }

    pub(crate) fn error_of(&self, source: lance::Error) -> Error {
        let ours = self.shared().error.take();
        ours.unwrap_or_else(|| Error::storage(&self.table, source))
    }

    /// Checks the new keys against those of the rows that stay: all but `replaced` (addresses, ascending).
    ///
    /// # Errors
    /// [`Error::UniqueViolation`], [`Error::Storage`].
    pub(crate) async fn finish_keys(&self, dataset: &Dataset, replaced: &[u64]) -> Result<()> {
        // Taken out of the shared place: no lock may be held across an await.
        let keys = self.shared().keys.take();
        match keys {
            Some(keys) => keys.finish_without(dataset, replaced).await,
            None => Ok(()),
        }
    }

    fn into_keys(self, committed: Option<u64>) -> StoredKeys {
        match (self.shared().keys.take(), committed) {
            (None, _) => StoredKeys::default(),
            (Some(keys), Some(version)) => keys.committed(version),
            (Some(keys), None) => keys.abandoned(),
        }
    }
}

/// INSERT: DataFusion's sink over [`Table::append`].
#[derive(Debug)]
pub(crate) struct AppendSink {
    table: Table,
    schema: SchemaRef,
}

impl AppendSink {
    pub(crate) fn new(table: Table) -> Self {
        // All nullable: DataFusion would refuse a NULL with an untyped error before our check can name the column.
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        let fields: Vec<Field> = table.definition().schema.fields().iter().map(nullable).collect();
        Self { table, schema: Arc::new(Schema::new(fields)) }
    }
}

impl DisplayAs for AppendSink {
    fn fmt_as(&self, _kind: DisplayFormatType, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Append(table={})", self.table.name())
    }
}

#[async_trait]
impl DataSink for AppendSink {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(&self, rows: SendableRecordBatchStream, _context: &Arc<TaskContext>) -> DataFusionResult<u64> {
        Ok(self.table.append(rows).await?)
    }
}
