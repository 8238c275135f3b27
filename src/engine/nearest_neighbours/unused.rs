//! Why an index is not used, for EXPLAIN.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort};
use rolloutdb_catalogs::{SearchEffort, Table};

use super::distance::Distance;
use super::nearest_scan;
use crate::error::Result;

/// A line for each index over vectors of a table whose rows an optimized plan sorts by a distance without it.
pub async fn unused_indexes(plan: &LogicalPlan) -> Result<Vec<String>> {
    let mut sorts: Vec<(Vec<Table>, String)> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Sort(sort) = node
            && sorts_by_distance(sort)?
            && let Err(reason) = nearest_scan(sort, SearchEffort { ef_search: 1, probes: 1 })
        {
            sorts.push((tables(&sort.input)?, reason));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut lines = Vec::new();
    for (tables, reason) in sorts {
        for table in tables {
            for index in table.vector_indexes().await? {
                lines.push(format!("Index {} on {} ({}) is not used: {reason}", index.name, table.name(), index.column));
            }
        }
    }
    lines.dedup();
    Ok(lines)
}

/// Whether a distance is in a sort key, or in what a projection below makes of it.
fn sorts_by_distance(sort: &Sort) -> datafusion::error::Result<bool> {
    let mut found = sort.expr.iter().any(|key| Distance::is_in(&key.expr));
    let names: Vec<&str> = sort.expr.iter().flat_map(|key| key.expr.column_refs()).map(|column| column.name.as_str()).collect();
    sort.input.apply(|node| {
        if let LogicalPlan::Projection(projection) = node {
            let is_key = |expression: &&Expr| names.contains(&expression.qualified_name().1.as_str());
            found |= projection.expr.iter().filter(is_key).any(Distance::is_in);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The tables that are scanned as a whole.
fn tables(plan: &LogicalPlan) -> datafusion::error::Result<Vec<Table>> {
    let mut tables = Vec::new();
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(table) = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<Table>()
        {
            tables.push(table.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables)
}
