//! INSERT, and what it shares with COPY FROM: rows of some columns become whole rows of the table.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, when};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, SetExpr, Value, With,
};
use futures::FutureExt;
use rolloutdb_catalogs::{Identity, Table};
use rolloutdb_sql::{ConflictAction, Insert, OnConflict, Overriding, Statement, is_default};

use super::attempt::{Attempt, attempted};
use super::change::assignment::new_value;
use super::change::returning::{self, KeptRows};
use super::change::template;
use super::change::upsert::{self, DoUpdate};
use super::upkeep::after_write;
use super::{done, prompt_rows, query, table_name};
use crate::engine::casts;
use crate::engine::function::identity_numbers;
use crate::engine::lineage::Draft;
use crate::engine::parameter_types::PARAMETERS_MAX;
use crate::engine::pinned_models;
use crate::engine::planning::{KeptRun, Planned, Started, plan_source};
use crate::engine::privileges::relations::check_models;
use crate::engine::progress::{Progress, Work};
use crate::engine::session::{Description, Response, Session};
use crate::engine::typing::{assign, parameter_type_name};
use crate::error::{Error, Result};

/// `kept`: for EXPLAIN ANALYZE.
pub async fn execute(session: &Session, insert: &Insert, parameters: &[ScalarValue], kept: Option<&KeptRun>) -> Result<Response> {
    attempted(|attempt| execute_once(session, insert, parameters, kept, attempt).boxed()).await
}

