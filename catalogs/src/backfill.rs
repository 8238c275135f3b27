//! Filling a new column whose values cost much, a model call per row: what is computed is kept over cancels and kills.
//!
//! Values are staged in `_backfill/<column>` of the table, in Arrow files of some thousand rows of one fragment each with the addresses of the rows, and
//! one commit at the end adds the column. No row is ever changed in place, so a staged value holds for its address as long as the fragment has the
//! files that it had. Other statements may write while values are computed; the last rows are filled while they wait.

mod remaining;
mod run;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arrow::datatypes::{Field, Schema};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use lance::Dataset;
use lance_table::format::Fragment;
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

pub use remaining::RemainingRows;
use run::{PendingRun, Run, fields, fragment_of_first, live_values, parts_by_fragment, read_runs};

use crate::durability::{create_directory, write_durably};
use crate::leftovers::remove_temporaries;
use crate::names::{from_directory, to_directory};
use crate::{Error, Result, Table};

const FOLDER: &str = "_backfill";
const JOB: &str = "job.json";
/// A run is written when it has so many rows, or after so long: what a kill can cost.
const RUN_ROWS: usize = 4096;
const RUN_TIME: Duration = Duration::from_secs(5);

/// A column that is being filled; one per table at a time.
#[derive(Debug)]
pub struct Backfill {
    table: String,
    directory: PathBuf,
    column: Field,
    inputs: BTreeMap<String, i32>,
    /// By the address after the last row of the run before, so that the runs of a fragment have no gaps.
    runs: BTreeMap<u64, Run>,
    rows_found: u64,
    discarded: Option<String>,
    running: Arc<Running>,
    _alone: OwnedMutexGuard<()>,
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
    /// Takes up the back-fill of a column, or begins one. `inputs`: the columns that `expression` reads. What an earlier one computed of another
    /// expression, type or column is thrown away.
    ///
    /// # Errors
    /// [`Error::InUse`] while a column of the table is being filled, [`Error::UnknownTable`] when it was dropped, [`Error::Io`], [`Error::Storage`].
    pub async fn begin_backfill(&self, column: &Field, expression: &str, inputs: Vec<String>) -> Result<Backfill> {
        let running = || self.state.running_backfill.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = running().upgrade() {
            let (table, column) = (self.name(), &other.column);
            return Err(Error::InUse(format!("column \"{column}\" of table \"{table}\" is being filled; see rollout.backfills")));
        }
        // Else it is OPTIMIZE that has it, and soon ends.
        let alone = Arc::clone(&self.state.backfill).lock_owned().await;
        let directory = self.state.directory.join(FOLDER).join(to_directory("column", column.name())?);
        let failed = |source| Error::io(&directory, source);
        let inputs = self.latest().await?.field_ids(&inputs);
        let job = json!({ "column": column.name(), "type": column.data_type().to_string(), "expression": expression, "inputs": inputs });
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
        Ok(Backfill { table, directory, column: column.clone(), inputs, runs, rows_found, discarded, running: started, _alone: alone })
    }

    /// The numbers of columns: another column may get a name, but never a number.
    fn field_ids(&self, columns: impl IntoIterator<Item = impl AsRef<str>>) -> BTreeMap<String, i32> {
        let schema = self.dataset.schema();
        let known = columns.into_iter().filter_map(|name| Some((name.as_ref().to_owned(), schema.field(name.as_ref())?.id)));
        known.collect()
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
    /// Whether the columns that it reads are still those that it began with.
    #[must_use]
    pub fn reads_the_same_columns(&self, table: &Table) -> bool {
        table.field_ids(self.inputs.keys()) == self.inputs
    }

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
        let start = self.runs.range(addresses_of(id)).next_back().map_or(id << 32, |(_, run)| run.last + 1);
        let run = run.write(&self.directory, &self.table, &self.column, files, start)?;
        self.running.rows_computed.fetch_add(run.num_rows, Ordering::Relaxed);
        self.runs.insert(start, run);
        Ok(())
    }

    /// Addresses and values of the live rows of a version, in order; each must have been staged.
    pub(crate) fn values(&self, dataset: &Arc<Dataset>) -> SendableRecordBatchStream {
        let schema = Arc::new(Schema::new(fields(&self.column)));
        let mut files = Vec::new();
        for fragment in dataset.get_fragments() {
            let runs = self.runs.range(addresses_of(fragment.metadata().id));
            files.extend(runs.map(|(_, run)| Ok((Arc::clone(dataset), fragment.id(), run.path.clone()))));
        }
        let target = Arc::clone(&schema);
        let batches = futures::stream::iter(files)
            .and_then(move |(dataset, fragment, path)| live_values(dataset, fragment, path, Arc::clone(&target)))
            // Lance takes a batch without rows after the last one for a row too many.
            .try_filter(|batch| std::future::ready(batch.num_rows() > 0));
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    /// Removes what was staged: the column is there.
    pub(crate) fn finish(self) -> Result<()> {
        remove(&self.directory).map_err(|source| Error::io(&self.directory, source))
    }
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

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
