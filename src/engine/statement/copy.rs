//! COPY t FROM 'file', COPY t|(query) TO 'file'.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::ScalarValue;
use datafusion::datasource::provider_as_source;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::physical_plan::streaming::PartitionStream;
use rolloutdb_sql::{CopyFrom, CopySource, CopyTo, Options, Statement};

use super::insert::{complete_rows, refresh_indexes, target_columns};
use super::{done, empty_rows, table_name};
use crate::engine::files::{self, CsvOptions, Format};
use crate::engine::options;
use crate::engine::planning::{Planned, plan_query};
use crate::engine::progress::Progress;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

const OPTIONS: &[&str] = &["format", "header", "delimiter"];

pub async fn copy_from(session: &Session, copy: &CopyFrom) -> Result<Response> {
    let (format, csv) = layout(&copy.options, Path::new(&copy.path))?;
    let (schema, name) = table_name(&copy.table)?;
    let table = session.database().shared.catalog.table(&schema, &name).await?;
    let columns: Vec<String> = copy.columns.iter().map(|ident| ident.value.clone()).collect();
    let targets = target_columns(&table, &columns)?;
    let file_schema = Arc::new(table.definition().schema.project(&targets).map_err(super::arrow)?);
    // A missing value is the table's business (NOT NULL), not the file's.
    let fields: Vec<_> = file_schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let file_schema = Arc::new(arrow::datatypes::Schema::new(fields));
    let rows = files::read(Path::new(&copy.path), format, csv, Arc::clone(&file_schema))?;
    let scan = StreamingTable::try_new(file_schema, vec![Arc::new(OneShot::new(rows))])?;
    let plan = LogicalPlanBuilder::scan("file", provider_as_source(Arc::new(scan)), None)?.build()?;
    let source = Planned { plan, state: session.context().state() };
    let planned = complete_rows(source, &table, &targets)?;
    let progress = Progress::new(session.notices(), format!("COPY {name}"), "rows", None);
    let count = table.append(progress.watch(planned.stream().await?)).await?;
    refresh_indexes(session, &table).await;
    Ok(done(format!("COPY {count}")))
}

pub async fn copy_to(session: &Session, copy: &CopyTo, parameters: &[ScalarValue]) -> Result<Response> {
    let path = PathBuf::from(&copy.path);
    let (format, csv) = layout(&copy.options, &path)?;
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
    let progress = Progress::new(session.notices(), format!("COPY TO {}", path.display()), "rows", None);
    let count = files::write(&path, format, csv, progress.watch(rows)).await?;
    Ok(done(format!("COPY {count}")))
}

fn layout(given: &Options, path: &Path) -> Result<(Format, CsvOptions)> {
    options::check_known("COPY", given, OPTIONS)?;
    let format = Format::resolve(options::text(given, "format")?, path)?;
    let mut csv = CsvOptions { has_header: options::boolean(given, "header", true)?, ..CsvOptions::default() };
    if let Some(delimiter) = options::text(given, "delimiter")? {
        let [byte] = delimiter.as_bytes() else {
            return Err(Error::InvalidParameter {
                name: "DELIMITER".to_owned(),
                found: format!("'{delimiter}'"),
                expected: "one single-byte character".to_owned(),
            });
        };
        csv.delimiter = *byte;
    }
    Ok((format, csv))
}

/// A stream as a table that is scanned once.
struct OneShot {
    schema: arrow::datatypes::SchemaRef,
    stream: Mutex<Option<SendableRecordBatchStream>>,
}

impl OneShot {
    fn new(stream: SendableRecordBatchStream) -> Self {
        Self { schema: stream.schema(), stream: Mutex::new(Some(stream)) }
    }
}

impl std::fmt::Debug for OneShot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OneShot")
    }
}

impl PartitionStream for OneShot {
    fn schema(&self) -> &arrow::datatypes::SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_else(empty_rows)
    }
}
