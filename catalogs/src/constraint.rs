//! Primary keys: no two rows of one write, and no new row and stored row, share a key.
//!
//! Keys are compared by a 128-bit keyed hash of Arrow's row format, so that a million keys take 16 MB and not the size
//! of their texts; two different keys collide with a probability below 1e-24 at a million rows.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use arrow::row::{RowConverter, SortField};
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use lance::Dataset;

use crate::dml::{ROW_ADDRESS, scan_with_addresses};
use crate::{Error, Result, TableDefinition};

/// Above this many stored rows (64 MB of hashes) keys are not kept: every write scans the key columns once instead.
const KEPT_KEYS_MAX: usize = 4_000_000;

/// Hashes of the keys of one version of a table, kept between writes so that a small INSERT does not scan the table.
#[derive(Debug, Default)]
pub(crate) struct StoredKeys {
    /// The version that `hashes` describes; `None` when it does not.
    version: Option<u64>,
    hashes: HashSet<u128>,
    hasher: KeyHasher,
}

#[derive(Debug, Default, Clone)]
struct KeyHasher {
    high: RandomState,
    low: RandomState,
}

impl KeyHasher {
    fn hash(&self, key: &[u8]) -> u128 {
        (u128::from(self.high.hash_one(key)) << 64) | u128::from(self.low.hash_one(key))
    }
}

/// Checks the keys of one write, batch by batch.
#[derive(Debug)]
pub(crate) struct KeyCheck {
    table: String,
    columns: Vec<String>,
    converter: RowConverter,
    stored: StoredKeys,
    new: HashSet<u128>,
}

impl KeyCheck {
    /// For a write to `dataset` (`None`: to a table that is being made). `None` when the table has no primary key.
    ///
    /// # Errors
    /// [`Error::Storage`] when the stored keys can not be read.
    pub(crate) async fn new(
        table: &str,
        definition: &TableDefinition,
        dataset: Option<&Dataset>,
        kept: StoredKeys,
    ) -> Result<Option<Self>> {
        if definition.primary_key.is_empty() {
            return Ok(None);
        }
        let mut check = Self {
            table: table.to_owned(),
            columns: definition.primary_key.clone(),
            converter: converter(definition)?,
            stored: kept,
            new: HashSet::new(),
        };
        if let Some(dataset) = dataset {
            check.load(dataset).await?;
        }
        Ok(Some(check))
    }

    async fn load(&mut self, dataset: &Dataset) -> Result<()> {
        if self.stored.version == Some(dataset.version().version) {
            return Ok(());
        }
        self.stored.version = None;
        self.stored.hashes.clear();
        if self.num_rows(dataset).await? > KEPT_KEYS_MAX {
            return Ok(());
        }
        let mut batches = self.scan(dataset).await?;
        while let Some(batch) = batches.try_next().await.map_err(|source| Error::storage(&self.table, source))? {
            let hashes = self.hash(&batch)?;
            self.stored.hashes.extend(hashes);
        }
        self.stored.version = Some(dataset.version().version);
        Ok(())
    }

    /// Checks a batch against the batches before it and the kept keys.
    ///
    /// # Errors
    /// [`Error::UniqueViolation`] with the first key that repeats.
    pub(crate) fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        for (row, hash) in self.hash(batch)?.into_iter().enumerate() {
            if self.stored.hashes.contains(&hash) || !self.new.insert(hash) {
                return Err(self.violation(batch, row));
            }
        }
        Ok(())
    }

    /// After the last batch: checks against stored keys that are too many to keep.
    ///
    /// # Errors
    /// [`Error::UniqueViolation`], [`Error::Storage`].
    pub(crate) async fn finish(&self, dataset: &Dataset) -> Result<()> {
        if self.stored.version.is_some() {
            return Ok(());
        }
        let mut batches = self.scan(dataset).await?;
        while let Some(batch) = batches.try_next().await.map_err(|source| Error::storage(&self.table, source))? {
            let repeated = self.hash(&batch)?.iter().position(|hash| self.new.contains(hash));
            if let Some(row) = repeated {
                return Err(self.violation(&batch, row));
            }
        }
        Ok(())
    }

    /// After the last batch of an update: checks against the stored keys of the rows that are not `replaced` (addresses, ascending).
    ///
    /// # Errors
    /// [`Error::UniqueViolation`], [`Error::Storage`].
    pub(crate) async fn finish_without(&self, dataset: &Dataset, replaced: &[u64]) -> Result<()> {
        let mut batches = scan_with_addresses(dataset, &self.table, &self.columns).await?;
        while let Some(batch) = batches.try_next().await.map_err(|source| Error::storage(&self.table, source))? {
            let addresses = batch.column(batch.schema().index_of(ROW_ADDRESS)?).as_primitive::<UInt64Type>().clone();
            for (row, hash) in self.hash(&batch)?.iter().enumerate() {
                if self.new.contains(hash) && replaced.binary_search(&addresses.value(row)).is_err() {
                    return Err(self.violation(&batch, row));
                }
            }
        }
        Ok(())
    }

    /// The keys of the table after the write was committed as `version`.
    pub(crate) fn committed(mut self, version: u64) -> StoredKeys {
        if self.stored.version.is_some() && self.stored.hashes.len() + self.new.len() <= KEPT_KEYS_MAX {
            self.stored.hashes.extend(self.new);
            self.stored.version = Some(version);
            self.stored
        } else {
            StoredKeys::default()
        }
    }

    /// The keys of the table after the write failed.
    pub(crate) fn abandoned(self) -> StoredKeys {
        self.stored
    }

    async fn num_rows(&self, dataset: &Dataset) -> Result<usize> {
        dataset.count_rows(None).await.map_err(|source| Error::storage(&self.table, source))
    }

    async fn scan(&self, dataset: &Dataset) -> Result<lance::dataset::scanner::DatasetRecordBatchStream> {
        let failed = |source| Error::storage(&self.table, source);
        let mut scanner = dataset.scan();
        scanner.project(&self.columns).map_err(failed)?;
        scanner.try_into_stream().await.map_err(failed)
    }

    fn hash(&self, batch: &RecordBatch) -> Result<Vec<u128>> {
        let mut keys = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            keys.push(batch.column(batch.schema().index_of(column)?).clone());
        }
        let rows = self.converter.convert_columns(&keys)?;
        Ok(rows.iter().map(|row| self.stored.hasher.hash(row.as_ref())).collect())
    }

    /// The error in Postgres' form: `(a, b)=(1, x)`.
    fn violation(&self, batch: &RecordBatch, row: usize) -> Error {
        let value = |column: &String| {
            let column = batch.column_by_name(column)?;
            array_value_to_string(column, row).ok()
        };
        let values: Vec<String> = self.columns.iter().filter_map(value).collect();
        let key = format!("({})=({})", self.columns.join(", "), values.join(", "));
        Error::UniqueViolation { table: self.table.clone(), key }
    }
}

fn converter(definition: &TableDefinition) -> Result<RowConverter> {
    let types = definition.key_positions().into_iter().map(|position| {
        let field = definition.schema.field(position);
        SortField::new(field.data_type().clone())
    });
    Ok(RowConverter::new(types.collect())?)
}
