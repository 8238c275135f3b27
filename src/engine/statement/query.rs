//! SELECT, and the SHOW statements that are SELECTs over system views.

use std::collections::BTreeMap;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Query;
use rolloutdb_sql::Statement;

use crate::engine::pg_catalog;
use crate::engine::planning::{Planned, plan_query};
use crate::engine::session::{Description, Response, Session};
use crate::error::{Error, Result};

pub async fn execute(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Response> {
    // Boxed: what it reads of the catalog is not laid out in every statement's future.
    if let Some(batch) = Box::pin(pg_catalog::execute(session, query, parameters)).await? {
        return Ok(super::rows("SELECT", batch));
    }
    let planned = plan_query(session, query, parameters).await?;
    Ok(Response::Rows { stream: planned.stream().await?, tag: "SELECT".to_owned() })
}

pub async fn describe(session: &Session, query: &Query) -> Result<Description> {
    if let Some(description) = Box::pin(pg_catalog::describe(session, query)).await? {
        return Ok(description);
    }
    let planned = plan_query(session, query, &[]).await?;
    Ok(description(&planned))
}

/// Columns after analysis, whose types are coerced; parameters `$1 ...` in order.
pub fn description(planned: &Planned) -> Description {
    let types: BTreeMap<usize, _> = planned
        .plan
        .get_parameter_types()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, data_type)| Some((name.trim_start_matches('$').parse().ok()?, data_type)))
        .collect();
    let num_parameters = types.keys().copied().max().unwrap_or(0);
    Description {
        columns: std::sync::Arc::new(planned.plan.schema().as_arrow().clone()),
        parameters: (1..=num_parameters).map(|number| types.get(&number).cloned().flatten()).collect(),
    }
}

/// The parameters of two parts of one statement.
pub fn joined_parameters(mut left: Vec<Option<DataType>>, right: Vec<Option<DataType>>) -> Vec<Option<DataType>> {
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
