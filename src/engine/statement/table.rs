//! CREATE TABLE [AS], DROP TABLE.

use arrow::datatypes::{Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Expr as SqlExpr, Ident};
use rolloutdb_catalogs::TableDefinition;
use rolloutdb_sql::{ColumnDefinition, CreateTable, DropTable, Statement};

use super::{done, table_name};
use crate::engine::planning::plan_query;
use crate::engine::progress::Progress;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

pub async fn create(session: &Session, create: &CreateTable, parameters: &[ScalarValue]) -> Result<Response> {
    let (schema, table) = table_name(&create.name)?;
    let catalog = &session.database().shared.catalog;
    if create.if_not_exists && catalog.tables(&schema)?.contains(&table) {
        session.notices().notice(format!("table \"{table}\" already exists, skipping"));
        return Ok(done("CREATE TABLE"));
    }
    if create.query.is_some() {
        return create_as(session, create, &schema, &table, parameters).await;
    }
    let definition = definition(session, create).await?;
    catalog.create_table(&schema, &table, definition, create.if_not_exists).await?;
    Ok(done("CREATE TABLE"))
}

async fn create_as(session: &Session, create: &CreateTable, schema: &str, table: &str, parameters: &[ScalarValue]) -> Result<Response> {
    let Some(query) = &create.query else { return Err(Error::Internal("CREATE TABLE AS without a query".to_owned())) };
    if !create.columns.is_empty() {
        return Err(Error::NotSupported(
            "column definitions in CREATE TABLE AS are not supported yet; name the columns in the query".to_owned(),
        ));
    }
    let planned = plan_query(session, query, parameters).await?;
    let stream = planned.stream().await?;
    let mut definition = TableDefinition::new(&stream.schema())?;
    let key: Vec<&str> = create.primary_key.iter().map(|column| column.value.as_str()).collect();
    if !key.is_empty() {
        definition = definition.with_primary_key(&key)?;
    }
    let progress = Progress::new(session.notices(), format!("CREATE TABLE {table}"), "rows", None);
    let stream = progress.watch(stream);
    let created = session.database().shared.catalog.create_table_from(schema, table, definition, stream).await?;
    Ok(done(format!("SELECT {}", created.row_count().await?)))
}

async fn definition(session: &Session, create: &CreateTable) -> Result<TableDefinition> {
    let mut fields = Vec::with_capacity(create.columns.len());
    for column in &create.columns {
        let data_type = column_type(session, &column.name, &column.data_type).await?;
        fields.push(Field::new(&column.name.value, data_type, !column.not_null));
    }
    let mut definition = TableDefinition::new(&Schema::new(fields))?;
    let key: Vec<&str> = key_columns(create).iter().map(|ident| ident.value.as_str()).collect();
    if !key.is_empty() {
        definition = definition.with_primary_key(&key)?;
    }
    for column in &create.columns {
        definition = with_expressions(session, definition, column).await?;
    }
    Ok(definition)
}

fn key_columns(create: &CreateTable) -> Vec<&Ident> {
    create.primary_key_columns()
}

async fn with_expressions(session: &Session, definition: TableDefinition, column: &ColumnDefinition) -> Result<TableDefinition> {
    if column.unique {
        return Err(Error::NotSupported(format!("UNIQUE on column {} is not supported yet; PRIMARY KEY is", column.name)));
    }
    let definition = match &column.default {
        None => definition,
        Some(default) => {
            check_expression(session, "", default).await?;
            definition.with_default(&column.name.value, &default.to_string())?
        }
    };
    match &column.generated {
        None => Ok(definition),
        Some(expression) => {
            let columns: Vec<String> = definition
                .schema
                .fields()
                .iter()
                .filter(|field| field.name() != &column.name.value)
                .map(|field| format!("CAST(NULL AS {}) AS \"{}\"", super::super::typing::sql_type_name(field.data_type()), field.name()))
                .collect();
            check_expression(session, &format!(" FROM (SELECT {}) AS t", columns.join(", ")), expression).await?;
            Ok(definition.with_generated(&column.name.value, &expression.to_string())?)
        }
    }
}

/// An expression that cannot be planned is refused now, not at the first INSERT.
async fn check_expression(session: &Session, from: &str, expression: &SqlExpr) -> Result<()> {
    plan_text(session, &format!("SELECT {expression}{from}")).await.map(|_| ())
}

async fn plan_text(session: &Session, sql: &str) -> Result<crate::engine::planning::Planned> {
    match rolloutdb_sql::parse(sql)?.pop() {
        Some(Statement::Query(query)) => plan_query(session, &query, &[]).await,
        _ => Err(Error::Internal(format!("not a query: {sql}"))),
    }
}

/// The Arrow type of a column's SQL type, as the planner reads it in a cast.
async fn column_type(session: &Session, name: &Ident, sql_type: &SqlType) -> Result<arrow::datatypes::DataType> {
    let planned = plan_text(session, &format!("SELECT CAST(NULL AS {sql_type})")).await.map_err(|error| match error {
        Error::DataFusion(inner) => {
            Error::NotSupported(format!("type {sql_type} of column {name} is not supported: {}", inner.strip_backtrace()))
        }
        other => other,
    })?;
    Ok(planned.plan.schema().field(0).data_type().clone())
}

pub async fn drop(session: &Session, drop: &DropTable) -> Result<Response> {
    let catalog = &session.database().shared.catalog;
    for name in &drop.names {
        let (schema, table) = table_name(name)?;
        let exists = catalog.tables(&schema).is_ok_and(|tables| tables.contains(&table));
        if !exists && drop.if_exists {
            session.notices().notice(format!("table \"{table}\" does not exist, skipping"));
            continue;
        }
        catalog.drop_table(&schema, &table).await?;
    }
    Ok(done("DROP TABLE"))
}
