//! One executor per statement: a file each, named as in `rolloutdb_sql`.

mod agent;
mod alter;
mod alter_owner;
mod attempt;
mod backfill;
mod change;
mod clear_cache;
mod comment;
mod copy;
pub mod copy_client;
mod copy_format;
mod cursor;
mod explain;
mod grant;
mod hub_model;
mod index;
mod insert;
mod job;
mod like_table;
mod maintenance;
mod model;
mod name;
mod notifications;
mod prepare;
mod prompt_rows;
mod query;
mod role;
mod rollouts;
mod savepoint;
mod schema;
mod secret;
mod settings;
mod table;
mod train;
mod transaction;
mod transaction_modes;
mod upkeep;
mod view;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, ObjectName, Query};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use rolloutdb_sql::Statement;

use super::planning::plan_query;
use super::privileges;
use super::search_path;
use super::session::{DEFAULT_SCHEMA, Description, Response, Session};
use super::temporary;
use crate::error::{Error, Result};

pub use change::assignment::expression;
pub use change::quoted;
pub use hub_model::check_room;
pub use prepare::{arguments, execute_in, explained, found};
pub use query::{describe_declared, describe_of_catalog};
pub use rollouts::{RolloutTargets, protocol_of, run_property_of, simulations_of};
pub use settings::{reset_value, set_at_startup, set_value, shown_value};
pub use train::Trainings;

/// Runs one statement.
// Boxed, and in this crate alone: the crates of those who run SQL would lay out the futures of all statements within each other.
#[inline(never)]
pub fn execute<'a>(session: &'a Session, statement: &'a Statement, parameters: &'a [ScalarValue]) -> BoxFuture<'a, Result<Response>> {
    execute_as_named(session, statement, parameters).boxed()
}

async fn execute_as_named(session: &Session, statement: &Statement, parameters: &[ScalarValue]) -> Result<Response> {
    let own = Box::pin(temporary::resolved(session, statement)).await?;
    let _names_change = match &own {
        Some(own) => temporary::before_run(session, statement, own)?,
        None => None,
    };
    let statement = own.as_deref().unwrap_or(statement);
    let resolved = Box::pin(search_path::resolved(session, statement)).await?;
    run(session, resolved.as_ref().unwrap_or(statement), parameters).await
}

