//! Builds of indexes while they run: notices to the client who waits for one, and rows of `pg_stat_progress_create_index` to everyone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use rolloutdb_catalogs::BuildProgress;

use super::progress::{Notices, Progress};
use super::session::CATALOG_NAME;
use crate::error::Result;

/// The view of schema `rollout` that lists them; `pg_catalog` shows it too.
pub const PROGRESS_VIEW: &str = "pg_stat_progress_create_index";

/// The builds of a database.
#[derive(Debug, Default)]
pub struct IndexBuilds(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    builds: BTreeMap<u64, Arc<IndexBuild>>,
    /// Of the next build.
    number: u64,
}

/// One build, and what it was last heard of.
#[derive(Debug)]
pub struct IndexBuild {
    schema: String,
    table: String,
    index: String,
    command: &'static str,
    started: Instant,
    notices: Notices,
    phase: Mutex<Phase>,
}

#[derive(Debug)]
struct Phase {
    name: String,
    unit: String,
    total: Option<u64>,
    done: u64,
    progress: Option<Progress>,
}

/// Takes the build from the list when it ends, however it does.
pub struct Listed {
    builds: Arc<IndexBuilds>,
    number: u64,
    pub progress: Arc<dyn BuildProgress>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.builds.running().builds.remove(&self.number);
    }
}

impl IndexBuilds {
    /// A build begins; it is listed until the result is dropped. `command`: as PostgreSQL calls it, `CREATE INDEX` or `REINDEX`.
    pub fn list(self: &Arc<Self>, notices: &Notices, command: &'static str, (schema, table, index): (&str, &str, &str)) -> Listed {
        let phase = Phase { name: "waiting for writers".to_owned(), unit: String::new(), total: None, done: 0, progress: None };
        let build = Arc::new(IndexBuild {
            schema: schema.to_owned(),
            table: table.to_owned(),
            index: index.to_owned(),
            command,
            started: Instant::now(),
            notices: notices.clone(),
            phase: Mutex::new(phase),
        });
        let mut running = self.running();
        let number = running.number;
        running.number += 1;
        running.builds.insert(number, Arc::clone(&build));
        Listed { builds: Arc::clone(self), number, progress: build }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// PostgreSQL's columns, as far as they mean something here. A phase counts units of its own (rows, partitions, files), which stand as blocks and
    /// as tuples, so that what clients divide gives the share that is done.
    /// Numbers of objects are filled in where `pg_catalog` shows it; there are no lockers and partitions: NULL.
    pub fn schema() -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, false);
        let number = |name: &str| Field::new(name, DataType::Int32, true);
        let count = |name: &str, is_known: bool| Field::new(name, DataType::Int64, !is_known);
        Arc::new(Schema::new(vec![
            number("pid"),
            number("datid"),
            text("datname"),
            number("relid"),
            number("index_relid"),
            text("schema_name"),
            text("table_name"),
            text("index_name"),
            text("command"),
            text("phase"),
            text("unit"),
            count("blocks_total", false),
            count("blocks_done", true),
            count("tuples_total", false),
            count("tuples_done", true),
            count("lockers_total", false),
            count("lockers_done", false),
            count("current_locker_pid", false),
            count("partitions_total", false),
            count("partitions_done", false),
            Field::new("seconds", DataType::Float64, false),
        ]))
    }

    /// A row for each build that runs.
    pub fn rows(&self) -> Result<RecordBatch> {
        let builds: Vec<Arc<IndexBuild>> = self.running().builds.values().cloned().collect();
        let text = |read: &dyn Fn(&IndexBuild) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(builds.iter().map(|build| read(build))))
        };
        let number = |read: &dyn Fn(&Phase) -> Option<u64>| -> ArrayRef {
            let value = |build: &Arc<IndexBuild>| read(&build.phase()).and_then(|value| i64::try_from(value).ok());
            Arc::new(builds.iter().map(value).collect::<Int64Array>())
        };
        let (total, done) = (number(&|phase| phase.total), number(&|phase| Some(phase.done)));
        let (no_number, no_count) = (new_null_array(&DataType::Int32, builds.len()), new_null_array(&DataType::Int64, builds.len()));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(builds.iter().map(|build| build.notices.pid()).collect::<Int32Array>()),
            Arc::clone(&no_number),
            text(&|_| CATALOG_NAME.to_owned()),
            Arc::clone(&no_number),
            no_number,
            text(&|build| build.schema.clone()),
            text(&|build| build.table.clone()),
            text(&|build| build.index.clone()),
            text(&|build| build.command.to_owned()),
            text(&|build| build.phase().name.clone()),
            text(&|build| build.phase().unit.clone()),
            Arc::clone(&total),
            Arc::clone(&done),
            total,
            done,
            Arc::clone(&no_count),
            Arc::clone(&no_count),
            Arc::clone(&no_count),
            Arc::clone(&no_count),
            no_count,
            Arc::new(Float64Array::from_iter_values(builds.iter().map(|build| build.started.elapsed().as_secs_f64()))),
        ];
        Ok(RecordBatch::try_new(Self::schema(), columns).map_err(DataFusionError::from)?)
    }
}

impl IndexBuild {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BuildProgress for IndexBuild {
    fn phase(&self, name: &str, total: Option<u64>, unit: &str) {
        let what = format!("index {}, {name}", self.index);
        let progress = Some(Progress::new(&self.notices, what, unit, total));
        *self.phase() = Phase { name: name.to_owned(), unit: unit.to_owned(), total, done: 0, progress };
    }

    fn done(&self, done: u64) {
        let mut phase = self.phase();
        phase.done = done;
        if let Some(progress) = &phase.progress {
            progress.update(done, "");
        }
    }
}
