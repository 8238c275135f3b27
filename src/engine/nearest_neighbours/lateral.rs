//! `FROM q CROSS JOIN LATERAL (SELECT .. FROM docs d ORDER BY d.embedding <=> q.embedding LIMIT k) n`: pgvector's way to search for many vectors at once.
//!
//! DataFusion has no execution for a LIMIT after LATERAL. The subquery becomes a function over the rows before it ([`FirstRows`]), which searches for all
//! their vectors in one batch, and a projection that computes what the subquery selects.

mod first_rows;
mod shape;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, cast, ident, lit, when};
use datafusion::optimizer::AnalyzerRule;
use rolloutdb_catalogs::{Metric, RowsWithoutDistance, Table};

use super::distance::{Distance, constant_vector, is_at_most};
use super::{EffortSetting, are_ties_by_key, more_than_a_row};
use crate::engine::apply::Apply;
use crate::engine::apply::lateral::{condition_of, is_outer, to_input_columns};
use crate::engine::retrieval::QUERY_INDEX;
pub use first_rows::SortRuntime;
use first_rows::{FOUND, FirstRows, Search};
use shape::Shape;

/// The relation of the table's columns between the function and the projection above it.
const ROWS: &str = "__first_rows";

/// Takes the joins of the shape that the module describes, and leaves others as they are.
#[derive(Debug)]
pub struct LateralNearestRows {
    pub effort: EffortSetting,
    /// For what no search answers.
    pub runtime: SortRuntime,
}

impl AnalyzerRule for LateralNearestRows {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match &node {
            LogicalPlan::Join(join) => Ok(self.resolved(join)?.map_or_else(|| Transformed::no(node.clone()), Transformed::yes)),
            _ => Ok(Transformed::no(node)),
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "lateral_nearest_rows"
    }
}

impl LateralNearestRows {
    /// The join as a function over its left side; `None` if its right side is no subquery of that shape.
    fn resolved(&self, join: &Join) -> Result<Option<LogicalPlan>> {
        let Some(shape) = Shape::of(&join.right).filter(|shape| shape.is_over(&join.left)) else { return Ok(None) };
        if !shape.keys.first().is_some_and(|key| Distance::is_in(&key.expr)) {
            return Ok(None);
        }
        if condition_of(join).is_some() {
            return Ok(None);
        }
        let is_outer = is_outer(join, "(SELECT ...)")?;
        let (function, arguments) = self.function(&shape, &join.left)?;
        let names = function.column_names();
        let input = join.left.as_ref().clone();
        let rows = Apply::try_new(input, Arc::new(function), arguments, Some(TableReference::bare(ROWS)), names, is_outer)?.into_plan();
        let before = join.left.schema().columns().into_iter().map(Expr::Column);
        let selected = shape.outputs.iter().zip(join.right.schema().iter()).map(|(output, (relation, field))| {
            let value = over_rows(output.clone())?;
            let value = match is_outer && !matches!(output, Expr::Column(_)) {
                // A row without any has NULL for constants and columns from before too.
                true => when(Expr::Column(Column::new(Some(ROWS), FOUND)).is_not_null(), value).end()?,
                false => value,
            };
            Ok(value.alias_qualified(relation.cloned(), field.name()))
        });
        let selected = selected.collect::<Result<Vec<_>>>()?;
        LogicalPlanBuilder::from(rows).project(before.chain(selected))?.build().map(Some)
    }

