//! ALTER TABLE: another definition of the same rows, and new columns.
//!
//! A change of the definition is one commit that leaves the data files as they are. A new column is one file per fragment beside the old ones.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Field, Schema, UInt64Type};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use lance::dataset::NewColumnTransform;
use lance::dataset::transaction::Operation;
use lance_core::datatypes::Schema as LanceSchema;

use crate::backfill::Backfill;
use crate::constraint::KeyCheck;
use crate::names::nearest;
use crate::scan::scan_of;
use crate::{Error, Result, Rewrite, TableDefinition, UniqueConstraint};

/// Changes of a definition; none touches a row.
impl TableDefinition {
    /// # Errors
    /// [`Error::UnknownColumn`]; [`Error::DuplicateColumn`]; [`Error::StillNeeded`] for a column that a generated one is computed from.
    pub fn renaming(&self, from: &str, to: &str, used_by: Option<&str>) -> Result<Self> {
        self.column_named(from)?;
        if self.schema.field_with_name(to).is_ok() {
            return Err(Error::DuplicateColumn { name: to.to_owned() });
        }
        refuse_use(from, used_by)?;
        let renamed = |name: &String| if name == from { to.to_owned() } else { name.clone() };
        let mut changed = self.clone();
        changed.schema = super::definition::map_fields(&self.schema, |field| match field.name() == from {
            true => field.clone().with_name(to),
            false => field.clone(),
        });
        changed.primary_key = self.primary_key.iter().map(renamed).collect();
        for constraint in &mut changed.unique {
            constraint.columns = constraint.columns.iter().map(renamed).collect();
        }
        changed.generated = self.generated.iter().map(|(name, text)| (renamed(name), text.clone())).collect();
        changed.defaults = self.defaults.iter().map(|(name, text)| (renamed(name), text.clone())).collect();
        changed.identity = self.identity.iter().map(|(name, identity)| (renamed(name), *identity)).collect();
        changed.compression = self.compression.iter().map(|(name, method)| (renamed(name), method.clone())).collect();
        Ok(changed)
    }

    /// # Errors
    /// [`Error::UnknownColumn`]; [`Error::StillNeeded`] for a column of the primary key, of a UNIQUE constraint with others, or one that a generated
    /// column is computed from, and for the last column.
    pub fn dropping(&self, column: &str, used_by: Option<&str>) -> Result<Self> {
        self.column_named(column)?;
        refuse_use(column, used_by)?;
        let in_constraint =
            |constraint: &UniqueConstraint| constraint.columns.len() > 1 && constraint.columns.iter().any(|name| name == column);
        if self.primary_key.iter().any(|name| name == column) || self.unique.iter().any(in_constraint) {
            return Err(Error::StillNeeded(format!("column \"{column}\" is part of a key of the table")));
        }
        if self.schema.fields().len() == 1 {
            return Err(Error::NotSupported("a table needs at least one column; DROP TABLE removes it".to_owned()));
        }
        let mut changed = self.clone();
        let kept: Vec<Field> =
            self.schema.fields().iter().filter(|field| field.name() != column).map(|field| field.as_ref().clone()).collect();
        changed.schema = Arc::new(Schema::new(kept));
        changed.unique.retain(|constraint| !constraint.columns.iter().any(|name| name == column));
        changed.generated.remove(column);
        changed.defaults.remove(column);
        changed.identity.remove(column);
        changed.compression.remove(column);
        Ok(changed)
    }

    /// # Errors
    /// [`Error::UnknownColumn`].
    pub fn with_default_changed(&self, column: &str, expression: Option<&str>) -> Result<Self> {
        self.column_named(column)?;
        let mut changed = self.clone();
        match expression {
            Some(expression) => changed.defaults.insert(column.to_owned(), expression.to_owned()),
            None => changed.defaults.remove(column),
        };
        Ok(changed)
    }

    /// # Errors
    /// [`Error::UnknownColumn`]; [`Error::StillNeeded`] for a column of the primary key or of identity that shall allow NULL.
    pub fn with_nullable(&self, column: &str, nullable: bool) -> Result<Self> {
        self.column_named(column)?;
        if nullable && (self.primary_key.iter().any(|name| name == column) || self.identity.contains_key(column)) {
            return Err(Error::StillNeeded(format!(
                "column \"{column}\" is in the primary key or numbered by the table: it stays NOT NULL"
            )));
        }
        let mut changed = self.clone();
        changed.schema = super::definition::map_fields(&self.schema, |field| match field.name() == column {
            true => field.clone().with_nullable(nullable),
            false => field.clone(),
        });
        Ok(changed)
    }
}