async fn run(session: &Session, statement: &Statement, parameters: &[ScalarValue]) -> Result<Response> {
    transaction_modes::check_may_write(session, statement)?;
    privileges::authorize(session, statement).await?;
    match statement {
        Statement::Query(query) => query::execute(session, query, parameters).await,
        Statement::Explain(explain) => explain::execute(session, explain, parameters).await,
        Statement::Insert(insert) => insert::execute(session, insert, parameters, None).await,
        Statement::CopyFrom(copy) => copy::copy_from(session, copy).await,
        Statement::CopyTo(copy) => copy::copy_to(session, copy, parameters).await,
        Statement::Declare(declare) => cursor::declare(session, declare, parameters).await,
        Statement::Fetch(fetch) => cursor::fetch(session, fetch).await,
        Statement::CloseCursor(close) => cursor::close(session, close),
        Statement::Prepare(prepare) => Box::pin(prepare::prepare(session, prepare)).await,
        Statement::Execute(_) => Err(Error::Internal("EXECUTE is run as the statement that it names".to_owned())),
        Statement::Deallocate(deallocate) => prepare::deallocate(session, deallocate),
        Statement::CreateTable(create) => table::create(session, create, parameters).await,
        Statement::DropTable(drop) => table::drop(session, drop).await,
        Statement::CreateIndex(create) => index::create(session, create).await,
        Statement::DropIndex(drop) => index::drop(session, drop).await,
        Statement::CreateModel(create) => model::create(session, create, parameters).await,
        Statement::DropModel(drop) => model::drop(session, drop).await,
        Statement::UnloadModel(unload) => model::unload(session, unload),
        Statement::ClearCache(clear) => clear_cache::execute(session, clear).await,
        Statement::DescribeModel(describe) => model::describe(session, describe),
        Statement::CreateAgent(create) => agent::create(session, create).await,
        Statement::DropAgent(drop) => agent::drop(session, drop).await,
        Statement::DescribeAgent(describe) => agent::describe(session, describe),
        Statement::DescribeTable(describe) => table::describe(session, describe).await,
        Statement::GenerateRollouts(generate) => rollouts::execute(session, generate, parameters).await,
        Statement::Train(train) => train::execute(session, train, parameters).await,
        Statement::ShowModels | Statement::ShowAgents | Statement::ShowTables | Statement::ShowIndexes | Statement::ShowJobs => {
            query::show(session, statement).await
        }
        Statement::Async(statement) => job::start(session, statement, parameters),
        Statement::JobCommand(command) => job::execute(session, *command).await,
        Statement::Show(show) => settings::show(session, show),
        Statement::Set(set) => settings::set(session, set),
        Statement::Reset(reset) => settings::reset(session, reset),
        Statement::Begin(_) | Statement::Commit | Statement::Rollback => transaction::execute(session, statement),
        Statement::SetTransaction(set) => transaction_modes::execute(session, set),
        Statement::Savepoint(savepoint) => savepoint::execute(session, savepoint),
        Statement::Discard => settings::discard(session).await,
        Statement::DiscardTemp => {
            temporary::drop_all(session).await?;
            Ok(done("DISCARD TEMP"))
        }
        Statement::CreateExtension(create) => settings::create_extension(session, create),
        Statement::CreateRole(create) => role::create(session, create),
        Statement::AlterRole(alter) => role::alter(session, alter),
        Statement::DropRole(drop) => role::drop(session, drop),
        Statement::GrantRole(grant) => role::grant(session, grant),
        Statement::RevokeRole(revoke) => role::revoke(session, revoke),
        Statement::SetRole(set) => role::set(session, set),
        Statement::Update(update) => change::update::execute(session, update, parameters, None).await,
        Statement::Delete(delete) => change::delete::execute(session, delete, parameters, None).await,
        Statement::Merge(merge) => change::merge::execute(session, merge, parameters, None).await,
        Statement::Truncate(truncate) => change::truncate::execute(session, truncate).await,
        Statement::AlterTable(alter) => alter::execute(session, alter).await,
        Statement::Comment(comment) => comment::execute(session, comment).await,
        Statement::AlterOwner(alter) => alter_owner::execute(session, alter).await,
        Statement::Grant(grant) => grant::grant(session, grant).await,
        Statement::Revoke(revoke) => grant::revoke(session, revoke).await,
        Statement::CreateSecret(create) => secret::create(session, create),
        Statement::DropSecret(drop) => secret::drop(session, drop),
        Statement::CreateSchema(create) => schema::create(session, create).await,
        Statement::DropSchema(drop) => schema::drop(session, drop).await,
        Statement::CreateView(create) => view::create(session, create).await,
        Statement::DropView(drop) => view::drop(session, drop).await,
        Statement::Vacuum(vacuum) => maintenance::vacuum(session, vacuum).await,
        Statement::Optimize(optimize) => maintenance::optimize(session, optimize).await,
        Statement::Analyze(analyze) => maintenance::analyze(session, analyze).await,
        Statement::Reindex(reindex) => index::reindex(session, reindex).await,
        Statement::Other(other) => match notifications::execute(other) {
            Some(response) => response,
            None => Err(not_supported(statement.tag(), "docs/sql.md lists the statements there are")),
        },
    }
}

