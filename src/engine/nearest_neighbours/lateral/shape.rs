//! The first rows of one table in an order, as a subquery after LATERAL says them.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, FetchType, Limit, LogicalPlan, SkipType, SortExpr};
use rolloutdb_catalogs::Table;

use super::super::ROWS_MAX;
use super::super::path::{Path, all_below};
use super::{bare, is_of_a_row, table_of};

/// `SELECT outputs FROM table WHERE conditions ORDER BY keys LIMIT fetch OFFSET skip`. Expressions are over bare columns of the table and outer references.
pub struct Shape {
    pub table: Arc<Table>,
    /// One for each column of the subquery.
    pub outputs: Vec<Expr>,
    pub keys: Vec<SortExpr>,
    pub conditions: Vec<Expr>,
    pub skip: usize,
    pub fetch: usize,
}

impl Shape {
    /// `None` if `plan`, the right side of a join, is something else, if more than a row decides a condition, or a subquery is in a key or an output.
    pub fn of(plan: &LogicalPlan) -> Option<Self> {
        let mut outputs: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let (mut node, mut is_lateral, mut limit) = (plan, false, None);
        let sort = loop {
            match node {
                LogicalPlan::Subquery(subquery) => {
                    is_lateral = true;
                    node = &subquery.subquery;
                }
                LogicalPlan::SubqueryAlias(alias) => {
                    let below = |position: usize| Some(Expr::Column(Column::from(alias.input.schema().qualified_field(position))));
                    outputs = all_below(node, outputs, below).ok()?;
                    node = &alias.input;
                }
                LogicalPlan::Projection(projection) => {
                    outputs = all_below(node, outputs, |position| projection.expr.get(position).cloned().map(Expr::unalias)).ok()?;
                    node = &projection.input;
                }
                LogicalPlan::Limit(found) if limit.is_none() => {
                    limit = Some(rows_of(found)?);
                    node = &found.input;
                }
                LogicalPlan::Sort(sort) if is_lateral => break sort,
                _ => return None,
            }
        };
        let (skip, fetch) = limit?;
        let num_keys = sort.expr.len();
        let keys = sort.expr.iter().map(|key| key.expr.clone().unalias());
        let path = Path::to_scan(&sort.input, keys.chain(outputs.iter().cloned()).collect()).ok()?;
        let table = table_of(&path.scan.source)?;
        let all = path.expressions.into_iter().chain(path.scan.filters).map(bare).collect::<Result<Vec<_>>>().ok()?;
        let (keys, rest) = all.split_at(num_keys);
        let (outputs, conditions) = rest.split_at(outputs.len());
        let sort_key = |(key, sort): (&Expr, &SortExpr)| SortExpr { expr: key.clone(), ..sort.clone() };
        let shape = Self {
            table,
            outputs: outputs.to_vec(),
            keys: keys.iter().zip(&sort.expr).map(sort_key).collect(),
            conditions: conditions.to_vec(),
            skip,
            fetch,
        };
        let has_subquery = |expression: &Expr| {
            let is_subquery = |inner: &Expr| {
                Ok(matches!(inner, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)))
            };
            expression.exists(is_subquery).unwrap_or(true)
        };
        let is_fit = shape.conditions.iter().all(is_of_a_row)
            && shape.keys.iter().all(|key| !has_parameter(&key.expr) && !has_subquery(&key.expr))
            && !shape.outputs.iter().any(has_subquery);
        is_fit.then_some(shape)
    }

    /// Whether the outer columns are all of these rows, none from farther out, and no value is missing yet.
    pub fn is_over(&self, before: &LogicalPlan) -> bool {
        let mut all = self.outputs.iter().chain(&self.conditions).chain(self.keys.iter().map(|key| &key.expr));
        let has_column = |expression: &Expr| {
            let is_other = |inner: &Expr| Ok(matches!(inner, Expr::OuterReferenceColumn(_, column) if !before.schema().has_column(column)));
            !expression.exists(is_other).unwrap_or(true)
        };
        all.all(has_column) && !self.conditions.iter().any(has_parameter)
    }

    /// The positions of the table's columns that the outputs read, in order.
    pub fn needed_columns(&self) -> Result<Vec<usize>> {
        let schema = &self.table.definition().schema;
        let mut columns = Vec::new();
        for output in &self.outputs {
            output.apply(|inner| {
                if let Expr::Column(column) = inner {
                    columns.push(schema.index_of(&column.name)?);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        columns.sort_unstable();
        columns.dedup();
        Ok(columns)
    }
}

fn has_parameter(expression: &Expr) -> bool {
    expression.exists(|inner| Ok(matches!(inner, Expr::Placeholder(_)))).unwrap_or(true)
}

/// OFFSET and LIMIT, if they are numbers and few enough for a search.
fn rows_of(limit: &Limit) -> Option<(usize, usize)> {
    let SkipType::Literal(skip) = limit.get_skip_type().ok()? else { return None };
    let FetchType::Literal(Some(fetch)) = limit.get_fetch_type().ok()? else { return None };
    (skip.saturating_add(fetch) <= ROWS_MAX).then_some((skip, fetch))
}
