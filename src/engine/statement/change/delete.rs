//! DELETE.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use futures::FutureExt;
use rolloutdb_catalogs::Table;
use rolloutdb_sql::Delete;

use super::{Change, ChangeOf, column_of, open_target, select, selected};
use crate::engine::planning::{KeptRun, Planned, plan_rewrite};
use crate::engine::session::{Description, Response, Session};
use crate::engine::statement::attempt::{Attempt, attempted};
use crate::error::Result;

/// `kept`: for EXPLAIN ANALYZE.
pub async fn execute(session: &Session, delete: &Delete, parameters: &[ScalarValue], kept: Option<&KeptRun>) -> Result<Response> {
    attempted(|attempt| execute_once(session, delete, parameters, kept, attempt).boxed()).await
}

async fn execute_once(
    session: &Session,
    delete: &Delete,
    parameters: &[ScalarValue],
    kept: Option<&KeptRun>,
    attempt: Attempt,
) -> Result<Response> {
    let table = open_target(session, &delete.target).await?;
    let rewrite = table.begin_rewrite().await?;
    let planned = plan(session, delete, rewrite.table(), parameters).await?;
    change_of(delete, kept).run(session, rewrite, planned, Change::Delete, parameters, attempt).await
}

pub async fn describe(session: &Session, delete: &Delete) -> Result<Description> {
    let table = open_target(session, &delete.target).await?;
    let planned = plan(session, delete, &table, &[]).await?;
    change_of(delete, None).describe(session, &table, &planned).await
}

/// The query that finds the rows, for plain EXPLAIN.
pub async fn explained(session: &Session, delete: &Delete, parameters: &[ScalarValue]) -> Result<(Arc<Table>, Planned)> {
    let table = open_target(session, &delete.target).await?;
    let planned = plan(session, delete, &table, parameters).await?;
    Ok((table, planned))
}

fn change_of<'a>(delete: &'a Delete, kept: Option<&'a KeptRun>) -> ChangeOf<'a> {
    ChangeOf { verb: "DELETE", statement: delete, alias: delete.target.name(), returning: &delete.returning, kept }
}

/// The addresses, and the rows themselves if they are asked for.
async fn plan(session: &Session, delete: &Delete, table: &Table, parameters: &[ScalarValue]) -> Result<Planned> {
    let alias = delete.target.name();
    let fields = delete.returning.first().into_iter().flat_map(|_| table.definition().schema.fields());
    let columns = fields.map(|field| selected(column_of(&alias, field.name()), field)).collect();
    let mut query = select(&alias, &delete.using, delete.condition.as_ref(), columns)?;
    query.with.clone_from(&delete.with);
    plan_rewrite(session, query, parameters, table.with_addresses(), None).await
}