async fn execute_once(
    session: &Session,
    insert: &Insert,
    parameters: &[ScalarValue],
    kept: Option<&KeptRun>,
    attempt: Attempt,
) -> Result<Response> {
    let (schema, name) = table_name(&insert.target.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    pinned_models::check(session, &table)?;
    match (&insert.on_conflict, do_update(insert)) {
        (None, _) => insert_all(session, insert, &table, parameters, kept).await,
        (Some(_), Some(update)) => upsert::insert_or_update(session, insert, &table, &update, parameters, kept, attempt).await,
        (Some(conflict), None) => upsert::insert_or_skip(session, insert, &table, &conflict.columns, parameters, kept, attempt).await,
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

async fn insert_all(
    session: &Session,
    insert: &Insert,
    table: &Table,
    parameters: &[ScalarValue],
    kept_run: Option<&KeptRun>,
) -> Result<Response> {
    let alias = insert.target.name();
    let planned = plan(session, insert, table, parameters).await?;
    let draft = Draft::of_rows(&planned.plan, table, insert)?;
    let rows = watched_rows(session, table, planned.start(kept_run).await?)?;
    if insert.returning.is_empty() {
        let count = table.append(rows).await?;
        note(draft, session, table, count).await;
        after_write(session, table).await;
        return Ok(done(format!("INSERT 0 {count}")));
    }
    // Before anything is written: an error afterwards would hide that it was.
    returning::plan(session, &insert.returning, &alias, table).await?;
    let (rows, kept) = KeptRows::of(rows);
    let count = table.append(rows).await?;
    note(draft, session, table, count).await;
    after_write(session, table).await;
    returning::response(session, &insert.returning, &alias, kept, parameters, "INSERT").await
}

/// Notes where rows came from, if there are any.
pub async fn note(draft: Option<Draft>, session: &Session, table: &Table, num_rows: u64) {
    if let Some(draft) = draft.filter(|_| num_rows > 0) {
        Box::pin(draft.note(session, table)).await;
    }
}

/// The rows to write, which tell how many have come.
pub fn watched_rows(session: &Session, table: &Table, started: Started) -> Result<SendableRecordBatchStream> {
    let progress = Progress::new(session.notices(), format!("INSERT INTO {}", table.name()), "rows", started.num_rows());
    Ok(filling(session, table, progress)?.watch(prompt_rows::checked(table, started.rows, 0)))
}

/// Progress of new rows, which is that of the columns that models fill too.
pub fn filling(session: &Session, table: &Table, progress: Progress) -> Result<Progress> {
    let name = (table.schema_name().to_owned(), table.name().to_owned());
    let columns = pinned_models::columns(session, table)?;
    Ok(columns.into_iter().fold(progress, |progress, column| progress.also(Work::Embed { table: name.clone(), column })))
}

pub async fn describe(session: &Session, insert: &Insert) -> Result<Description> {
    let (schema, name) = table_name(&insert.target.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    let planned = Source::of(insert, &table)?.plan(session, &[]).await?;
    let mut description = query::description(&planned)?;
    description.columns = Arc::new(Schema::empty());
    if let Some(update) = do_update(insert) {
        let planned = update.plan(session, insert, &table, &[]).await?;
        description.parameters = query::joined_parameters(description.parameters, query::description(&planned)?.parameters);
    }
    if !insert.returning.is_empty() {
        let returned = query::description(&returning::plan(session, &insert.returning, &insert.target.name(), &table).await?)?;
        description.columns = returned.columns;
        description.parameters = query::joined_parameters(description.parameters, returned.parameters);
    }
    for (number, field) in placeholder_types(insert, &table)? {
        if description.parameters.len() < number {
            description.parameters.resize(number, None);
        }
        description.parameters[number - 1] = Some(field);
    }
    Ok(description)
}

/// The query whose rows would be written, for plain EXPLAIN.
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
    let source = Source::of(insert, table)?;
    let rows = source.plan(session, parameters).await?;
    let found = rows.plan.schema().fields().len();
    check_count(found, source.purposes.len(), !insert.columns.is_empty())?;
    let rows = assign_columns(rows, table, &source.purposes[..found])?;
    // A default may call one.
    check_models(&session.access(), &rows.plan)?;
    Ok(rows)
}

/// What a column of the rows that are given is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It has the values of this column of the table.
    Values(usize),
    /// It says of each row whether the table numbers this column: some rows bring their number.
    IsNumbered(usize),
    /// It is ignored: the table computes or numbers the column.
    Nothing,
}

/// What an INSERT gives of its rows, to be planned.
struct Source {
    /// None: one row without columns.
    query: Option<Query>,
    /// Of the query's columns; it may have fewer when no columns are named.
    purposes: Vec<Purpose>,
}

impl Source {
    fn of(insert: &Insert, table: &Table) -> Result<Self> {
        let Some(query) = &insert.source else { return Ok(Self { query: None, purposes: vec![] }) };
        let mut query = query.as_ref().clone();
        let purposes = match query.body.as_mut() {
            SetExpr::Values(values) => {
                let given: Vec<Vec<SqlExpr>> = values.rows.iter_mut().map(|row| std::mem::take(&mut row.content)).collect();
                let (resolved, purposes) = resolve_values(table, &insert.columns, insert.overriding, &given)?;
                for (row, resolved) in values.rows.iter_mut().zip(resolved) {
                    row.content = resolved;
                }
                purposes
            }
            _ => {
                let targets = target_columns(table, &insert.columns, insert.overriding)?;
                targets.into_iter().map(|target| purpose_of(table, target, insert.overriding, true)).collect::<Result<_>>()?
            }
        };
        Ok(Self { query: Some(within(insert.with.as_ref(), query)?), purposes })
    }

    async fn plan(&self, session: &Session, parameters: &[ScalarValue]) -> Result<Planned> {
        match &self.query {
            Some(query) => plan_source(session, query, parameters).await,
            None => Ok(Planned { plan: LogicalPlanBuilder::empty(true).build()?, state: session.context().state() }),
        }
    }
}

/// The query, which can name those of `with`.
fn within(with: Option<&With>, mut query: Query) -> Result<Query> {
    let Some(with) = with else { return Ok(query) };
    if query.with.is_some() {
        let mut outer = template("SELECT 1")?;
        *outer.body = SetExpr::Query(Box::new(query));
        query = outer;
    }
    query.with = Some(with.clone());
    Ok(query)
}

fn check_count(found: usize, targets: usize, is_exact: bool) -> Result<()> {
    if found <= targets && (!is_exact || found == targets) {
        return Ok(());
    }
    let (few, many) = if found > targets { ("expressions", "target columns") } else { ("target columns", "expressions") };
    Err(Error::ColumnCount(format!("INSERT has more {few} than {many}")))
}

/// Rows of a VALUES list with defaults filled in, with each parameter cast to its column's type, which the planner does not find out by itself, and
/// with NULL for each DEFAULT that the table computes or numbers; and what their columns are for. A column that is numbered in some of the rows only
/// gets one more behind the others.
pub fn resolve_values(
    table: &Table,
    columns: &[Ident],
    overriding: Option<Overriding>,
    rows: &[Vec<SqlExpr>],
) -> Result<(Vec<Vec<SqlExpr>>, Vec<Purpose>)> {
    let definition = table.definition();
    let width = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() != width) {
        return Err(Error::ColumnCount("VALUES lists must all have the same length".to_owned()));
    }
    let targets = targets_of_values(table, columns, overriding, rows)?;
    check_count(width, targets.len(), !columns.is_empty())?;
    let mut purposes = Vec::with_capacity(width);
    let mut numbered = Vec::new();
    for (position, target) in targets.iter().take(width).enumerate() {
        let is_default = |row: &Vec<SqlExpr>| is_default(&row[position]);
        let purpose = purpose_of(table, *target, overriding, !rows.iter().all(is_default))?;
        if purpose != Purpose::Nothing && is_left_to_table(table, *target) && rows.iter().any(is_default) {
            numbered.push(position);
        }
        purposes.push(purpose);
    }
    let mut resolved = Vec::with_capacity(rows.len());
    for row in rows {
        let mut values = Vec::with_capacity(width + numbered.len());
        for (value, target) in row.iter().zip(&targets) {
            values.push(match is_default(value) && is_left_to_table(table, *target) {
                true => SqlExpr::value(Value::Null),
                false => new_value(definition, definition.schema.field(*target), value)?,
            });
        }
        values.extend(numbered.iter().map(|position| SqlExpr::value(Value::Boolean(is_default(&row[*position])))));
        resolved.push(values);
    }
    purposes.extend(numbered.iter().map(|position| Purpose::IsNumbered(targets[*position])));
    Ok((resolved, purposes))
}

/// `is_given`: whether any row has more than the word DEFAULT for the column.
fn purpose_of(table: &Table, target: usize, overriding: Option<Overriding>, is_given: bool) -> Result<Purpose> {
    let column = table.definition().schema.field(target).name();
    if is_given && takes_no_value(table, column, overriding) {
        return Err(Error::GeneratedColumn(column.clone()));
    }
    let is_ignored = !is_given || overriding == Some(Overriding::User);
    Ok(if is_ignored && is_left_to_table(table, target) { Purpose::Nothing } else { Purpose::Values(target) })
}

/// The columns that rows of a VALUES list are for: those named, else those of the table in order. Rows that leave out the columns that take no value
/// are understood too, unless they have DEFAULT where such a column stands.
fn targets_of_values(table: &Table, columns: &[Ident], overriding: Option<Overriding>, rows: &[Vec<SqlExpr>]) -> Result<Vec<usize>> {
    if !columns.is_empty() {
        return named_columns(table, columns);
    }
    let fields = table.definition().schema.fields();
    let taking = columns_that_take_values(table, overriding);
    let width = rows.first().map_or(0, Vec::len);
    let fits =
        |position: usize| !takes_no_value(table, fields[position].name(), overriding) || rows.iter().all(|row| is_default(&row[position]));
    let is_of_all = width > taking.len() || (0..width).all(fits);
    Ok(if is_of_all { (0..fields.len()).collect() } else { taking })
}

/// The positions of the columns that given values are for: those named, else all that take a value.
///
/// # Errors
/// Unknown, repeated or generated column.
pub fn target_columns(table: &Table, columns: &[Ident], overriding: Option<Overriding>) -> Result<Vec<usize>> {
    if columns.is_empty() {
        return Ok(columns_that_take_values(table, overriding));
    }
    let targets = named_columns(table, columns)?;
    match columns.iter().find(|column| takes_no_value(table, &column.value, overriding)) {
        Some(column) => Err(Error::GeneratedColumn(column.value.clone())),
        None => Ok(targets),
    }
}

fn columns_that_take_values(table: &Table, overriding: Option<Overriding>) -> Vec<usize> {
    let fields = table.definition().schema.fields();
    (0..fields.len()).filter(|index| !takes_no_value(table, fields[*index].name(), overriding)).collect()
}

fn named_columns(table: &Table, columns: &[Ident]) -> Result<Vec<usize>> {
    let schema = &table.definition().schema;
    let mut targets = Vec::with_capacity(columns.len());
    for Ident { value: column, .. } in columns {
        let index = schema.index_of(column).map_err(|_| Error::UnknownColumn {
            table: table.name().to_owned(),
            name: column.clone(),
            known: schema.fields().iter().map(|field| field.name().clone()).collect(),
        })?;
        if targets.contains(&index) {
            return Err(Error::ColumnCount(format!("column {column} is named twice")));
        }
        targets.push(index);
    }
    Ok(targets)
}

/// Computed or numbered by the table alone.
fn takes_no_value(table: &Table, column: &str, overriding: Option<Overriding>) -> bool {
    let definition = table.definition();
    definition.generated.contains_key(column) || (overriding.is_none() && definition.identity.get(column) == Some(&Identity::Always))
}

/// Computed or numbered by the table where a row has no value.
fn is_left_to_table(table: &Table, target: usize) -> bool {
    let definition = table.definition();
    let column = definition.schema.field(target).name();
    definition.generated.contains_key(column) || definition.identity.contains_key(column)
}

/// `source`'s columns are the table's `targets`; the rest take their number, their default or NULL, then the generated columns are computed.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501) for a model that the session's role may not run.
pub fn complete_rows(session: &Session, source: Planned, table: &Table, targets: &[usize]) -> Result<Planned> {
    let purposes: Vec<Purpose> = targets.iter().map(|target| Purpose::Values(*target)).collect();
    let rows = generate_columns(assign_columns(source, table, &purposes)?, table)?;
    check_models(&session.access(), &rows.plan)?;
    Ok(rows)
}

fn assign_columns(source: Planned, table: &Table, purposes: &[Purpose]) -> Result<Planned> {
    let Planned { plan, state } = source;
    let definition = table.definition();
    let source_schema = Arc::clone(plan.schema());
    let column_for = |purpose: Purpose| {
        let position = purposes.iter().position(|found| *found == purpose)?;
        Some(Expr::Column(Column::from(source_schema.qualified_field(position))))
    };
    let mut stored = Vec::with_capacity(definition.schema.fields().len());
    for (index, field) in definition.schema.fields().iter().enumerate() {
        let value = match (column_for(Purpose::Values(index)), definition.defaults.get(field.name())) {
            (Some(column), _) => column,
            (None, _) if definition.identity.contains_key(field.name()) => identity_numbers(table, field.name()),
            (None, Some(default)) => {
                let empty = DFSchema::empty();
                casts::typed_expression(state.create_logical_expr(default, &empty)?, &empty, &state)?
            }
            (None, None) => lit(ScalarValue::Null),
        };
        let value = assign(&state, constant_of(&plan, value), &source_schema, field)?;
        let value = match column_for(Purpose::IsNumbered(index)) {
            Some(is_numbered) => number_where(is_numbered, value, table, field, &state, &source_schema)?,
            None => value,
        };
        stored.push(value.alias(field.name()));
    }
    Ok(Planned { plan: LogicalPlanBuilder::new(plan).project(stored)?.build()?, state })
}

/// The next number of the column where the condition is true, elsewhere `value`, which has the column's type. Only the rows that get a number take one.
pub fn number_where(condition: Expr, value: Expr, table: &Table, column: &Field, state: &SessionState, schema: &DFSchema) -> Result<Expr> {
    let number = assign(state, identity_numbers(table, column.name()), schema, column)?;
    Ok(when(condition, number).otherwise(value)?)
}

/// A quoted constant in a one-row VALUES, or that a SELECT gives, takes the column's type; the planner has made a column of it.
fn constant_of(plan: &LogicalPlan, value: Expr) -> Expr {
    let Expr::Column(column) = &value else { return value };
    let position = plan.schema().index_of_column(column).unwrap_or(usize::MAX);
    if let LogicalPlan::Projection(projection) = plan {
        return match projection.expr.get(position).cloned().map(Expr::unalias) {
            Some(quoted @ Expr::Literal(ScalarValue::Utf8(Some(_)), _)) => quoted,
            _ => value,
        };
    }
    let LogicalPlan::Values(values) = plan else { return value };
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
                let value = casts::typed_expression(state.create_logical_expr(expression, &schema)?, &schema, &state)?;
                assign(&state, value, &schema, field)?
            }
        };
        columns.push(value.alias(field.name()));
    }
    Ok(Planned { plan: LogicalPlanBuilder::new(plan).project(columns)?.build()?, state })
}

