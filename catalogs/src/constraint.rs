//! Primary keys and UNIQUE constraints: no two rows of one write, and no new row and stored row, share a key. A NULL equals nothing, not even
//! another NULL.
//!
//! Keys are compared by a 128-bit keyed hash of Arrow's row format, so that a million keys take 16 MB and not the size
//! of their texts; two different keys collide with a probability below 1e-24 at a million rows.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, UInt64Type};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use lance::Dataset;
use lance_table::format::Fragment;

use crate::dml::{ROW_ADDRESS, scan_with_addresses};
use crate::scan::scan_of;
use crate::{Error, Result, TableDefinition};

/// Above this many stored rows (64 MB of hashes) keys are not kept: every write scans the key columns once instead.
const KEPT_KEYS_MAX: usize = 4_000_000;

/// Hashes of the keys of a table's rows, kept between writes so that a small INSERT does not scan the table. A version that has other indexes and the
/// same rows has the same keys; whoever changes constraints or rows in place forgets them.
#[derive(Debug, Default)]
pub(crate) struct StoredKeys {
    /// Where the rows are that `hashes` describes; `None` when it does not.
    fragments: Option<Arc<Vec<Fragment>>>,
    /// Shared with statements that look at them while others write.
    hashes: Arc<Hashes>,
}

/// Of keys. They are hashes already: a set that hashed them again would spend half of its time on that.
type Hashes = HashSet<u128, BuildHasherDefault<HighHalf>>;

#[derive(Debug, Default, Clone, Copy)]
struct HighHalf(u64);

impl Hasher for HighHalf {
    fn write_u128(&mut self, hash: u128) {
        self.0 = (hash >> 64) as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only 128-bit numbers are hashed, through write_u128");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One for the process: keys that a statement hashes before it has the right to write are compared with those that are kept.
static HASHER: LazyLock<KeyHasher> = LazyLock::new(KeyHasher::default);

#[derive(Debug, Default)]
struct KeyHasher {
    high: RandomState,
    low: RandomState,
}

impl KeyHasher {
    /// `number`: of the constraint, so that keys of two constraints can share a set.
    fn hash(&self, number: usize, key: &[u8]) -> u128 {
        (u128::from(self.high.hash_one((number, key))) << 64) | u128::from(self.low.hash_one((number, key)))
    }
}

/// Checks the keys of one write, batch by batch.
#[derive(Debug)]
pub(crate) struct KeyCheck {
    schema: String,
    table: String,
    constraints: Vec<UniqueColumns>,
    /// Keys of stored rows, as far as they are known: there may be others.
    taken: Arc<Hashes>,
    new: Hashes,
}

/// A primary key or a UNIQUE constraint.
#[derive(Debug)]
struct UniqueColumns {
    name: String,
    columns: Vec<String>,
    converter: RowConverter,
}

/// What a write does with a row whose key is taken.
#[derive(Debug, Clone)]
pub(crate) enum OnDuplicate {
    Fail,
    /// Leaves the row out if one of the constraints on exactly these columns has its key (in any order; empty: any constraint).
    Skip(Vec<String>),
}

impl StoredKeys {
    /// Makes them the keys of a version, unless these are too many to keep. `keep_all`: hold them however many there are.
    ///
    /// # Errors
    /// [`Error::Storage`] when the stored keys can not be read.
    pub(crate) async fn load(&mut self, check: &KeyCheck, dataset: &Dataset, keep_all: bool) -> Result<()> {
        if self.fragments.as_ref() == Some(dataset.fragments()) {
            return Ok(());
        }
        *self = Self::default();
        if !keep_all && check.num_rows(dataset).await? * check.constraints.len() > KEPT_KEYS_MAX {
            return Ok(());
        }
        let mut hashes = Hashes::default();
        let mut batches = check.scan(dataset).await?;
        while let Some(batch) = batches.try_next().await.map_err(|source| Error::storage(&check.table, source))? {
            for number in 0..check.constraints.len() {
                hashes.extend(check.hash(number, &batch)?.into_iter().flatten());
            }
        }
        *self = Self { fragments: Some(Arc::clone(dataset.fragments())), hashes: Arc::new(hashes) };
        Ok(())
    }

    /// Goes on to the version that the rows of `check` made of the one that these are the keys of.
    pub(crate) fn extend(&mut self, check: KeyCheck, committed: &Dataset) {
        let KeyCheck { new, taken, .. } = check;
        // Else there would be two who have the hashes, and the next line would copy them.
        drop(taken);
        if self.fragments.is_none() || self.hashes.len() + new.len() > KEPT_KEYS_MAX {
            *self = Self::default();
            return;
        }
        Arc::make_mut(&mut self.hashes).extend(new);
        self.fragments = Some(Arc::clone(committed.fragments()));
    }
}

impl KeyCheck {
    /// Knows of no stored row yet. `None` when the table has no constraint.
    ///
    /// # Errors
    /// When a key column has a type without an order.
    pub(crate) fn new(schema: &str, table: &str, definition: &TableDefinition) -> Result<Option<Self>> {
        let mut constraints = Vec::new();
        for (name, (columns, _)) in definition.constraint_names(table).into_iter().zip(definition.unique_constraints()) {
            let converter = converter(definition, columns)?;
            constraints.push(UniqueColumns { name, columns: columns.clone(), converter });
        }
        if constraints.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { schema: schema.to_owned(), table: table.to_owned(), constraints, taken: Arc::default(), new: Hashes::default() }))
    }

