//! UPDATE and DELETE: the statement becomes a SELECT of row addresses, and of the new rows, over the version that the change is made to.
//!
//! Conditions, joins, subqueries and model calls are those of any query; see `rolloutdb_catalogs` for what happens to the rows found.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr as SqlExpr, FromTable, Ident, ObjectName, Query, SelectItem, SetExpr,
    Statement as SqlStatement, TableFactor, TableWithJoins, Update, UpdateTableFromKind, Visit, Visitor,
};
use rolloutdb_catalogs::{ROW_ADDRESS, Table};
use rolloutdb_sql::Statement;

use super::insert::{cast_text, placeholder, refresh_indexes};
use super::returning::{self, KeptRows, select_from_target};
use super::{done, query, table_name};
use crate::engine::planning::{Planned, plan_rewrite};
use crate::engine::progress::Progress;
use crate::engine::session::{Description, Response, Session};
use crate::engine::typing::assign;
use crate::error::{Error, Result};

pub async fn execute(session: &Session, statement: &SqlStatement, parameters: &[ScalarValue]) -> Result<Response> {
    let change = Change::of(statement)?;
    let table = change.open(session).await?;
    let rewrite = table.begin_rewrite().await?;
    let planned = change.plan(session, rewrite.table(), parameters).await?;
    let progress = Progress::new(session.notices(), format!("{} {}", change.verb(), table.name()), "rows", None);
    if let Some(items) = change.returning() {
        // Before anything is written: an error afterwards would hide that it was.
        returning::plan(session, items, &change.target().alias, rewrite.table()).await?;
    }
    let rows = progress.watch(planned.rows.stream().await?);
    let (rows, kept) = match change.returning() {
        None => (rows, None),
        Some(items) => {
            let (rows, kept) = KeptRows::of_addressed(rows);
            (rows, Some((items, kept)))
        }
    };
    let count = match &change {
        Change::Delete { .. } => rewrite.delete(rows).await?,
        Change::Update { .. } => rewrite.update(rows, planned.keys_change).await?,
    };
    refresh_indexes(session, &table).await;
    match kept {
        Some((items, kept)) => returning::response(session, items, &change.target().alias, kept, parameters, change.verb()).await,
        None => Ok(done(format!("{} {count}", change.verb()))),
    }
}

pub async fn describe(session: &Session, statement: &SqlStatement) -> Result<Description> {
    let change = Change::of(statement)?;
    let table = change.open(session).await?;
    let planned = change.plan(session, &table, &[]).await?;
    let columns = match change.returning() {
        Some(items) => query::description(&returning::plan(session, items, &change.target().alias, &table).await?).columns,
        None => Arc::new(arrow::datatypes::Schema::empty()),
    };
    Ok(Description { columns, ..query::description(&planned.rows) })
}

/// A statement that changes rows of one table.
enum Change<'a> {
    Delete {
        target: Target<'a>,
        others: &'a [TableWithJoins],
        condition: Option<&'a SqlExpr>,
        returning: Option<&'a [SelectItem]>,
    },
    Update {
        target: Target<'a>,
        others: &'a [TableWithJoins],
        condition: Option<&'a SqlExpr>,
        assignments: &'a [Assignment],
        returning: Option<&'a [SelectItem]>,
    },
}

/// The table that is changed, and what the statement calls it.
struct Target<'a> {
    name: &'a ObjectName,
    alias: Ident,
}

struct PlannedChange {
    /// Row addresses first; for an update all columns follow.
    rows: Planned,
    keys_change: bool,
}

impl<'a> Change<'a> {
    fn of(statement: &'a SqlStatement) -> Result<Self> {
        match statement {
            SqlStatement::Delete(delete) => Self::of_delete(delete),
            SqlStatement::Update(update) => Self::of_update(update),
            other => Err(Error::Internal(format!("neither UPDATE nor DELETE: {other}"))),
        }
    }

    fn of_delete(delete: &'a Delete) -> Result<Self> {
        refuse(!delete.order_by.is_empty() || delete.limit.is_some(), "ORDER BY or LIMIT in DELETE")?;
        refuse(!delete.tables.is_empty() || delete.output.is_some(), "this form of DELETE")?;
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [target] = from.as_slice() else { return Err(unsupported("DELETE from several tables; name the others after USING")) };
        Ok(Self::Delete {
            target: Target::of(target)?,
            others: delete.using.as_deref().unwrap_or_default(),
            condition: delete.selection.as_ref(),
            returning: delete.returning.as_deref(),
        })
    }

