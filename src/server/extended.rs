//! The extended query protocol: Parse, Bind, Describe, Execute, Close, Sync.
//!
//! A portal keeps its row stream between `Execute` messages, so a client that asks for a few rows at a time never makes the server
//! hold the rest. The protocol library's own portals collect all rows before the first is sent, hence the handlers here.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use futures::Sink;
use pgwire::api::portal::{Format, Portal, PortalExecutionState};
use pgwire::api::query::{ExtendedQueryHandler, send_ready_for_query};
use pgwire::api::results::{
    DescribePortalResponse, DescribeResponse, DescribeStatementResponse, FieldInfo, QueryResponse, Response as WireResponse,
};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::PortalStore;
use pgwire::api::{ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState, Type};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{FORMAT_CODE_BINARY, FORMAT_CODE_TEXT, NoData, ParameterDescription, RowDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete, PortalSuspended, Sync as SyncMessage,
    TARGET_TYPE_BYTE_PORTAL, TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse, TransactionStatus as WireStatus};

use super::columns::WireColumn;
use super::connection::Connection;
use super::copy::Then;
use super::parameters::{declared_field, decode, parameter_type};
use super::response::{client_error, wire_error};
use super::rows::{WireRows, completion_tag, wire_columns};
use super::running::{Outbox, Running, Sent};
use super::simple::parse;
use super::wire_type::type_of_oid;
use super::workers::Workers;
use crate::engine::{CopyIn, CopyOut, NamedStatement, PreparedStatement, Response, Session};

/// A statement after `Parse`; `None`: a text without a statement.
pub(super) struct Prepared(Option<Arc<PreparedStatement>>);

impl Prepared {
    pub(super) fn new(statement: Option<Arc<PreparedStatement>>) -> Self {
        Self(statement)
    }

    /// Whether it is this very statement, and not another one of the same text.
    pub(super) fn is(&self, other: Option<&Arc<PreparedStatement>>) -> bool {
        match (&self.0, other) {
            (Some(statement), Some(other)) => Arc::ptr_eq(statement, other),
            (None, None) => true,
            _ => false,
        }
    }

    fn columns(&self) -> SchemaRef {
        self.0.as_ref().map_or_else(|| Arc::new(Schema::empty()), |prepared| Arc::clone(&prepared.description().columns))
    }

    fn parameters(&self) -> &[Option<FieldRef>] {
        self.0.as_ref().map_or(&[], |prepared| &prepared.description().parameters)
    }

    /// The types of all parameters: a client may declare more than the statement has, and then sends as many.
    fn parameter_types(&self, declared: &[Option<Type>]) -> Vec<Type> {
        let inferred = self.parameters();
        let types = (0..inferred.len().max(declared.len())).map(|index| {
            let (declared, inferred) = (declared.get(index), inferred.get(index));
            parameter_type(declared.and_then(Option::as_ref), inferred.and_then(Option::as_ref))
        });
        types.collect()
    }

    fn returns_rows(&self) -> bool {
        !self.columns().fields().is_empty()
    }

    /// Whether a column's type depends on the type of a parameter, as in `SELECT $1`.
    fn has_untyped_columns(&self) -> bool {
        self.columns().fields().iter().any(|field| *field.data_type() == DataType::Null)
    }
}

#[async_trait]
impl ExtendedQueryHandler for Connection {
    type Statement = Arc<Prepared>;
    type QueryParser = Preparer;

    fn query_parser(&self) -> Arc<Preparer> {
        Arc::new(Preparer { session: self.session.clone(), workers: self.workers.clone() })
    }

