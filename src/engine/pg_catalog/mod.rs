//! PostgreSQL's system catalog and `information_schema` over what there is here, so that psql's `\d`, drivers and BI tools find their way.
//!
//! A query that reads catalog tables alone is run by `query`, which takes all that clients write; one that reads other tables too goes to DataFusion,
//! which reads the same rows as tables in memory and calls the same functions. Either way the query sees one `Snapshot`.
//!
//! Numbers of objects (`oid`) come from one place for each kind: tables, views, indexes, constraints and schemas have theirs from the data directory's register
//! and keep them over restarts, types and catalog tables have PostgreSQL's, functions have those that follow from their names.

mod catalog_table;
mod drafts;
mod functions;
mod held;
mod mentions;
mod planned;
mod procedure_types;
mod procedures;
mod query;
mod rows_of_batch;
mod snapshot;
mod system_tables;
mod tables;
#[cfg(test)]
mod tests;
mod types;
mod value;
mod view_columns;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Query;

use super::session::{Description, Session};
use crate::error::Result;
use mentions::Mentions;
use query::{BindError, Bound, Context};
use snapshot::Snapshot;
use types::{Kind, PgType, column_type};
use value::Value;

pub use planned::open;
pub use tables::{INFORMATION_SCHEMA, PG_CATALOG, is_table};
pub use types::{HALFVEC_ARRAY_OID, HALFVEC_OID, VECTOR_ARRAY_OID, VECTOR_OID};

/// Whether a query is about the catalog and nothing else.
pub fn is_catalog_query(query: &Query) -> bool {
    Mentions::of(query).is_about_catalog_alone()
}

/// Output columns and parameters of a query about the catalog; `None`: it is another query, or one for DataFusion.
pub async fn describe(session: &Session, query: &Query) -> Result<Option<Description>> {
    describe_declared(session, query, &[]).await
}

/// The same where a client has said of what types its parameters are.
pub async fn describe_declared(session: &Session, query: &Query, types: &[Option<FieldRef>]) -> Result<Option<Description>> {
    let mentions = Mentions::of(query);
    if !mentions.is_about_catalog_alone() {
        return Ok(None);
    }
    let snapshot = Snapshot::load(session, mentions.reads_relations()).await?;
    let known = types.iter().map(|field| known_type(field.as_deref()?)).collect();
    let Some(bound) = bound(query, &snapshot, known)? else { return Ok(None) };
    let fields: Vec<_> = bound.plan.columns.iter().map(|(name, pg_type)| pg_type.field(name)).collect();
    let parameters = bound.parameters.iter().map(|pg_type| Some(Arc::new(parameter_field(pg_type.as_ref()?)))).collect();
    Ok(Some(Description { columns: Arc::new(Schema::new(fields)), parameters }))
}

/// The rows of a query about the catalog; `None`: it is another query, or one for DataFusion.
pub async fn execute(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Option<RecordBatch>> {
    let mentions = Mentions::of(query);
    if !mentions.is_about_catalog_alone() {
        return Ok(None);
    }
    let snapshot = Snapshot::load(session, mentions.reads_relations()).await?;
    let values = parameters.iter().map(rows_of_batch::value_of).collect::<Result<Vec<_>>>()?;
    let known = parameters.iter().map(|value| known_type(&Field::new("", value.data_type(), true))).collect();
    run(query, &snapshot, known, &values)
}

/// What a client is told of a parameter: rows and vectors of numbers it sends as texts.
fn parameter_field(pg_type: &PgType) -> Field {
    match pg_type {
        PgType::Record(_) | PgType::Records(_) | PgType::One(Kind::Int2Vector | Kind::OidVector) => PgType::One(Kind::Text).field(""),
        known => known.field(""),
    }
}

/// What a parameter is; `None` for a text, which is read as what it stands beside, like a literal in quotes.
fn known_type(field: &Field) -> Option<PgType> {
    let (pg_type, _) = column_type(field);
    Some(pg_type).filter(|pg_type| !pg_type.kind().is_some_and(Kind::is_text))
}

fn bound(query: &Query, snapshot: &Snapshot, parameters: Vec<Option<PgType>>) -> Result<Option<Bound>> {
    match query::bind(query, snapshot, parameters) {
        Ok(bound) => Ok(Some(bound)),
        Err(BindError::NotHere) => Ok(None),
        Err(BindError::Wrong(error)) => Err(error),
    }
}

fn run(query: &Query, snapshot: &Snapshot, known: Vec<Option<PgType>>, parameters: &[Value]) -> Result<Option<RecordBatch>> {
    let Some(bound) = bound(query, snapshot, known)? else { return Ok(None) };
    let rows = query::run(&bound, &Context::new(snapshot, parameters))?;
    rows_of_batch::batch_of(&bound.plan.columns, &rows).map(Some)
}
