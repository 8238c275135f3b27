//! UPDATE.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use futures::FutureExt;
use rolloutdb_catalogs::Table;
use rolloutdb_sql::Update;

use super::assignment::{NewValues, complete, expression};
use super::{Change, ChangeOf, numbers, open_target, row_query, select};
use crate::engine::pinned_models;
use crate::engine::planning::{KeptRun, Planned, plan_rewrite};
use crate::engine::session::{Description, Response, Session};
use crate::engine::statement::attempt::{Attempt, attempted};
use crate::error::Result;

/// `kept`: for EXPLAIN ANALYZE.
pub async fn execute(session: &Session, update: &Update, parameters: &[ScalarValue], kept: Option<&KeptRun>) -> Result<Response> {
    attempted(|attempt| execute_once(session, update, parameters, kept, attempt).boxed()).await
}

async fn execute_once(
    session: &Session,
    update: &Update,
    parameters: &[ScalarValue],
    kept: Option<&KeptRun>,
    attempt: Attempt,
) -> Result<Response> {
    let table = open_target(session, &update.target).await?;
    pinned_models::check(session, &table)?;
    let rewrite = table.begin_rewrite().await?;
    let (planned, keys_change) = plan(session, update, rewrite.table(), parameters).await?;
    change_of(update, kept).run(session, rewrite, planned, Change::Update { keys_change }, parameters, attempt).await
}

pub async fn describe(session: &Session, update: &Update) -> Result<Description> {
    let table = open_target(session, &update.target).await?;
    let (planned, _) = plan(session, update, &table, &[]).await?;
    let mut description = change_of(update, None).describe(session, &table, &planned).await?;
    NewValues::of(&table, &update.assignments)?.describe_parameters(&mut description.parameters);
    Ok(description)
}

/// The query that finds the rows, for plain EXPLAIN.
pub async fn explained(session: &Session, update: &Update, parameters: &[ScalarValue]) -> Result<(Arc<Table>, Planned)> {
    let table = open_target(session, &update.target).await?;
    let (planned, _) = plan(session, update, &table, parameters).await?;
    Ok((table, planned))
}

fn change_of<'a>(update: &'a Update, kept: Option<&'a KeptRun>) -> ChangeOf<'a> {
    ChangeOf { verb: "UPDATE", statement: update, alias: update.target.name(), returning: &update.returning, kept }
}

async fn plan(session: &Session, update: &Update, table: &Table, parameters: &[ScalarValue]) -> Result<(Planned, bool)> {
    let alias = update.target.name();
    let new_values = NewValues::of(table, &update.assignments)?;
    let numbered = new_values.numbered(table);
    let is_numbered = numbered.iter().map(|position| Ok(numbers::is_numbered(*position, expression("true")?)));
    let mut columns = is_numbered.collect::<Result<Vec<_>>>()?;
    columns.extend(table.definition().schema.fields().iter().map(|field| new_values.select(&alias, field)));
    let mut query = select(&alias, &update.from, update.condition.as_ref(), columns)?;
    query.with.clone_from(&update.with);
    let source = plan_rewrite(session, query, parameters, table.with_addresses(), None).await?;
    let source = numbers::number_rows(row_query::computed_once(source)?, table, 1, &numbered)?;
    let keys_change = table.definition().unique_constraints().any(|(key, _)| key.iter().any(|column| new_values.changes(column)));
    Ok((complete(source, table, 1, &new_values.generated)?, keys_change))
}
