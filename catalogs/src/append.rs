//! Writing rows: one commit per statement, checked on the way, and nothing left of a write that fails.
//!
//! Rows are written to files while others may write the table too; the right to write it is for the last check of keys and the commit.

use std::sync::{Arc, Mutex, PoisonError};

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
use lance::dataset::transaction::{Operation, Transaction};
use lance::dataset::{CommitBuilder, InsertBuilder, WriteMode};
use tokio::sync::MutexGuard;

use crate::constraint::{KeyCheck, OnDuplicate, StoredKeys};
use crate::conversion::{check_finite, convert};
use crate::staged::StagedRows;
use crate::storage::{Storage, Temporary};
use crate::{Error, Result, Table, TableDefinition};

/// When a statement that writes what depends on the table's rows takes the right to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Before it reads the table: others wait.
    FromTheStart,
    /// When its rows are computed, which may take long. If another statement has made them wrong by then, nothing is written, and the error is
    /// [`Error::Overtaken`].
    AtTheEnd,
}

impl Table {
    /// Appends rows to the newest version of the table, in one commit; the number of rows comes back. The columns of
    /// `rows` are matched by position and cast; missing trailing columns are NULL. This `Table` keeps its version. Others may write while the rows come.
    ///
    /// # Errors
    /// [`Error::NotNull`], [`Error::UniqueViolation`], [`Error::WrongType`]; an error of `rows` as it is;
    /// [`Error::Altered`], [`Error::Conflict`], [`Error::Storage`]. The table is unchanged after any of them.
    pub async fn append(&self, rows: SendableRecordBatchStream) -> Result<u64> {
        let _same_columns = self.state.definition.read().await;
        let dataset = self.planned_for().await?;
        let mut keys = KeyCheck::new(self.schema_name(), self.name(), self.definition())?;
        if let Some(check) = &mut keys {
            self.tell_taken(check).await?;
        }
        let write = CheckedWrite::new(self.name(), Arc::new(Schema::from(dataset.schema())), keys);
        let staged = self.stage(&dataset, &write, rows).await?;
        let kept = match write.num_rows() {
            0 => return Ok(0),
            _ => self.lock_writer().await,
        };
        self.commit_append(kept, &dataset, &write, staged).await
    }

    /// As [`Self::append`], but leaves out each row whose key is taken, by the constraint on `columns` (empty: by any). `written` is given the rows
    /// that are written. Returns their number.
    ///
    /// # Errors
    /// As [`Self::append`]; [`Error::NoConstraint`] when there is no constraint on `columns`; [`Error::Overtaken`].
    pub async fn append_new(
        &self,
        rows: SendableRecordBatchStream,
        columns: Vec<String>,
        written: Option<RowSink>,
        hold: Hold,
    ) -> Result<u64> {
        self.definition().check_conflict_target(self.name(), &columns)?;
        let _same_columns = self.state.definition.read().await;
        let mut kept = match hold {
            Hold::FromTheStart => Some(self.lock_writer().await),
            Hold::AtTheEnd => None,
        };
        let dataset = self.planned_for().await?;
        let mut keys = KeyCheck::new(self.schema_name(), self.name(), self.definition())?;
        if let Some(check) = &mut keys {
            // All of them, in either case: they decide which rows are written.
            let mut own = StoredKeys::default();
            let stored = kept.as_deref_mut().unwrap_or(&mut own);
            stored.load(check, &dataset, true).await?;
            check.know(stored);
        }
        let write =
            CheckedWrite::new(self.name(), Arc::new(Schema::from(dataset.schema())), keys).with(OnDuplicate::Skip(columns), written);
        let staged = self.stage(&dataset, &write, rows).await?;
        let kept = match (write.num_rows(), kept) {
            (0, _) => return Ok(0),
            (_, Some(kept)) => kept,
            (_, None) => self.lock_writer().await,
        };
        // A row whose key was free and is taken now would have been left out.
        self.commit_append(kept, &dataset, &write, staged).await.map_err(|error| match error {
            Error::UniqueViolation { table, .. } if hold == Hold::AtTheEnd => Error::Overtaken { table },
            other => other,
        })
    }