/// Output columns and parameter types of a statement, without running it.
pub async fn describe(session: &Session, statement: &Statement) -> Result<Description> {
    let own = Box::pin(temporary::resolved(session, statement)).await?;
    let statement = own.as_deref().unwrap_or(statement);
    let resolved = Box::pin(search_path::resolved(session, statement)).await?;
    let statement = resolved.as_ref().unwrap_or(statement);
    privileges::authorize(session, statement).await?;
    match statement {
        Statement::Query(query) => query::describe(session, query).await,
        Statement::Insert(insert) => insert::describe(session, insert).await,
        Statement::Update(update) => change::update::describe(session, update).await,
        Statement::Delete(delete) => change::delete::describe(session, delete).await,
        Statement::Merge(merge) => change::merge::describe(session, merge).await,
        Statement::Explain(explain) => explain::describe(session, explain).await,
        Statement::ClearCache(_) => Ok(rows_description(clear_cache::schema())),
        Statement::DescribeModel(_) => Ok(rows_description(model::description_schema())),
        Statement::DescribeAgent(_) => Ok(rows_description(agent::description_schema())),
        Statement::DescribeTable(_) => Ok(rows_description(table::description_schema())),
        Statement::GenerateRollouts(generate) => of_queries(session, rollouts::summary_schema(), vec![&*generate.query]).await,
        Statement::Train(train) => {
            let queries = std::iter::once(&*train.query).chain(train.validate.as_deref()).collect();
            of_queries(session, train::schema(train), queries).await
        }
        Statement::CreateTable(create) => {
            of_queries(session, Arc::new(Schema::empty()), create.query.as_deref().into_iter().collect()).await
        }
        Statement::CreateModel(create) => {
            of_queries(session, Arc::new(Schema::empty()), create.using.as_deref().into_iter().collect()).await
        }
        Statement::Async(statement) => {
            let parameters = Box::pin(describe(session, statement)).await?.parameters;
            Ok(Description { columns: job::started_schema(), parameters })
        }
        Statement::JobCommand(command) => Ok(rows_description(job::schema(*command))),
        Statement::ShowModels | Statement::ShowAgents | Statement::ShowTables | Statement::ShowIndexes | Statement::ShowJobs => {
            query::describe_show(session, statement).await
        }
        Statement::Show(show) => Ok(rows_description(settings::show_schema(show))),
        Statement::Declare(declare) => cursor::describe_declare(session, declare).await,
        Statement::Fetch(fetch) => cursor::describe_fetch(session, fetch),
        Statement::Execute(execute) => prepare::describe(session, execute),
        _ => Ok(rows_description(Arc::new(Schema::empty()))),
    }
}

/// Whether the statement changes what other sessions see.
pub fn writes(statement: &Statement) -> bool {
    match statement {
        Statement::Explain(explain) => return explain.analyze && writes(&explain.statement),
        Statement::Train(train) => return !train.dry_run,
        _ => {}
    }
    matches!(
        statement,
        Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_)
            | Statement::Truncate(_)
            | Statement::AlterTable(_)
            | Statement::Comment(_)
            | Statement::AlterOwner(_)
            | Statement::Grant(_)
            | Statement::Revoke(_)
            | Statement::CreateSecret(_)
            | Statement::DropSecret(_)
            | Statement::CreateSchema(_)
            | Statement::DropSchema(_)
            | Statement::CreateView(_)
            | Statement::DropView(_)
            | Statement::Vacuum(_)
            | Statement::Optimize(_)
            | Statement::Reindex(_)
            | Statement::CopyFrom(_)
            | Statement::DiscardTemp
            | Statement::CreateTable(_)
            | Statement::DropTable(_)
            | Statement::CreateIndex(_)
            | Statement::DropIndex(_)
            | Statement::CreateModel(_)
            | Statement::DropModel(_)
            | Statement::ClearCache(_)
            | Statement::CreateAgent(_)
            | Statement::DropAgent(_)
            | Statement::CreateRole(_)
            | Statement::AlterRole(_)
            | Statement::DropRole(_)
            | Statement::GrantRole(_)
            | Statement::RevokeRole(_)
            | Statement::GenerateRollouts(_)
            | Statement::Async(_)
    )
}

/// Whether the statement reads or writes something, rather than say how later ones do.
pub fn queries(statement: &Statement) -> bool {
    !matches!(
        statement,
        Statement::Begin(_)
            | Statement::SetTransaction(_)
            | Statement::Savepoint(_)
            | Statement::Commit
            | Statement::Rollback
            | Statement::Set(_)
            | Statement::Reset(_)
            | Statement::Show(_)
            | Statement::SetRole(_)
            | Statement::Prepare(_)
            | Statement::Deallocate(_)
            | Statement::CloseCursor(_)
    )
}

