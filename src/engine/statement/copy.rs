//! COPY t FROM 'file', COPY t|(query) TO 'file'.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};
use futures::FutureExt;
use rolloutdb_sql::{CopyFrom, CopySource, CopyTo, Options, Statement};
use rolloutdb_udfs::is_plain_numeric;

use super::attempt::attempted;
use super::insert::{complete_rows, target_columns};
use super::upkeep::after_write;
use super::{done, table_name};
use crate::engine::casts::NUMERIC_IN;
use crate::engine::files::{self, ColumnSource, CsvOptions, Format, OnError};
use crate::engine::options;
use crate::engine::pinned_models;
use crate::engine::planning::{Planned, plan_query};
use crate::engine::progress::Progress;
use crate::engine::session::{Response, Session};
use crate::engine::typing::call;
use crate::error::{Error, Fault, Result};

const TO_OPTIONS: &[&str] = &["format", "header", "delimiter"];
const FROM_OPTIONS: &[&str] = &["format", "header", "delimiter", "on_error"];

pub async fn copy_from(session: &Session, copy: &CopyFrom) -> Result<Response> {
    attempted(|_| copy_from_once(session, copy).boxed()).await
}

async fn copy_from_once(session: &Session, copy: &CopyFrom) -> Result<Response> {
    options::check_known("COPY", &copy.options, FROM_OPTIONS)?;
    let format = format(&copy.options, &copy.path)?;
    let on_error = on_error(&copy.options, format)?;
    let (schema, name) = table_name(&copy.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    pinned_models::check(session, &table)?;
    let targets = target_columns(&table, &copy.columns, None)?;
    // A missing value is the table's business (NOT NULL), not the file's.
    let fields = targets.iter().map(|index| table.definition().schema.field(*index).clone().with_nullable(true));
    let target_schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let paths = session.gate().read(&copy.path)?;
    let provider = match format {
        Format::Text(format) => {
            files::text_table(paths, format, ColumnSource::Given(Arc::clone(&target_schema)), on_error, session.notices())?
        }
        Format::Columnar(format) => files::columnar_table(&paths, format)?,
    };
    let scan = LogicalPlanBuilder::scan("file", provider_as_source(provider), None)?.build()?;
    let state = session.context().state();
    let plan = by_name(scan, &target_schema, &copy.path, &state)?;
    let source = Planned { plan, state };
    let planned = complete_rows(source, &table, &targets)?;
    let progress = Progress::new(session.notices(), format!("COPY {name}"), "rows", None);
    let count = table.append(progress.watch(planned.stream().await?)).await?;
    after_write(session, &table).await;
    Ok(done(format!("COPY {count}")))
}

/// The columns of the file that the table has, in the table's order; NULL for those that the file lacks.
fn by_name(file: LogicalPlan, targets: &SchemaRef, path: &str, state: &SessionState) -> Result<LogicalPlan> {
    let has = |name: &str| file.schema().fields().iter().any(|field| field.name() == name);
    if !targets.fields().iter().any(|field| has(field.name())) {
        let names: Vec<&str> = targets.fields().iter().map(|field| field.name().as_str()).collect();
        let known: Vec<&str> = file.schema().fields().iter().map(|field| field.name().as_str()).collect();
        let reason = format!("its columns ({}) are none of {}", known.join(", "), names.join(", "));
        return Err(Error::BadInput { path: PathBuf::from(path), line: None, reason, fault: Fault::Form });
    }
    let column = |target: &FieldRef| match file.schema().field_with_unqualified_name(target.name()) {
        Ok(found) => read_column(found, target, state),
        Err(_) => Ok(lit(ScalarValue::Null).alias(target.name())),
    };
    let columns = targets.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlanBuilder::new(file).project(columns)?.build()?)
}

/// A decimal of a file keeps its digits where the column's were not declared, or is an error; it is not rounded.
fn read_column(found: &Field, target: &Field, state: &SessionState) -> Result<Expr> {
    let column = Expr::Column(Column::from_name(found.name()));
    let is_other = found.data_type().is_decimal() && found.data_type() != target.data_type();
    if !is_plain_numeric(target) || !is_other {
        return Ok(column);
    }
    Ok(call(state, NUMERIC_IN, vec![cast(column, DataType::Utf8)])?.alias(target.name()))
}

pub async fn copy_to(session: &Session, copy: &CopyTo, parameters: &[ScalarValue]) -> Result<Response> {
    options::check_known("COPY", &copy.options, TO_OPTIONS)?;
    let format = format(&copy.options, &copy.path)?;
    let path = session.gate().write(&copy.path)?;
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
    let count = files::write(&path, format, progress.watch(rows)).await?;
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
