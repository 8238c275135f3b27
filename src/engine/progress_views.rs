//! `pg_stat_progress_*`: what the statements of the listed sessions have done so far. Builds of indexes have a list of their own (`index_builds.rs`).

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;

use super::activity::Activity;
use super::progress::{Record, Work};
use super::session::CATALOG_NAME;
use crate::error::Result;

/// A view: its name, its columns, and which work it shows.
pub struct ProgressView {
    pub name: &'static str,
    columns: &'static [(&'static str, Kind)],
    shows: fn(&Work) -> bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Integer,
    Bigint,
    Double,
}

use Kind::{Bigint, Double, Integer, Text};

/// The first is PostgreSQL's, with the table's names beside; the others are ours.
pub static PROGRESS_VIEWS: [ProgressView; 5] = [
    ProgressView {
        name: "pg_stat_progress_copy",
        columns: &[
            ("pid", Integer),
            ("datid", Integer),
            ("datname", Text),
            ("relid", Integer),
            ("command", Text),
            ("type", Text),
            ("bytes_processed", Bigint),
            ("bytes_total", Bigint),
            ("tuples_processed", Bigint),
            ("tuples_excluded", Bigint),
            ("schema_name", Text),
            ("table_name", Text),
            ("seconds", Double),
        ],
        shows: |work| matches!(work, Work::Copy { .. }),
    },
    ProgressView {
        name: "pg_stat_progress_rollout",
        columns: &[
            ("pid", Integer),
            ("datname", Text),
            ("schema_name", Text),
            ("table_name", Text),
            ("agent", Text),
            ("questions_total", Bigint),
            ("questions_done", Bigint),
            ("simulations_done", Bigint),
            ("detail", Text),
            ("per_second", Double),
            ("simulations_per_second", Double),
            ("tokens_per_second", Double),
            ("cache_hit_rate", Double),
            ("retrievals", Bigint),
            ("retrieval_hit_rate", Double),
            ("seconds", Double),
            ("seconds_left", Double),
        ],
        shows: |work| matches!(work, Work::Rollout { .. }),
    },
    ProgressView {
        name: "pg_stat_progress_train",
        columns: &[
            ("pid", Integer),
            ("datname", Text),
            ("model", Text),
            ("method", Text),
            ("phase", Text),
            ("unit", Text),
            ("units_total", Bigint),
            ("units_done", Bigint),
            ("detail", Text),
            ("per_second", Double),
            ("seconds", Double),
            ("seconds_left", Double),
        ],
        shows: |work| matches!(work, Work::Train { .. }),
    },
    ProgressView {
        name: "pg_stat_progress_embed",
        columns: &[
            ("pid", Integer),
            ("datname", Text),
            ("schema_name", Text),
            ("table_name", Text),
            ("column_name", Text),
            ("rows_total", Bigint),
            ("rows_done", Bigint),
            ("per_second", Double),
            ("seconds", Double),
            ("seconds_left", Double),
        ],
        shows: |work| matches!(work, Work::Embed { .. }),
    },
    ProgressView {
        name: "pg_stat_progress_download",
        columns: &[
            ("pid", Integer),
            ("datname", Text),
            ("model", Text),
            ("source", Text),
            ("bytes_total", Bigint),
            ("bytes_done", Bigint),
            ("bytes_per_second", Double),
            ("seconds", Double),
            ("seconds_left", Double),
        ],
        shows: |work| matches!(work, Work::Download { .. }),
    },
];

impl ProgressView {
    pub fn schema(&self) -> SchemaRef {
        let field = |(name, kind): &(&str, Kind)| Field::new(*name, kind.data_type(), true);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// A row for each statement that does such work now.
    pub fn rows(&self, activity: &Activity) -> Result<RecordBatch> {
        let sessions = activity.sessions();
        let of_session = |session: &Arc<super::activity::SessionActivity>| {
            let pid = session.pid();
            session.progress().into_iter().map(move |record| (pid, record)).collect::<Vec<_>>()
        };
        let records: Vec<(i32, Arc<Record>)> =
            sessions.iter().flat_map(of_session).filter(|(_, record)| (self.shows)(&record.work)).collect();
        let columns = self.columns.iter().map(|(name, kind)| column(name, *kind, &records)).collect();
        Ok(RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?)
    }
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Text => DataType::Utf8,
            Integer => DataType::Int32,
            Bigint => DataType::Int64,
            Double => DataType::Float64,
        }
    }
}

