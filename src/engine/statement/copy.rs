//! COPY t FROM 'file', COPY t|(query) TO 'file'; STDIN and STDOUT are in [`super::copy_client`].

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};
use datafusion::sql::sqlparser::ast::Query;
use futures::FutureExt;
use rolloutdb_catalogs::Table;
use rolloutdb_sql::{CopyFrom, CopyPlace, CopySource, CopyTo, Statement};
use rolloutdb_udfs::is_plain_numeric;

use super::attempt::attempted;
use super::copy_format::{self, Way};
use super::insert::{complete_rows, filling, note, target_columns};
use super::upkeep::after_write;
use super::{copy_client, done, prompt_rows, query, table_name};
use crate::engine::casts::NUMERIC_IN;
use crate::engine::files::{self, FilesTable, Format, ReadFiles};
use crate::engine::lineage::Draft;
use crate::engine::pinned_models;
use crate::engine::planning::Planned;
use crate::engine::progress::{CopyPosition, Progress, Work};
use crate::engine::session::{Response, Session};
use crate::engine::typing::call;
use crate::error::{Error, Fault, Result};

pub async fn copy_from(session: &Session, copy: &CopyFrom) -> Result<Response> {
    match &copy.place {
        CopyPlace::File(path) => attempted(|_| copy_file(session, copy, path).boxed()).await,
        CopyPlace::Client => copy_client::copy_in(session, copy).await,
    }
}

async fn copy_file(session: &Session, copy: &CopyFrom, path: &str) -> Result<Response> {
    let format = copy_format::of_file(&copy.options, path, Way::From)?;
    let on_error = copy_format::on_error(&copy.options, &format)?;
    let (schema, name) = table_name(&copy.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    let paths = session.gate().read(path)?;
    let bytes_total: Option<u64> = paths.iter().map(|path| std::fs::metadata(path).ok().map(|file| file.len())).sum();
    let input = files::Input::files(paths.clone());
    let position = matches!(format, Format::Records(_)).then(|| Arc::clone(&input.position));
    let source = |columns: SchemaRef| {
        let rows = match format {
            Format::Records(format) => {
                copy_format::check_columns(&format, &columns, &name)?;
                files::record_table(input, format, columns, on_error, session.notices())
            }
            Format::Columnar(format) => files::columnar_table(&paths, format)?,
        };
        Ok(FilesTable::provider(rows, ReadFiles::new(path, paths)))
    };
    let origin = Origin { name: path, kind: "FILE", bytes_total, position };
    let count = append(session, &table, copy, origin, source).await?;
    Ok(done(format!("COPY {count}")))
}

/// Where rows come from, for messages and for those who watch.
pub struct Origin<'a> {
    pub name: &'a str,
    /// As `pg_stat_progress_copy` has it: FILE or PIPE.
    pub kind: &'static str,
    pub bytes_total: Option<u64>,
    /// `None`: the bytes are read by others.
    pub position: Option<Arc<CopyPosition>>,
}

/// Adds the rows of a source of these columns, all nullable, to a table.
pub async fn append(
    session: &Session,
    table: &Table,
    copy: &CopyFrom,
    origin: Origin<'_>,
    source: impl FnOnce(SchemaRef) -> Result<Arc<dyn TableProvider>>,
) -> Result<u64> {
    pinned_models::check(session, table)?;
    let targets = target_columns(table, &copy.columns, None)?;
    // A missing value is the table's business (NOT NULL), not the file's.
    let fields = targets.iter().map(|index| table.definition().schema.field(*index).clone().with_nullable(true));
    let target_schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let provider = source(Arc::clone(&target_schema))?;
    let scan = LogicalPlanBuilder::scan("file", provider_as_source(provider), None)?.build()?;
    let state = session.context().state();
    let draft = Draft::of_rows(&scan, table, copy)?;
    let plan = by_name(scan, &target_schema, origin.name, &state)?;
    let source = Planned { plan, state };
    let planned = complete_rows(session, source, table, &targets)?;
    let name = Some((table.schema_name().to_owned(), table.name().to_owned()));
    let Origin { kind, bytes_total, position, .. } = origin;
    let work = Work::Copy { command: "COPY FROM", source: kind, table: name, bytes_total, position };
    let started = planned.start(None).await?;
    let progress = Progress::of(session.notices(), work, format!("COPY {}", table.name()), "rows", started.num_rows());
    let progress = filling(session, table, progress)?;
    let rows = prompt_rows::checked(table, started.rows, 0);
    let count = table.append(progress.watch(rows)).await?;
    note(draft, session, table, count).await;
    after_write(session, table).await;
    Ok(count)
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
    let CopyPlace::File(path) = &copy.place else { return copy_client::copy_out(session, copy, parameters).await };
    let format = copy_format::of_file(&copy.options, path, Way::To)?;
    let target = session.gate().write(path)?;
    let query = copied_query(&copy.source)?;
    let (rows, total) = query::counted_rows(session, &query, parameters).await?;
    if let Format::Records(records) = &format {
        copy_format::check_columns(records, &rows.schema(), path)?;
    }
    let table = match &copy.source {
        CopySource::Table(table, _) => Some(table_name(table)?),
        CopySource::Query(_) => None,
    };
    let position = Arc::<CopyPosition>::default();
    let work = Work::Copy { command: "COPY TO", source: "FILE", table, bytes_total: None, position: Some(Arc::clone(&position)) };
    let progress = Progress::of(session.notices(), work, format!("COPY TO {path}"), "rows", total);
    let rows = progress.watch(rows);
    let rows = if matches!(format, Format::Records(_)) { files::in_pieces(rows, session.memory_pool()) } else { rows };
    let count = files::write(&target, format, rows, &position).await?;
    Ok(done(format!("COPY {count}")))
}

/// The query whose rows are written.
pub fn copied_query(source: &CopySource) -> Result<Box<Query>> {
    let (table, columns) = match source {
        CopySource::Query(query) => return Ok(query.clone()),
        CopySource::Table(table, columns) => (table, columns),
    };
    let list = columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let sql = format!("SELECT {} FROM {table}", if list.is_empty() { "*" } else { &list });
    match rolloutdb_sql::parse(&sql)?.pop() {
        Some(Statement::Query(query)) => Ok(query),
        _ => Err(Error::Internal(format!("not a query: {sql}"))),
    }
}