    fn of_update(update: &'a Update) -> Result<Self> {
        refuse(!update.order_by.is_empty() || update.limit.is_some(), "ORDER BY or LIMIT in UPDATE")?;
        refuse(update.or.is_some() || update.output.is_some(), "this form of UPDATE")?;
        let others = match &update.from {
            None => &[],
            Some(UpdateTableFromKind::AfterSet(others) | UpdateTableFromKind::BeforeSet(others)) => others.as_slice(),
        };
        Ok(Self::Update {
            target: Target::of(&update.table)?,
            others,
            condition: update.selection.as_ref(),
            assignments: &update.assignments,
            returning: update.returning.as_deref(),
        })
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Delete { .. } => "DELETE",
            Self::Update { .. } => "UPDATE",
        }
    }

    fn target(&self) -> &Target<'a> {
        match self {
            Self::Delete { target, .. } | Self::Update { target, .. } => target,
        }
    }

    fn returning(&self) -> Option<&'a [SelectItem]> {
        match self {
            Self::Delete { returning, .. } | Self::Update { returning, .. } => *returning,
        }
    }

    async fn open(&self, session: &Session) -> Result<Arc<Table>> {
        let (schema, name) = table_name(self.target().name)?;
        Ok(session.database().shared.catalog.table(&schema, &name).await?)
    }

    async fn plan(&self, session: &Session, table: &Table, parameters: &[ScalarValue]) -> Result<PlannedChange> {
        match self {
            Self::Delete { target, others, condition, returning } => {
                // The old rows, if they are asked for.
                let fields = returning.iter().flat_map(|_| table.definition().schema.fields());
                let columns = fields.map(|field| target.selected(target.column(field.name()), field)).collect();
                let query = select(target, others, *condition, columns)?;
                let rows = plan_rewrite(session, query, parameters, table.with_addresses()).await?;
                Ok(PlannedChange { rows, keys_change: false })
            }
            Self::Update { target, others, condition, assignments, .. } => {
                let new_values = new_values(table, assignments)?;
                let columns = table.definition().schema.fields().iter().map(|field| new_values.select(target, field)).collect();
                let query = select(target, others, *condition, columns)?;
                let source = plan_rewrite(session, query, parameters, table.with_addresses()).await?;
                let keys_change = table.definition().primary_key.iter().any(|key| new_values.of(key).is_some());
                Ok(PlannedChange { rows: complete(source, table, &new_values)?, keys_change })
            }
        }
    }
}

impl<'a> Target<'a> {
    fn of(table: &'a TableWithJoins) -> Result<Self> {
        let TableFactor::Table { name, alias, args: None, .. } = &table.relation else {
            return Err(unsupported("UPDATE or DELETE of anything but a table"));
        };
        refuse(!table.joins.is_empty(), "a join in the place of the table; name the others after FROM (UPDATE) or USING (DELETE)")?;
        let last = name.0.last().and_then(|part| part.as_ident()).ok_or_else(|| unsupported("this form of a table's name"))?;
        let alias = alias.as_ref().map_or_else(|| last.clone(), |alias| alias.name.clone());
        Ok(Self { name, alias })
    }

    fn selected(&self, expr: SqlExpr, field: &Field) -> SelectItem {
        SelectItem::ExprWithAlias { expr, alias: quoted(field.name()) }
    }

    fn column(&self, name: &str) -> SqlExpr {
        SqlExpr::CompoundIdentifier(vec![quoted(&self.alias.value), quoted(name)])
    }
}

fn refuse(is_there: bool, what: &str) -> Result<()> {
    if is_there { Err(unsupported(what)) } else { Ok(()) }
}

fn unsupported(what: &str) -> Error {
    Error::NotSupported(format!("{what} is not supported yet"))
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// `SELECT alias._rowaddr, columns FROM target AS alias, others WHERE condition`
fn select(target: &Target, others: &[TableWithJoins], condition: Option<&SqlExpr>, columns: Vec<SelectItem>) -> Result<Query> {
    let address = SelectItem::ExprWithAlias { expr: target.column(ROW_ADDRESS), alias: quoted(ROW_ADDRESS) };
    let mut query = select_from_target(&target.alias, std::iter::once(address).chain(columns).collect())?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from.extend_from_slice(others);
        select.selection = condition.cloned();
    }
    Ok(query)
}

/// The assigned columns, and the generated ones that depend on them.
struct NewValues {
    assigned: Vec<(String, SqlExpr)>,
    generated: Vec<String>,
}

impl NewValues {
    fn of(&self, column: &str) -> Option<&SqlExpr> {
        self.assigned.iter().find(|(name, _)| name == column).map(|(_, value)| value)
    }

