//! `information_schema.columns` with the lengths of texts: DataFusion's own has none.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringArray, UInt64Array};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{CatalogProviderList, MemTable, SchemaProvider, Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Statement as SqlStatement, TableAlias, TableFactor, VisitMut, VisitorMut};
use rolloutdb_udfs::TextType;

use crate::error::{Error, Result};

/// The table in its schema.
const COLUMNS: &str = "columns";
/// The name by which a statement reads it.
const INTERNAL_NAME: &str = "__information_schema_columns";

/// Puts the table into `named` if the statement reads it, which then reads it by that name.
pub async fn open(state: &SessionState, statement: &mut SqlStatement, named: &mut HashMap<String, Arc<dyn TableProvider>>) -> Result<()> {
    let mut reader = Reader { reads_columns: false };
    let _ = statement.visit(&mut reader);
    if !reader.reads_columns {
        return Ok(());
    }
    let catalogs = Arc::clone(state.catalog_list());
    let inner = InformationSchemaProvider::new(Arc::clone(&catalogs)).table(COLUMNS).await?;
    let inner = inner.ok_or_else(|| Error::Internal(format!("there is no information_schema.{COLUMNS}")))?;
    named.insert(INTERNAL_NAME.to_owned(), Arc::new(ColumnsTable { inner, catalogs }));
    Ok(())
}

struct Reader {
    reads_columns: bool,
}

impl VisitorMut for Reader {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, args: None, .. } = relation
            && is_columns(name)
        {
            let own_name = || TableAlias { explicit: true, name: Ident::new(COLUMNS), columns: vec![], at: None };
            alias.get_or_insert_with(own_name);
            *name = ObjectName::from(vec![Ident::new(INTERNAL_NAME)]);
            self.reads_columns = true;
        }
        ControlFlow::Continue(())
    }
}

fn is_columns(name: &ObjectName) -> bool {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.to_lowercase()).collect();
    matches!(parts.as_slice(), [.., schema, table] if schema == "information_schema" && table == COLUMNS)
}

#[derive(Debug)]
struct ColumnsTable {
    inner: Arc<dyn TableProvider>,
    catalogs: Arc<dyn CatalogProviderList>,
}

#[async_trait]
impl TableProvider for ColumnsTable {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let plan = self.inner.scan(session, None, &[], None).await?;
        let rows = concat_batches(&self.schema(), &collect(plan, session.task_ctx()).await?)?;
        let mut columns = rows.columns().to_vec();
        columns[self.schema().index_of("character_maximum_length")?] = Arc::new(self.lengths(&rows).await?);
        let rows = RecordBatch::try_new(self.schema(), columns)?;
        MemTable::try_new(self.schema(), vec![vec![rows]])?.scan(session, projection, filters, limit).await
    }
}

impl ColumnsTable {
    /// The most characters of each column; NULL where it is no text or has any number of them.
    async fn lengths(&self, rows: &RecordBatch) -> DataFusionResult<UInt64Array> {
        let (catalogs, schemas) = (texts(rows, "table_catalog")?, texts(rows, "table_schema")?);
        let (names, columns, types) = (texts(rows, "table_name")?, texts(rows, "column_name")?, texts(rows, "data_type")?);
        let mut tables: HashMap<[&str; 3], Option<SchemaRef>> = HashMap::new();
        let mut lengths: Vec<Option<u64>> = Vec::with_capacity(rows.num_rows());
        for row in 0..rows.num_rows() {
            let table = [catalogs.value(row), schemas.value(row), names.value(row)];
            // Tables without texts are not opened once more.
            if types.value(row) == "Utf8" && !tables.contains_key(&table) {
                tables.insert(table, self.schema_of(table).await?);
            }
            let schema = tables.get(&table).and_then(Option::as_ref);
            let text_type = schema.and_then(|schema| TextType::of(schema.field_with_name(columns.value(row)).ok()?));
            lengths.push(text_type.and_then(TextType::length).map(u64::from));
        }
        Ok(UInt64Array::from(lengths))
    }

    async fn schema_of(&self, [catalog, schema, table]: [&str; 3]) -> DataFusionResult<Option<SchemaRef>> {
        let Some(schema) = self.catalogs.catalog(catalog).and_then(|catalog| catalog.schema(schema)) else { return Ok(None) };
        Ok(schema.table(table).await?.map(|table| table.schema()))
    }
}

fn texts<'a>(rows: &'a RecordBatch, column: &str) -> DataFusionResult<&'a StringArray> {
    Ok(rows.column(rows.schema().index_of(column)?).as_string::<i32>())
}
