//! The simple query protocol: one text, any number of statements, each with its own response.

use std::fmt::Debug;
use std::time::Instant;

use async_trait::async_trait;
use futures::Sink;
use pgwire::api::portal::Format;
use pgwire::api::query::{SimpleQueryHandler, send_ready_for_query};
use pgwire::api::results::Response as WireResponse;
use pgwire::api::store::PortalStore;
use pgwire::api::{ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::RowDescription;
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse};
use pgwire::messages::simplequery::Query;
use rolloutdb_sql::Statement;

use super::connection::Connection;
use super::copy::Then;
use super::response::{parse_error, wire_error};
use super::rows::{WireRows, completion_tag};
use super::running::{Outbox, Running, Sent};
use crate::engine::{BRIEF, CopyIn, Response, Session, shown_texts};
use crate::error::Result;

#[async_trait]
impl SimpleQueryHandler for Connection {
    /// Runs the statements of a text one after the other; the first error ends it and what came before it stays.
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        client.set_state(PgWireConnectionState::QueryInProgress);
        // A simple query also ends the unnamed portal, as in Postgres.
        client.portal_store().rm_portal(DEFAULT_NAME);
        let outcome = self.uninterrupted(self.run_text(client, &query.query)).await;
        client.set_transaction_status(self.wire_status());
        self.stored_names.release(&self.session, client.portal_store());
        outcome?;
        // What follows a COPY FROM STDIN comes after the client's bytes.
        if self.copies.is_some() {
            return Ok(());
        }
        client.set_state(PgWireConnectionState::ReadyForQuery);
        send_ready_for_query(client, self.wire_status()).await
    }

    /// Never called: [`Self::on_query`] streams, which a list of finished responses cannot.
    async fn do_query<C>(&self, _client: &mut C, _query: &str) -> PgWireResult<Vec<WireResponse>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Ok(Vec::new())
    }
}

impl Connection {
    async fn run_text(&self, client: &mut impl Outbox, text: &str) -> PgWireResult<()> {
        let (session, owned) = (self.session.clone(), text.to_owned());
        let mut running = self.running(client).await;
        let statements = running.wait(self.workers.spawn(async move { parse(&session, &owned) })).await??;
        if statements.is_empty() {
            return running.client.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new())).await;
        }
        self.session.activity().begin_statement(shown_texts(&statements, text));
        self.run_statements(&mut running, statements).await
    }

    /// Runs statements up to the first COPY FROM STDIN, which the others wait for.
    pub(super) async fn run_statements<O: Outbox>(&self, running: &mut Running<'_, O>, statements: Vec<Statement>) -> PgWireResult<()> {
        let mut statements = statements.into_iter();
        while let Some(statement) = statements.next() {
            if let Some(copy) = self.run_statement(running, &statement).await? {
                return self.begin_copy_in(running, copy, Then::Statements(statements.collect())).await;
            }
        }
        Ok(())
    }

    /// Gives a COPY FROM STDIN back, whose bytes are to come.
    async fn run_statement<O: Outbox>(&self, running: &mut Running<'_, O>, statement: &Statement) -> PgWireResult<Option<CopyIn>> {
        let (session, owned) = (self.session.clone(), statement.clone());
        let response = self.execute(running, async move { session.execute(&owned, Vec::new()).await }).await?;
        let tag = match response {
            Response::Done { tag } => tag,
            Response::CopyIn(copy) => return Ok(Some(copy)),
            Response::CopyOut(copy) => return self.send_copy(running, copy).await.map(|()| None),
            Response::Rows { stream, tag } => {
                let format = if self.session.fetches_binary(statement) { Format::UnifiedBinary } else { Format::UnifiedText };
                let mut rows = WireRows::new(stream, None, &format, &self.session.memory_pool())?;
                let description = RowDescription::new(rows.fields.iter().map(Into::into).collect());
                running.client.put(PgWireBackendMessage::RowDescription(description)).await?;
                match running.send_rows(&mut rows.stream, 0).await? {
                    Sent::All(count) => completion_tag(&tag, count),
                    Sent::Limit => unreachable!("there is no limit"),
                }
            }
        };
        running.send_parameters(self).await?;
        running.client.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag))).await.map(|()| None)
    }

    /// Waits for the session to run a statement.
    pub(super) async fn execute<O: Outbox>(
        &self,
        running: &mut Running<'_, O>,
        run: impl Future<Output = Result<Response>> + Send + 'static,
    ) -> PgWireResult<Response> {
        let response = running.wait(self.workers.spawn(run)).await?.map_err(wire_error)?;
        Ok(match response {
            Response::Rows { stream, tag } => Response::Rows { stream: self.workers.rows(stream), tag },
            done => done,
        })
    }

    /// As [`Self::execute`], on this thread, for a statement that is expected to be brief. If it is not, other threads compute its rows.
    pub(super) async fn execute_here<O: Outbox>(
        &self,
        running: &mut Running<'_, O>,
        run: impl Future<Output = Result<Response>> + Send,
    ) -> PgWireResult<Response> {
        let started = Instant::now();
        let response = running.wait(run).await?.map_err(wire_error)?;
        Ok(match response {
            Response::Rows { stream, tag } if started.elapsed() > BRIEF => Response::Rows { stream: self.workers.rows(stream), tag },
            brief => brief,
        })
    }
}

/// The statements of a text.
pub(super) fn parse(session: &Session, text: &str) -> PgWireResult<Vec<Statement>> {
    session.parse(text).map_err(|error| parse_error(error, text))
}
