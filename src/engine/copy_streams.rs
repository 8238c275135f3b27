//! What COPY takes from a client and gives to it, as bytes: the engine knows no sockets.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use futures::FutureExt;
use futures::stream::BoxStream;
use rolloutdb_sql::CopyFrom;
use tokio::sync::mpsc;

use super::interruption::OverWhenDropped;
use super::session::Session;
use super::statement;
use super::task_history::Task;
use crate::error::{Error, Result};

/// Chunks on their way to the reader. With [`CHUNK_BYTES`] it bounds what a client that is faster than the table has in memory.
const CHUNKS_MAX: usize = 8;
/// Smaller messages are put together: a client may send one for each row.
const CHUNK_BYTES: usize = 128 << 10;

/// `COPY t FROM STDIN`, checked and ready to read.
pub struct CopyIn {
    session: Session,
    copy: CopyFrom,
    /// Of which it is the rest.
    task: Option<Arc<Task>>,
    /// The statement, which is over when this is.
    current: Option<OverWhenDropped>,
    /// Whether the bytes are of the binary format.
    pub is_binary: bool,
    pub num_columns: usize,
}

impl fmt::Debug for CopyIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyIn").field("copy", &self.copy).finish_non_exhaustive()
    }
}

impl CopyIn {
    pub(super) fn new(session: &Session, copy: &CopyFrom, is_binary: bool, num_columns: usize) -> Self {
        Self { session: session.clone(), copy: copy.clone(), task: None, current: None, is_binary, num_columns }
    }

    pub(super) fn of_task(self, task: &Arc<Task>) -> Self {
        Self { task: Some(Arc::clone(task)), ..self }
    }

    pub(super) fn of_statement(self, current: Option<OverWhenDropped>) -> Self {
        Self { current, ..self }
    }

    /// Reads what the other end of `input` sends, writes the rows in one commit, and gives the command tag, `COPY 3`.
    ///
    /// # Errors
    /// A line that does not fit, a row that the table refuses; then nothing is written. The bytes are read once, so a change of the table's columns
    /// meanwhile is an error too (40001). [`Error::StatementTimeout`], waiting for bytes counts.
    pub async fn run(self, input: CopyInput) -> Result<String> {
        let _ends_the_statement = self.current;
        let mut unfinished = Unfinished { session: self.session.clone(), has_ended: Arc::clone(&input.has_ended), is_done: false };
        let written = statement::copy_client::receive(&self.session, &self.copy, input).boxed();
        let result = self.session.timeouts().limited(written).await;
        unfinished.is_done = !matches!(result, Err(Error::StatementTimeout));
        match (&self.task, &result) {
            (Some(task), Ok(tag)) => task.done(tag),
            (Some(task), Err(error)) => task.failed(error),
            (None, _) => {}
        }
        self.session.end_copy(result.is_ok());
        result
    }
}

/// A COPY whose future is dropped: it was cancelled, or its time is over. Unless all bytes had come, it has not committed.
struct Unfinished {
    session: Session,
    has_ended: Arc<AtomicBool>,
    is_done: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if self.has_ended.load(Ordering::Acquire) {
            self.session.note_written();
        }
        self.session.fail_transaction();
    }
}

/// A way for bytes from a client to [`CopyIn::run`].
pub fn copy_channel() -> (CopySender, CopyInput) {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    let input = CopyInput { receiver, chunk: Bytes::new(), has_ended: Arc::default() };
    (CopySender { sender, pending: BytesMut::new() }, input)
}

enum Chunk {
    Data(Bytes),
    /// There is no more. Without it, the data is not whole.
    End,
}

/// The client's end. Dropped before [`Self::finish`], nothing is written.
pub struct CopySender {
    sender: mpsc::Sender<Chunk>,
    pending: BytesMut,
}

impl CopySender {
    /// Waits while the reader has enough to do. False: it takes no more, and [`CopyIn::run`] says why.
    pub async fn send(&mut self, data: Bytes) -> bool {
        if self.pending.is_empty() && data.len() >= CHUNK_BYTES {
            return self.sender.send(Chunk::Data(data)).await.is_ok();
        }
        self.pending.extend_from_slice(&data);
        self.pending.len() < CHUNK_BYTES || self.send_pending().await
    }

    /// All has been sent.
    pub async fn finish(mut self) -> bool {
        (self.pending.is_empty() || self.send_pending().await) && self.sender.send(Chunk::End).await.is_ok()
    }

    async fn send_pending(&mut self) -> bool {
        let pending = self.pending.split().freeze();
        self.sender.send(Chunk::Data(pending)).await.is_ok()
    }
}

/// The reader's end. It waits for bytes on the thread that reads, which must not be one of the asynchronous workers.
pub struct CopyInput {
    receiver: mpsc::Receiver<Chunk>,
    chunk: Bytes,
    has_ended: Arc<AtomicBool>,
}

impl fmt::Debug for CopyInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CopyInput")
    }
}

impl Read for CopyInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() && !self.has_ended.load(Ordering::Acquire) {
            match self.receiver.blocking_recv() {
                Some(Chunk::Data(data)) => self.chunk = data,
                Some(Chunk::End) => self.has_ended.store(true, Ordering::Release),
                None => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the client ended the COPY before its data was whole")),
            }
        }
        let count = self.chunk.len().min(buffer.len());
        self.chunk.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// `COPY t TO STDOUT`, running.
pub struct CopyOut {
    pub is_binary: bool,
    pub num_columns: usize,
    pub messages: BoxStream<'static, Result<CopyMessages>>,
}

/// Bytes for a client, a message for each row, as PostgreSQL sends them: clients take a message for a row.
#[derive(Debug, Default)]
pub struct CopyMessages {
    pub(super) bytes: Bytes,
    /// Where each message ends.
    pub(super) ends: Vec<usize>,
    /// A header is no row.
    pub num_rows: usize,
}

impl CopyMessages {
    pub fn iter(&self) -> impl Iterator<Item = Bytes> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(move |(start, end)| self.bytes.slice(start..*end))
    }
}
