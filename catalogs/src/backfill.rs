//! Filling a new column whose values cost much, a model call per row: what is computed is kept over cancels and kills.
//!
//! Values are staged in `_backfill/<column>` of the table, in Arrow files of some thousand rows of one fragment each with the addresses of the rows, and
//! one commit at the end adds the column. No row is ever changed in place, so a staged value holds for its address as long as the fragment has the
//! files that it had. Other statements may write while values are computed; the last rows are filled while they wait.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use lance::Dataset;
use lance_table::format::Fragment;
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use crate::dml::ROW_ADDRESS;
use crate::durability::{create_directory, write_durably};
use crate::leftovers::remove_temporaries;
use crate::names::{from_directory, to_directory};
use crate::{Error, Result, Table};

const FOLDER: &str = "_backfill";
const JOB: &str = "job.json";
const RUN_SUFFIX: &str = ".arrow";
/// Schema metadata of a run: the data files of its fragment.
const FILES: &str = "rollout.files";
/// A run is written when it has so many rows, or after so long: what a kill can cost.
const RUN_ROWS: usize = 4096;
const RUN_TIME: Duration = Duration::from_secs(5);

/// A column that is being filled; one per table at a time.
#[derive(Debug)]
pub struct Backfill {
    table: String,
    directory: PathBuf,
    column: Field,
    /// By the address after the last row of the run before, so that the runs of a fragment have no gaps.
    runs: BTreeMap<u64, Run>,
    rows_found: u64,
    discarded: Option<String>,
    running: Arc<Running>,
    _alone: OwnedMutexGuard<()>,
}

/// Values of consecutive rows of one fragment.
#[derive(Debug)]
struct Run {
    last: u64,
    num_rows: u64,
    files: Vec<String>,
    path: PathBuf,
}

/// What the one who fills tells those who look.
#[derive(Debug)]
pub(crate) struct Running {
    column: String,
    started: Instant,
    rows_computed: AtomicU64,
}

/// A back-fill as others see it.
#[derive(Debug, Clone, PartialEq)]
pub struct BackfillInfo {
    pub column: String,
    pub expression: String,
    pub rows_done: u64,
    /// Rows of the table.
    pub rows_total: u64,
    pub is_running: bool,
    /// Absent when it does not run.
    pub rows_per_second: Option<f64>,
}

impl Table {
    /// Takes up the back-fill of a column, or begins one. What an earlier one computed of another `expression` or type is thrown away.
    ///
    /// # Errors
    /// [`Error::InUse`] while a column of the table is being filled, [`Error::Io`].
    pub async fn begin_backfill(&self, column: &Field, expression: &str) -> Result<Backfill> {
        let running = || self.state.running_backfill.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = running().upgrade() {
            let (table, column) = (self.name(), &other.column);
            return Err(Error::InUse(format!("column \"{column}\" of table \"{table}\" is being filled; see rollout.backfills")));
        }
        // Else it is OPTIMIZE that has it, and soon ends.
        let alone = Arc::clone(&self.state.backfill).lock_owned().await;
        let directory = self.state.directory.join(FOLDER).join(to_directory("column", column.name())?);
        let failed = |source| Error::io(&directory, source);
        let job = json!({ "column": column.name(), "type": column.data_type().to_string(), "expression": expression });
        let known = read_job(&directory);
        let discarded =
            known.as_ref().filter(|known| **known != job).map(|known| known["expression"].as_str().unwrap_or_default().to_owned());
        if known.as_ref() != Some(&job) {
            remove(&directory).map_err(failed)?;
            create_directory(&directory).map_err(failed)?;
            write_durably(&directory.join(JOB), job.to_string().as_bytes())?;
        }
        let runs = read_runs(&directory).map_err(failed)?;
        let rows_found = runs.values().map(|run| run.num_rows).sum();
        let started = Arc::new(Running { column: column.name().clone(), started: Instant::now(), rows_computed: AtomicU64::new(0) });
        *running() = Arc::downgrade(&started);
        let table = self.name().to_owned();
        Ok(Backfill { table, directory, column: column.clone(), runs, rows_found, discarded, running: started, _alone: alone })
    }

    /// Back-fills that run, or that were stopped and can go on.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Storage`].
    pub async fn backfills(&self) -> Result<Vec<BackfillInfo>> {
        let running = self.state.running_backfill.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let mut found = Vec::new();
        for (column, directory) in jobs(&self.state.directory)? {
            let Some(job) = read_job(&directory) else { continue };
            let rows_done = read_runs(&directory).map_err(|source| Error::io(&directory, source))?.values().map(|run| run.num_rows).sum();
            let running = running.as_ref().filter(|running| running.column == column);
            if rows_done == 0 && running.is_none() {
                continue;
            }
            let rate = |running: &Arc<Running>| {
                running.rows_computed.load(Ordering::Relaxed) as f64 / running.started.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
            };
            found.push(BackfillInfo {
                column,
                expression: job["expression"].as_str().unwrap_or_default().to_owned(),
                rows_done,
                rows_total: self.row_count().await?,
                is_running: running.is_some(),
                rows_per_second: running.map(rate),
            });
        }
        Ok(found)
    }

