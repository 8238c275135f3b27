//! `ORDER BY embedding <=> $1 LIMIT k` as a nearest-neighbour scan.
//!
//! Only the leaf changes: in place of all rows the scan gives the k nearest of those that its filters let through. What stands above it stays, computes
//! the distances with pgvector's values, and sorts k rows. Where the shape does not fit, the plan stays as it is: right, and slower. EXPLAIN shows which.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float32Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, Sort, SortExpr, TableScan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use rolloutdb_catalogs::{Metric, NearestRows, QueryVector, Table};
use rolloutdb_udfs::vector::parse_vector;

/// For more rows than this a sort of all is no slower.
const ROWS_MAX: usize = 100_000;

/// `hnsw.ef_search` of pgvector: rows that a walk through a graph keeps, with pgvector's default.
pub const EF_SEARCH: usize = 40;
pub const EF_SEARCH_MAX: usize = 1_000;

#[derive(Debug)]
pub struct NearestNeighbours {
    /// The session's setting.
    pub ef_search: Arc<AtomicUsize>,
}

impl OptimizerRule for NearestNeighbours {
    fn name(&self) -> &str {
        "nearest_neighbours"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Sort(sort) => match nearest_scan(&sort, self.ef_search.load(Ordering::Relaxed)) {
                Some(scan) => Ok(Transformed::yes(LogicalPlan::Sort(with_scan(sort, scan)?))),
                None => Ok(Transformed::no(LogicalPlan::Sort(sort))),
            },
            other => Ok(Transformed::no(other)),
        }
    }
}

/// The scan to read instead, for a sort by one distance with a limit over projections of one table.
fn nearest_scan(sort: &Sort, ef_search: usize) -> Option<TableScan> {
    let k = sort.fetch.filter(|k| (1..=ROWS_MAX).contains(k))?;
    let (first, others) = sort.expr.split_first()?;
    let (scan, key) = at_scan(&sort.input, first.expr.clone())?;
    let distance = Distance::of(&key, first)?;
    let provider = source_as_provider(&scan.source).ok()?;
    let table = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<Table>()?;
    let field = table.definition().schema.field_with_name(&distance.column).ok()?;
    // Rows without a vector have no distance: they must stand at the end, where the scan leaves them out.
    if scan.fetch.is_some() || (first.nulls_first && field.is_nullable()) || !are_ties_by_key(sort, others, table) {
        return None;
    }
    let nearest = NearestRows::new(table, &distance.column, distance.query, k, distance.metric, ef_search);
    Some(TableScan { source: provider_as_source(Arc::new(nearest)), ..scan })
}

/// Of equal distances the scan takes the smaller primary keys, so that further sort keys have to say the same.
fn are_ties_by_key(sort: &Sort, others: &[SortExpr], table: &Table) -> bool {
    let key = &table.definition().primary_key;
    others.len() <= key.len()
        && others.iter().zip(key).all(|(sort_key, column)| {
            let at_scan = at_scan(&sort.input, sort_key.expr.clone());
            sort_key.asc && at_scan.is_some_and(|(_, expr)| matches!(expr, Expr::Column(found) if found.name == *column))
        })
}

/// The scan below projections and aliases, and an expression of theirs as one of its columns.
fn at_scan(plan: &LogicalPlan, expression: Expr) -> Option<(TableScan, Expr)> {
    match plan {
        LogicalPlan::TableScan(scan) => Some((scan.clone(), expression)),
        LogicalPlan::Projection(projection) => {
            let below = |position: usize| projection.expr.get(position).cloned().map(Expr::unalias);
            at_scan(&projection.input, replaced(plan, expression, below)?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let below = |position: usize| Some(Expr::Column(Column::from(alias.input.schema().qualified_field(position))));
            at_scan(&alias.input, replaced(plan, expression, below)?)
        }
        _ => None,
    }
}

/// The expression with each column of `plan` as what is below it.
fn replaced(plan: &LogicalPlan, expression: Expr, below: impl Fn(usize) -> Option<Expr>) -> Option<Expr> {
    let mut is_known = true;
    let replaced = expression.transform_up(|inner| match &inner {
        Expr::Column(column) => match plan.schema().maybe_index_of_column(column).and_then(&below) {
            Some(expression) => Ok(Transformed::yes(expression)),
            None => {
                is_known = false;
                Ok(Transformed::no(inner))
            }
        },
        _ => Ok(Transformed::no(inner)),
    });
    replaced.ok().map(|replaced| replaced.data).filter(|_| is_known)
}

/// Puts the scan in the place of the one below the sort.
fn with_scan(sort: Sort, scan: TableScan) -> Result<Sort> {
    let input = sort.input.as_ref().clone().transform_down(|node| match node {
        LogicalPlan::TableScan(_) => Ok(Transformed::yes(LogicalPlan::TableScan(scan.clone()))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(Sort { input: Arc::new(input.data), ..sort })
}

/// A distance from a column of vectors to a constant.
struct Distance {
    column: String,
    query: QueryVector,
    metric: Metric,
}

impl Distance {
    /// Smallest first: `distance ASC`, or `1 - distance DESC`.
    fn of(key: &Expr, sort: &SortExpr) -> Option<Self> {
        match key {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right })
                if !sort.asc && matches!(left.as_ref(), Expr::Literal(..)) =>
            {
                Self::of_call(right)
            }
            call if sort.asc => Self::of_call(call),
            _ => None,
        }
    }

    fn of_call(call: &Expr) -> Option<Self> {
        let call = match call {
            Expr::Cast(cast) => cast.expr.as_ref(),
            call => call,
        };
        let Expr::ScalarFunction(function) = call else { return None };
        let metric = match function.name() {
            "l2_distance" => Metric::L2,
            "cosine_distance" => Metric::Cosine,
            "negative_inner_product" => Metric::Dot,
            _ => return None,
        };
        let (column, query) = match function.args.as_slice() {
            [Expr::Column(column), query] | [query, Expr::Column(column)] => (column, query),
            _ => return None,
        };
        Some(Self { column: column.name.clone(), query: query_vector(query)?, metric })
    }
}

fn query_vector(expression: &Expr) -> Option<QueryVector> {
    match expression {
        Expr::Placeholder(Placeholder { id, field: Some(field) }) if matches!(field.data_type(), DataType::FixedSizeList(..)) => {
            Some(QueryVector::Parameter(id.clone()))
        }
        constant => constant_vector(constant).map(QueryVector::Constant),
    }
}

/// The vector that a literal is, or says as text.
fn constant_vector(expression: &Expr) -> Option<Vec<f32>> {
    let value = match expression {
        Expr::Literal(value, _) => value,
        Expr::Cast(cast) => return constant_vector(&cast.expr),
        _ => return None,
    };
    match value {
        ScalarValue::FixedSizeList(list) if list.len() == 1 && list.null_count() == 0 => {
            let values = list.value(0);
            let values = values.as_primitive_opt::<Float32Type>()?;
            (values.null_count() == 0).then(|| values.values().to_vec())
        }
        other => parse_vector(other.try_as_str().flatten()?).ok(),
    }
}
