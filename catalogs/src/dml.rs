//! UPDATE, DELETE, MERGE and ON CONFLICT DO UPDATE: a query finds the rows by address, and one commit replaces or removes exactly these.
//!
//! Nothing here reads a predicate. What DataFusion would hand to a provider for `WHERE id IN (SELECT ...)` or `WHERE false` can be "all rows"; the
//! query that finds the addresses is an ordinary SELECT.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use lance::Dataset;
use lance::datafusion::LanceTableProvider;
use lance::dataset::CommitBuilder;
use lance::dataset::transaction::{Operation, Transaction, UpdateMode};
use lance_table::format::Fragment;
use tokio::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::append::{CheckedWrite, same_columns};
use crate::constraint::{KeyCheck, StoredKeys};
use crate::scan::scan_of;
use crate::{Error, Result, Table};

/// The column of row addresses, first in the rows of [`Rewrite::delete`], [`Rewrite::update`] and [`Rewrite::merge`].
pub const ROW_ADDRESS: &str = "_rowaddr";
/// The second column in the rows of [`Rewrite::merge`]: whether the row goes.
pub const IS_REMOVED: &str = "_is_removed";

/// The newest version of a table while one statement changes its rows; other writers wait, unless [`Self::let_others_write`].
pub struct Rewrite<'a> {
    /// That of the statement.
    origin: &'a Table,
    table: Table,
    /// `None`: others may write until the rows of this change are there.
    keys: Option<MutexGuard<'a, StoredKeys>>,
    _columns: Columns<'a>,
}

/// What others may do with the columns of the table meanwhile.
enum Columns<'a> {
    Stay { _guard: RwLockReadGuard<'a, ()> },
    Change { _guard: RwLockWriteGuard<'a, ()> },
}

impl Table {
    /// Holds the newest version of the table against other writers, to change its rows.
    ///
    /// # Errors
    /// [`Error::UnknownTable`] when it was dropped, [`Error::Storage`].
    pub async fn begin_rewrite(&self) -> Result<Rewrite<'_>> {
        self.begin(Columns::Stay { _guard: self.state.definition.read().await }).await
    }

    /// As [`Self::begin_rewrite`], to change the columns or the constraints. Waits for the statements that compute rows for those there are.
    ///
    /// # Errors
    /// As [`Self::begin_rewrite`].
    pub async fn begin_alter(&self) -> Result<Rewrite<'_>> {
        self.begin(Columns::Change { _guard: self.state.definition.write().await }).await
    }

    async fn begin<'a>(&'a self, columns: Columns<'a>) -> Result<Rewrite<'a>> {
        let keys = self.lock_writer().await;
        Ok(Rewrite { origin: self, table: self.latest().await?, keys: Some(keys), _columns: columns })
    }

    /// The table with [`ROW_ADDRESS`] as its last column.
    #[must_use]
    pub fn with_addresses(&self) -> Arc<dyn TableProvider> {
        let provider = LanceTableProvider::new(Arc::clone(&self.dataset), false, true);
        let mut fields: Vec<Arc<Field>> = self.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ROW_ADDRESS, DataType::UInt64, true)));
        Arc::new(AddressedTable { table: self.clone(), provider, schema: Arc::new(Schema::new(fields)) })
    }
}