    /// Whether a column is being filled: files must not be put together now, since the values that are done belong to them.
    #[must_use]
    pub fn is_backfilling(&self) -> bool {
        self.state.backfill.try_lock().is_err()
    }

    /// Removes what back-fills have left that are done, or that nobody has taken up for `keep`, and temporary files. Nothing while one runs. The caller
    /// is the table's only writer.
    pub(crate) fn remove_abandoned(&self, keep: Duration) -> Result<()> {
        let Ok(_alone) = self.state.backfill.try_lock() else { return Ok(()) };
        {
            let _no_new_numbers = self.state.counters.lock().unwrap_or_else(PoisonError::into_inner);
            remove_temporaries(&self.state.directory).map_err(|source| Error::io(&self.state.directory, source))?;
        }
        for (column, directory) in jobs(&self.state.directory)? {
            let failed = |source| Error::io(&directory, source);
            let changed = directory.metadata().and_then(|metadata| metadata.modified()).map_err(failed)?;
            let is_old = SystemTime::now().duration_since(changed).is_ok_and(|age| age >= keep);
            if is_old || self.definition().schema.field_with_name(&column).is_ok() {
                remove(&directory).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Backfill {
    /// Rows that an earlier back-fill of the same column computed.
    #[must_use]
    pub fn rows_found(&self) -> u64 {
        self.rows_found
    }

    /// The expression of an earlier back-fill of the column that was another one.
    #[must_use]
    pub fn discarded(&self) -> Option<&str> {
        self.discarded.as_deref()
    }

    /// The rows of a version that have no value yet. Values of rows that OPTIMIZE has moved are forgotten.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Storage`].
    pub async fn remaining(&mut self, table: &Table) -> Result<RemainingRows> {
        let mut fragments = Vec::new();
        let mut num_rows = 0;
        let mut staged = Vec::new();
        for fragment in table.dataset.get_fragments() {
            let failed = |source| Error::storage(table.name(), source);
            let id = fragment.metadata().id;
            self.forget_others(fragment.metadata())?;
            let last = self.runs.range(addresses_of(id)).next_back().map(|(_, run)| run.last);
            let first = last.map_or(0, |last| (last + 1) & u64::from(u32::MAX));
            let physical = fragment.physical_rows().await.map_err(failed)? as u64;
            let deleted = fragment.get_deletion_vector().await.map_err(failed)?;
            let deleted = deleted.iter().flat_map(|deleted| deleted.iter()).filter(|place| u64::from(*place) >= first).count() as u64;
            let missing = physical.saturating_sub(first + deleted);
            if missing > 0 {
                num_rows += missing;
                fragments.push(fragment.metadata().clone());
                staged.extend(last.map(|last| (id << 32, last)));
            }
        }
        Ok(RemainingRows { table: table.clone(), fragments, staged, num_rows })
    }

    /// Removes the runs of a fragment that has other files than those that they were computed from, and those after a run that is lost.
    fn forget_others(&mut self, fragment: &Fragment) -> Result<()> {
        let has = |file: &String| fragment.files.iter().any(|stored| stored.path == *file);
        let addresses = addresses_of(fragment.id);
        let mut next = addresses.start;
        let mut others = Vec::new();
        for (start, run) in self.runs.range(addresses) {
            // The first run that does not fit, and all after it: rows between would be missed.
            if others.is_empty() && *start == next && !run.files.is_empty() && run.files.iter().all(has) {
                next = run.last + 1;
            } else {
                others.push(*start);
            }
        }
        for start in others {
            if let Some(run) = self.runs.remove(&start) {
                fs::remove_file(&run.path).map_err(|source| Error::io(&run.path, source))?;
            }
        }
        Ok(())
    }

    /// Keeps values as they come: `rows` gives addresses of `remaining`, ascending, and the column's values.
    ///
    /// # Errors
    /// [`Error::NotNull`], [`Error::Io`]; an error of `rows` as it is. What came before it is kept.
    pub async fn stage(&mut self, remaining: &RemainingRows, mut rows: SendableRecordBatchStream) -> Result<()> {
        let mut run = PendingRun::default();
        loop {
            let batch = match rows.try_next().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return self.write_run(remaining, run),
                Err(error) => {
                    self.write_run(remaining, run)?;
                    return Err(error.into());
                }
            };
            for part in parts_by_fragment(&batch) {
                if run.fragment() != fragment_of_first(&part) {
                    self.write_run(remaining, std::mem::take(&mut run))?;
                }
                run.push(part);
                if run.num_rows >= RUN_ROWS || run.started.is_some_and(|started| started.elapsed() > RUN_TIME) {
                    self.write_run(remaining, std::mem::take(&mut run))?;
                }
            }
        }
    }

    fn write_run(&mut self, remaining: &RemainingRows, run: PendingRun) -> Result<()> {
        let Some(id) = run.fragment() else { return Ok(()) };
        let not_there = || Error::Damaged { table: self.table.clone(), reason: format!("fragment {id} was not asked for") };
        let fragment = remaining.fragments.iter().find(|fragment| fragment.id == id).ok_or_else(not_there)?;
        let files: Vec<String> = fragment.files.iter().map(|file| file.path.clone()).collect();
        let column = self.column.clone().with_metadata([].into());
        let metadata = [(FILES.to_owned(), json!(files).to_string())].into();
        let schema = Arc::new(Schema::new_with_metadata(vec![Field::new(ROW_ADDRESS, DataType::UInt64, false), column.clone()], metadata));
        let mut bytes = Vec::new();
        let mut writer = FileWriter::try_new(&mut bytes, &schema)?;
        let (mut first, mut last, mut num_rows) = (None, 0, 0);
        for batch in &run.batches {
            if batch.column(1).null_count() > 0 && !self.column.is_nullable() {
                return Err(Error::NotNull { table: self.table.clone(), column: self.column.name().clone() });
            }
            let addresses = batch.column(0).as_primitive::<UInt64Type>();
            for address in addresses.values() {
                if first.is_some() && last >= *address {
                    return Err(Error::Damaged { table: self.table.clone(), reason: "its rows were not read in order".to_owned() });
                }
                first.get_or_insert(*address);
                last = *address;
            }
            num_rows += batch.num_rows() as u64;
            let addresses = UInt64Array::new(addresses.values().clone(), None);
            writer.write(&RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(addresses), Arc::clone(batch.column(1))])?)?;
        }
        writer.finish()?;
        drop(writer);
        let start = self.runs.range(addresses_of(id)).next_back().map_or(id << 32, |(_, run)| run.last + 1);
        if first.is_none_or(|first| first < start) {
            return Err(Error::Damaged { table: self.table.clone(), reason: "rows were read that have a value already".to_owned() });
        }
        let path = self.directory.join(format!("{start:020}-{last:020}-{num_rows}{RUN_SUFFIX}"));
        write_durably(&path, &bytes)?;
        self.runs.insert(start, Run { last, num_rows, files, path });
        self.running.rows_computed.fetch_add(num_rows, Ordering::Relaxed);
        Ok(())
    }

    /// Addresses and values of the live rows of a version, in order; each must have been staged.
    pub(crate) fn values(&self, dataset: &Arc<Dataset>) -> SendableRecordBatchStream {
        let column = self.column.clone().with_metadata([].into());
        let schema = Arc::new(Schema::new(vec![Field::new(ROW_ADDRESS, DataType::UInt64, false), column]));
        let mut files = Vec::new();
        for fragment in dataset.get_fragments() {
            let runs = self.runs.range(addresses_of(fragment.metadata().id));
            files.extend(runs.map(|(_, run)| Ok((Arc::clone(dataset), fragment.id(), run.path.clone()))));
        }
        let target = Arc::clone(&schema);
        let batches = futures::stream::iter(files)
            .and_then(move |(dataset, fragment, path)| live_values(dataset, fragment, path, Arc::clone(&target)));
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    /// Removes what was staged: the column is there.
    pub(crate) fn finish(self) -> Result<()> {
        remove(&self.directory).map_err(|source| Error::io(&self.directory, source))
    }
}

/// The values of a run whose rows are not deleted.
async fn live_values(dataset: Arc<Dataset>, fragment: usize, path: PathBuf, schema: SchemaRef) -> DataFusionResult<RecordBatch> {
    let external = |error: lance::Error| DataFusionError::External(Box::new(error));
    let missing = || DataFusionError::Execution(format!("fragment {fragment} is gone"));
    let deleted = dataset.get_fragment(fragment).ok_or_else(missing)?.get_deletion_vector().await.map_err(external)?;
    let file = FileReader::try_new(io::BufReader::new(fs::File::open(&path)?), None)?;
    let batches = file.collect::<Result<Vec<_>, _>>()?;
    let run = concat_batches(&batches.first().map_or_else(|| Arc::clone(&schema), RecordBatch::schema), &batches)?;
    let addresses = run.column(0).as_primitive::<UInt64Type>().values();
    let is_live = |address: &u64| deleted.as_ref().is_none_or(|deleted| !deleted.contains(*address as u32));
    let live: BooleanArray = addresses.iter().map(|address| Some(is_live(address))).collect();
    let live = filter_record_batch(&run, &live)?;
    Ok(RecordBatch::try_new(schema, live.columns().to_vec())?)
}

/// The rows of one version that have no value yet.
#[derive(Debug, Clone)]
pub struct RemainingRows {
    table: Table,
    fragments: Vec<Fragment>,
    /// First and last address of rows in these fragments that have one.
    staged: Vec<(u64, u64)>,
    num_rows: u64,
}

impl RemainingRows {
    #[must_use]
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Ranges of addresses, both ends inclusive, of rows that [`Self::provider`] gives though they have a value.
    #[must_use]
    pub fn staged(&self) -> &[(u64, u64)] {
        &self.staged
    }

    /// The table with [`ROW_ADDRESS`] as its last column, without the fragments that are done.
    #[must_use]
    pub fn provider(&self) -> Arc<dyn TableProvider> {
        let mut fields: Vec<Arc<Field>> = self.table.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ROW_ADDRESS, DataType::UInt64, true)));
        Arc::new(SomeFragments { rows: self.clone(), schema: Arc::new(Schema::new(fields)) })
    }
}