fn placeholder_types(insert: &Insert, table: &Table) -> Result<Vec<(usize, FieldRef)>> {
    let Some(SetExpr::Values(values)) = insert.source.as_deref().map(|query| query.body.as_ref()) else { return Ok(vec![]) };
    let rows: Vec<Vec<SqlExpr>> = values.rows.iter().map(|row| row.content.clone()).collect();
    let targets = targets_of_values(table, &insert.columns, insert.overriding, &rows)?;
    let fields = table.definition().schema.fields();
    let typed = rows.iter().flat_map(|row| row.iter().zip(&targets)).filter_map(|(expression, target)| {
        let number: usize = parameter_of(expression, &fields[*target])?.trim_start_matches('$').parse().ok()?;
        (1..=PARAMETERS_MAX).contains(&number).then(|| (number, Arc::clone(&fields[*target])))
    });
    Ok(typed.collect())
}

/// The name of a parameter, `$1`.
fn placeholder(expression: &SqlExpr) -> Option<String> {
    match expression {
        SqlExpr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The name of a parameter that is a column's value as it is: `$1`, or `$1::vector`, which says no more than that for a column of vectors.
pub fn parameter_of(expression: &SqlExpr, column: &Field) -> Option<String> {
    let SqlExpr::Function(call) = expression else { return placeholder(expression) };
    if !matches!(column.data_type(), DataType::FixedSizeList(..)) || !matches!(call.name.to_string().as_str(), "vector_in" | "halfvec_in") {
        return None;
    }
    let FunctionArguments::List(list) = &call.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => placeholder(argument),
        _ => None,
    }
}

/// `CAST($1 AS type)` for the type of a column.
pub fn cast_parameter(placeholder: &str, column: &Field) -> Option<SqlExpr> {
    let type_name = parameter_type_name(column);
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
        let rewrite = table.begin_alter().await?;
        let other = session.database().session();
        let insert = tokio::spawn(async move {
            other.sql("INSERT INTO t (a) VALUES (1)").await?.try_collect::<Vec<_>>().await.map_err(crate::Error::from)
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!insert.is_finished(), "it waits for the change of the columns");
        let altered = table.definition().with_default_changed("b", Some("7"))?;
        rewrite.redefine(&altered, &["a".to_owned(), "b".to_owned()]).await?;
        insert.await.expect("no panic")?;
        let rows: Vec<_> = session.sql("SELECT b FROM t").await?.try_collect().await?;
        let found: Vec<i64> = rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        assert_eq!(found, [7]);
        Ok(())
    }
}