impl Rewrite<'_> {
    /// The version that the rows are found in.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Lets others write until the rows of this change are computed. If one of them has changed the rows or the columns of the table by then, this
    /// change writes nothing, and its error is [`Error::Overtaken`].
    pub fn let_others_write(&mut self) {
        self.keys = None;
    }

    /// Takes the right to write again, and goes on with the newest version: one with the rows that the change was computed from.
    async fn stop_others(&mut self) -> Result<()> {
        if self.keys.is_some() {
            return Ok(());
        }
        let origin = self.origin;
        self.keys = Some(origin.lock_writer().await);
        let newest = origin.latest().await?;
        let is_same = newest.definition() == self.table.definition()
            && newest.dataset.fragments() == self.table.dataset.fragments()
            && same_columns(&newest.dataset, &self.table.dataset);
        if !is_same {
            return Err(Error::Overtaken { table: self.table.name().to_owned() });
        }
        self.table = newest;
        Ok(())
    }

    /// Removes the rows whose addresses `rows` gives, each once however often it comes. Returns their number.
    ///
    /// # Errors
    /// An error of `rows` as it is; [`Error::Overtaken`], [`Error::Conflict`], [`Error::Storage`]. The table is unchanged after any of them.
    pub async fn delete(mut self, rows: SendableRecordBatchStream) -> Result<u64> {
        let found = Addresses::default();
        let mut rows = found.taken_from(rows, Repeats::Ignored);
        while rows.try_next().await?.is_some() {}
        let addresses = found.sorted();
        if addresses.is_empty() {
            return Ok(0);
        }
        self.stop_others().await?;
        let (updated_fragments, deleted_fragment_ids) = self.without(&addresses).await?;
        let predicate = format!("{ROW_ADDRESS} in {} addresses", addresses.len());
        self.commit(Operation::Delete { updated_fragments, deleted_fragment_ids, predicate }).await?;
        Ok(addresses.len() as u64)
    }

    /// Replaces rows: `rows` gives the address of a row and then all columns of the table as they shall be; a row without an address is new. Returns
    /// the number of rows.
    ///
    /// `keys_change`: whether keys may differ from the stored ones, which are then checked against the rows that stay.
    ///
    /// # Errors
    /// [`Error::NotNull`], [`Error::UniqueViolation`], [`Error::WrongType`]; [`Error::RowTwice`] if an address comes twice; an error of `rows` as it
    /// is; [`Error::Overtaken`], [`Error::Conflict`], [`Error::Storage`]. The table is unchanged after any of them.
    pub async fn update(self, rows: SendableRecordBatchStream, keys_change: bool) -> Result<u64> {
        self.replace(rows, Removals::None, keys_change).await
    }

    /// As [`Self::update`], with [`IS_REMOVED`] after the address: a row for which it is true goes, whatever its columns say.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub async fn merge(self, rows: SendableRecordBatchStream) -> Result<u64> {
        self.replace(rows, Removals::InSecondColumn, true).await
    }

    async fn replace(mut self, rows: SendableRecordBatchStream, removals: Removals, keys_change: bool) -> Result<u64> {
        let table = self.table.clone();
        let dataset = &table.dataset;
        let key_check = if keys_change { KeyCheck::new(table.schema_name(), table.name(), table.definition())? } else { None };
        let write = CheckedWrite::new(table.name(), Arc::new(Schema::from(dataset.schema())), key_check).of_changed_rows();
        let found = Addresses::default();
        let repeats = Repeats::Refused(table.name().to_owned());
        let rows = match removals {
            Removals::None => found.taken_from(rows, repeats),
            Removals::InSecondColumn => without_removed(found.taken_from(rows, repeats)),
        };
        let staged = table.stage(dataset, &write, rows).await?;
        let num_rows = found.num_rows();
        let addresses = found.sorted();
        if num_rows == 0 {
            return Ok(0);
        }
        self.stop_others().await?;
        write.finish_keys(dataset, &addresses).await?;
        let (updated_fragments, removed_fragment_ids) = self.without(&addresses).await?;
        let new_fragments = if write.num_rows() > 0 { staged.place(&table)? } else { vec![] };
        // From here a cancelled future may still have committed: the files must stay.
        self.commit(match (write.num_rows(), addresses.len()) {
            (0, count) => {
                let predicate = format!("{ROW_ADDRESS} in {count} addresses");
                Operation::Delete { updated_fragments, deleted_fragment_ids: removed_fragment_ids, predicate }
            }
            (_, 0) => Operation::Append { fragments: new_fragments },
            _ => Operation::Update {
                removed_fragment_ids,
                updated_fragments,
                new_fragments,
                fields_modified: vec![],
                compacted_sstables: vec![],
                // Every field, so that no index claims to hold the rows at their new addresses before it does.
                fields_for_preserving_frag_bitmap: dataset
                    .schema()
                    .field_ids()
                    .into_iter()
                    .filter_map(|id| u32::try_from(id).ok())
                    .collect(),
                update_mode: Some(UpdateMode::RewriteRows),
                inserted_rows_filter: None,
                updated_fragment_offsets: None,
            },
        })
        .await?;
        Ok(num_rows)
    }

    /// Removes every row and all unfinished work, and lets the columns that the table numbers count from 1 again if asked to. Returns the number of
    /// rows.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Storage`], [`Error::Io`].
    pub async fn truncate(mut self, restart_identity: bool) -> Result<u64> {
        let num_rows = self.table.row_count().await?;
        self.table.remove_unfinished(Duration::ZERO)?;
        if num_rows > 0 {
            let deleted_fragment_ids = self.table.dataset.fragments().iter().map(|fragment| fragment.id).collect();
            self.commit(Operation::Delete { updated_fragments: vec![], deleted_fragment_ids, predicate: "true".to_owned() }).await?;
        }
        if restart_identity {
            self.table.restart_identity()?;
        }
        Ok(num_rows)
    }

    /// The fragments of these rows without them, and those that have no other rows.
    async fn without(&self, addresses: &[u64]) -> Result<(Vec<Fragment>, Vec<u64>)> {
        let (mut changed, mut emptied) = (Vec::new(), Vec::new());
        for rows in addresses.chunk_by(|a, b| fragment_of(*a) == fragment_of(*b)) {
            let id = fragment_of(rows[0]);
            let fragment = self.table.dataset.get_fragment(id as usize).ok_or_else(|| Error::Damaged {
                table: self.table.name().to_owned(),
                reason: format!("a row is in fragment {id}, which is not in the version that it was read from"),
            })?;
            // The lower half of an address is the row's place in its fragment.
            let places = rows.iter().map(|address| *address as u32);
            match fragment.extend_deletions(places).await.map_err(|source| Error::storage(self.table.name(), source))? {
                Some(fragment) => changed.push(fragment.metadata().clone()),
                None => emptied.push(id),
            }
        }
        Ok((changed, emptied))
    }

    /// Goes on from a version that this change has committed by itself.
    pub(crate) async fn move_to(&mut self, dataset: Arc<Dataset>) -> Result<()> {
        self.forget_keys();
        self.table.state.publish(dataset).await;
        self.table = self.table.latest().await?;
        Ok(())
    }

    /// After a write that goes its own way to the commit.
    pub(crate) fn forget_keys(&mut self) {
        if let Some(keys) = &mut self.keys {
            **keys = StoredKeys::default();
        }
    }

    pub(crate) async fn commit(&mut self, operation: Operation) -> Result<()> {
        let dataset = Arc::clone(&self.table.dataset);
        let transaction = Transaction::new(dataset.manifest().version, operation, None);
        // The keys are read again by the next write that needs them.
        self.forget_keys();
        let committed = CommitBuilder::new(dataset).execute(transaction).await;
        let committed = committed.map_err(|source| Error::storage(self.table.name(), source))?;
        self.table.state.publish(Arc::new(committed)).await;
        Ok(())
    }
}

