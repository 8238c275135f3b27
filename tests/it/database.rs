//! A database in the process of the test: it is opened, statements run, and rows and files are looked at.

use std::path::Path;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use rolloutdb::{Database, DatabaseOptions, Result, Session};

use crate::files_below;

pub(crate) fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A database that may ask these hosts.
pub(crate) async fn open(data: &Path, hosts: &[String]) -> Result<Database> {
    let superuser = Some("someone".to_owned());
    Database::open_with(data, DatabaseOptions { allowed_hosts: hosts.to_vec(), superuser, ..DatabaseOptions::default() }).await
}

/// Runs statements to their end. The rows of the last one.
pub(crate) async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>> {
    Ok(session.sql(sql).await?.try_collect().await?)
}

/// The first value of the first row, a bigint.
pub(crate) async fn number(session: &Session, sql: &str) -> Result<i64> {
    let batches = run(session, sql).await?;
    let first = batches.iter().find(|batch| batch.num_rows() > 0).unwrap_or_else(|| panic!("{sql} gives no row"));
    Ok(first.column(0).as_primitive::<Int64Type>().value(0))
}

/// All values, row by row, as texts; NULL is empty.
pub(crate) async fn rows(session: &Session, sql: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for batch in run(session, sql).await? {
        for row in 0..batch.num_rows() {
            for column in batch.columns() {
                let formatter = ArrayFormatter::try_new(column, &FormatOptions::default()).expect("it can be shown");
                found.push(formatter.value(row).to_string());
            }
        }
    }
    Ok(found)
}

/// The files below a folder that have this text in them.
pub(crate) fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let has = |file: &Path| std::fs::read(file).expect("a file").windows(text.len()).any(|bytes| bytes == text.as_bytes());
    files_below(folder).into_iter().filter(|file| has(file)).map(|file| file.display().to_string()).collect()
}
