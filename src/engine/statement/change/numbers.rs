//! Columns that the table numbers, in statements that leave their numbers to it for some of the rows: `SET id = DEFAULT`, and clauses of a MERGE.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, SelectItem};
use rolloutdb_catalogs::Table;

use super::quoted;
use crate::engine::planning::Planned;
use crate::engine::statement::insert::number_where;
use crate::engine::typing::assign;
use crate::error::Result;

/// The item that says of each row whether the table numbers the column at this position.
pub fn is_numbered(position: usize, condition: SqlExpr) -> SelectItem {
    SelectItem::ExprWithAlias { expr: condition, alias: quoted(&format!("__is_numbered_{position}")) }
}

/// Gives rows the numbers of the columns `numbered`, and takes out what says which rows these are: the columns of [`is_numbered`], which stand after the
/// first `num_leading` columns and before those of the table.
pub fn number_rows(rows: Planned, table: &Table, num_leading: usize, numbered: &[usize]) -> Result<Planned> {
    if numbered.is_empty() {
        return Ok(rows);
    }
    let Planned { plan, state } = rows;
    let schema = Arc::clone(plan.schema());
    let column = |position: usize| Expr::Column(Column::from(schema.qualified_field(position)));
    let mut columns: Vec<Expr> = (0..num_leading).map(|position| column(position).alias(schema.field(position).name())).collect();
    for (index, field) in table.definition().schema.fields().iter().enumerate() {
        let mut value = column(num_leading + numbered.len() + index);
        if let Some(position) = numbered.iter().position(|other| *other == index) {
            // A CASE has the type of its first branch until the plan is analyzed.
            let given = cast(assign(&state, value, &schema, field)?, field.data_type().clone());
            value = number_where(column(num_leading + position), given, table, field, &state, &schema)?;
        }
        columns.push(value.alias(field.name()));
    }
    Ok(Planned { plan: LogicalPlanBuilder::new(plan).project(columns)?.build()?, state })
}