#[derive(Debug)]
struct SomeFragments {
    rows: RemainingRows,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for SomeFragments {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let table = &self.rows.table;
        let failed = |source| DataFusionError::from(Error::storage(table.name(), source));
        let address = self.schema.fields().len() - 1;
        let asked: Vec<usize> = projection.cloned().unwrap_or_else(|| (0..=address).collect());
        if asked.last() != Some(&address) {
            return Err(Error::NotSupported("rows to fill are read with their addresses, which come last".to_owned()).into());
        }
        let names: Vec<&str> =
            asked.iter().filter(|index| **index < address).map(|index| self.schema.field(*index).name().as_str()).collect();
        let mut scanner = table.dataset.scan();
        scanner.with_fragments(self.rows.fragments.clone()).scan_in_order(true).with_row_address();
        scanner.project(&names).map_err(failed)?;
        Ok(table.named_scan(scanner.create_plan().await.map_err(failed)?))
    }
}

/// Rows of one fragment that are not written yet.
#[derive(Debug, Default)]
struct PendingRun {
    batches: Vec<RecordBatch>,
    num_rows: usize,
    started: Option<Instant>,
}

impl PendingRun {
    fn fragment(&self) -> Option<u64> {
        self.batches.first().and_then(fragment_of_first)
    }

