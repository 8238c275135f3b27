//! `ARRAY(SELECT ..)`: the array of a query's rows in their order, empty if there are none, as the aggregate `array_agg` over that query.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArguments, Query, SelectItem, SetExpr, Statement, TableFactor, VisitMut, VisitorMut,
};

use crate::error::{Error, Result};

/// Writes such arrays as subqueries.
///
/// # Errors
/// [`Error::ColumnCount`] for a query of more than one column.
pub fn write_out(statement: &mut Statement) -> Result<()> {
    match statement.visit(&mut Arrays) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Arrays;

impl VisitorMut for Arrays {
    type Break = Box<Error>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let Some(rows) = query_of(function) else { return ControlFlow::Continue(()) };
        if has_more_columns(&rows.body) {
            return ControlFlow::Break(Box::new(Error::ColumnCount("subquery must return only one column".to_owned())));
        }
        if let Some(array) = array_of(rows) {
            *expr = Expr::Subquery(array);
        }
        ControlFlow::Continue(())
    }
}

/// What stands between the parentheses of `ARRAY(SELECT ..)`.
pub fn query_of(function: &Function) -> Option<&Query> {
    let FunctionArguments::Subquery(query) = &function.args else { return None };
    let name = function.name.0.last()?.as_ident()?;
    (name.quote_style.is_none() && name.value.eq_ignore_ascii_case("array")).then_some(query)
}

/// As far as it is written; of a wildcard the planner tells.
fn has_more_columns(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => {
            let is_wildcard = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
            select.projection.len() > 1 && !select.projection.iter().any(is_wildcard)
        }
        SetExpr::Values(values) => values.rows.iter().any(|row| row.content.len() > 1),
        SetExpr::SetOperation { left, .. } => has_more_columns(left),
        SetExpr::Query(query) => has_more_columns(&query.body),
        _ => false,
    }
}

fn array_of(rows: &Query) -> Option<Box<Query>> {
    let text = "SELECT coalesce(array_agg(array_items.item), make_array()) FROM (SELECT 1) AS array_items(item)";
    let Some(rolloutdb_sql::Statement::Query(mut array)) = rolloutdb_sql::parse(text).ok()?.pop() else { return None };
    let SetExpr::Select(select) = array.body.as_mut() else { return None };
    let TableFactor::Derived { subquery, .. } = &mut select.from[0].relation else { return None };
    **subquery = rows.clone();
    Some(array)
}