    /// The function, and its arguments over the rows before it.
    fn function(&self, shape: &Shape, before: &LogicalPlan) -> Result<(FirstRows, Vec<Expr>)> {
        let search = self.search(shape, before)?;
        let distance = search.as_ref().map(|(search, _)| search.distance.clone());
        let is_bound = |condition: &Expr| distance.as_ref().is_some_and(|distance| is_at_most(condition, distance));
        let (bounds, conditions): (Vec<Expr>, Vec<Expr>) = shape.conditions.iter().cloned().partition(is_bound);
        let mut outer: Vec<Column> = Vec::new();
        for condition in &conditions {
            outer_columns(condition, None, &mut outer)?;
        }
        // The query vector is an argument of its own.
        let query = distance.as_ref().map(|distance| &distance.query);
        for expression in bounds.iter().chain(shape.keys.iter().map(|key| &key.expr)) {
            outer_columns(expression, query, &mut outer)?;
        }
        let mut arguments: Vec<Expr> = outer.iter().cloned().map(Expr::Column).collect();
        let search = search.map(|(search, query)| {
            arguments.push(query);
            search
        });
        let function = FirstRows {
            columns: shape.needed_columns()?,
            table: Arc::clone(&shape.table),
            keys: shape.keys.clone(),
            conditions,
            bounds,
            outer,
            search,
            runtime: self.runtime.clone(),
            skip: shape.skip,
            fetch: shape.fetch,
        };
        Ok((function, arguments))
    }

    /// How to search, and the vector to search for; `None` if the rows have to be sorted.
    fn search(&self, shape: &Shape, before: &LogicalPlan) -> Result<Option<(Search, Expr)>> {
        let [first, others @ ..] = shape.keys.as_slice() else { return Ok(None) };
        let Ok(distance) = Distance::of_key(&first.expr, first.asc) else { return Ok(None) };
        let Ok(field) = shape.table.definition().schema.field_with_name(&distance.column) else { return Ok(None) };
        let keys: Vec<Expr> = others.iter().map(|key| key.expr.clone()).collect();
        let mut expressions = shape.conditions.iter().chain([&first.expr]);
        let is_subtracted = distance.metric == Metric::Cosine && expressions.any(Distance::is_subtracted_in);
        let first_come = RowsWithoutDistance { no_vector: first.nulls_first && field.is_nullable(), zero_vector: is_subtracted };
        if first_come.no_vector || first_come.zero_vector || !are_ties_by_key(&keys, others, &shape.table) {
            return Ok(None);
        }
        // A search adds columns of these names.
        if [QUERY_INDEX, "distance"].iter().any(|name| shape.table.definition().schema.index_of(name).is_ok()) {
            return Ok(None);
        }
        let list = DataType::new_list(DataType::Float32, true);
        let query = to_input_columns(distance.query.clone())?;
        let query = match query.get_type(before.schema())? {
            DataType::FixedSizeList(..) | DataType::List(_) => cast(query, list),
            _ => match constant_vector(&query) {
                Some(vector) => {
                    let values: Vec<ScalarValue> = vector.into_iter().map(ScalarValue::from).collect();
                    lit(ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float32)))
                }
                None => return Ok(None),
            },
        };
        Ok(Some((Search { distance, effort: self.effort.asked() }, query)))
    }
}

/// Adds the outer columns of an expression, but for those of a part of it.
fn outer_columns(expression: &Expr, without: Option<&Expr>, found: &mut Vec<Column>) -> Result<()> {
    expression.apply(|inner| {
        if without == Some(inner) {
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Expr::OuterReferenceColumn(_, column) = inner
            && !found.contains(column)
        {
            found.push(column.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// An expression over the table's columns and those of the rows before, above the function.
fn over_rows(expression: Expr) -> Result<Expr> {
    let of_rows = expression.transform_up(|inner| {
        Ok(match inner {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::new(Some(ROWS), column.name))),
            other => Transformed::no(other),
        })
    })?;
    to_input_columns(of_rows.data)
}

/// Whether one row of the table, with values for the outer columns, decides an expression.
fn is_of_a_row(expression: &Expr) -> bool {
    to_input_columns(expression.clone()).is_ok_and(|expression| more_than_a_row(&expression).is_none())
}

/// A table's column without its relation.
fn bare(expression: Expr) -> Result<Expr> {
    let bare = expression.transform_up(|inner| {
        Ok(match inner {
            Expr::Column(column) => Transformed::yes(ident(column.name)),
            other => Transformed::no(other),
        })
    })?;
    Ok(bare.data)
}

/// The table that a scan reads as a whole.
fn table_of(source: &Arc<dyn datafusion::logical_expr::TableSource>) -> Option<Arc<Table>> {
    let provider = datafusion::datasource::source_as_provider(source).ok()?;
    let table = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<Table>()?;
    Some(Arc::new(table.clone()))
}
