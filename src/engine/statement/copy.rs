//! COPY t FROM 'file', COPY t|(query) TO 'file'.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use rolloutdb_sql::{CopyFrom, CopySource, CopyTo, Options, Statement};
use rolloutdb_udfs::TextType;

use super::attempt::is_void;
use super::insert::{complete_rows, target_columns};
use super::upkeep::after_write;
use super::{done, table_name};
use crate::engine::files::{self, ColumnSource, CsvOptions, Format, OnError};
use crate::engine::options;
use crate::engine::pinned_models;
use crate::engine::planning::{Planned, plan_query};
use crate::engine::progress::Progress;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

const TO_OPTIONS: &[&str] = &["format", "header", "delimiter"];
const FROM_OPTIONS: &[&str] = &["format", "header", "delimiter", "on_error"];

pub async fn copy_from(session: &Session, copy: &CopyFrom) -> Result<Response> {
    let ended = copy_from_once(session, copy).await;
    if is_void(&ended) { copy_from_once(session, copy).await } else { ended }
}

async fn copy_from_once(session: &Session, copy: &CopyFrom) -> Result<Response> {
    options::check_known("COPY", &copy.options, FROM_OPTIONS)?;
    let format = format(&copy.options, &copy.path)?;
    let on_error = on_error(&copy.options, format)?;
    let (schema, name) = table_name(&copy.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    pinned_models::check(session, &table)?;
    let targets = target_columns(&table, &copy.columns, None)?;
    let fields = targets.iter().map(|index| file_field(table.definition().schema.field(*index)));
    let target_schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let provider = match format {
        Format::Text(format) => {
            files::text_table(&copy.path, format, ColumnSource::Given(Arc::clone(&target_schema)), on_error, session.notices())?
        }
        Format::Columnar(format) => files::columnar_table(&copy.path, format)?,
    };
    let scan = LogicalPlanBuilder::scan("file", provider_as_source(provider), None)?.build()?;
    let plan = by_name(scan, &target_schema, &copy.path)?;
    let source = Planned { plan, state: session.context().state() };
    let planned = complete_rows(source, &table, &targets)?;
    let progress = Progress::new(session.notices(), format!("COPY {name}"), "rows", None);
    let count = table.append(progress.watch(planned.stream().await?)).await?;
    after_write(session, &table).await;
    Ok(done(format!("COPY {count}")))
}

/// A missing value is the table's business (NOT NULL), not the file's.
fn file_field(column: &Field) -> Field {
    match TextType::of(column) {
        Some(text_type) => text_type.field(column.name(), true),
        None => Field::new(column.name(), column.data_type().clone(), true),
    }
}

/// The columns of the file that the table has, in the table's order; NULL for those that the file lacks.
fn by_name(file: LogicalPlan, targets: &SchemaRef, path: &str) -> Result<LogicalPlan> {
    let has = |name: &str| file.schema().fields().iter().any(|field| field.name() == name);
    if !targets.fields().iter().any(|field| has(field.name())) {
        let names: Vec<&str> = targets.fields().iter().map(|field| field.name().as_str()).collect();
        let known: Vec<&str> = file.schema().fields().iter().map(|field| field.name().as_str()).collect();
        let reason = format!("its columns ({}) are none of {}", known.join(", "), names.join(", "));
        return Err(Error::BadInput { path: PathBuf::from(path), line: None, reason });
    }
    let column = |name: &String| match has(name) {
        true => Expr::Column(Column::from_name(name)),
        false => lit(ScalarValue::Null).alias(name),
    };
    let columns: Vec<Expr> = targets.fields().iter().map(|field| column(field.name())).collect();
    Ok(LogicalPlanBuilder::new(file).project(columns)?.build()?)
}

pub async fn copy_to(session: &Session, copy: &CopyTo, parameters: &[ScalarValue]) -> Result<Response> {
    options::check_known("COPY", &copy.options, TO_OPTIONS)?;
    let format = format(&copy.options, &copy.path)?;
    let query = match &copy.source {
        CopySource::Query(query) => query.clone(),
        CopySource::Table(table, columns) => {
            let list = columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let sql = format!("SELECT {} FROM {table}", if list.is_empty() { "*" } else { &list });
            match rolloutdb_sql::parse(&sql)?.pop() {
                Some(Statement::Query(query)) => query,
                _ => return Err(Error::Internal(format!("not a query: {sql}"))),
            }
        }
    };
    let rows = plan_query(session, &query, parameters).await?.stream().await?;
    let progress = Progress::new(session.notices(), format!("COPY TO {}", copy.path), "rows", None);
    let count = files::write(Path::new(&copy.path), format, progress.watch(rows)).await?;
    Ok(done(format!("COPY {count}")))
}

fn format(given: &Options, path: &str) -> Result<Format> {
    let mut csv = CsvOptions { has_header: options::boolean(given, "header", true)?, ..CsvOptions::default() };
    if let Some(delimiter) = options::text(given, "delimiter")? {
        csv.delimiter = files::delimiter(delimiter)?;
    }
    Format::resolve(options::text(given, "format")?, path, csv)
}

fn on_error(given: &Options, format: Format) -> Result<OnError> {
    let text = options::text(given, "on_error")?;
    match format {
        Format::Columnar(_) if text.is_some() => Err(Error::NotSupported(
            "ON_ERROR is for lines of jsonl and csv files; a damaged file of another format cannot be read at all".to_owned(),
        )),
        _ => OnError::from_option(text),
    }
}
