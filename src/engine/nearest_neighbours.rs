//! `ORDER BY embedding <=> $1 LIMIT k` as a nearest-neighbour scan.
//!
//! Only the leaf changes: in place of all rows the scan gives the k nearest of those that its filters let through. What stands above it stays, computes
//! the distances with pgvector's values, and sorts k rows. Where the shape does not fit, the plan stays as it is: right, and slower. EXPLAIN shows which,
//! and says why not ([`unused_indexes`]).

mod distance;
mod lateral;
mod path;
mod query;
mod unused;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, SortExpr, TableScan, Volatility};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use rolloutdb_catalogs::{AskedEffort, Metric, NearestRows, RowsWithoutDistance, SearchEffort, Table};

use distance::{Distance, is_at_most};
pub use lateral::{LateralNearestRows, SortRuntime};
use path::{Path, is_model_call, is_of_subquery};
pub use unused::unused_indexes;

use super::equal_floats::without_one_form;

/// Whether a distance is anywhere in an expression.
pub fn has_distance(expression: &Expr) -> bool {
    Distance::is_in(expression)
}

/// For more rows than this a sort of all is no slower.
const ROWS_MAX: usize = 100_000;

/// What a session has set; clones are the same setting.
#[derive(Debug, Clone, Default)]
pub struct EffortSetting(Arc<Mutex<AskedEffort>>);

impl EffortSetting {
    /// pgvector's default.
    pub const EF_SEARCH: usize = 40;

    pub fn asked(&self) -> AskedEffort {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> SearchEffort {
        let AskedEffort { ef_search, probes } = self.asked();
        SearchEffort { ef_search: ef_search.unwrap_or(Self::EF_SEARCH), probes: probes.unwrap_or(SearchEffort::PROBES) }
    }

    pub fn set_ef_search(&self, value: Option<usize>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ef_search = value;
    }

    pub fn set_probes(&self, value: Option<usize>) {
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
    let distance = Distance::of_key(without_one_form(&keys[0]), first.asc)?;
    let provider = source_as_provider(&path.scan.source).map_err(|error| error.to_string())?;
    let table = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<Table>().ok_or("it is no table of rows")?;
    let field = table.definition().schema.field_with_name(&distance.column).map_err(|error| error.to_string())?;
    // Rows without a distance must stand at the end, where the scan leaves them out.
    let first_come = RowsWithoutDistance {
        no_vector: first.nulls_first && field.is_nullable(),
        zero_vector: distance.metric == Metric::Cosine && path.expressions.iter().any(Distance::is_subtracted_in),
    };
    if path.scan.fetch.is_some() {
        return Err("rows are limited before they are sorted".to_owned());
    }
    if !are_ties_by_key(&keys[1..], others, table) {
        return Err("rows of one distance are ordered by something else than the primary key".to_owned());
    }
    // Those that compare the distance itself leave out rows at the end, and may as well stay above.
    let of_rows: Vec<Expr> = conditions.iter().filter(|condition| !is_at_most(condition, &distance)).cloned().collect();
    if let Some((other, reason)) = of_rows.iter().find_map(|condition| Some((condition, more_than_a_row(condition)?))) {
        return Err(format!("the condition {other} has to come first, and it has {reason}"));
    }
    let query = path.query(&distance.query).ok_or("the vector is not known before the rows are read")?;
    let nearest = NearestRows::new(table, &distance.column, query, k, distance.metric, effort).unless(first_come);
    let filters = path.scan.filters.into_iter().chain(of_rows).collect();
    Ok(TableScan { source: provider_as_source(Arc::new(nearest)), filters, ..path.scan })
}

/// The plan whose scans near to the vector of a subquery name the subquery as the plan has it now: rules and parameters may have changed it since.
pub fn with_current_subqueries(plan: &LogicalPlan) -> Result<Cow<'_, LogicalPlan>> {
    let mut is_one = false;
    plan.apply_with_subqueries(|node| {
        is_one = matches!(node, LogicalPlan::Sort(sort) if scan_of_subquery(sort).is_some());
        Ok(if is_one { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !is_one {
        return Ok(Cow::Borrowed(plan));
    }
    let current = plan.clone().transform_up_with_subqueries(|node| {
        let LogicalPlan::Sort(sort) = &node else { return Ok(Transformed::no(node)) };
        let Some(scan) = scan_of_subquery(sort) else { return Ok(Transformed::no(node)) };
        Ok(Transformed::yes(LogicalPlan::Sort(with_scan(sort.clone(), scan)?)))
    });
    Ok(Cow::Owned(current?.data))
}

fn scan_of_subquery(sort: &Sort) -> Option<TableScan> {
    let key = sort.expr.first()?;
    let path = Path::to_scan(&sort.input, vec![key.expr.clone().unalias()]).ok()?;
    let distance = Distance::of_key(path.expressions.first()?, key.asc).ok().filter(|distance| is_of_subquery(&distance.query))?;
    let provider = source_as_provider(&path.scan.source).ok()?;
    let nearest = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<NearestRows>().filter(|nearest| nearest.is_late())?;
    let nearest = nearest.with_query(path.query(&distance.query)?);
    Some(TableScan { source: provider_as_source(Arc::new(nearest)), ..path.scan })
}

/// What of a condition a row and constants alone do not decide, so that a search can not look for rows that meet it.
fn more_than_a_row(condition: &Expr) -> Option<&'static str> {
    let mut found = None;
    let walked = condition.apply(|inner| {
        found = match inner {
            Expr::Column(column) if is_model_call(column) => Some("a model call"),
            Expr::ScalarFunction(function) if function.func.signature().volatility != Volatility::Immutable => {
                Some("a function whose result changes by itself")
            }
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) | Expr::OuterReferenceColumn(..) => {
                Some("a subquery")
            }
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::ScalarVariable(..) => Some("more than values of the row"),
            _ => None,
        };
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    walked.is_err().then_some("more than values of the row").or(found)
}

/// Of equal distances the scan takes the smaller primary keys, so that further sort keys have to say the same.
fn are_ties_by_key(keys: &[Expr], sort: &[SortExpr], table: &Table) -> bool {
    let primary_key = &table.definition().primary_key;
    let is_column = |key: &Expr, column: &String| matches!(without_one_form(key), Expr::Column(found) if found.name == *column);
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