fn column(name: &str, kind: Kind, records: &[(i32, Arc<Record>)]) -> ArrayRef {
    let records_only = records.iter().map(|(_, record)| record.as_ref());
    match kind {
        Text => Arc::new(records_only.map(|record| text(name, record)).collect::<StringArray>()),
        Bigint => {
            Arc::new(records_only.map(|record| count(name, record).and_then(|count| i64::try_from(count).ok())).collect::<Int64Array>())
        }
        Double => Arc::new(records_only.map(|record| measure(name, record)).collect::<Float64Array>()),
        Integer if name == "pid" => Arc::new(Int32Array::from_iter_values(records.iter().map(|(pid, _)| *pid))),
        // Numbers of objects are filled in where `pg_catalog` shows the view.
        Integer => new_null_array(&DataType::Int32, records.len()),
    }
}

fn text(name: &str, record: &Record) -> Option<String> {
    let table = |table: &(String, String)| match name {
        "schema_name" => Some(table.0.clone()),
        "table_name" => Some(table.1.clone()),
        _ => None,
    };
    match (name, &record.work) {
        ("datname", _) => Some(CATALOG_NAME.to_owned()),
        ("detail", _) => Some(record.detail()),
        ("unit", _) => Some(record.unit.clone()),
        ("command", Work::Copy { command, .. }) => Some((*command).to_owned()),
        ("type", Work::Copy { source, .. }) => Some((*source).to_owned()),
        ("agent", Work::Rollout { agent, .. }) => Some(agent.clone()),
        ("model", Work::Train { model, .. } | Work::Download { model, .. }) => Some(model.clone()),
        ("source", Work::Download { source, .. }) => Some(source.clone()),
        ("method", Work::Train { method, .. }) => Some(method.clone()),
        ("phase", Work::Train { phase, .. }) => Some((*phase).to_owned()),
        ("column_name", Work::Embed { column, .. }) => Some(column.clone()),
        (_, Work::Copy { table: Some(copied), .. }) => table(copied),
        (_, Work::Rollout { table: written, .. } | Work::Embed { table: written, .. }) => table(written),
        _ => None,
    }
}

fn count(name: &str, record: &Record) -> Option<u64> {
    match (name, &record.work) {
        ("bytes_total", Work::Copy { bytes_total, .. }) => *bytes_total,
        ("bytes_processed", Work::Copy { position, .. }) => position.as_ref().map(|position| position.bytes()),
        ("tuples_excluded", _) => Some(0),
        ("simulations_done", Work::Rollout { counters, .. }) => Some(counters.counts().simulations),
        ("retrievals", Work::Rollout { counters, .. }) => Some(counters.counts().retrievals),
        (name, _) if name.ends_with("_total") => record.total,
        _ => Some(record.done()),
    }
}

