//! CREATE TABLE [AS], DROP TABLE.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::TableType;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Expr as SqlExpr, Ident};
use rolloutdb_catalogs::TableDefinition;
use rolloutdb_sql::{ColumnDefinition, CreateTable, DescribeTable, DropTable, Statement};

use super::{arrow, done, rows, table_name};
use crate::engine::planning::plan_query;
use crate::engine::progress::Progress;
use crate::engine::session::{CATALOG_NAME, Response, Session};
use crate::engine::typing::sql_type_name;
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

pub fn description_schema() -> SchemaRef {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    Arc::new(Schema::new(vec![
        text("column_name", false),
        text("data_type", false),
        Field::new("nullable", DataType::Boolean, false),
        Field::new("primary_key", DataType::Boolean, false),
        text("default", true),
    ]))
}

/// One row per column. A view has no keys and no defaults.
pub async fn describe(session: &Session, describe: &DescribeTable) -> Result<Response> {
    let (schema, name) = table_name(&describe.name)?;
    let catalog = session.context().catalog(CATALOG_NAME);
    let provider = match catalog.and_then(|catalog| catalog.schema(&schema)) {
        Some(schema) => schema.table(&name).await?,
        None => None,
    };
    let shared = &session.database().shared;
    let (columns, definition) = match provider {
        Some(provider) if provider.table_type() != TableType::Base => (provider.schema(), None),
        // The catalog's error names the nearest tables.
        _ => {
            let table = shared.catalog.table(&schema, &name).await?;
            (table.definition().schema.clone(), Some(table.definition().clone()))
        }
    };
    let default = |column: &str| {
        let definition = definition.as_ref()?;
        let generated = definition.generated.get(column).map(|expression| format!("GENERATED ALWAYS AS ({expression}) STORED"));
        generated.or_else(|| definition.defaults.get(column).cloned())
    };
    let is_key = |column: &String| definition.as_ref().is_some_and(|definition| definition.primary_key.contains(column));
    let fields = columns.fields();
    let batch = RecordBatch::try_new(
        description_schema(),
        vec![
            Arc::new(StringArray::from_iter_values(fields.iter().map(|field| field.name()))),
            Arc::new(StringArray::from_iter_values(fields.iter().map(|field| sql_type_name(field.data_type())))),
            Arc::new(fields.iter().map(|field| Some(field.is_nullable())).collect::<BooleanArray>()),
            Arc::new(fields.iter().map(|field| Some(is_key(field.name()))).collect::<BooleanArray>()),
            Arc::new(fields.iter().map(|field| default(field.name())).collect::<StringArray>()),
        ],
    );
    Ok(rows("DESCRIBE", batch.map_err(arrow)?))
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
