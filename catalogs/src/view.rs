//! Views: the text of a query under a name. The engine puts the query in the name's place before it plans.

use std::any::Any;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::durability::write_durably;
use crate::{Error, Result};

/// Schema metadata of a view's file: the text of its query.
const QUERY: &str = "rollout.view";

/// A view of a catalog.
#[derive(Debug)]
pub struct View {
    query: String,
    /// As when it was made.
    columns: SchemaRef,
}

impl View {
    /// `query`: its text; `columns`: what it gives.
    #[must_use]
    pub fn new(query: &str, columns: &Schema) -> Self {
        let fields: Vec<_> = columns.fields().iter().map(|field| field.as_ref().clone().with_metadata([].into())).collect();
        Self { query: query.to_owned(), columns: Arc::new(Schema::new(fields)) }
    }

    /// The view that a table of a catalog is, if it is one.
    #[must_use]
    pub fn of(table: &dyn TableProvider) -> Option<&Self> {
        (table as &dyn Any).downcast_ref()
    }

    #[must_use]
    pub fn query(&self) -> &str {
        &self.query
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let metadata = [(QUERY.to_owned(), self.query.clone())].into();
        let schema = self.columns.as_ref().clone().with_metadata(metadata);
        let mut bytes = Vec::new();
        FileWriter::try_new(&mut bytes, &schema)?.finish()?;
        write_durably(path, &bytes)
    }

    pub(crate) fn read(name: &str, path: &Path) -> Result<Self> {
        let damaged = |reason: String| Error::Damaged { table: name.to_owned(), reason };
        let bytes = fs::read(path).map_err(|source| Error::io(path, source))?;
        let file = FileReader::try_new(Cursor::new(bytes), None).map_err(|error| damaged(format!("its file is not readable: {error}")))?;
        let schema = file.schema();
        let query = schema.metadata().get(QUERY).ok_or_else(|| damaged("its file has no query".to_owned()))?;
        Ok(Self::new(query, &schema))
    }
}

#[async_trait]
impl TableProvider for View {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_table_definition(&self) -> Option<&str> {
        Some(&self.query)
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Err(Error::NotSupported("a view can not be read here: write its query in parentheses".to_owned()).into())
    }
}