/// Whether an error may come after a part of the statement's work is committed.
pub fn commits_in_parts(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::GenerateRollouts(_)
            | Statement::DropTable(_)
            | Statement::DropView(_)
            | Statement::DropSchema(_)
            | Statement::DiscardTemp
            | Statement::Truncate(_)
            | Statement::AlterTable(_)
            | Statement::Grant(_)
            | Statement::Revoke(_)
            | Statement::Vacuum(_)
            | Statement::Optimize(_)
            | Statement::Reindex(_)
            | Statement::ClearCache(_)
    )
}

fn rows_description(columns: SchemaRef) -> Description {
    Description { columns, parameters: vec![] }
}

/// Of a statement whose parameters are those of the queries in it.
async fn of_queries(session: &Session, columns: SchemaRef, queries: Vec<&Query>) -> Result<Description> {
    let mut description = rows_description(columns);
    for query in queries {
        // Boxed, for planning recurses deeply.
        let parameters = Box::pin(query::describe(session, query)).await?.parameters;
        description.parameters = query::joined_parameters(description.parameters, parameters);
    }
    Ok(description)
}

fn not_supported(what: &str, instead: &str) -> Error {
    Error::NotSupported(format!("{what} is not supported yet; {instead}"))
}

fn done(tag: impl Into<String>) -> Response {
    Response::Done { tag: tag.into() }
}

/// Rows that are there already, as a response.
fn rows(tag: &str, batch: RecordBatch) -> Response {
    Response::Rows { stream: stream_of(batch), tag: tag.to_owned() }
}

fn stream_of(batch: RecordBatch) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(batch.schema(), futures::stream::iter([Ok(batch)])))
}

/// The rows of a command: none, without columns.
pub fn empty_rows() -> SendableRecordBatchStream {
    Box::pin(EmptyRecordBatchStream::new(Arc::new(Schema::empty())))
}

/// Runs a stream to its end.
pub async fn drain(mut stream: SendableRecordBatchStream) -> Result<()> {
    while let Some(batch) = stream.next().await {
        batch?;
    }
    Ok(())
}

/// `[rolloutdb.][schema.]table` as written: (schema, table).
pub fn table_name(name: &ObjectName) -> Result<(String, String)> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.clone()).collect();
    match parts.as_slice() {
        [table] => Ok((DEFAULT_SCHEMA.to_owned(), table.clone())),
        [schema, table] => Ok((schema.clone(), table.clone())),
        [catalog, schema, table] if catalog == super::session::CATALOG_NAME => Ok((schema.clone(), table.clone())),
        _ => Err(Error::NotSupported(format!("{name} names another database; there is one, {}", super::session::CATALOG_NAME))),
    }
}

/// A name of parts as statements take it.
pub fn quoted_name(parts: &[&str]) -> String {
    parts.iter().map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect::<Vec<_>>().join(".")
}

/// The value of an expression of constants and parameters-free functions.
pub async fn constant(session: &Session, expression: &SqlExpr) -> Result<ScalarValue> {
    let Some(Statement::Query(query)) = rolloutdb_sql::parse(&format!("SELECT {expression}"))?.pop() else {
        return Err(Error::Internal(format!("not an expression: {expression}")));
    };
    // Boxed: planning a query opens versions of tables, whose numbers are constants.
    let planned = Box::pin(plan_query(session, &query, &[])).await?;
    let batches: Vec<RecordBatch> = planned.stream().await?.try_collect().await?;
    match batches.iter().find(|batch| batch.num_rows() == 1) {
        Some(batch) => Ok(ScalarValue::try_from_array(batch.column(0), 0)?),
        None => Err(Error::Internal(format!("{expression} has no value"))),
    }
}

fn arrow(error: arrow::error::ArrowError) -> Error {
    Error::from(DataFusionError::from(error))
}