    /// The column's new value, or its stored one; a generated one is computed later, from the others.
    fn select(&self, target: &Target, field: &Field) -> SelectItem {
        let expr = self.of(field.name()).cloned().unwrap_or_else(|| target.column(field.name()));
        target.selected(expr, field)
    }
}

fn new_values(table: &Table, assignments: &[Assignment]) -> Result<NewValues> {
    let definition = table.definition();
    let mut assigned: Vec<(String, SqlExpr)> = Vec::new();
    for Assignment { target, value } in assignments {
        let AssignmentTarget::ColumnName(name) = target else { return Err(unsupported("SET (a, b) = ...")) };
        let column = name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.clone()).unwrap_or_default();
        let Ok(field) = definition.schema.field_with_name(&column) else {
            return Err(Error::UnknownColumn {
                table: table.name().to_owned(),
                name: column,
                known: definition.schema.fields().iter().map(|field| field.name().clone()).collect(),
            });
        };
        if definition.generated.contains_key(&column) {
            return Err(Error::GeneratedColumn(column));
        }
        if assigned.iter().any(|(name, _)| *name == column) {
            return Err(Error::ColumnCount(format!("column {column} is assigned twice")));
        }
        let value = match value {
            SqlExpr::Identifier(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default") => {
                expression(definition.defaults.get(&column).map_or("NULL", String::as_str))?
            }
            value => match placeholder(value).and_then(|name| cast_text(&name, field.data_type())) {
                Some(typed) => typed,
                None => value.clone(),
            },
        };
        assigned.push((column, value));
    }
    let mut generated = Vec::new();
    for (column, text) in &definition.generated {
        if columns_of(&expression(text)?).iter().any(|used| assigned.iter().any(|(name, _)| name == used)) {
            generated.push(column.clone());
        }
    }
    Ok(NewValues { assigned, generated })
}

/// The expression in a text of SQL.
fn expression(text: &str) -> Result<SqlExpr> {
    let parsed = rolloutdb_sql::parse(&format!("SELECT {text}"))?.pop();
    if let Some(Statement::Query(query)) = parsed
        && let SetExpr::Select(mut select) = *query.body
        && let Some(SelectItem::UnnamedExpr(expression)) = select.projection.pop()
    {
        return Ok(expression);
    }
    Err(Error::Internal(format!("not an expression: {text}")))
}

fn columns_of(expression: &SqlExpr) -> Vec<String> {
    struct Columns(Vec<String>);
    impl Visitor for Columns {
        type Break = ();
        fn pre_visit_expr(&mut self, expression: &SqlExpr) -> std::ops::ControlFlow<()> {
            if let SqlExpr::Identifier(name) = expression {
                self.0.push(name.value.clone());
            }
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut columns = Columns(vec![]);
    let _ = expression.visit(&mut columns);
    columns.0
}

/// Gives each column its type, and computes the generated ones that depend on an assigned one.
fn complete(source: Planned, table: &Table, new_values: &NewValues) -> Result<Planned> {
    let Planned { plan, state } = source;
    let definition = table.definition();
    let schema = Arc::clone(plan.schema());
    let address = Expr::Column(Column::from(schema.qualified_field(0))).alias(ROW_ADDRESS);
    let mut stored = vec![address];
    for (position, field) in definition.schema.fields().iter().enumerate() {
        let value = Expr::Column(Column::from(schema.qualified_field(position + 1)));
        let value = constant_of(&plan, position + 1).unwrap_or(value);
        stored.push(assign(&state, value, &schema, field)?.alias(field.name()));
    }
    let mut builder = LogicalPlanBuilder::new(plan).project(stored)?;
    if !new_values.generated.is_empty() {
        let schema = builder.schema().as_ref().clone();
        let mut columns = vec![Expr::Column(Column::from_name(ROW_ADDRESS))];
        for field in definition.schema.fields() {
            let value = match definition.generated.get(field.name()).filter(|_| new_values.generated.contains(field.name())) {
                Some(expression) => assign(&state, state.create_logical_expr(expression, &schema)?, &schema, field)?,
                None => Expr::Column(Column::from_name(field.name())),
            };
            columns.push(value.alias(field.name()));
        }
        builder = builder.project(columns)?;
    }
    Ok(Planned { plan: builder.build()?, state })
}

/// The literal that the query selects as this column: a quoted constant takes the column's type, as in PostgreSQL, and a text column does not.
fn constant_of(plan: &datafusion::logical_expr::LogicalPlan, position: usize) -> Option<Expr> {
    let datafusion::logical_expr::LogicalPlan::Projection(projection) = plan else { return None };
    match projection.expr.get(position)?.clone().unalias() {
        literal @ Expr::Literal(..) => Some(literal),
        _ => None,
    }
}
