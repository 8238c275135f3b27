//! The condition that rows of a search have to meet, before the best of them are taken.
//!
//! Lance evaluates plain comparisons itself, perhaps from an index. Everything else, functions of ours included, is evaluated here, and Lance gets the rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef, UInt64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use futures::TryStreamExt;
use lance::dataset::scanner::{RowAddrMask, RowAddrTreeMap, Scanner};

use super::ranking::ROW_ID;
use crate::index::is_vector;
use crate::pushdown::can_push_down;
use crate::scan::scan_of;
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
    /// Whether it is of plain comparisons, which no value makes fail.
    pub(crate) is_comparison: bool,
    predicate: Arc<dyn PhysicalExpr>,
}

impl Condition {
    /// The parts of a condition that all have to be met, plain comparisons first, the others as they are written.
    ///
    /// # Errors
    /// [`Error::Query`] if one can not be evaluated over the table.
    pub(crate) fn in_order(table: &Table, condition: &Expr) -> Result<Vec<Self>> {
        let (plain, others) = parts(table, condition)?;
        plain.iter().chain(&others).map(|part| Self::new(table, part)).collect()
    }

    /// # Errors
    /// [`Error::Query`] if it can not be evaluated over the table.
    pub(crate) fn new(table: &Table, condition: &Expr) -> Result<Self> {
        let condition = unqualified(condition)?;
        let mut names: Vec<&str> = condition.column_refs().into_iter().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        let fields = names.iter().map(|name| table.definition().schema.field_with_name(name).cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<Field>, _>>()?));
        let predicate = create_physical_expr(&condition, &DFSchema::try_from(schema.as_ref().clone())?, &ExecutionProps::new())?;
        let is_comparison = can_push_down(&condition, &table.definition().schema);
        Ok(Self { schema, is_comparison, predicate })
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
        let (plain, others) = parts(self, condition)?;
        let conditions = others.iter().map(|part| Condition::new(self, part)).collect::<Result<Vec<_>>>()?;
        let mut names: Vec<&str> = conditions.iter().flat_map(Condition::column_names).collect();
        names.sort_unstable();
        names.dedup();
        let mut scanner = scan_of(&self.dataset);
        scanner.project(&names).map_err(failed)?.with_row_id().scan_in_order(false);
        if let Some(plain) = conjunction(plain) {
            scanner.filter_expr(plain);
        }
        let mut batches = scanner.try_into_stream().await.map_err(failed)?;
        let mut rows = RowAddrTreeMap::new();
        while let Some(mut batch) = batches.try_next().await.map_err(failed)? {
            for condition in &conditions {
                let columns = condition.column_names().map(|name| Ok(Arc::clone(batch.column(batch.schema().index_of(name)?))));
                let is_met = condition.evaluate(columns.collect::<Result<_>>()?, batch.num_rows())?;
                batch = filter_record_batch(&batch, &is_met)?;
            }
            rows.extend(batch.column(batch.schema().index_of(ROW_ID)?).as_primitive::<UInt64Type>().values().iter().copied());
        }
        Ok(rows)
    }
}

/// What Lance evaluates of a condition, and the rest, over bare columns: all of it has to be met.
fn parts(table: &Table, condition: &Expr) -> Result<(Vec<Expr>, Vec<Expr>)> {
    let condition = unqualified(condition)?;
    let parts = split_conjunction_owned(condition).into_iter();
    Ok(parts.partition(|part| can_push_down(part, &table.definition().schema)))
}

/// The condition over bare columns.
fn unqualified(condition: &Expr) -> Result<Expr> {
    let bare = condition.clone().transform_up(|inner| match inner {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::from_name(column.name)))),
        other => Ok(Transformed::no(other)),
    });
    Ok(bare?.data)
}
