//! COPY through the client: bytes that it sends go to the engine while they come, rows that it gets are messages of their own.
//!
//! While a client sends, it is not asked for statements: its messages are read here, and whatever ends the COPY is told at once. After an error
//! what it still sends is passed over, as in PostgreSQL.

use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

use futures::{SinkExt, TryStreamExt};
use pgwire::api::query::send_ready_for_query;
use pgwire::api::{ClientInfo, ClientPortalStore, PgWireConnectionState};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::copy::{CopyData, CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::response::CommandComplete;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::process_error;
use rolloutdb_sql::Statement;

use super::connection::{Connection, Socket};
use super::messages::{DATA_BYTES_MAX, Frame, next_frame};
use super::response::{client_error, notice_message, wire_error};
use super::running::{Outbox, Running};
use super::workers::Workers;
use crate::engine::{CopyIn, CopyOut, copy_channel};

/// A COPY FROM STDIN that waits for its bytes.
pub(super) struct PendingCopy {
    pub(super) copy: CopyIn,
    pub(super) then: Then,
}

/// What follows the COPY.
pub(super) enum Then {
    /// The statements after it in the text of a simple query, and then the end of the query.
    Statements(Vec<Statement>),
    /// The client's next message: it asks by Sync for the end.
    Messages,
}

/// The COPY that the connection's client is to send bytes for.
#[derive(Default)]
pub(super) struct Pending(Mutex<Option<PendingCopy>>);

impl Pending {
    pub(super) fn is_some(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn set(&self, pending: PendingCopy) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
    }

    fn take(&self) -> Option<PendingCopy> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Connection {
    /// Asks the client for bytes; [`Self::take_copies`] reads them.
    pub(super) async fn begin_copy_in<O: Outbox>(&self, running: &mut Running<'_, O>, copy: CopyIn, then: Then) -> PgWireResult<()> {
        let (format, columns, formats) = column_formats(copy.is_binary, copy.num_columns)?;
        let response = CopyInResponse::new(format, columns, formats);
        running.client.put(PgWireBackendMessage::CopyInResponse(response)).await?;
        running.client.push().await?;
        self.copies.set(PendingCopy { copy, then });
        Ok(())
    }

    /// Sends what COPY TO STDOUT gives, and its command tag.
    pub(super) async fn send_copy<O: Outbox>(&self, running: &mut Running<'_, O>, mut copy: CopyOut) -> PgWireResult<()> {
        let (format, columns, formats) = column_formats(copy.is_binary, copy.num_columns)?;
        running.client.put(PgWireBackendMessage::CopyOutResponse(CopyOutResponse::new(format, columns, formats))).await?;
        let mut num_rows = 0;
        while let Some(messages) = running.wait(copy.messages.try_next()).await?.map_err(wire_error)? {
            num_rows += messages.num_rows;
            for message in messages.iter() {
                running.client.put(PgWireBackendMessage::CopyData(CopyData::new(message))).await?;
            }
            running.client.push().await?;
        }
        running.client.put(PgWireBackendMessage::CopyDone(CopyDone::new())).await?;
        running.client.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(format!("COPY {num_rows}")))).await
    }

    /// Reads the bytes of each COPY that the last message has begun, runs what follows it, and ends the query.
    pub(super) async fn take_copies(&self, socket: &mut Socket) -> std::io::Result<()> {
        while let Some(PendingCopy { copy, then }) = self.copies.take() {
            let is_extended = matches!(then, Then::Messages);
            let outcome = self.uninterrupted(self.copy_and_go_on(socket, copy, then)).await;
            socket.set_transaction_status(self.wire_status());
            self.stored_names.release(&self.session, socket.portal_store());
            match outcome {
                Err(error) => {
                    // What a later statement of the text has begun ends with the error too.
                    drop(self.copies.take());
                    return process_error(socket, error, is_extended).await;
                }
                Ok(()) if self.copies.is_some() => {}
                Ok(()) => {
                    socket.set_state(PgWireConnectionState::ReadyForQuery);
                    if !is_extended {
                        send_ready_for_query(socket, self.wire_status()).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn copy_and_go_on(&self, socket: &mut Socket, copy: CopyIn, then: Then) -> PgWireResult<()> {
        let mut running = self.running(socket).await;
        let tag = receive(&mut running, &self.workers, copy).await?;
        running.client.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag))).await?;
        match then {
            Then::Statements(statements) => self.run_statements(&mut running, statements).await,
            Then::Messages => running.client.push().await,
        }
    }
}

/// Passes on what the client sends until it has sent all, and gives the command tag.
async fn receive(running: &mut Running<'_, Socket>, workers: &Workers, copy: CopyIn) -> PgWireResult<String> {
    let (mut sender, input) = copy_channel();
    // A task of its own: rows are written while bytes come.
    let mut written = workers.spawn(copy.run(input));
    loop {
        tokio::select! {
            biased;
            // Before the end of the bytes only an error ends it.
            outcome = &mut written => return outcome.map_err(wire_error),
            Some(notice) = running.notices.recv() => running.client.send(notice_message(notice)).await?,
            frame = next_frame(running.client, DATA_BYTES_MAX) => match frame?.map(Frame::decode).transpose()? {
                Some(PgWireFrontendMessage::CopyData(message)) => {
                    // If it takes no more, the next turn says why.
                    sender.send(message.data).await;
                }
                Some(PgWireFrontendMessage::CopyDone(_)) => break,
                Some(PgWireFrontendMessage::CopyFail(message)) => {
                    drop(sender);
                    // It ends with an error, having written nothing.
                    let _ = written.await;
                    return Err(client_error("57014", format!("COPY from stdin failed: {}", message.message)));
                }
                // A client of the extended protocol may send them with the statement.
                Some(PgWireFrontendMessage::Sync(_) | PgWireFrontendMessage::Flush(_)) => {}
                Some(PgWireFrontendMessage::Terminate(_)) | None => {
                    drop(sender);
                    let _ = written.await;
                    return Err(PgWireError::IoError(ErrorKind::ConnectionAborted.into()));
                }
                Some(_) => {
                    drop(sender);
                    let _ = written.await;
                    return Err(client_error("08P01", "unexpected message during COPY from stdin; send CopyDone or CopyFail first".to_string()));
                }
            },
        }
    }
    sender.finish().await;
    running.wait(&mut written).await?.map_err(wire_error)
}

/// Of the whole and of each column, as the responses tell them.
fn column_formats(is_binary: bool, num_columns: usize) -> PgWireResult<(i8, i16, Vec<i16>)> {
    let columns = i16::try_from(num_columns).map_err(|_| client_error("54011", format!("COPY has at most {} columns", i16::MAX)))?;
    Ok((i8::from(is_binary), columns, vec![i16::from(is_binary); num_columns]))
}
