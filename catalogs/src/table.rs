//! One version of one table, as a statement sees it.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraint, Constraints};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use lance::Dataset;
use lance::datafusion::LanceTableProvider;
use tokio::sync::MutexGuard;

use crate::append::AppendSink;
use crate::constraint::StoredKeys;
use crate::names::nearest;
use crate::pushdown::can_push_down;
use crate::scan::{TableScanExec, with_bounded_reading, without_metadata};
use crate::state::{SchemaState, TableState};
use crate::{Error, Result, TableDefinition};

/// A table at one version: reads of one statement see the same rows whatever others write. Writes go to the newest
/// version. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    pub(crate) schema_state: Arc<SchemaState>,
    pub(crate) state: Arc<TableState>,
    pub(crate) dataset: Arc<Dataset>,
    definition: Arc<TableDefinition>,
    constraints: Constraints,
    provider: Arc<LanceTableProvider>,
    /// As queries see it.
    query_schema: SchemaRef,
}

/// Plans are printed with their tables, whose rows may be in memory.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({}.{}@{})", self.schema_state.name, self.state.name, self.dataset.version().version)
    }
}

impl Table {
    pub(crate) async fn open(schema_state: &Arc<SchemaState>, state: &Arc<TableState>) -> Result<Self> {
        Self::of_dataset(schema_state, state, state.snapshot(&schema_state.storage).await?)
    }

    pub(crate) fn of_dataset(schema_state: &Arc<SchemaState>, state: &Arc<TableState>, dataset: Arc<Dataset>) -> Result<Self> {
        state.opened(&dataset);
        let provider = LanceTableProvider::new(dataset.clone(), false, false);
        let definition = TableDefinition::from_stored(&state.name, &provider.schema())?;
        let key = definition.positions(&definition.primary_key);
        let constraints = if key.is_empty() { Vec::new() } else { vec![Constraint::PrimaryKey(key)] };
        Ok(Self {
            schema_state: schema_state.clone(),
            state: state.clone(),
            dataset,
            definition: Arc::new(definition),
            constraints: Constraints::new_unverified(constraints),
            query_schema: without_metadata(&provider.schema()),
            provider: Arc::new(provider),
        })
    }

    /// The same table at its newest version.
    ///
    /// # Errors
    /// [`Error::UnknownTable`] when it was dropped, [`Error::Storage`].
    pub async fn latest(&self) -> Result<Self> {
        Self::open(&self.schema_state, &self.state).await
    }

    pub(crate) async fn lock_writer(&self) -> MutexGuard<'_, StoredKeys> {
        self.state.lock_writer(&self.schema_state.storage).await
    }

    /// Whether a statement that begins now would read this version under this name.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn is_latest(&self) -> Result<bool> {
        let is_known = self.schema_state.find(self.name()).is_ok_and(|state| Arc::ptr_eq(&state, &self.state));
        Ok(is_known && self.state.snapshot(&self.schema_state.storage).await?.version().version == self.version())
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    #[must_use]
    pub fn schema_name(&self) -> &str {
        &self.schema_state.name
    }

    /// The version that this table reads; it grows with every write to the table or its indexes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.dataset.version().version
    }

    #[must_use]
    pub fn definition(&self) -> &TableDefinition {
        &self.definition
    }

    pub(crate) fn column_names(&self) -> Vec<&str> {
        self.definition.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// Number of rows, from the metadata of the version.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub async fn row_count(&self) -> Result<u64> {
        let count = self.dataset.count_rows(None).await;
        count.map(|count| count as u64).map_err(|source| Error::storage(self.name(), source))
    }

    /// What its data files take on disk, from the metadata of the version.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let files = self.dataset.manifest().fragments.iter().flat_map(|fragment| &fragment.files);
        files.filter_map(|file| file.file_size_bytes.get()).map(std::num::NonZero::get).sum()
    }

    /// Position of a column.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`] with the nearest names.
    pub(crate) fn column(&self, name: &str) -> Result<usize> {
        let fields = self.definition.schema.fields();
        fields.iter().position(|field| field.name() == name).ok_or_else(|| Error::UnknownColumn {
            table: self.name().to_owned(),
            name: name.to_owned(),
            known: nearest(name, fields.iter().map(|field| field.name().clone())),
        })
    }

    /// A scan of Lance's as a scan of this version.
    pub(crate) fn named_scan(&self, scan: Arc<dyn ExecutionPlan>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let name = format!("{}.{}@{}", self.schema_name(), self.name(), self.version());
        Ok(Arc::new(TableScanExec::new(name, Arc::clone(&self.dataset), with_bounded_reading(scan)?)))
    }

    fn refuse(&self, statement: &str) -> Error {
        Error::NotSupported(format!("{statement} of table \"{}\" is not supported yet", self.name()))
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.query_schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        self.named_scan(self.provider.scan(state, projection, filters, limit).await?)
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match can_push_down(filter, &self.definition.schema) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        match operation {
            InsertOp::Append => Ok(Arc::new(DataSinkExec::new(input, Arc::new(AppendSink::new(self.clone())), None))),
            InsertOp::Overwrite | InsertOp::Replace => Err(self.refuse("INSERT OVERWRITE").into()),
        }
    }

    /// Always refuses: DataFusion 54 hands `WHERE id IN (SELECT ...)` and `WHERE false` over as "all rows" (its issue
    /// 24654), so a DELETE that came this way could remove what it must not. See [`Table::delete_where`].
    async fn delete_from(&self, _state: &dyn Session, _filters: Vec<Expr>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Err(self.refuse("DELETE").into())
    }

    /// Always refuses, for the reason given at `delete_from`.
    async fn update(
        &self,
        _state: &dyn Session,
        _assignments: Vec<(String, Expr)>,
        _filters: Vec<Expr>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Err(self.refuse("UPDATE").into())
    }

    async fn truncate(&self, _state: &dyn Session) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Err(self.refuse("TRUNCATE").into())
    }
}
