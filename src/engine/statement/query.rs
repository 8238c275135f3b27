//! SELECT, and the SHOW statements that are SELECTs over system views.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::Query;
use rolloutdb_sql::Statement;

use crate::engine::column_origins::with_origins;
use crate::engine::parameter_types;
use crate::engine::pg_catalog;
use crate::engine::planning::{Planned, Started, plan_query};
use crate::engine::query_progress::watched;
use crate::engine::session::{Description, Response, Session};
use crate::engine::temporary;
use crate::error::{Error, Result};

/// The rows for a client, which hears how far they are if models are asked for them.
pub async fn execute(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Response> {
    let stream = match started(session, query, parameters).await? {
        Rows::Found(batch) => super::stream_of(batch),
        Rows::OfPlan { started, columns } => {
            let rows = watched(session.notices(), started);
            match columns {
                Some(columns) => Box::pin(RecordBatchStreamAdapter::new(columns, rows)) as SendableRecordBatchStream,
                None => rows,
            }
        }
    };
    Ok(Response::Rows { stream, tag: "SELECT".to_owned() })
}

/// The rows of a query, for a cursor.
pub async fn rows(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<SendableRecordBatchStream> {
    Ok(counted_rows(session, query, parameters).await?.0)
}

/// The rows of a query, and how many they are, if that is known before they come.
pub async fn counted_rows(
    session: &Session,
    query: &Query,
    parameters: &[ScalarValue],
) -> Result<(SendableRecordBatchStream, Option<u64>)> {
    Ok(match started(session, query, parameters).await? {
        Rows::Found(batch) => {
            let num_rows = batch.num_rows() as u64;
            (super::stream_of(batch), Some(num_rows))
        }
        Rows::OfPlan { started, .. } => {
            let num_rows = started.num_rows();
            (started.rows, num_rows)
        }
    })
}

enum Rows {
    /// Of the catalog.
    Found(RecordBatch),
    OfPlan {
        started: Started,
        /// What they are called, with their origins, if any has one.
        columns: Option<SchemaRef>,
    },
}

async fn started(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Rows> {
    // Boxed: what it reads of the catalog is not laid out in every statement's future.
    if let Some(batch) = Box::pin(pg_catalog::execute(session, query, parameters)).await? {
        return Ok(Rows::Found(batch));
    }
    let planned = plan_query(session, query, parameters).await?;
    let plan = planned.plan.clone();
    let started = planned.start(None).await?;
    let columns = with_origins(session, &plan, &started.rows.schema());
    Ok(Rows::OfPlan { started, columns })
}

pub async fn describe(session: &Session, query: &Query) -> Result<Description> {
    if let Some(description) = Box::pin(pg_catalog::describe(session, query)).await? {
        return Ok(description);
    }
    with_origins_described(session, query, &[]).await
}

async fn with_origins_described(session: &Session, query: &Query, types: &[Option<FieldRef>]) -> Result<Description> {
    let Planned { plan, state } = plan_query(session, query, &[]).await?;
    let planned = Planned { plan: parameter_types::declared(plan, types)?, state };
    let mut description = description(&planned)?;
    if let Some(columns) = with_origins(session, &planned.plan, &description.columns) {
        description.columns = columns;
    }
    Ok(description)
}

/// Of a query that the catalog answers; `None`: it is another one. `types`: what a client has said of parameters.
pub async fn describe_of_catalog(session: &Session, query: &Query, types: &[Option<FieldRef>]) -> Result<Option<Description>> {
    if !pg_catalog::is_catalog_query(query) {
        return Ok(None);
    }
    let resolved = temporary::resolved_query(session, query)?;
    Box::pin(pg_catalog::describe_declared(session, &resolved, types)).await
}

/// The same where a client has said of what types parameters are.
pub async fn describe_declared(session: &Session, query: &Query, types: &[Option<FieldRef>]) -> Result<Description> {
    let resolved = temporary::resolved_query(session, query)?;
    let query: &Query = &resolved;
    if let Some(description) = Box::pin(pg_catalog::describe_declared(session, query, types)).await? {
        return Ok(description);
    }
    with_origins_described(session, query, types).await
}

/// Columns after analysis, whose types are coerced; parameters `$1 ...` in order.
pub fn description(planned: &Planned) -> Result<Description> {
    let columns = Arc::new(planned.plan.schema().as_arrow().clone());
    Ok(Description { columns, parameters: parameter_types::of(&planned.plan)? })
}

/// The parameters of two parts of one statement.
pub fn joined_parameters(mut left: Vec<Option<FieldRef>>, right: Vec<Option<FieldRef>>) -> Vec<Option<FieldRef>> {
    left.resize(left.len().max(right.len()), None);
    for (known, other) in left.iter_mut().zip(right) {
        *known = known.take().or(other);
    }
    left
}

pub async fn show(session: &Session, statement: &Statement) -> Result<Response> {
    let planned = plan_query(session, &show_query(statement)?, &[]).await?;
    Ok(Response::Rows { stream: planned.stream().await?, tag: "SHOW".to_owned() })
}

pub async fn describe_show(session: &Session, statement: &Statement) -> Result<Description> {
    describe(session, &show_query(statement)?).await
}

fn show_query(statement: &Statement) -> Result<Query> {
    let sql = match statement {
        Statement::ShowModels => {
            "SELECT name, version, task, architecture, parameter_count, source FROM rollout.models ORDER BY name, version"
        }
        Statement::ShowAgents => "SELECT name, policy, corpus, retriever, k, protocol, max_steps FROM rollout.agents ORDER BY name",
        Statement::ShowJobs => {
            "SELECT job_id, kind, status, progress, total, unit, created_at, finished_at, error FROM rollout.jobs ORDER BY job_id"
        }
        Statement::ShowIndexes => {
            "SELECT schema_name AS schema, table_name AS \"table\", name, column_name AS \"column\", method, metric, options, rows_indexed, \
             rows_unindexed, bytes, graph FROM rollout.indexes ORDER BY 1, 2, 3"
        }
        _ => {
            "SELECT table_schema AS schema, table_name AS name, table_type AS type FROM information_schema.tables \
             WHERE table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY 1, 2"
        }
    };
    match rolloutdb_sql::parse(sql)?.pop() {
        Some(Statement::Query(query)) => Ok(*query),
        _ => Err(Error::Internal(format!("not a query: {sql}"))),
    }
}