impl TableDefinition {
    /// Without a UNIQUE constraint or the primary key, whose columns stay NOT NULL, as in PostgreSQL.
    ///
    /// # Errors
    /// [`Error::UnknownConstraint`].
    pub fn without_constraint(&self, table: &str, name: &str) -> Result<Self> {
        let names = self.constraint_names(table);
        let Some(number) = names.iter().position(|known| known == name) else {
            return Err(Error::UnknownConstraint { name: name.to_owned(), table: table.to_owned(), known: nearest(name, names) });
        };
        let mut changed = self.clone();
        match number.checked_sub(usize::from(!self.primary_key.is_empty())) {
            Some(number) => drop(changed.unique.remove(number)),
            None => {
                changed.primary_key.clear();
                changed.primary_key_name = None;
            }
        }
        Ok(changed)
    }

    /// The same columns, with the constraint of this name alone.
    fn with_only(&self, table: &str, name: &str) -> Self {
        let mut only = self.clone();
        let is_primary = !self.primary_key.is_empty() && self.constraint_names(table).first().is_some_and(|primary| primary == name);
        only.unique.retain(|constraint| constraint.name == name);
        if !is_primary {
            only.primary_key.clear();
        }
        only
    }
}

fn refuse_use(column: &str, used_by: Option<&str>) -> Result<()> {
    match used_by {
        Some(user) => Err(Error::StillNeeded(format!("generated column \"{user}\" is computed from column \"{column}\"; drop it first"))),
        None => Ok(()),
    }
}

impl Rewrite<'_> {
    /// Gives the table another definition of its columns, in one commit. Each column is that of the same position in `order`: its name in the table as
    /// it is. Columns that are not in it are dropped, with their indexes.
    ///
    /// # Errors
    /// [`Error::NotNull`] when a column that becomes NOT NULL has a NULL; [`Error::Conflict`], [`Error::Storage`].
    pub async fn redefine(mut self, definition: &TableDefinition, order: &[String]) -> Result<()> {
        if order.len() < self.table().definition().schema.fields().len() {
            self.never_use_field_ids_again().await?;
        }
        let table = self.table().clone();
        let graphs = table.graph_indexes().await?;
        let old = table.dataset.schema();
        let stored = definition.to_stored();
        let mut fields = Vec::with_capacity(order.len());
        for (name, field) in order.iter().zip(stored.fields()) {
            let Some(mut lance_field) = old.field(name).cloned() else {
                return Err(Error::Damaged { table: table.name().to_owned(), reason: format!("column \"{name}\" is not stored") });
            };
            if lance_field.nullable && !field.is_nullable() {
                self.check_no_null(name).await?;
            }
            lance_field.name.clone_from(field.name());
            lance_field.nullable = field.is_nullable();
            lance_field.metadata.clone_from(field.metadata());
            lance_field.unenforced_primary_key_position = definition.primary_key.contains(field.name()).then_some(0);
            fields.push(lance_field);
        }
        let schema = LanceSchema { fields, metadata: stored.metadata().clone() };
        for (name, field) in order.iter().zip(stored.fields()) {
            if name != field.name() && definition.identity.contains_key(field.name()) {
                table.copy_counter(name, field.name())?;
            }
        }
        // A column may become nullable, so that writers in flight must not assume that it is not.
        self.commit(Operation::Project { schema, preserves_nullability: false }).await?;
        for graph in graphs.iter().filter(|graph| !order.contains(&graph.column)) {
            table.drop_graph(&graph.name).await?;
        }
        Ok(())
    }

    /// Before a column is dropped: otherwise the storage gives its number to the next new one, and what is known of columns by number, in memory and in
    /// the files of back-fills and graphs, would be taken for the other's. A commit, the first time.
    async fn never_use_field_ids_again(&mut self) -> Result<()> {
        let mut dataset = self.table().dataset.as_ref().clone();
        let migrated = dataset.migrate_to_non_reusable_field_ids().await;
        migrated.map_err(|source| Error::storage(self.table().name(), source))?;
        self.move_to(Arc::new(dataset)).await
    }

    /// Checks that the rows meet a constraint of `definition`, which is otherwise that of the table: no two share a key. A NULL in a primary key
    /// [`Self::redefine`] finds.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`], [`Error::Storage`].
    pub async fn check_constraint(&self, definition: &TableDefinition, name: &str) -> Result<()> {
        let table = self.table();
        let only = definition.with_only(table.name(), name);
        match KeyCheck::new(table.schema_name(), table.name(), &only)? {
            Some(mut check) => check.check_all(&table.dataset).await,
            None => Ok(()),
        }
    }

    async fn check_no_null(&self, column: &str) -> Result<()> {
        let failed = |source| Error::storage(self.table().name(), source);
        let mut scanner = scan_of(&self.table().dataset);
        scanner.project(&[column]).map_err(failed)?;
        let mut batches = scanner.try_into_stream().await.map_err(failed)?;
        while let Some(batch) = batches.next().await {
            if batch.map_err(failed)?.column(0).null_count() > 0 {
                return Err(Error::NotNull { table: self.table().name().to_owned(), column: column.to_owned() });
            }
        }
        Ok(())
    }

    /// Adds the last column of `definition`, which is otherwise that of the table. `values`: row addresses, ascending, and the column's values; absent:
    /// NULL in every row. One commit, with a UNIQUE constraint on the column if there is one.
    ///
    /// # Errors
    /// [`Error::NotNull`], [`Error::DuplicateKey`] by a UNIQUE constraint on the new column; an error of `values` as it is; [`Error::Conflict`],
    /// [`Error::Storage`]. The table is unchanged after any of them.
    pub async fn add_column(mut self, definition: &TableDefinition, values: Option<SendableRecordBatchStream>) -> Result<()> {
        let table = self.table().clone();
        let field = definition.last_column_to_stored();
        let column = Arc::new(Schema::new(vec![field.clone()]));
        let error = Arc::new(std::sync::Mutex::new(None));
        let transform = match values {
            None if field.is_nullable() => NewColumnTransform::AllNulls(column),
            None if table.row_count().await? > 0 => {
                return Err(Error::NotNull { table: table.name().to_owned(), column: field.name().clone() });
            }
            None => NewColumnTransform::Stream(Box::pin(RecordBatchStreamAdapter::new(column, futures::stream::empty()))),
            Some(values) => {
                let name = definition.unique.iter().find(|constraint| constraint.columns == [field.name().as_str()]);
                let only = definition.with_only(table.name(), name.map_or("", |constraint| constraint.name.as_str()));
                let keys = KeyCheck::new(table.schema_name(), table.name(), &only)?;
                NewColumnTransform::Stream(in_row_order(table.name(), values, column, keys, Arc::clone(&error)))
            }
        };
        let mut dataset = table.dataset.as_ref().clone();
        let added = async {
            dataset.add_columns(transform, None, None).await.map_err(|source| {
                let ours = error.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                ours.unwrap_or_else(|| Error::storage(table.name(), source))
            })
        };
        table.cleaned_up(added).await?;
        self.forget_keys();
        table.state.publish(Arc::new(dataset)).await;
        Ok(())
    }

    /// As [`Self::add_column`], with the values of a back-fill, which must be complete for this version; what it staged goes.
    ///
    /// # Errors
    /// As [`Self::add_column`].
    pub async fn add_filled_column(self, definition: &TableDefinition, filled: Backfill) -> Result<()> {
        let values = filled.values(&self.table().dataset);
        self.add_column(definition, Some(values)).await?;
        filled.finish()
    }
}

