//! Cursors: queries that are begun and read from in parts.
//!
//! What is kept is the stream and the rest of one batch, so a cursor has bounded memory; it reads the tables as they were when it was declared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::interruption::{OverWhenDropped, Wanted};
use super::session::Session;
use super::task_history::Task;
use crate::error::{Error, Result};

/// The cursors of one session, by name.
#[derive(Default)]
pub struct Cursors(BTreeMap<String, Cursor>);

/// Another one for each cursor of the process: a name may be declared again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CursorNumber(u64);

impl CursorNumber {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

struct Cursor {
    number: CursorNumber,
    statement: String,
    created: SystemTime,
    schema: SchemaRef,
    is_binary: bool,
    is_held: bool,
    /// Whether the transaction that declared it goes on.
    is_of_transaction: bool,
    rows: Arc<Mutex<CursorRows>>,
    /// The statement that declared it, which goes on as long as there are rows to fetch.
    running: Option<OverWhenDropped>,
}

/// What a cursor has still to give.
pub struct CursorRows {
    stream: SendableRecordBatchStream,
    /// Of the query.
    task: Option<Arc<Task>>,
    rest: Option<RecordBatch>,
    /// Rows that were given or passed over.
    position: u64,
    /// After an error there is nothing more.
    has_failed: bool,
}

/// A cursor, for `pg_cursors`.
#[derive(Debug, Clone)]
pub struct CursorInfo {
    pub name: String,
    /// That declared it.
    pub statement: String,
    pub is_held: bool,
    pub is_binary: bool,
    pub created: SystemTime,
}

/// A cursor as the protocol's portal of its name.
#[derive(Debug, Clone)]
pub struct CursorPortal {
    pub columns: SchemaRef,
    pub is_binary: bool,
}

/// How a cursor is declared.
#[derive(Debug, Clone, Copy)]
pub struct CursorOptions {
    pub is_binary: bool,
    pub is_held: bool,
    pub is_of_transaction: bool,
}

impl Cursors {
    /// # Errors
    /// [`Error::DuplicateCursor`].
    pub fn check_free(&self, name: &str) -> Result<()> {
        if self.0.contains_key(name) { Err(Error::DuplicateCursor(name.to_owned())) } else { Ok(()) }
    }

    /// By name.
    pub fn list(&self) -> Vec<CursorInfo> {
        let info = |(name, cursor): (&String, &Cursor)| CursorInfo {
            name: name.clone(),
            statement: cursor.statement.clone(),
            is_held: cursor.is_held,
            is_binary: cursor.is_binary,
            created: cursor.created,
        };
        self.0.iter().map(info).collect()
    }

    /// `statement`: the text that declared it.
    ///
    /// # Errors
    /// As [`Self::check_free`].
    pub fn add(&mut self, name: &str, statement: String, rows: CursorRows, options: CursorOptions) -> Result<()> {
        self.check_free(name)?;
        let CursorOptions { is_binary, is_held, is_of_transaction } = options;
        let schema = rows.stream.schema();
        let rows = Arc::new(Mutex::new(rows));
        let (number, created) = (CursorNumber::next(), SystemTime::now());
        let cursor = Cursor { number, statement, created, schema, is_binary, is_held, is_of_transaction, rows, running: None };
        self.0.insert(name.to_owned(), cursor);
        Ok(())
    }

    /// # Errors
    /// [`Error::UnknownCursor`].
    pub fn schema(&self, name: &str) -> Result<SchemaRef> {
        self.get(name).map(|cursor| Arc::clone(&cursor.schema))
    }

    pub fn is_binary(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|cursor| cursor.is_binary)
    }

    /// The rows, for one reader at a time.
    ///
    /// # Errors
    /// [`Error::UnknownCursor`]; [`Error::InUse`] while an earlier FETCH is not read to its end.
    pub fn rows(&self, name: &str) -> Result<OwnedMutexGuard<CursorRows>> {
        let cursor = self.get(name)?;
        Arc::clone(&cursor.rows)
            .try_lock_owned()
            .map_err(|_| Error::InUse(format!("cursor \"{name}\" is read by a FETCH that has not ended; read its rows first")))
    }

