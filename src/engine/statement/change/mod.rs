//! Statements that change rows: each becomes a SELECT of row addresses, and of the rows as they shall be, over the version that the change is made to.
//!
//! Conditions, joins, subqueries and model calls are those of any query; see `rolloutdb_catalogs` for what happens to the rows found.

pub mod assignment;
pub mod delete;
pub mod merge;
pub mod numbers;
pub mod returning;
pub mod row_query;
pub mod truncate;
pub mod update;
pub mod upsert;

use std::fmt::Display;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Ident, Query, SelectItem, SetExpr, TableFactor, TableWithJoins};
use rolloutdb_catalogs::{Hold, ROW_ADDRESS, Rewrite, Table};
use rolloutdb_sql::{Statement, Target};

use super::attempt::Attempt;
use super::upkeep::after_write;
use super::{done, insert, prompt_rows, query, table_name};
use crate::engine::lineage::Draft;
use crate::engine::planning::{KeptRun, Planned, REWRITE_TARGET};
use crate::engine::progress::Progress;
use crate::engine::session::{Description, Response, Session};
use crate::error::{Error, Result};
use returning::KeptRows;

/// How the rows of a planned change are meant.
pub enum Change {
    /// Addresses of rows to remove first; other columns are the rows.
    Delete,
    /// Addresses (NULL: a new row) and then the rows as they shall be.
    Update { keys_change: bool },
    /// As an update, with [`rolloutdb_catalogs::IS_REMOVED`] after the address.
    Merge,
}

/// The part of a statement that all changes have.
pub struct ChangeOf<'a> {
    /// `UPDATE`, the first word of the command tag.
    pub verb: &'static str,
    /// As it is printed.
    pub statement: &'a (dyn Display + Sync),
    /// What the statement calls the table.
    pub alias: Ident,
    /// Empty: nothing is asked for.
    pub returning: &'a [SelectItem],
    /// For EXPLAIN ANALYZE.
    pub kept: Option<&'a KeptRun>,
}

impl ChangeOf<'_> {
    /// Runs a planned change and answers with its tag or its RETURNING rows.
    pub async fn run(
        &self,
        session: &Session,
        mut rewrite: Rewrite<'_>,
        planned: Planned,
        change: Change,
        parameters: &[ScalarValue],
        attempt: Attempt,
    ) -> Result<Response> {
        if attempt.hold(&planned.plan)? == Hold::AtTheEnd {
            rewrite.let_others_write();
        }
        let table = rewrite.table().clone();
        if !self.returning.is_empty() {
            // Before anything is written: an error afterwards would hide that it was.
            returning::plan(session, self.returning, &self.alias, &table).await?;
        }
        let draft = match change {
            Change::Delete => None,
            Change::Update { .. } | Change::Merge => Draft::of_rows(&planned.plan, &table, self.statement)?,
        };
        let started = planned.start(self.kept).await?;
        let progress = Progress::new(session.notices(), format!("{} {}", self.verb, table.name()), "rows", started.num_rows());
        let rows = match change {
            Change::Delete => started.rows,
            Change::Update { .. } => prompt_rows::checked(&table, started.rows, 1),
            Change::Merge => prompt_rows::checked(&table, started.rows, 2),
        };
        let rows = progress.watch(rows);
        let (rows, kept) = match self.returning {
            [] => (rows, None),
            _ => {
                let skipped = if matches!(change, Change::Merge) { 2 } else { 1 };
                let (rows, kept) = KeptRows::of_addressed(rows, skipped);
                (rows, Some(kept))
            }
        };
        let count = match change {
            Change::Delete => rewrite.delete(rows).await?,
            Change::Update { keys_change } => rewrite.update(rows, keys_change).await?,
            Change::Merge => rewrite.merge(rows).await?,
        };
        insert::note(draft, session, &table, count).await;
        after_write(session, &table).await;
        match kept {
            Some(kept) => returning::response(session, self.returning, &self.alias, kept, parameters, self.verb).await,
            None if self.verb == "INSERT" => Ok(done(format!("INSERT 0 {count}"))),
            None => Ok(done(format!("{} {count}", self.verb))),
        }
    }

    pub async fn describe(&self, session: &Session, table: &Table, planned: &Planned) -> Result<Description> {
        let description = query::description(planned)?;
        let returned = match self.returning {
            [] => Description { columns: Arc::new(Schema::empty()), parameters: vec![] },
            items => query::description(&returning::plan(session, items, &self.alias, table).await?)?,
        };
        let parameters = query::joined_parameters(description.parameters, returned.parameters);
        Ok(Description { columns: returned.columns, parameters })
    }
}

pub async fn open_target(session: &Session, target: &Target) -> Result<Arc<Table>> {
    let (schema, name) = table_name(&target.table)?;
    Ok(session.database().shared.catalog.table(&schema, &name).await?)
}

/// `alias.column`, whatever the names look like.
pub fn column_of(alias: &Ident, name: &str) -> SqlExpr {
    SqlExpr::CompoundIdentifier(vec![quoted(&alias.value), quoted(name)])
}

pub fn selected(expr: SqlExpr, field: &Field) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: quoted(field.name()) }
}

pub fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

pub fn unsupported(what: &str) -> Error {
    Error::NotSupported(format!("{what} is not supported yet"))
}

/// `SELECT alias._rowaddr, columns FROM target AS alias, others WHERE condition`
fn select(alias: &Ident, others: &[TableWithJoins], condition: Option<&SqlExpr>, columns: Vec<SelectItem>) -> Result<Query> {
    let address = SelectItem::ExprWithAlias { expr: column_of(alias, ROW_ADDRESS), alias: quoted(ROW_ADDRESS) };
    let mut query = select_from_target(alias, std::iter::once(address).chain(columns).collect())?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from.extend_from_slice(others);
        select.selection = condition.cloned();
    }
    Ok(query)
}

/// `SELECT items FROM target AS alias`
pub fn select_from_target(alias: &Ident, items: Vec<SelectItem>) -> Result<Query> {
    let mut query = template(&format!("SELECT 1 FROM {REWRITE_TARGET} AS target"))?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        name_relation(&mut select.from[0].relation, alias);
        select.projection = items;
    }
    Ok(query)
}

/// Gives a relation of a template its alias: put into the tree, not into the text, so that any name is one.
fn name_relation(relation: &mut TableFactor, alias: &Ident) {
    if let TableFactor::Table { alias: Some(given), .. } = relation {
        given.name = quoted(&alias.value);
    }
}

/// A query that this program wrote.
pub fn template(sql: &str) -> Result<Query> {
    match rolloutdb_sql::parse(sql)?.pop() {
        Some(Statement::Query(query)) => Ok(*query),
        _ => Err(Error::Internal(format!("not a query: {sql}"))),
    }
}
