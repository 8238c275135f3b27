//! Runs: values of consecutive rows of one fragment, in a file each.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use lance::Dataset;
use serde_json::json;

use crate::dml::ROW_ADDRESS;
use crate::durability::write_durably;
use crate::{Error, Result};

const SUFFIX: &str = ".arrow";
/// Schema metadata of a run: the data files of its fragment.
const FILES: &str = "rollout.files";

/// Values that are kept.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) last: u64,
    pub(super) num_rows: u64,
    /// The data files of the fragment that they were computed from.
    pub(super) files: Vec<String>,
    pub(super) path: PathBuf,
}

/// Rows of one fragment that are not written yet.
#[derive(Debug, Default)]
pub(super) struct PendingRun {
    batches: Vec<RecordBatch>,
    pub(super) num_rows: usize,
    pub(super) started: Option<Instant>,
}

impl PendingRun {
    pub(super) fn fragment(&self) -> Option<u64> {
        self.batches.first().and_then(fragment_of_first)
    }

    pub(super) fn push(&mut self, batch: RecordBatch) {
        self.num_rows += batch.num_rows();
        self.started.get_or_insert_with(Instant::now);
        self.batches.push(batch);
    }

    /// Writes the rows into `directory`, as those from address `start` on.
    ///
    /// # Errors
    /// [`Error::NotNull`], [`Error::Damaged`] if the rows are not in order or begin before `start`, [`Error::Io`].
    pub(super) fn write(self, directory: &Path, table: &str, column: &Field, files: Vec<String>, start: u64) -> Result<Run> {
        let damaged = |reason: &str| Error::Damaged { table: table.to_owned(), reason: reason.to_owned() };
        let metadata = [(FILES.to_owned(), json!(files).to_string())].into();
        let schema = Arc::new(Schema::new_with_metadata(fields(column), metadata));
        let mut bytes = Vec::new();
        let mut writer = FileWriter::try_new(&mut bytes, &schema)?;
        let (mut first, mut last) = (None, 0);
        for batch in &self.batches {
            if batch.column(1).null_count() > 0 && !column.is_nullable() {
                return Err(Error::NotNull { table: table.to_owned(), column: column.name().clone() });
            }
            let addresses = batch.column(0).as_primitive::<UInt64Type>();
            for address in addresses.values() {
                if first.is_some() && last >= *address {
                    return Err(damaged("its rows were not read in order"));
                }
                first.get_or_insert(*address);
                last = *address;
            }
            let addresses = UInt64Array::new(addresses.values().clone(), None);
            writer.write(&RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(addresses), Arc::clone(batch.column(1))])?)?;
        }
        writer.finish()?;
        drop(writer);
        if first.is_none_or(|first| first < start) {
            return Err(damaged("rows were read that have a value already"));
        }
        let num_rows = self.num_rows as u64;
        let path = directory.join(format!("{start:020}-{last:020}-{num_rows}{SUFFIX}"));
        write_durably(&path, &bytes)?;
        Ok(Run { last, num_rows, files, path })
    }
}

/// Slices of a batch, each of rows of one fragment.
pub(super) fn parts_by_fragment(batch: &RecordBatch) -> Vec<RecordBatch> {
    let addresses = batch.column(0).as_primitive::<UInt64Type>().values();
    let mut start = 0;
    let mut parts = Vec::new();
    for part in addresses.chunk_by(|a, b| a >> 32 == b >> 32) {
        parts.push(batch.slice(start, part.len()));
        start += part.len();
    }
    parts
}

pub(super) fn fragment_of_first(batch: &RecordBatch) -> Option<u64> {
    batch.column(0).as_primitive::<UInt64Type>().values().first().map(|address| address >> 32)
}

/// Addresses, then values.
pub(super) fn fields(column: &Field) -> Vec<Field> {
    vec![Field::new(ROW_ADDRESS, DataType::UInt64, false), column.clone().with_metadata([].into())]
}

/// The runs in a folder by their first address. A file that can not be read is as good as none: its rows are computed again.
pub(super) fn read_runs(directory: &Path) -> io::Result<BTreeMap<u64, Run>> {
    let mut runs = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(SUFFIX)) else { continue };
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

/// The rows of a run that are not deleted.
pub(super) async fn live_values(dataset: Arc<Dataset>, fragment: usize, path: PathBuf, schema: SchemaRef) -> DataFusionResult<RecordBatch> {
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
