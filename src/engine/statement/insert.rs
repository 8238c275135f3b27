//! INSERT, and what it shares with COPY FROM: rows of some columns become whole rows of the table.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Query, SetExpr, Value};
use rolloutdb_catalogs::{Identity, Table};
use rolloutdb_sql::{ConflictAction, Insert, OnConflict, Statement, is_default};

use super::change::assignment::new_value;
use super::change::returning::{self, KeptRows};
use super::change::upsert::{self, DoUpdate};
use super::{done, query, table_name};
use crate::engine::function::identity_numbers;
use crate::engine::pinned_models;
use crate::engine::planning::{Planned, plan_query};
use crate::engine::progress::Progress;
use crate::engine::session::{Description, Response, Session};
use crate::engine::typing::{assign, sql_type_name};
use crate::error::{Error, Result};

/// Whether a table was altered while a statement waited to append rows to it, which is found out before the first row is read: it is planned again.
pub fn was_altered(ended: &Result<Response>) -> bool {
    matches!(ended, Err(Error::Catalog(rolloutdb_catalogs::Error::Altered { .. })))
}

pub async fn execute(session: &Session, insert: &Insert, parameters: &[ScalarValue]) -> Result<Response> {
    let ended = execute_once(session, insert, parameters).await;
    if was_altered(&ended) { execute_once(session, insert, parameters).await } else { ended }
}

async fn execute_once(session: &Session, insert: &Insert, parameters: &[ScalarValue]) -> Result<Response> {
    let (schema, name) = table_name(&insert.target.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    pinned_models::check(session, &table)?;
    match (&insert.on_conflict, do_update(insert)) {
        (None, _) => insert_all(session, insert, &table, parameters).await,
        (Some(_), Some(update)) => upsert::insert_or_update(session, insert, &table, &update, parameters).await,
        (Some(conflict), None) => upsert::insert_or_skip(session, insert, &table, &conflict.columns, parameters).await,
    }
}

fn do_update(insert: &Insert) -> Option<DoUpdate<'_>> {
    match insert.on_conflict.as_ref()? {
        OnConflict { columns, action: ConflictAction::Update { assignments, condition } } => {
            Some(DoUpdate { columns, assignments, condition: condition.as_deref() })
        }
        OnConflict { action: ConflictAction::Nothing, .. } => None,
    }
}

async fn insert_all(session: &Session, insert: &Insert, table: &Table, parameters: &[ScalarValue]) -> Result<Response> {
    let alias = insert.target.name();
    let planned = plan(session, insert, table, parameters).await?;
    let progress = Progress::new(session.notices(), format!("INSERT INTO {}", table.name()), "rows", None);
    let rows = progress.watch(planned.stream().await?);
    if insert.returning.is_empty() {
        let count = table.append(rows).await?;
        refresh_indexes(session, table).await;
        return Ok(done(format!("INSERT 0 {count}")));
    }
    // Before anything is written: an error afterwards would hide that it was.
    returning::plan(session, &insert.returning, &alias, table).await?;
    let (rows, kept) = KeptRows::of(rows);
    table.append(rows).await?;
    refresh_indexes(session, table).await;
    returning::response(session, &insert.returning, &alias, kept, parameters, "INSERT").await
}

/// Brings new rows into the indexes, and compacts the table when many small commits have gathered. Until then BM25 scores of those rows are off by some percent. The rows are committed already, so that a
/// failure is a warning; an error would make clients write them again.
pub async fn refresh_indexes(session: &Session, table: &Table) {
    let refreshed = async {
        let latest = table.latest().await?;
        match latest.needs_compaction() {
            true => latest.compact().await.map(|_| ()),
            false => latest.optimize_indexes().await,
        }
    };
    if let Err(error) = refreshed.await {
        let message = format!("the rows are written, but the indexes of {} do not have them yet: {error}", table.name());
        session.notices().warning(message);
    }
}