    /// The statement that has declared the cursor is not over before the cursor is.
    pub fn keep_running(&mut self, name: &str, statement: OverWhenDropped) {
        if let Some(cursor) = self.0.get_mut(name) {
            cursor.running = Some(statement);
        }
    }

    /// Whether the rows of the cursor are still wanted; `None`: there is no such cursor.
    pub fn wanted(&self, name: &str) -> Option<Wanted> {
        self.0.get(name)?.running.as_ref().map(OverWhenDropped::wanted)
    }

    fn get(&self, name: &str) -> Result<&Cursor> {
        self.0.get(name).ok_or_else(|| Error::UnknownCursor(name.to_owned()))
    }

    /// # Errors
    /// [`Error::UnknownCursor`].
    pub fn close(&mut self, name: &str) -> Result<()> {
        self.0.remove(name).map(drop).ok_or_else(|| Error::UnknownCursor(name.to_owned()))
    }

    pub fn close_all(&mut self) {
        self.0.clear();
    }

    /// Those that are declared now.
    pub fn numbers(&self) -> BTreeSet<CursorNumber> {
        self.0.values().map(|cursor| cursor.number).collect()
    }

    /// Closes those that were declared later.
    pub fn keep_only(&mut self, numbers: &BTreeSet<CursorNumber>) {
        self.0.retain(|_, cursor| numbers.contains(&cursor.number));
    }

    /// Only those WITH HOLD outlive their transaction, and those of one that is rolled back do not.
    pub fn end_transaction(&mut self, is_committed: bool) {
        self.0.retain(|_, cursor| !cursor.is_of_transaction || (cursor.is_held && is_committed));
        self.0.values_mut().for_each(|cursor| cursor.is_of_transaction = false);
    }
}

/// For the server, whose clients ask for the rows of cursors by messages too.
impl Session {
    /// `None`: there is no cursor of this name.
    pub fn cursor(&self, name: &str) -> Option<CursorPortal> {
        let cursors = self.cursors();
        let cursor = cursors.get(name).ok()?;
        Some(CursorPortal { columns: Arc::clone(&cursor.schema), is_binary: cursor.is_binary })
    }

    /// Does nothing if there is no cursor of this name, as the protocol wants it.
    pub fn close_cursor(&self, name: &str) {
        // Only CLOSE finds fault with a name that is not there.
        let _ = self.cursors().close(name);
    }
}

impl CursorRows {
    /// The rows of a query, which `task` counts.
    pub fn new(rows: SendableRecordBatchStream, task: Option<Arc<Task>>) -> Self {
        let stream = match &task {
            Some(task) => task.watch_rows(rows),
            None => rows,
        };
        Self { stream, task, rest: None, position: 0, has_failed: false }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Up to `limit` rows, at least one; `None` at the end.
    ///
    /// # Errors
    /// Of the query.
    pub async fn next(&mut self, limit: u64) -> Result<Option<RecordBatch>> {
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => loop {
                match self.next_batch().await {
                    None => return Ok(None),
                    Some(Ok(batch)) if batch.num_rows() == 0 => {}
                    Some(Ok(batch)) => break batch,
                    Some(Err(error)) => {
                        self.has_failed = true;
                        return Err(error.into());
                    }
                }
            },
        };
        let count = usize::try_from(limit).unwrap_or(usize::MAX).min(batch.num_rows());
        if count < batch.num_rows() {
            self.rest = Some(batch.slice(count, batch.num_rows() - count));
        }
        self.position += count as u64;
        Ok(Some(batch.slice(0, count)))
    }

    async fn next_batch(&mut self) -> Option<DataFusionResult<RecordBatch>> {
        if self.has_failed {
            return None;
        }
        let _waiting = Waiting(self.task.as_deref());
        self.stream.next().await
    }

    /// Passes over up to `limit` rows and gives their number.
    ///
    /// # Errors
    /// Of the query.
    pub async fn skip(&mut self, limit: u64) -> Result<u64> {
        let mut count = 0;
        while count < limit {
            match self.next(limit - count).await? {
                Some(batch) => count += batch.num_rows() as u64,
                None => break,
            }
        }
        Ok(count)
    }
}

/// A FETCH that waits for rows, or is dropped while it does; the query rests then.
struct Waiting<'a>(Option<&'a Task>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.0 {
            task.rest();
        }
    }
}
