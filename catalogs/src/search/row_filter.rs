//! The condition that rows of a search have to meet, before the best of them are taken.
//!
//! Lance evaluates plain comparisons itself, perhaps from an index. Everything else, functions of ours included, is evaluated here, and Lance gets the rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef, UInt64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use futures::TryStreamExt;
use lance::dataset::scanner::{RowAddrMask, RowAddrTreeMap, Scanner};

use super::ranking::ROW_ID;
use crate::index::is_vector;
use crate::pushdown::can_push_down;
use crate::{Error, Result, Table};

/// Rows of a table, as a scan of Lance's takes them.
#[derive(Debug)]
pub(crate) enum RowFilter {
    All,
    Condition(Expr),
    Rows(RowAddrMask),
}

impl RowFilter {
    pub(crate) fn apply(&self, scanner: &mut Scanner) {
        match self {
            Self::All => {}
            Self::Condition(condition) => {
                scanner.filter_expr(condition.clone());
            }
            Self::Rows(rows) => {
                scanner.with_row_id_prefilter(rows.clone());
            }
        }
    }
}

/// A condition over columns of a table, ready to be evaluated.
pub(crate) struct Condition {
    /// The columns that it reads, by name.
    pub(crate) schema: Arc<Schema>,
    predicate: Arc<dyn PhysicalExpr>,
}

impl Condition {
    /// # Errors
    /// [`Error::Query`] if it can not be evaluated over the table.
    pub(crate) fn new(table: &Table, condition: &Expr) -> Result<Self> {
        let condition = unqualified(condition)?;
        let mut names: Vec<&str> = condition.column_refs().into_iter().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        let fields = names.iter().map(|name| table.definition().schema.field_with_name(name).cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<Field>, _>>()?));
        let predicate = create_physical_expr(&condition, &DFSchema::try_from(schema.as_ref().clone())?, &ExecutionProps::new())?;
        Ok(Self { schema, predicate })
    }

    /// The predicate over batches of `schema`, which has its columns.
    pub(crate) fn over(self, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(reassign_expr_columns(self.predicate, schema)?)
    }

    pub(crate) fn column_names(&self) -> impl Iterator<Item = &str> {
        self.schema.fields().iter().map(|field| field.name().as_str())
    }

    /// `columns` as in [`Self::schema`].
    pub(crate) fn evaluate(&self, columns: Vec<ArrayRef>, num_rows: usize) -> Result<BooleanArray> {
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        Ok(self.predicate.evaluate(&batch)?.into_array(num_rows)?.as_boolean().clone())
    }
}

impl Table {
    /// Whether the columns of a condition are such as a table in memory holds row by row; vectors are not.
    pub(crate) fn is_answered_in_memory(&self, condition: Option<&Expr>) -> bool {
        let is_plain = |name: &str| self.definition().schema.field_with_name(name).is_ok_and(|field| !is_vector(field.data_type()));
        condition.is_none_or(|condition| condition.column_refs().into_iter().all(|column| is_plain(&column.name)))
    }

    pub(crate) async fn row_filter(&self, condition: Option<&Expr>) -> Result<RowFilter> {
        let Some(condition) = condition else { return Ok(RowFilter::All) };
        let plain = unqualified(condition)?;
        match can_push_down(&plain, &self.definition().schema) {
            true => Ok(RowFilter::Condition(plain)),
            false => Ok(RowFilter::Rows(RowAddrMask::from_allowed(self.rows_that_meet(condition).await?))),
        }
    }

    async fn rows_that_meet(&self, condition: &Expr) -> Result<RowAddrTreeMap> {
        let failed = |source| Error::storage(self.name(), source);
        let condition = Condition::new(self, condition)?;
        let mut scanner = self.dataset.scan();
        let names: Vec<&str> = condition.column_names().collect();
        scanner.project(&names).map_err(failed)?.with_row_id().scan_in_order(false);
        let mut batches = scanner.try_into_stream().await.map_err(failed)?;
        let mut rows = RowAddrTreeMap::new();
        while let Some(batch) = batches.try_next().await.map_err(failed)? {
            let columns = names.iter().map(|name| Ok(Arc::clone(batch.column(batch.schema().index_of(name)?))));
            let is_met = condition.evaluate(columns.collect::<Result<_>>()?, batch.num_rows())?;
            let row_ids = batch.column(batch.schema().index_of(ROW_ID)?).as_primitive::<UInt64Type>().values();
            rows.extend(row_ids.iter().zip(&is_met).filter(|(_, is_met)| *is_met == Some(true)).map(|(row_id, _)| *row_id));
        }
        Ok(rows)
    }
}

/// The condition over bare columns.
fn unqualified(condition: &Expr) -> Result<Expr> {
    let bare = condition.clone().transform_up(|inner| match inner {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::from_name(column.name)))),
        other => Ok(Transformed::no(other)),
    });
    Ok(bare?.data)
}
