//! The simple query protocol: one text, any number of statements, each with its own response.

use std::fmt::Debug;

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
use super::deallocate::Deallocation;
use super::response::{parse_error, wire_error};
use super::rows::{WireRows, completion_tag};
use super::running::{Outbox, Running, Sent};
use crate::engine::{Response, Session};
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
        self.prepared.apply(client.portal_store());
        outcome?;
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
        let statements = parse(&self.session, text)?;
        let mut running = self.running(client).await;
        if statements.is_empty() {
            return running.client.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new())).await;
        }
        for statement in &statements {
            self.run_statement(&mut running, statement).await?;
        }
        Ok(())
    }

    async fn run_statement<O: Outbox>(&self, running: &mut Running<'_, O>, statement: &Statement) -> PgWireResult<()> {
        let response = self.execute(running, statement, self.session.execute(statement, Vec::new())).await?;
        let tag = match response {
            Response::Done { tag } => tag,
            Response::Rows { stream, tag } => {
                let mut rows = WireRows::new(stream, None, &Format::UnifiedText)?;
                let description = RowDescription::new(rows.fields.iter().map(Into::into).collect());
                running.client.put(PgWireBackendMessage::RowDescription(description)).await?;
                match running.send_rows(&mut rows.stream, 0).await? {
                    Sent::All(count) => completion_tag(&tag, count),
                    Sent::Limit => unreachable!("there is no limit"),
                }
            }
        };
        running.client.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag))).await
    }

    /// Waits for the session to run a statement; what concerns prepared statements is done here.
    pub(super) async fn execute<O: Outbox>(
        &self,
        running: &mut Running<'_, O>,
        statement: &Statement,
        run: impl Future<Output = Result<Response>> + Send,
    ) -> PgWireResult<Response> {
        if let Some(deallocation) = Deallocation::of(statement) {
            return Ok(Response::Done { tag: self.prepared.release(&deallocation)?.to_string() });
        }
        let response = running.wait(run).await?.map_err(wire_error)?;
        if matches!(statement, Statement::Discard) {
            self.prepared.release(&Deallocation::All)?;
        }
        Ok(response)
    }
}

/// The statements of a text.
pub(super) fn parse(session: &Session, text: &str) -> PgWireResult<Vec<Statement>> {
    session.parse(text).map_err(|error| parse_error(error, text))
}