    fn push(&mut self, batch: RecordBatch) {
        self.num_rows += batch.num_rows();
        self.started.get_or_insert_with(Instant::now);
        self.batches.push(batch);
    }
}

fn fragment_of_first(batch: &RecordBatch) -> Option<u64> {
    batch.column(0).as_primitive::<UInt64Type>().values().first().map(|address| address >> 32)
}

/// Slices of a batch, each of rows of one fragment.
fn parts_by_fragment(batch: &RecordBatch) -> Vec<RecordBatch> {
    let addresses = batch.column(0).as_primitive::<UInt64Type>().values();
    let mut start = 0;
    let mut parts = Vec::new();
    for part in addresses.chunk_by(|a, b| a >> 32 == b >> 32) {
        parts.push(batch.slice(start, part.len()));
        start += part.len();
    }
    parts
}

fn addresses_of(fragment: u64) -> Range<u64> {
    fragment << 32..(fragment + 1) << 32
}

fn read_job(directory: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(directory.join(JOB)).ok()?).ok()
}

/// Jobs of a table: the columns with their folders.
fn jobs(table: &Path) -> Result<Vec<(String, PathBuf)>> {
    let folder = table.join(FOLDER);
    let failed = |source| Error::io(&folder, source);
    let mut found = Vec::new();
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if let Some(column) = entry.file_name().to_str().and_then(from_directory) {
            found.push((column, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// The runs in a folder. A file that can not be read is as good as none: its rows are computed again.
fn read_runs(directory: &Path) -> io::Result<BTreeMap<u64, Run>> {
    let mut runs = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(RUN_SUFFIX)) else { continue };
        let numbers: Vec<u64> = name.split('-').filter_map(|part| part.parse().ok()).collect();
        let ([start, last, num_rows], Some(files)) = (numbers.as_slice(), files_of(&path)) else { continue };
        runs.insert(*start, Run { last: *last, num_rows: *num_rows, files, path });
    }
    Ok(runs)
}

fn files_of(run: &Path) -> Option<Vec<String>> {
    let file = FileReader::try_new(io::BufReader::new(fs::File::open(run).ok()?), None).ok()?;
    serde_json::from_str(file.schema().metadata().get(FILES)?).ok()
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