pub async fn describe(session: &Session, insert: &Insert) -> Result<Description> {
    let (schema, name) = table_name(&insert.target.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    let targets = target_columns(&table, &insert.columns.iter().map(|ident| ident.value.clone()).collect::<Vec<_>>())?;
    let planned = plan_query(session, &typed_placeholders(&insert.source, &table, &targets)?, &[]).await?;
    let mut description = query::description(&planned);
    description.columns = Arc::new(Schema::empty());
    if let Some(update) = do_update(insert) {
        let planned = update.plan(session, insert, &table, &[]).await?;
        description.parameters = query::joined_parameters(description.parameters, query::description(&planned).parameters);
    }
    if !insert.returning.is_empty() {
        let returned = query::description(&returning::plan(session, &insert.returning, &insert.target.name(), &table).await?);
        description.columns = returned.columns;
        description.parameters = query::joined_parameters(description.parameters, returned.parameters);
    }
    for (number, data_type) in placeholder_types(&insert.source, &table, &targets) {
        if description.parameters.len() < number {
            description.parameters.resize(number, None);
        }
        description.parameters[number - 1] = Some(data_type);
    }
    Ok(description)
}

/// The query whose rows would be written, for EXPLAIN.
pub async fn explained(session: &Session, insert: &Insert, parameters: &[ScalarValue]) -> Result<(Arc<Table>, Planned)> {
    let (schema, name) = table_name(&insert.target.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    let planned = match do_update(insert) {
        Some(update) => update.plan(session, insert, &table, parameters).await?,
        None => plan(session, insert, &table, parameters).await?,
    };
    Ok((table, planned))
}

/// The whole rows to write.
pub async fn plan(session: &Session, insert: &Insert, table: &Table, parameters: &[ScalarValue]) -> Result<Planned> {
    generate_columns(complete_source(session, insert, table, parameters).await?, table)
}

/// The rows to write, but for the generated columns, which are NULL.
pub async fn complete_source(session: &Session, insert: &Insert, table: &Table, parameters: &[ScalarValue]) -> Result<Planned> {
    let columns: Vec<String> = insert.columns.iter().map(|ident| ident.value.clone()).collect();
    let targets = target_columns(table, &columns)?;
    let source = plan_query(session, &typed_placeholders(&insert.source, table, &targets)?, parameters).await?;
    let found = source.plan.schema().fields().len();
    if found > targets.len() || (!columns.is_empty() && found < targets.len()) {
        let (few, many) = if found > targets.len() { ("expressions", "target columns") } else { ("target columns", "expressions") };
        return Err(Error::ColumnCount(format!("INSERT has more {few} than {many}")));
    }
    assign_columns(source, table, &targets[..found])
}

/// The named columns' positions; without names all columns that are not generated.
///
/// # Errors
/// Unknown, repeated or generated column.
pub fn target_columns(table: &Table, columns: &[String]) -> Result<Vec<usize>> {
    let definition = table.definition();
    if columns.is_empty() {
        let plain = |index: &usize| !takes_no_value(table, definition.schema.field(*index).name());
        return Ok((0..definition.schema.fields().len()).filter(plain).collect());
    }
    let mut targets = Vec::with_capacity(columns.len());
    for column in columns {
        let known = || definition.schema.fields().iter().map(|field| field.name().clone()).collect();
        let index = definition.schema.index_of(column).map_err(|_| Error::UnknownColumn {
            table: table.name().to_owned(),
            name: column.clone(),
            known: known(),
        })?;
        if takes_no_value(table, column) {
            return Err(Error::GeneratedColumn(column.clone()));
        }
        if targets.contains(&index) {
            return Err(Error::ColumnCount(format!("column {column} is named twice")));
        }
        targets.push(index);
    }
    Ok(targets)
}

/// Computed or numbered by the table alone.
fn takes_no_value(table: &Table, column: &str) -> bool {
    let definition = table.definition();
    definition.generated.contains_key(column) || definition.identity.get(column) == Some(&Identity::Always)
}

/// `source`'s columns are the table's `targets`; the rest take their number, their default or NULL, then the generated columns are computed.
pub fn complete_rows(source: Planned, table: &Table, targets: &[usize]) -> Result<Planned> {
    generate_columns(assign_columns(source, table, targets)?, table)
}

fn assign_columns(source: Planned, table: &Table, targets: &[usize]) -> Result<Planned> {
    let Planned { plan, state } = source;
    let definition = table.definition();
    let source_schema = Arc::clone(plan.schema());
    let mut stored = Vec::with_capacity(definition.schema.fields().len());
    for (index, field) in definition.schema.fields().iter().enumerate() {
        let value = match (targets.iter().position(|target| *target == index), definition.defaults.get(field.name())) {
            (Some(position), _) => Expr::Column(Column::from(source_schema.qualified_field(position))),
            (None, _) if definition.identity.contains_key(field.name()) => identity_numbers(table, field.name()),
            (None, Some(default)) => state.create_logical_expr(default, &DFSchema::empty())?,
            (None, None) => lit(ScalarValue::Null),
        };
        stored.push(assign(&state, constant_of(&plan, value), &source_schema, field)?.alias(field.name()));
    }
    Ok(Planned { plan: LogicalPlanBuilder::new(plan).project(stored)?.build()?, state })
}

/// A quoted constant in a one-row VALUES takes the column's type; the planner has made a column of it.
fn constant_of(plan: &LogicalPlan, value: Expr) -> Expr {
    let (LogicalPlan::Values(values), Expr::Column(column)) = (plan, &value) else { return value };
    let position = plan.schema().index_of_column(column).unwrap_or(usize::MAX);
    let all_literals = values.values.iter().all(|row| matches!(row.get(position), Some(Expr::Literal(..))));
    if !all_literals || values.values.len() != 1 {
        return value;
    }
    values.values[0][position].clone()
}

fn generate_columns(rows: Planned, table: &Table) -> Result<Planned> {
    let Planned { plan, state } = rows;
    let definition = table.definition();
    if definition.generated.is_empty() {
        return Ok(Planned { plan, state });
    }
    let schema = plan.schema().as_ref().clone();
    let mut columns = Vec::with_capacity(definition.schema.fields().len());
    for field in definition.schema.fields() {
        let value = match definition.generated.get(field.name()) {
            None => Expr::Column(Column::from_name(field.name())),
            Some(expression) => {
                let value = state.create_logical_expr(expression, &schema)?;
                assign(&state, value, &schema, field)?
            }
        };
        columns.push(value.alias(field.name()));
    }
    Ok(Planned { plan: LogicalPlanBuilder::new(plan).project(columns)?.build()?, state })
}

/// `VALUES ($1, DEFAULT)` with each parameter cast to its column's type, which the planner does not find out by itself, and defaults filled in.
fn typed_placeholders(source: &Query, table: &Table, targets: &[usize]) -> Result<Query> {
    let mut typed = source.clone();
    let SetExpr::Values(values) = typed.body.as_mut() else { return Ok(typed) };
    let definition = table.definition();
    for row in &mut values.rows {
        for (value, target) in row.iter_mut().zip(targets) {
            let field = definition.schema.field(*target);
            if is_default(value) && definition.identity.contains_key(field.name()) {
                return Err(Error::NotSupported(format!("DEFAULT for column {}: leave the column out, and it is numbered", field.name())));
            }
            *value = new_value(definition, field, value)?;
        }
    }
    Ok(typed)
}

fn placeholder_types(source: &Query, table: &Table, targets: &[usize]) -> Vec<(usize, DataType)> {
    let SetExpr::Values(values) = source.body.as_ref() else { return vec![] };
    let schema: &SchemaRef = &table.definition().schema;
    let typed = values.rows.iter().flat_map(|row| row.iter().zip(targets)).filter_map(|(expression, target)| {
        let number: usize = placeholder(expression)?.trim_start_matches('$').parse().ok()?;
        let data_type = schema.field(*target).data_type();
        // Clients write a vector as its text.
        let is_vector = matches!(data_type, DataType::FixedSizeList(..));
        (number > 0).then(|| (number, if is_vector { DataType::Utf8 } else { data_type.clone() }))
    });
    typed.collect()
}

/// The name of a parameter, `$1`.
pub fn placeholder(expression: &SqlExpr) -> Option<String> {
    match expression {
        SqlExpr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// `CAST($1 AS type)` for the type of a column; clients write a vector as its text.
pub fn cast_text(placeholder: &str, data_type: &DataType) -> Option<SqlExpr> {
    let type_name = match data_type {
        DataType::FixedSizeList(..) => "text".to_owned(),
        other => sql_type_name(other),
    };
    let statement = rolloutdb_sql::parse(&format!("SELECT CAST({placeholder} AS {type_name})")).ok()?.pop()?;
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(mut select) = *query.body else { return None };
    match select.projection.pop()? {
        datafusion::sql::sqlparser::ast::SelectItem::UnnamedExpr(cast) => Some(cast),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use futures::TryStreamExt;

    use crate::{Database, Result};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_statement_that_waited_for_a_change_of_the_columns_is_planned_again() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        session.sql("CREATE TABLE t (a bigint, b bigint)").await?.try_collect::<Vec<_>>().await?;
        let table = session.database().shared.catalog.table("public", "t").await?;
        let rewrite = table.begin_rewrite().await?;
        let other = session.database().session();
        let insert = tokio::spawn(async move {
            other.sql("INSERT INTO t (a) VALUES (1)").await?.try_collect::<Vec<_>>().await.map_err(crate::Error::from)
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!insert.is_finished(), "it waits for the right to write");
        let altered = table.definition().with_default_changed("b", Some("7"))?;
        rewrite.redefine(&altered, &["a".to_owned(), "b".to_owned()]).await?;
        insert.await.expect("no panic")?;
        let rows: Vec<_> = session.sql("SELECT b FROM t").await?.try_collect().await?;
        let found: Vec<i64> = rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        assert_eq!(found, [7]);
        Ok(())
    }
}