    async fn on_parse<C>(&self, client: &mut C, message: Parse) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if let Some(name) = &message.name {
            self.session.check_statement_is_free(name).map_err(|error| self.failed(wire_error(error)))?;
        }
        let types = message.type_oids.iter().map(|oid| type_of_oid(*oid)).collect::<Vec<_>>();
        let parser = self.query_parser();
        let parsed = self.uninterrupted(parser.parse_sql(&*client, &message.query, &types)).await;
        client.set_transaction_status(self.wire_status());
        let parsed = parsed?;
        if let Some(name) = &message.name {
            let declared = types.iter().map(|declared| declared_field(declared.as_ref())).collect();
            let named = NamedStatement::of_protocol(parsed.0.clone(), message.query.clone(), declared);
            self.session.name_statement(name, named).map_err(|error| self.failed(wire_error(error)))?;
            self.stored_names.add(name);
        }
        let name = message.name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
        client.portal_store().put_statement(Arc::new(StoredStatement::new(name, parsed, types)));
        client.put(PgWireBackendMessage::ParseComplete(ParseComplete::new())).await
    }

    async fn on_bind<C>(&self, client: &mut C, message: Bind) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statement = self.statement(client.portal_store(), message.statement_name.as_deref()).map_err(|error| self.failed(error))?;
        // A cursor that SQL has declared is a portal too.
        if let Some(portal) = &message.portal_name
            && (client.portal_store().get_portal(portal).is_some() || self.session.cursor(portal).is_some())
        {
            return Err(self.failed(client_error("42P03", format!("portal \"{portal}\" already exists"))));
        }
        check_counts(&message, &statement).map_err(|error| self.failed(error))?;
        self.check_columns(client, &statement).await?;
        client.portal_store().put_portal(Arc::new(Portal::try_new(&message, statement)?));
        client.put(PgWireBackendMessage::BindComplete(BindComplete::new())).await
    }

    /// As the protocol library's own, but the answer goes out with that of the next message: a client that waits reads once.
    async fn on_describe<C>(&self, client: &mut C, message: Describe) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        match message.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                let statement = self.statement(client.portal_store(), message.name.as_deref()).map_err(|error| self.failed(error))?;
                self.check_columns(client, &statement).await?;
                let described = self.do_describe_statement(client, &statement).await?;
                put_description(client, &described).await
            }
            TARGET_TYPE_BYTE_PORTAL => {
                let portal = client.portal_store().get_portal(name);
                let described = match portal {
                    Some(portal) => self.do_describe_portal(client, &portal).await?,
                    None => self.describe_cursor(name).map_err(|error| self.failed(error))?,
                };
                put_description(client, &described).await
            }
            other => Err(PgWireError::InvalidTargetType(other)),
        }
    }

    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        let portal = client.portal_store().get_portal(name);
        // Negative means no limit, as in Postgres.
        let max_rows = usize::try_from(message.max_rows).unwrap_or(0);
        client.set_state(PgWireConnectionState::QueryInProgress);
        let outcome = match portal {
            Some(portal) => self.uninterrupted(self.run_portal(client, &portal, max_rows)).await,
            None => self.uninterrupted(self.run_cursor(client, name, max_rows)).await,
        };
        client.set_transaction_status(self.wire_status());
        self.stored_names.release(&self.session, client.portal_store());
        outcome?;
        client.set_state(PgWireConnectionState::ReadyForQuery);
        Ok(())
    }

    async fn on_close<C>(&self, client: &mut C, message: Close) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        match message.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                client.portal_store().rm_statement(name);
                self.session.release_statement(name);
            }
            TARGET_TYPE_BYTE_PORTAL if client.portal_store().get_portal(name).is_some() => client.portal_store().rm_portal(name),
            TARGET_TYPE_BYTE_PORTAL => self.session.close_cursor(name),
            other => return Err(PgWireError::InvalidTargetType(other)),
        }
        client.put(PgWireBackendMessage::CloseComplete(CloseComplete::new())).await
    }

    async fn on_sync<C>(&self, client: &mut C, _message: SyncMessage) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        // Outside a transaction block, Sync ends the transaction and with it all portals.
        if self.wire_status() == WireStatus::Idle {
            client.portal_store().clear_portals();
        }
        client.set_transaction_status(self.wire_status());
        send_ready_for_query(client, self.wire_status()).await
    }

    async fn do_describe_statement<C>(
        &self,
        _client: &mut C,
        target: &StoredStatement<Self::Statement>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = &target.statement;
        let parameters = prepared.parameter_types(&target.parameter_types);
        Ok(DescribeStatementResponse::new(parameters, described_fields(prepared, &Format::UnifiedText)))
    }

    async fn do_describe_portal<C>(&self, client: &mut C, target: &Portal<Self::Statement>) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let prepared = &target.statement.statement;
        if !prepared.has_untyped_columns() {
            return Ok(DescribePortalResponse::new(described_fields(prepared, &target.result_column_format)));
        }
        let started = self.uninterrupted(self.start_for_description(client, target)).await;
        client.set_transaction_status(self.wire_status());
        Ok(DescribePortalResponse::new(started?))
    }

    /// Never called: [`Self::on_execute`] streams.
    async fn do_query<C>(&self, _client: &mut C, _portal: &Portal<Self::Statement>, _max_rows: usize) -> PgWireResult<WireResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Self::Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        Ok(WireResponse::EmptyQuery)
    }
}

/// A statement that has begun to run.
enum Started {
    Rows(QueryResponse),
    Done(String),
    CopyIn(CopyIn),
    CopyOut(CopyOut),
}

impl Connection {
    /// An error of a message that runs nothing fails the transaction as one of a statement does.
    fn failed(&self, error: PgWireError) -> PgWireError {
        self.session.fail_transaction();
        error
    }

