//! UPDATE.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use rolloutdb_catalogs::Table;
use rolloutdb_sql::Update;

use super::assignment::{NewValues, complete};
use super::{Change, ChangeOf, open_target, select};
use crate::engine::pinned_models;
use crate::engine::planning::{Planned, plan_rewrite};
use crate::engine::session::{Description, Response, Session};
use crate::engine::statement::attempt::{Attempt, is_void};
use crate::error::Result;

pub async fn execute(session: &Session, update: &Update, parameters: &[ScalarValue]) -> Result<Response> {
    let ended = Box::pin(execute_once(session, update, parameters, Attempt::First)).await;
    if is_void(&ended) { Box::pin(execute_once(session, update, parameters, Attempt::Last)).await } else { ended }
}

async fn execute_once(session: &Session, update: &Update, parameters: &[ScalarValue], attempt: Attempt) -> Result<Response> {
    let table = open_target(session, &update.target).await?;
    pinned_models::check(session, &table)?;
    let rewrite = table.begin_rewrite().await?;
    let (planned, keys_change) = plan(session, update, rewrite.table(), parameters).await?;
    change_of(update).run(session, rewrite, planned, Change::Update { keys_change }, parameters, attempt).await
}

pub async fn describe(session: &Session, update: &Update) -> Result<Description> {
    let table = open_target(session, &update.target).await?;
    let (planned, _) = plan(session, update, &table, &[]).await?;
    change_of(update).describe(session, &table, &planned).await
}

/// The query that finds the rows, for EXPLAIN.
pub async fn explained(session: &Session, update: &Update, parameters: &[ScalarValue]) -> Result<(Arc<Table>, Planned)> {
    let table = open_target(session, &update.target).await?;
    let (planned, _) = plan(session, update, &table, parameters).await?;
    Ok((table, planned))
}

fn change_of(update: &Update) -> ChangeOf<'_> {
    ChangeOf { verb: "UPDATE", alias: update.target.name(), returning: &update.returning }
}

async fn plan(session: &Session, update: &Update, table: &Table, parameters: &[ScalarValue]) -> Result<(Planned, bool)> {
    let alias = update.target.name();
    let new_values = NewValues::of(table, &update.assignments)?;
    let columns = table.definition().schema.fields().iter().map(|field| new_values.select(&alias, field)).collect();
    let mut query = select(&alias, &update.from, update.condition.as_ref(), columns)?;
    query.with.clone_from(&update.with);
    let source = plan_rewrite(session, query, parameters, table.with_addresses(), None).await?;
    let keys_change = table.definition().unique_constraints().any(|(key, _)| key.iter().any(|column| new_values.changes(column)));
    Ok((complete(source, table, 1, &new_values.generated)?, keys_change))
}
