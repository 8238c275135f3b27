//! Changes of rows that the engine makes to its own tables: a key's row replaced, rows removed by a plain filter.
//!
//! Not for UPDATE and DELETE of users: these need expressions that Lance does not evaluate.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::datatypes::Schema;
use datafusion::logical_expr::Expr;
use lance::dataset::{MergeInsertBuilder, WhenMatched, WhenNotMatched, write::delete::DeleteBuilder};

use crate::constraint::{KeyCheck, StoredKeys};
use crate::conversion::convert;
use crate::pushdown::can_push_down;
use crate::{Error, Result, Table};

impl Table {
    /// Writes rows in one commit; a row whose primary key is stored replaces the stored row. Columns as in
    /// [`Table::append`]. Returns the number of rows of `rows`.
    ///
    /// # Errors
    /// [`Error::NotReady`] for a table without a primary key, else as [`Table::append`] (a key twice in `rows` is
    /// [`Error::UniqueViolation`]).
    pub async fn upsert(&self, rows: &RecordBatch) -> Result<u64> {
        if self.definition().primary_key.is_empty() {
            return Err(Error::NotReady(format!("table \"{}\" has no primary key to replace rows by", self.name())));
        }
        let mut keys = self.lock_writer().await;
        let dataset = self.state.snapshot(&self.schema_state.storage).await?;
        let schema = Arc::new(Schema::from(dataset.schema()));
        let rows = convert(self.name(), rows, &schema)?;
        let check = KeyCheck::new(self.schema_name(), self.name(), self.definition())?;
        if let Some(mut check) = check {
            check.check(&rows)?;
        }
        if rows.num_rows() == 0 {
            return Ok(0);
        }
        *keys = StoredKeys::default();
        let failed = |source| Error::storage(self.name(), source);
        let num_rows = rows.num_rows() as u64;
        let mut merge = MergeInsertBuilder::try_new(dataset, self.definition().primary_key.clone()).map_err(failed)?;
        merge.when_matched(WhenMatched::UpdateAll).when_not_matched(WhenNotMatched::InsertAll);
        let job = merge.try_build().map_err(failed)?;
        let reader = RecordBatchIterator::new([Ok(rows)], schema);
        let (merged, _) = job.execute_reader(reader).await.map_err(failed)?;
        self.state.publish(merged).await;
        Ok(num_rows)
    }

    /// Removes the rows for which `filter` is true, in one commit; their number comes back.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for anything but comparisons of columns with constants of the same type and their AND,
    /// OR, NOT: only these mean the same to Lance. [`Error::Conflict`], [`Error::Storage`].
    pub async fn delete_where(&self, filter: Expr) -> Result<u64> {
        if !can_push_down(&filter, &self.definition().schema) {
            return Err(Error::NotSupported(format!("DELETE of table \"{}\" by {filter}", self.name())));
        }
        let mut keys = self.lock_writer().await;
        let dataset = self.state.snapshot(&self.schema_state.storage).await?;
        *keys = StoredKeys::default();
        let deleted = DeleteBuilder::from_expr(dataset, filter).execute().await;
        let deleted = deleted.map_err(|source| Error::storage(self.name(), source))?;
        self.state.publish(deleted.new_dataset).await;
        Ok(deleted.num_deleted_rows)
    }
}
