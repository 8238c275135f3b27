//! `ORDER BY embedding <=> $1 LIMIT k` as a nearest-neighbour scan.
//!
//! Only the leaf changes: in place of all rows the scan gives the k nearest of those that its filters let through. What stands above it stays, computes
//! the distances with pgvector's values, and sorts k rows. Where the shape does not fit, the plan stays as it is: right, and slower. EXPLAIN shows which,
//! and says why not ([`unused_indexes`]).

mod distance;
mod path;
mod query;
mod unused;

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, SortExpr, TableScan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use rolloutdb_catalogs::{NearestRows, SearchEffort, Table};

use distance::{Distance, is_at_most};
use path::Path;
pub use unused::unused_indexes;

/// For more rows than this a sort of all is no slower.
const ROWS_MAX: usize = 100_000;

/// What a session has set; clones are the same setting.
#[derive(Debug, Clone)]
pub struct EffortSetting(Arc<Mutex<SearchEffort>>);

impl Default for EffortSetting {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(SearchEffort { ef_search: Self::EF_SEARCH, probes: SearchEffort::PROBES })))
    }
}

impl EffortSetting {
    /// pgvector's default.
    pub const EF_SEARCH: usize = 40;

    fn get(&self) -> SearchEffort {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_ef_search(&self, value: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ef_search = value;
    }

    pub fn set_probes(&self, value: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).probes = value;
    }
}

#[derive(Debug)]
pub struct NearestNeighbours {
    pub effort: EffortSetting,
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
            LogicalPlan::Sort(sort) => match nearest_scan(&sort, self.effort.get()) {
                Ok(scan) => Ok(Transformed::yes(LogicalPlan::Sort(with_scan(sort, scan)?))),
                Err(_) => Ok(Transformed::no(LogicalPlan::Sort(sort))),
            },
            other => Ok(Transformed::no(other)),
        }
    }
}

/// The scan to read instead, for a sort by one distance with a limit over one table; or why there is none, for EXPLAIN.
fn nearest_scan(sort: &Sort, effort: SearchEffort) -> Result<TableScan, String> {
    let k = match sort.fetch {
        None => return Err("there is no LIMIT".to_owned()),
        Some(k) if !(1..=ROWS_MAX).contains(&k) => return Err(format!("LIMIT and OFFSET ask for {k} rows, and it is for 1 to {ROWS_MAX}")),
        Some(k) => k,
    };
    let (first, others) = sort.expr.split_first().ok_or("nothing is sorted by")?;
    let path = Path::to_scan(&sort.input, sort.expr.iter().map(|key| key.expr.clone().unalias()).collect())?;
    let (keys, conditions) = path.expressions.split_at(sort.expr.len());
    let distance = Distance::of_key(&keys[0], first.asc)?;
    let provider = source_as_provider(&path.scan.source).map_err(|error| error.to_string())?;
    let table = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<Table>().ok_or("it is no table of rows")?;
    let field = table.definition().schema.field_with_name(&distance.column).map_err(|error| error.to_string())?;
    // Rows without a vector have no distance: they must stand at the end, where the scan leaves them out.
    if first.nulls_first && field.is_nullable() {
        return Err("rows without a vector come first (NULLS FIRST)".to_owned());
    }
    if path.scan.fetch.is_some() {
        return Err("rows are limited before they are sorted".to_owned());
    }
    if !are_ties_by_key(&keys[1..], others, table) {
        return Err("rows of one distance are ordered by something else than the primary key".to_owned());
    }
    if let Some(other) = conditions.iter().find(|condition| !is_at_most(condition, &distance)) {
        return Err(format!("the condition {other} is no comparison of a column with constants, and has to come first"));
    }
    let query = path.query(&distance.query).ok_or("the vector is not known before the rows are read")?;
    let nearest = NearestRows::new(table, &distance.column, query, k, distance.metric, effort);
    Ok(TableScan { source: provider_as_source(Arc::new(nearest)), ..path.scan })
}

/// Of equal distances the scan takes the smaller primary keys, so that further sort keys have to say the same.
fn are_ties_by_key(keys: &[Expr], sort: &[SortExpr], table: &Table) -> bool {
    let primary_key = &table.definition().primary_key;
    let is_column = |key: &Expr, column: &String| matches!(key, Expr::Column(found) if found.name == *column);
    keys.len() <= primary_key.len()
        && keys.iter().zip(sort).zip(primary_key).all(|((key, sort), column)| sort.asc && is_column(key, column))
}

/// Puts the scan in the place of the one below the sort.
fn with_scan(sort: Sort, scan: TableScan) -> Result<Sort> {
    let input = sort.input.as_ref().clone().transform_down(|node| match node {
        LogicalPlan::TableScan(_) => Ok(Transformed::yes(LogicalPlan::TableScan(scan.clone()))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(Sort { input: Arc::new(input.data), ..sort })
}
