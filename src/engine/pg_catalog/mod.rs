//! PostgreSQL's system catalog and `information_schema` over what there is here, so that psql's `\d`, drivers and BI tools find their way.
//!
//! A query that reads catalog tables alone is run by [`query`], which takes all that clients write; one that reads other tables too goes to DataFusion,
//! which reads the same rows as tables in memory and calls the same functions. Either way the query sees one [`Snapshot`](snapshot::Snapshot).
//!
//! Numbers of objects (`oid`) come from one place for each kind: tables, views, indexes, constraints and schemas have theirs from the data directory's register
//! and keep them over restarts, types and catalog tables have PostgreSQL's, functions have those that follow from their names.

mod catalog_table;
mod functions;
mod mentions;
mod planned;
mod procedures;
mod query;
mod rows_of_batch;
mod snapshot;
mod tables;
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Query;

use super::session::{Description, Session};
use super::statement::change_setting;
use crate::error::Result;
use mentions::Mentions;
use query::{BindError, Bound, Context};
use snapshot::Snapshot;
use value::Value;

pub use planned::open;
pub use types::{HALFVEC_ARRAY_OID, HALFVEC_OID, PG_TYPE, VECTOR_ARRAY_OID, VECTOR_OID};

/// Whether a query is about the catalog and nothing else.
pub fn is_catalog_query(query: &Query) -> bool {
    Mentions::of(query).is_about_catalog_alone()
}

/// Output columns and parameters of a query about the catalog; `None`: it is another query, or one for DataFusion.
pub async fn describe(session: &Session, query: &Query) -> Result<Option<Description>> {
    if !is_catalog_query(query) {
        return Ok(None);
    }
    let snapshot = Snapshot::load(session).await?;
    let Some(bound) = bound(query, &snapshot)? else { return Ok(None) };
    let fields: Vec<_> = bound.plan.columns.iter().map(|(name, pg_type)| pg_type.field(name)).collect();
    let parameters: Vec<Option<DataType>> =
        bound.parameters.iter().map(|pg_type| pg_type.as_ref().map(|pg_type| pg_type.field("").data_type().clone())).collect();
    Ok(Some(Description { columns: Arc::new(Schema::new(fields)), parameters }))
}

/// The rows of a query about the catalog; `None`: it is another query, or one for DataFusion.
pub async fn execute(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Option<RecordBatch>> {
    if !is_catalog_query(query) {
        return Ok(None);
    }
    let snapshot = Snapshot::load(session).await?;
    let values = parameters.iter().map(rows_of_batch::value_of).collect::<Result<Vec<_>>>()?;
    let Some((batch, changes)) = run(query, &snapshot, &values)? else { return Ok(None) };
    for change in changes {
        change_setting(session, &change.name, change.value, change.is_local)?;
    }
    Ok(Some(batch))
}

fn bound(query: &Query, snapshot: &Snapshot) -> Result<Option<Bound>> {
    match query::bind(query, snapshot) {
        Ok(bound) => Ok(Some(bound)),
        Err(BindError::NotHere) => Ok(None),
        Err(BindError::Wrong(error)) => Err(error),
    }
}

fn run(query: &Query, snapshot: &Snapshot, parameters: &[Value]) -> Result<Option<(RecordBatch, Vec<query::SettingChange>)>> {
    let Some(bound) = bound(query, snapshot)? else { return Ok(None) };
    let context = Context::new(snapshot, parameters);
    let rows = query::run(&bound, &context)?;
    let batch = rows_of_batch::batch_of(&bound.plan.columns, &rows)?;
    Ok(Some((batch, context.changes.take())))
}