/// The values alone, after a check that they come in the order of the rows: Lance matches them by position.
fn in_row_order(
    table: &str,
    values: SendableRecordBatchStream,
    column: Arc<Schema>,
    mut keys: Option<KeyCheck>,
    error: Arc<std::sync::Mutex<Option<Error>>>,
) -> SendableRecordBatchStream {
    let (table, target) = (table.to_owned(), Arc::clone(&column));
    let mut last = None;
    let checked = values.map(move |batch| {
        let checked = batch.map_err(Error::from).and_then(|batch| one_column(&table, &batch, &target, &mut last));
        let checked = checked.and_then(|batch| match &mut keys {
            Some(keys) => keys.check_found(&batch).map(|()| batch),
            None => Ok(batch),
        });
        checked.map_err(|found| {
            let stopped = datafusion::error::DataFusionError::Execution(found.to_string());
            error.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(found);
            stopped
        })
    });
    let checked = checked.map(|batch: DataFusionResult<RecordBatch>| batch);
    Box::pin(RecordBatchStreamAdapter::new(column, checked))
}

fn one_column(table: &str, batch: &RecordBatch, column: &Arc<Schema>, last: &mut Option<u64>) -> Result<RecordBatch> {
    for address in batch.column(0).as_primitive::<UInt64Type>().values() {
        if last.is_some_and(|last| last >= *address) {
            return Err(Error::Damaged { table: table.to_owned(), reason: "its rows were not read in order".to_owned() });
        }
        *last = Some(*address);
    }
    let values = batch.column(1);
    if values.null_count() > 0 && !column.field(0).is_nullable() {
        return Err(Error::NotNull { table: table.to_owned(), column: column.field(0).name().clone() });
    }
    Ok(RecordBatch::try_new(Arc::clone(column), vec![Arc::clone(values)])?)
}
