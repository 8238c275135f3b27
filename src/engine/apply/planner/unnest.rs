//! `unnest` in FROM where DataFusion has none: over columns of the relations before it, and WITH ORDINALITY.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlannerContext, RelationPlanning};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, TableAlias, TableAliasColumnDef};

use super::{column_names, default_alias};
use crate::engine::apply::array_calls::with_array_calls;
use crate::engine::apply::ordinality::WithOrdinality;
use crate::engine::apply::rows_of_lists::RowsOfLists;
use crate::engine::apply::{Apply, ApplyFunction};

const UNNEST: &str = "unnest";

/// The relation; `None`: DataFusion plans it.
pub fn planned(
    alias: Option<&TableAlias>,
    arrays: &[SqlExpr],
    with_ordinality: bool,
    context: &mut dyn RelationPlannerContext,
) -> Result<Option<RelationPlanning>> {
    let read = |array: &SqlExpr| context.sql_to_expr(with_array_calls(array)?, &DFSchema::empty());
    let arrays = arrays.iter().map(read).collect::<Result<Vec<_>>>()?;
    if !with_ordinality && !arrays.iter().any(|array| array.contains_outer()) {
        return Ok(None);
    }
    let (function, arguments) = RowsOfLists::of(arrays)?;
    let is_of_one = arguments.len() == 1;
    let function: Arc<dyn ApplyFunction> = match with_ordinality {
        true => Arc::new(WithOrdinality { function: Arc::new(function) }),
        false => Arc::new(function),
    };
    let mut alias = alias.cloned().unwrap_or_else(|| default_alias(UNNEST));
    if is_of_one && alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
    let names = column_names(&mut alias, function.as_ref(), context)?;
    let one_row = LogicalPlanBuilder::empty(true).build()?;
    let plan = Apply::try_new(one_row, function, arguments, None, names, false)?.into_plan();
    Ok(Some(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, Some(alias))))))
}
