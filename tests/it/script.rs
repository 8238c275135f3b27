//! Runs `tests/slt/**/*.slt`, each in a fresh database, in this process.
//!
//! `UPDATE_SLT=1 cargo test script` rewrites the expected rows; then read the diff as a reviewer.

use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use futures::TryStreamExt;
use rolloutdb::engine::Response;
use rolloutdb::server::sqlstate;
use rolloutdb::{Database, DatabaseOptions, Session};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};

use crate::{files_below, project};

/// One script's database.
struct Script {
    session: Session,
    _database: Database,
}

/// A failed statement, as scripts match it: `(42704) unknown model ...`.
#[derive(Debug)]
struct Failure(rolloutdb::Error);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({}) {}", sqlstate::sqlstate(&self.0), sqlstate::message(&self.0))
    }
}

impl std::error::Error for Failure {}

impl From<rolloutdb::Error> for Failure {
    fn from(error: rolloutdb::Error) -> Self {
        Self(error)
    }
}

#[async_trait]
impl AsyncDB for Script {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failure> {
        let mut output = DBOutput::StatementComplete(0);
        for statement in self.session.parse(sql)? {
            output = match self.session.execute(&statement, vec![]).await? {
                Response::Done { tag } => DBOutput::StatementComplete(rows_in_tag(&tag)),
                Response::CopyIn(_) | Response::CopyOut(_) => {
                    return Err(rolloutdb::Error::NotSupported("a script has no client for COPY".to_owned()).into());
                }
                Response::Rows { stream, .. } => {
                    let types = stream.schema().fields().iter().map(|field| column_type(field.data_type())).collect();
                    let batches: Vec<RecordBatch> = stream.try_collect().await.map_err(rolloutdb::Error::from)?;
                    DBOutput::Rows { types, rows: batches.iter().flat_map(rows).collect() }
                }
            };
        }
        Ok(output)
    }

    async fn shutdown(&mut self) {}

    fn error_sql_state(failure: &Failure) -> Option<String> {
        Some(sqlstate::sqlstate(&failure.0).to_owned())
    }
}

fn rows_in_tag(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn column_type(data_type: &DataType) -> DefaultColumnType {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::UInt32 | DataType::UInt64 => {
            DefaultColumnType::Integer
        }
        DataType::Float32 | DataType::Float64 => DefaultColumnType::FloatingPoint,
        _ => DefaultColumnType::Text,
    }
}

fn rows(batch: &RecordBatch) -> Vec<Vec<String>> {
    (0..batch.num_rows()).map(|row| batch.columns().iter().map(|column| value(column, row)).collect()).collect()
}

/// Floats with at most six significant decimals, NULL by name, an empty text as `(empty)`.
fn value(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".to_owned();
    }
    match column.data_type() {
        DataType::Float64 => float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => float(f64::from(column.as_primitive::<Float32Type>().value(row))),
        _ => {
            let options = FormatOptions::default().with_null("NULL");
            let formatter = ArrayFormatter::try_new(column, &options).expect("every type of the engine can be shown");
            let text = formatter.value(row).to_string();
            if text.is_empty() { "(empty)".to_owned() } else { text.replace('\n', "\\n") }
        }
    }
}

fn float(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    format!("{rounded}")
}

#[test]
fn every_script_passes() {
    let root = project().join("tests/slt");
    let mut found = files_below(&root);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "slt"));
    assert!(found.len() >= 10, "only {} scripts in {}", found.len(), root.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(16 << 20).build().expect("a runtime starts");
    let only = std::env::var("SLT").unwrap_or_default();
    let mut failures = Vec::new();
    for script in found.iter().filter(|script| script.to_string_lossy().contains(&only)) {
        println!("{}", script.strip_prefix(&root).unwrap_or(script).display());
        if let Err(failure) = runtime.block_on(run(script)) {
            println!("{failure}");
            failures.push(failure);
        }
    }
    assert!(failures.is_empty(), "{} scripts failed:\n{}", failures.len(), failures.join("\n"));
}

async fn run(script: &Path) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let files = tempfile::tempdir().map_err(|error| error.to_string())?;
    // The same whoever runs the scripts.
    let options = DatabaseOptions { superuser: Some("postgres".to_owned()), ..DatabaseOptions::default() };
    let database = Database::open_with(directory.path(), options).await.map_err(|error| error.to_string())?;
    let connect = || {
        let database = database.clone();
        async move { Ok(Script { session: database.session(), _database: database }) }
    };
    let mut runner = sqllogictest::Runner::new(connect);
    // Scripts write files under $FILES and read goldens under $FIXTURES.
    runner.set_var("FILES".to_owned(), files.path().display().to_string());
    runner.set_var("FIXTURES".to_owned(), project().join("tests/fixtures").display().to_string());
    if std::env::var("UPDATE_SLT").is_ok_and(|value| value == "1") {
        let updated = runner
            .update_test_file(
                script,
                " ",
                sqllogictest::default_validator,
                sqllogictest::default_normalizer,
                sqllogictest::default_column_validator,
            )
            .await;
        return updated.map_err(|error| error.to_string());
    }
    runner.run_file_async(script).await.map_err(|error| error.display(false).to_string())
}
