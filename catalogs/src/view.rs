//! Views: the text of a query under a name. The engine puts the query in the name's place before it plans.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
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
/// Schema metadata and field metadata of a view's file: the comment on the view, and on a column.
const COMMENT: &str = "rollout.comment";

/// What keys of field metadata begin with that say more of a column's type than Arrow's does.
const TYPE: &str = "rolloutdb.";

/// A view of a catalog.
#[derive(Debug)]
pub struct View {
    query: String,
    /// As when it was made.
    columns: SchemaRef,
    comment: Option<String>,
    column_comments: BTreeMap<String, String>,
}

impl View {
    /// `query`: its text; `columns`: what it gives.
    #[must_use]
    pub fn new(query: &str, columns: &Schema) -> Self {
        let fields: Vec<_> = columns.fields().iter().map(|field| with_type_only(field)).collect();
        Self { query: query.to_owned(), columns: Arc::new(Schema::new(fields)), comment: None, column_comments: BTreeMap::new() }
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

    /// On the view, or on a column of it.
    #[must_use]
    pub fn comment(&self, column: Option<&str>) -> Option<&str> {
        match column {
            None => self.comment.as_deref(),
            Some(column) => self.column_comments.get(column).map(String::as_str),
        }
    }

    pub(crate) fn with_comment(&self, column: Option<&str>, text: Option<&str>) -> Self {
        let mut changed = Self {
            query: self.query.clone(),
            columns: Arc::clone(&self.columns),
            comment: self.comment.clone(),
            column_comments: self.column_comments.clone(),
        };
        match (column, text) {
            (None, text) => changed.comment = text.map(str::to_owned),
            (Some(column), Some(text)) => drop(changed.column_comments.insert(column.to_owned(), text.to_owned())),
            (Some(column), None) => drop(changed.column_comments.remove(column)),
        }
        changed
    }

    /// A view that takes the place of another keeps what was said of it, as in PostgreSQL.
    pub(crate) fn with_comments_of(mut self, replaced: &Self) -> Self {
        self.comment.clone_from(&replaced.comment);
        self.column_comments = replaced.column_comments.clone();
        self.column_comments.retain(|column, _| self.columns.field_with_name(column).is_ok());
        self
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut metadata: HashMap<String, String> = [(QUERY.to_owned(), self.query.clone())].into();
        metadata.extend(self.comment.iter().map(|comment| (COMMENT.to_owned(), comment.clone())));
        let fields: Vec<Field> = self
            .columns
            .fields()
            .iter()
            .map(|field| {
                let mut metadata = field.metadata().clone();
                metadata.extend(self.column_comments.get(field.name()).map(|comment| (COMMENT.to_owned(), comment.clone())));
                field.as_ref().clone().with_metadata(metadata)
            })
            .collect();
        let schema = Schema::new_with_metadata(fields, metadata);
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
        let mut view = Self::new(query, &schema);
        view.comment = schema.metadata().get(COMMENT).cloned();
        let commented = schema.fields().iter().filter_map(|field| Some((field.name().clone(), field.metadata().get(COMMENT)?.clone())));
        view.column_comments = commented.collect();
        Ok(view)
    }
}

/// A column without what the query's tables say of it.
fn with_type_only(field: &Field) -> Field {
    let metadata = field.metadata().iter().filter(|(key, _)| key.starts_with(TYPE));
    field.clone().with_metadata(metadata.map(|(key, value)| (key.clone(), value.clone())).collect())
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