    /// Lets [`Self::check`] find keys that are among these.
    pub(crate) fn know(&mut self, stored: &StoredKeys) {
        self.taken = Arc::clone(&stored.hashes);
    }

    /// Checks a batch against the batches before it and the stored keys that are known.
    ///
    /// # Errors
    /// [`Error::UniqueViolation`] with the first key that repeats.
    pub(crate) fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        for number in 0..self.constraints.len() {
            for (row, hash) in self.hash(number, batch)?.into_iter().enumerate() {
                let Some(hash) = hash else { continue };
                if self.taken.contains(&hash) || !self.new.insert(hash) {
                    return Err(self.violation(number, batch, row));
                }
            }
        }
        Ok(())
    }

    /// As [`Self::check`], for rows that a new constraint finds.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] with the first key that repeats.
    pub(crate) fn check_found(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check(batch).map_err(|error| match error {
            Error::UniqueViolation { schema, table, key, constraint } => Error::DuplicateKey { schema, table, key, constraint },
            other => other,
        })
    }

    /// [`Self::check_found`] of all rows of a table.
    ///
    /// # Errors
    /// The same, and [`Error::Storage`].
    pub(crate) async fn check_all(&mut self, dataset: &Dataset) -> Result<()> {
        let mut batches = self.scan(dataset).await?;
        while let Some(batch) = batches.try_next().await.map_err(|source| Error::storage(&self.table, source))? {
            self.check_found(&batch)?;
        }
        Ok(())
    }

    /// The rows of a batch whose keys are free, by the constraints on `columns` (empty: by all). The others are left for [`Self::check`].
    pub(crate) fn free_rows(&self, batch: &RecordBatch, columns: &[String]) -> Result<BooleanArray> {
        let mut free = vec![true; batch.num_rows()];
        let mut own = Hashes::default();
        for number in 0..self.constraints.len() {
            if !columns.is_empty() && !self.constraints[number].is_on(columns) {
                continue;
            }
            for (row, hash) in self.hash(number, batch)?.into_iter().enumerate() {
                let Some(hash) = hash else { continue };
                free[row] &= !self.taken.contains(&hash) && !self.new.contains(&hash) && own.insert(hash);
            }
        }
        Ok(BooleanArray::from(free))
    }

    /// After the last batch: checks against all rows of a version. `stored`: its keys, unless they are too many to keep.
    ///
    /// # Errors
    /// [`Error::UniqueViolation`], [`Error::Storage`].
    pub(crate) async fn finish(&self, dataset: &Dataset, stored: &StoredKeys) -> Result<()> {
        if stored.fragments.is_some() && self.new.is_disjoint(&stored.hashes) {
            return Ok(());
        }
        let mut batches = self.scan(dataset).await?;
        while let Some(batch) = batches.try_next().await.map_err(|source| Error::storage(&self.table, source))? {
            self.check_stored(&batch, |_| true)?;
        }
        Ok(())
    }

    /// After the last batch of an update: checks against the stored keys of the rows that are not `replaced` (addresses, ascending).
    ///
    /// # Errors
    /// [`Error::UniqueViolation`], [`Error::Storage`].
    pub(crate) async fn finish_without(&self, dataset: &Dataset, replaced: &[u64]) -> Result<()> {
        let mut batches = scan_with_addresses(dataset, &self.table, &self.columns()).await?;
        while let Some(batch) = batches.try_next().await.map_err(|source| Error::storage(&self.table, source))? {
            let addresses = batch.column(batch.schema().index_of(ROW_ADDRESS)?).as_primitive::<UInt64Type>().clone();
            self.check_stored(&batch, |row| replaced.binary_search(&addresses.value(row)).is_err())?;
        }
        Ok(())
    }

    /// Whether a new key is that of a stored row that stays.
    fn check_stored(&self, stored: &RecordBatch, stays: impl Fn(usize) -> bool) -> Result<()> {
        for number in 0..self.constraints.len() {
            for (row, hash) in self.hash(number, stored)?.into_iter().enumerate() {
                if hash.is_some_and(|hash| self.new.contains(&hash)) && stays(row) {
                    return Err(self.violation(number, stored, row));
                }
            }
        }
        Ok(())
    }

    async fn num_rows(&self, dataset: &Dataset) -> Result<usize> {
        dataset.count_rows(None).await.map_err(|source| Error::storage(&self.table, source))
    }

    async fn scan(&self, dataset: &Dataset) -> Result<lance::dataset::scanner::DatasetRecordBatchStream> {
        let failed = |source| Error::storage(&self.table, source);
        let mut scanner = scan_of(dataset);
        scanner.project(&self.columns()).map_err(failed)?;
        scanner.try_into_stream().await.map_err(failed)
    }

    /// Columns of all constraints, each once.
    fn columns(&self) -> Vec<String> {
        let mut columns: Vec<String> = self.constraints.iter().flat_map(|constraint| constraint.columns.iter().cloned()).collect();
        columns.sort();
        columns.dedup();
        columns
    }

    /// The keys of a batch by one constraint; none for a row with a NULL in them.
    fn hash(&self, number: usize, batch: &RecordBatch) -> Result<Vec<Option<u128>>> {
        let constraint = &self.constraints[number];
        let mut keys = Vec::with_capacity(constraint.columns.len());
        for column in &constraint.columns {
            keys.push(with_one_zero(batch.column(batch.schema().index_of(column)?)));
        }
        let rows = constraint.converter.convert_columns(&keys)?;
        let hash = |(row, key): (usize, arrow::row::Row<'_>)| {
            let has_null = keys.iter().any(|column| column.is_null(row));
            (!has_null).then(|| HASHER.hash(number, key.as_ref()))
        };
        Ok(rows.iter().enumerate().map(hash).collect())
    }

    /// The error in Postgres' form: `(a, b)=(1, x)`.
    fn violation(&self, number: usize, batch: &RecordBatch, row: usize) -> Error {
        let UniqueColumns { name, columns, .. } = &self.constraints[number];
        let value = |column: &String| {
            let column = batch.column_by_name(column)?;
            array_value_to_string(column, row).ok()
        };
        let values: Vec<String> = columns.iter().filter_map(value).collect();
        let key = format!("({})=({})", columns.join(", "), values.join(", "));
        Error::UniqueViolation { schema: self.schema.clone(), table: self.table.clone(), key, constraint: name.clone() }
    }
}

impl UniqueColumns {
    /// In any order.
    fn is_on(&self, columns: &[String]) -> bool {
        self.columns.len() == columns.len() && columns.iter().all(|column| self.columns.contains(column))
    }
}

/// Minus zero is zero and all NaN are one, as in PostgreSQL; Arrow's row format keeps the signs.
fn with_one_zero(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float32 => Arc::new(
            column.as_primitive::<Float32Type>().unary::<_, Float32Type>(|number| if number.is_nan() { f32::NAN } else { number + 0.0 }),
        ),
        DataType::Float64 => Arc::new(
            column.as_primitive::<Float64Type>().unary::<_, Float64Type>(|number| if number.is_nan() { f64::NAN } else { number + 0.0 }),
        ),
        _ => Arc::clone(column),
    }
}

fn converter(definition: &TableDefinition, columns: &[String]) -> Result<RowConverter> {
    let types = columns.iter().filter_map(|column| definition.schema.field_with_name(column).ok());
    Ok(RowConverter::new(types.map(|field| SortField::new(field.data_type().clone())).collect())?)
}