    /// That the statement still gives the columns that clients are told, if what its names stand for may have changed.
    async fn check_columns<C: ClientInfo>(&self, client: &mut C, statement: &StoredStatement<Arc<Prepared>>) -> PgWireResult<()> {
        let Some(prepared) = statement.statement.0.as_ref().filter(|prepared| prepared.may_be_stale(&self.session)) else { return Ok(()) };
        let (session, owned) = (self.session.clone(), Arc::clone(prepared));
        let check = async {
            session.check_takes(owned.statement()).map_err(wire_error)?;
            let (session, owned) = (session.clone(), Arc::clone(&owned));
            self.workers.spawn(async move { session.revalidated(&owned).await.map(drop) }).await.map_err(wire_error)
        };
        let checked = self.uninterrupted(check).await;
        client.set_transaction_status(self.wire_status());
        checked
    }

    async fn run_portal(&self, client: &mut impl Outbox, portal: &Portal<Arc<Prepared>>, max_rows: usize) -> PgWireResult<()> {
        let mut running = self.running(client).await;
        let Some(statement) = &portal.statement.statement.0 else {
            return running.client.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new())).await;
        };
        // Taken out of the portal, so that an error or an interruption leaves it finished and the stream dropped.
        let before = std::mem::replace(&mut *portal.state.lock().await, PortalExecutionState::Finished);
        let started = match before {
            PortalExecutionState::Initial => {
                let described = portal.statement.statement.returns_rows().then_some(&statement.description().columns);
                self.start(&mut running, statement, portal, described).await?
            }
            PortalExecutionState::Suspended(rows) => {
                self.session.timeouts().arm();
                Started::Rows(rows)
            }
            PortalExecutionState::Finished if portal.statement.statement.returns_rows() => Started::Done(completion_tag("SELECT", 0)),
            PortalExecutionState::Finished => {
                return Err(client_error("55000", format!("portal \"{}\" has run already", shown(&portal.name))));
            }
        };
        let tag = match started {
            Started::Done(tag) => tag,
            Started::CopyIn(copy) => return self.begin_copy_in(&mut running, copy, Then::Messages).await,
            Started::CopyOut(copy) => return self.send_copy(&mut running, copy).await,
            Started::Rows(mut rows) => match running.send_rows(rows.data_rows(), max_rows).await? {
                Sent::All(count) => completion_tag(rows.command_tag(), count),
                Sent::Limit => {
                    self.session.suspend_rows();
                    portal.start(rows).await;
                    return running.client.put(PgWireBackendMessage::PortalSuspended(PortalSuspended::new())).await;
                }
            },
        };
        running.send_parameters(self).await?;
        running.client.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag))).await
    }

    /// The columns of a portal whose types depend on its parameters: it is started, and `Execute` goes on from there.
    ///
    /// Only a query can have such columns, so nothing is changed if `Execute` never comes.
    async fn start_for_description(&self, client: &mut impl Outbox, portal: &Portal<Arc<Prepared>>) -> PgWireResult<Vec<FieldInfo>> {
        let mut running = self.running(client).await;
        let Some(statement) = &portal.statement.statement.0 else { return Ok(Vec::new()) };
        match self.start(&mut running, statement, portal, None).await? {
            Started::Done(_) | Started::CopyIn(_) | Started::CopyOut(_) => Ok(Vec::new()),
            Started::Rows(rows) => {
                let fields = rows.row_schema().to_vec();
                self.session.suspend_rows();
                portal.start(rows).await;
                Ok(fields)
            }
        }
    }

    async fn start<O: Outbox>(
        &self,
        running: &mut Running<'_, O>,
        prepared: &Arc<PreparedStatement>,
        portal: &Portal<Arc<Prepared>>,
        described: Option<&SchemaRef>,
    ) -> PgWireResult<Started> {
        let parameters = bound_parameters(portal)?;
        let brief = prepared.is_brief(&parameters);
        let (session, owned) = (self.session.clone(), Arc::clone(prepared));
        let run = async move { session.execute_prepared(&owned, parameters).await };
        let response = match brief {
            true => self.execute_here(running, run).await?,
            false => self.execute(running, run).await?,
        };
        Ok(match response {
            Response::Done { tag } => Started::Done(tag),
            Response::CopyIn(copy) => Started::CopyIn(copy),
            Response::CopyOut(copy) => Started::CopyOut(copy),
            Response::Rows { stream, tag } => {
                let rows = WireRows::new(stream, described, &portal.result_column_format, &self.session.memory_pool())?;
                let mut response = QueryResponse::new(rows.fields, rows.stream);
                response.set_command_tag(&tag);
                Started::Rows(response)
            }
        })
    }
}