fn measure(name: &str, record: &Record) -> Option<f64> {
    let in_a_second = |count: u64| Some(count as f64 / record.seconds().max(1e-9));
    match (name, &record.work) {
        ("seconds_left", _) => record.seconds_left(),
        ("per_second" | "bytes_per_second", _) => Some(record.rate()),
        ("simulations_per_second", Work::Rollout { counters, .. }) => in_a_second(counters.counts().simulations),
        ("tokens_per_second", Work::Rollout { counters, .. }) => in_a_second(counters.counts().generated_tokens),
        ("cache_hit_rate", Work::Rollout { counters, .. }) => counters.counts().cache_hit_rate(),
        ("retrieval_hit_rate", Work::Rollout { counters, .. }) => counters.counts().retrieval_hit_rate(),
        _ => Some(record.seconds()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Float64Type, Int64Type};

    use super::*;
    use crate::engine::progress::{CopyPosition, Notices, Progress};

    #[test]
    fn work_is_shown_while_it_lasts() {
        let activity = Arc::new(Activity::default());
        let session = activity.session();
        session.list("ann", None, "client backend");
        let notices = Notices::of_session(&session);
        let counters = Arc::new(crate::agent::SearchCounters::default());
        let work = Work::Rollout {
            table: ("public".to_owned(), "run1".to_owned()),
            agent: "qa".to_owned(),
            simulations_per_question: 10,
            counters: Arc::clone(&counters),
        };
        let progress = Progress::of(&notices, work, "GENERATE ROLLOUTS", "questions", Some(40));
        progress.update(0, "");
        for (tally, count) in [(&counters.simulations, 5), (&counters.prompt_tokens, 100), (&counters.cached_tokens, 75)] {
            tally.store(count, std::sync::atomic::Ordering::Relaxed);
        }
        [false, true, true, true].into_iter().for_each(|is_known| counters.retrievals.add(is_known));
        let view = PROGRESS_VIEWS.iter().find(|view| view.name == "pg_stat_progress_rollout").expect("it is a view");
        let rows = view.rows(&activity).expect("rows");
        let measure = |name: &str| rows.column_by_name(name).expect(name).as_primitive::<Float64Type>().value(0);
        // Five of 400 simulations are done, and no question: 79 times as long is left.
        assert!(measure("seconds_left") >= 78.9 * measure("seconds"));
        assert!(measure("simulations_per_second") > 0.0 && measure("per_second") == 0.0);
        assert_eq!((measure("cache_hit_rate"), measure("tokens_per_second")), (0.75, 0.0));
        assert_eq!(measure("retrieval_hit_rate"), 0.75);
        progress.update(7, "12 nodes");
        let rows = view.rows(&activity).expect("rows");
        let number = |name: &str| rows.column_by_name(name).expect(name).as_primitive::<Int64Type>().value(0);
        assert_eq!((rows.num_rows(), number("questions_total"), number("questions_done"), number("simulations_done")), (1, 40, 7, 5));
        assert_eq!(number("retrievals"), 4);
        assert_eq!(rows.column_by_name("table_name").expect("it").as_string::<i32>().value(0), "run1");
        let mut others = PROGRESS_VIEWS.iter().filter(|other| other.name != view.name);
        assert!(others.all(|other| other.rows(&activity).expect("rows").num_rows() == 0));
        drop(progress);
        assert_eq!(view.rows(&activity).expect("rows").num_rows(), 0);
    }

    #[test]
    fn rows_that_are_copied_and_embedded_are_in_both_views() {
        let activity = Arc::new(Activity::default());
        let session = activity.session();
        session.list("ann", None, "client backend");
        let position = Arc::<CopyPosition>::default();
        let table = ("public".to_owned(), "wiki".to_owned());
        let position_read = Some(Arc::clone(&position));
        let work = Work::Copy {
            command: "COPY FROM",
            source: "FILE",
            table: Some(table.clone()),
            bytes_total: Some(900),
            position: position_read,
        };
        let progress = Progress::of(&Notices::of_session(&session), work, "COPY wiki", "rows", None);
        let progress = progress.also(Work::Embed { table, column: "e".to_owned() });
        position.reach(300, 7);
        progress.update(5, "");
        let number = |view: &str, column: &str| {
            let view = PROGRESS_VIEWS.iter().find(|known| known.name == view).expect("it is a view");
            let rows = view.rows(&activity).expect("rows");
            (rows.num_rows() == 1).then(|| rows.column_by_name(column).expect(column).as_primitive::<Int64Type>().value(0))
        };
        let copied = ["bytes_processed", "bytes_total", "tuples_processed"].map(|column| number("pg_stat_progress_copy", column));
        assert_eq!(copied, [Some(300), Some(900), Some(5)]);
        assert_eq!(number("pg_stat_progress_embed", "rows_done"), Some(5));
        drop(progress);
        assert_eq!(number("pg_stat_progress_copy", "bytes_total"), None);
        assert_eq!(number("pg_stat_progress_embed", "rows_done"), None);
    }
}