    /// The newest version. The rows of a statement were planned for the definition of this `Table`: another one may want other columns, or other values
    /// of them.
    async fn planned_for(&self) -> Result<Arc<Dataset>> {
        let newest = self.state.snapshot(&self.schema_state.storage).await?;
        match TableDefinition::from_stored(self.name(), &Schema::from(newest.schema()))? == *self.definition() {
            true => Ok(newest),
            false => Err(Error::Altered { table: self.name().to_owned() }),
        }
    }

    /// Lets a check know the keys that are taken, so that a duplicate is found before more is computed. Not while another statement has the right to
    /// write: all rows are checked once this one has it.
    async fn tell_taken(&self, check: &mut KeyCheck) -> Result<()> {
        if let Ok(mut kept) = self.state.writer.try_lock() {
            let newest = self.state.snapshot(&self.schema_state.storage).await?;
            kept.load(check, &newest, false).await?;
            check.know(&kept);
        }
        Ok(())
    }

    /// Commits rows that were staged with the columns of `staged_for`.
    async fn commit_append(
        &self,
        mut kept: MutexGuard<'_, StoredKeys>,
        staged_for: &Dataset,
        write: &CheckedWrite,
        staged: StagedRows,
    ) -> Result<u64> {
        let newest = self.planned_for().await?;
        if !same_columns(staged_for, &newest) {
            return Err(Error::Altered { table: self.name().to_owned() });
        }
        let keys = write.take_keys();
        if let Some(check) = &keys {
            kept.load(check, &newest, false).await?;
            check.finish(&newest, &kept).await?;
        }
        // From here a cancelled future may still have committed: the files must stay.
        let operation = Operation::Append { fragments: staged.place(self)? };
        let transaction = Transaction::new(newest.manifest().version, operation, None);
        let committed = CommitBuilder::new(newest).execute(transaction).await;
        let committed = Arc::new(committed.map_err(|source| Error::storage(self.name(), source))?);
        if let Some(check) = keys {
            kept.extend(check, &committed);
        }
        self.state.publish(committed).await;
        Ok(write.num_rows())
    }
}

/// Whether rows that were written for one version have the columns of another: by their numbers too, which say what is whose in a file.
pub(crate) fn same_columns(one: &Dataset, other: &Dataset) -> bool {
    let columns = |dataset: &Dataset| -> Vec<(i32, String)> {
        dataset.schema().fields_pre_order().map(|field| (field.id, field.name.clone())).collect()
    };
    columns(one) == columns(other)
}

/// Writes a new dataset under its temporary name.
///
/// # Errors
/// As [`Table::append`]; [`Error::NotSupported`] when Lance can not store a column.
pub(crate) async fn write_new(
    storage: &Storage,
    (schema, table): (&str, &str),
    target: &Temporary,
    definition: &TableDefinition,
    rows: SendableRecordBatchStream,
) -> Result<()> {
    let key_check = KeyCheck::new(schema, table, definition)?;
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
    /// Whether all values are: a changed row has those of the columns that it keeps.
    rows_are_new: bool,
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
        Self { table: table.to_owned(), schema, on_duplicate: OnDuplicate::Fail, rows_are_new: true, shared: Arc::new(Mutex::new(checks)) }
    }

    /// For rows that are changed.
    pub(crate) fn of_changed_rows(mut self) -> Self {
        self.rows_are_new = false;
        self
    }

    fn with(mut self, on_duplicate: OnDuplicate, written: Option<RowSink>) -> Self {
        self.on_duplicate = on_duplicate;
        self.shared().written = written;
        self
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Checks> {
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
        if self.rows_are_new {
            check_finite(&self.table, &batch)?;
        }
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
        match self.take_keys() {
            Some(keys) => keys.finish_without(dataset, replaced).await,
            None => Ok(()),
        }
    }

    /// Out of the shared place: no lock may be held across an await.
    fn take_keys(&self) -> Option<KeyCheck> {
        self.shared().keys.take()
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
