//! `SET (a, b) = (SELECT x, y ...)`: a query of one row at most that gives several columns their values; without a row they are NULL.
//!
//! It becomes a scalar subquery of one struct, `(SELECT named_struct('0', x, '1', y) ...)`, and each column takes a field of it. Once the statement is
//! planned, [`computed_once`] puts each such subquery below the columns: computed for each of them, ties and LIMIT could give them different rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Query, Select, SelectItem, SetExpr, TableFactor,
};
use rolloutdb_catalogs::TableDefinition;
use rolloutdb_sql::is_default;

use super::assignment::{expression, new_value};
use super::template;
use crate::engine::planning::Planned;
use crate::engine::single_row::{gathered, only_value};
use crate::error::{Error, Result};

/// What a query that stays as it is is called, within the one that makes a struct of its columns.
const ROW: &str = "__row";

/// The values of the columns that are set to a query, in order.
///
/// # Errors
/// [`Error::ColumnCount`]; a `*` with 0A000.
pub fn fields(definition: &TableDefinition, columns: &[&Field], query: &Query) -> Result<Vec<SqlExpr>> {
    let query = row_query(definition, columns, query)?;
    (0..columns.len()).map(|position| field(query.clone(), position)).collect()
}

/// The query, with one column: the struct.
fn row_query(definition: &TableDefinition, columns: &[&Field], query: &Query) -> Result<Query> {
    let mut query = query.clone();
    if query.order_by.is_none()
        && let SetExpr::Select(select) = query.body.as_mut()
        && is_plain(select)
    {
        let values = values(definition, columns, select)?;
        let arguments: Vec<String> = values.iter().enumerate().map(|(position, value)| format!("'{position}', {value}")).collect();
        select.projection = vec![SelectItem::UnnamedExpr(expression(&format!("named_struct({})", arguments.join(", ")))?)];
        return Ok(query);
    }
    let names: Vec<String> = (0..columns.len()).map(|position| format!("\"{position}\"")).collect();
    let arguments: Vec<String> = (0..columns.len()).map(|position| format!("'{position}', \"{position}\"")).collect();
    let sql = format!("SELECT named_struct({}) FROM (SELECT 1) AS {ROW} ({})", arguments.join(", "), names.join(", "));
    let mut outer = template(&sql)?;
    if let SetExpr::Select(select) = outer.body.as_mut()
        && let TableFactor::Derived { subquery, .. } = &mut select.from[0].relation
    {
        **subquery = query;
    }
    Ok(outer)
}

/// Whether nothing in the query but its items names these items.
fn is_plain(select: &Select) -> bool {
    matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
}

/// The items of the SELECT, constants and parameters among them with the types of the columns.
fn values(definition: &TableDefinition, columns: &[&Field], select: &Select) -> Result<Vec<SqlExpr>> {
    let mut items = Vec::with_capacity(select.projection.len());
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => items.push(value),
            other => {
                let message = format!("SET of several columns to a query with {other} is not supported yet; name the query's columns");
                return Err(Error::NotSupported(message));
            }
        }
    }
    if items.len() != columns.len() {
        return Err(Error::ColumnCount(format!("{} columns are set to a query of {}", columns.len(), items.len())));
    }
    let typed = items.into_iter().zip(columns).map(|(value, column)| match is_default(value) {
        true => Ok(value.clone()),
        false => new_value(definition, column, value),
    });
    typed.collect()
}

/// `get_field((query), 'position')`
fn field(query: Query, position: usize) -> Result<SqlExpr> {
    let mut call = expression(&format!("get_field((SELECT 1), '{position}')"))?;
    if let SqlExpr::Function(function) = &mut call
        && let FunctionArguments::List(list) = &mut function.args
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(row))) = list.args.first_mut()
    {
        *row = SqlExpr::Subquery(Box::new(query));
        return Ok(call);
    }
    Err(Error::Internal(format!("not a call with a subquery: {call}")))
}

/// Computes each row once, below the columns that take its fields. The check that there is one row only stays where the field is taken, which may be
/// for some of the rows.
pub fn computed_once(source: Planned) -> Result<Planned> {
    let Planned { plan, state } = source;
    let LogicalPlan::Projection(projection) = plan else { return Ok(Planned { plan, state }) };
    let rows = rows_in(&projection.expr)?;
    if rows.is_empty() {
        return Ok(Planned { plan: LogicalPlan::Projection(projection), state });
    }
    let mut below: Vec<Expr> = projection.input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut references = Vec::with_capacity(rows.len());
    for (number, row) in rows.iter().enumerate() {
        let name = format!("{ROW}_{number}");
        let column = Expr::Column(Column::new_unqualified(name.clone()));
        let (value, reference) = match gathered(row)? {
            Some(list) => (list, only_value(column, row)),
            None => (row.clone(), column),
        };
        below.push(Expr::ScalarSubquery(value).alias(name));
        references.push(reference);
    }
    let columns = projection.expr.into_iter().map(|expression| {
        let replaced = expression.transform_up(|inner| match &inner {
            Expr::ScalarSubquery(row) => Ok(match rows.iter().position(|other| other == row) {
                Some(number) => Transformed::yes(references[number].clone()),
                None => Transformed::no(inner),
            }),
            _ => Ok(Transformed::no(inner)),
        });
        Ok(replaced?.data)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(projection.input)).project(below)?.project(columns)?.build()?;
    Ok(Planned { plan, state })
}

/// The different subqueries of a struct among the expressions.
fn rows_in(expressions: &[Expr]) -> Result<Vec<Subquery>> {
    let mut rows: Vec<Subquery> = Vec::new();
    for expression in expressions {
        expression.apply(|inner| {
            if let Expr::ScalarSubquery(subquery) = inner
                && matches!(subquery.subquery.schema().field(0).data_type(), DataType::Struct(_))
                && !rows.contains(subquery)
            {
                rows.push(subquery.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(rows)
}