async fn put_description(client: &mut impl Outbox, described: &impl DescribeResponse) -> PgWireResult<()> {
    if let Some(parameters) = described.parameters() {
        let parameters = ParameterDescription::new(parameters.iter().map(Type::oid).collect());
        client.put(PgWireBackendMessage::ParameterDescription(parameters)).await?;
    }
    // The protocol library's own test takes a statement with parameters for one with rows; pgjdbc then fails an INSERT that it prepared.
    let columns = match described.fields().is_empty() {
        true => PgWireBackendMessage::NoData(NoData::new()),
        false => PgWireBackendMessage::RowDescription(RowDescription::new(described.fields().iter().map(Into::into).collect())),
    };
    client.put(columns).await
}

/// The values of those parameters that the statement has: a client may declare more, whose values nothing reads.
fn bound_parameters(portal: &Portal<Arc<Prepared>>) -> PgWireResult<Vec<ScalarValue>> {
    let inferred = portal.statement.statement.parameters();
    let values = &portal.parameters[..inferred.len().min(portal.parameters.len())];
    decode(values, &portal.parameter_format, &portal.statement.parameter_types, inferred)
}

fn described_fields(prepared: &Prepared, format: &Format) -> Vec<FieldInfo> {
    wire_columns(&prepared.columns(), format).iter().map(WireColumn::field).cloned().collect()
}

/// `Bind` must give every parameter, and format codes for none, all or each: the protocol library indexes them unchecked.
fn check_counts(message: &Bind, statement: &StoredStatement<Arc<Prepared>>) -> PgWireResult<()> {
    let prepared = &statement.statement;
    let (found, expected) = (message.parameters.len(), prepared.parameters().len().max(statement.parameter_types.len()));
    if found != expected {
        return Err(client_error("08P01", format!("bind message supplies {found} parameters, but the statement has {expected}")));
    }
    let fits = |codes: &[i16], count: usize| codes.len() <= 1 || codes.len() == count;
    if !fits(&message.parameter_format_codes, expected) {
        return Err(client_error("08P01", format!("bind message has the wrong number of parameter formats for {expected} parameters")));
    }
    let columns = prepared.columns().fields().len();
    if !fits(&message.result_column_format_codes, columns) {
        return Err(client_error("08P01", format!("bind message has the wrong number of result formats for {columns} columns")));
    }
    let mut codes = message.parameter_format_codes.iter().chain(&message.result_column_format_codes);
    match codes.find(|code| !matches!(**code, FORMAT_CODE_TEXT | FORMAT_CODE_BINARY)) {
        Some(code) => Err(client_error("22023", format!("unsupported format code: {code}; there are 0, text, and 1, binary"))),
        None => Ok(()),
    }
}

pub(super) fn unknown(kind: &str, name: &str, code: &str) -> PgWireError {
    client_error(code, format!("{kind} \"{}\" does not exist", shown(name)))
}

/// The unnamed statement and portal have a name inside the protocol library only.
fn shown(name: &str) -> &str {
    if name == DEFAULT_NAME { "" } else { name }
}

/// Turns the text of `Parse` into a statement that knows its columns and parameters.
pub(super) struct Preparer {
    session: Session,
    workers: Workers,
}

#[async_trait]
impl QueryParser for Preparer {
    type Statement = Arc<Prepared>;

    async fn parse_sql<C>(&self, _client: &C, text: &str, types: &[Option<Type>]) -> PgWireResult<Self::Statement>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let (session, owned) = (self.session.clone(), text.to_owned());
        let mut statements = self.workers.spawn(async move { parse(&session, &owned) }).await?;
        if statements.len() > 1 {
            return Err(client_error("42601", "cannot insert multiple commands into a prepared statement".to_string()));
        }
        let Some(statement) = statements.pop() else {
            return Ok(Arc::new(Prepared(None)));
        };
        // As in Postgres: until the transaction ends, nothing else is looked at.
        self.session.check_takes(&statement).map_err(wire_error)?;
        let declared = types.iter().map(|declared| declared_field(declared.as_ref())).collect::<Vec<_>>();
        let session = self.session.clone();
        let prepared = self.workers.spawn(async move { session.prepare_declared(statement, &declared).await }).await;
        Ok(Arc::new(Prepared(Some(Arc::new(prepared.map_err(wire_error)?.with_text(text))))))
    }

    /// Not used: [`ExtendedQueryHandler::do_describe_statement`] knows the declared types too.
    fn get_parameter_types(&self, prepared: &Self::Statement) -> PgWireResult<Vec<Type>> {
        Ok(prepared.parameter_types(&[]))
    }

    fn get_result_schema(&self, prepared: &Self::Statement, format: Option<&Format>) -> PgWireResult<Vec<FieldInfo>> {
        Ok(described_fields(prepared, format.unwrap_or(&Format::UnifiedText)))
    }
}