fn fragment_of(address: u64) -> u64 {
    address >> 32
}

/// What it means that an address comes twice.
#[derive(Clone)]
enum Repeats {
    Ignored,
    /// Of the table: which of the two new rows would it be?
    Refused(String),
}

/// Whether rows may be removed too, and how it is said.
#[derive(Clone, Copy)]
enum Removals {
    None,
    InSecondColumn,
}

/// The rows whose first column, [`IS_REMOVED`], is not true, without it.
fn without_removed(rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema: SchemaRef = Arc::new(Schema::new(rows.schema().fields().iter().skip(1).cloned().collect::<Vec<_>>()));
    let target = Arc::clone(&schema);
    let kept = rows.and_then(move |batch| {
        let stays = batch.column(0).as_boolean().iter().map(|removed| Some(removed != Some(true))).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rest = RecordBatch::try_new_with_options(Arc::clone(&target), batch.columns()[1..].to_vec(), &options);
        std::future::ready(rest.and_then(|rest| filter_record_batch(&rest, &stays)).map_err(Into::into))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, kept))
}

/// The addresses that passed by, shared with the stream that they are taken from.
#[derive(Clone, Default)]
struct Addresses(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    addresses: Vec<u64>,
    /// With those that have no address.
    num_rows: u64,
    /// Only for [`Repeats::Refused`].
    distinct: std::collections::HashSet<u64>,
}

impl Addresses {
    /// `rows` without their first column, whose values are kept here.
    fn taken_from(&self, rows: SendableRecordBatchStream, repeats: Repeats) -> SendableRecordBatchStream {
        let schema: SchemaRef = Arc::new(Schema::new(rows.schema().fields().iter().skip(1).cloned().collect::<Vec<_>>()));
        let (seen, target) = (self.clone(), Arc::clone(&schema));
        let rest = rows.and_then(move |batch| std::future::ready(seen.take(&batch, &target, &repeats)));
        Box::pin(RecordBatchStreamAdapter::new(schema, rest))
    }

    fn take(&self, batch: &RecordBatch, rest: &SchemaRef, repeats: &Repeats) -> DataFusionResult<RecordBatch> {
        let addresses = batch.column(0).as_primitive::<UInt64Type>();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Repeats::Refused(table) = repeats {
            for address in addresses.iter().flatten() {
                if !seen.distinct.insert(address) {
                    return Err(Error::RowTwice { table: table.clone() }.into());
                }
            }
        }
        seen.addresses.extend(addresses.iter().flatten());
        seen.num_rows += batch.num_rows() as u64;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(rest), batch.columns()[1..].to_vec(), &options)?)
    }

    fn num_rows(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).num_rows
    }

    fn sorted(&self) -> Vec<u64> {
        let mut addresses = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).addresses);
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

#[derive(Debug)]
struct AddressedTable {
    table: Table,
    provider: LanceTableProvider,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for AddressedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        self.table.named_scan(self.provider.scan(state, projection, filters, limit).await?)
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }
}

/// The dataset's key columns with addresses, for checks against the rows that stay.
pub(crate) async fn scan_with_addresses(
    dataset: &Dataset,
    table: &str,
    columns: &[String],
) -> Result<lance::dataset::scanner::DatasetRecordBatchStream> {
    let failed = |source| Error::storage(table, source);
    let mut scanner = scan_of(dataset);
    scanner.project(columns).map_err(failed)?;
    scanner.with_row_address();
    scanner.try_into_stream().await.map_err(failed)
}
