//! Which queries after WITH are computed once: those after MATERIALIZED, and those that call functions which give something else each time.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::Volatility;
use datafusion::sql::TableReference;
use datafusion::sql::sqlparser::ast::{
    Cte, CteAsMaterialized, Expr, Function, Ident, ObjectName, Query, SetExpr, Statement, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::engine::apply::planner::{TableFunction, called_function};
use crate::engine::with_names::folded;

/// Starts the alias; no name that somebody types has its last letter.
const PREFIX: &str = "__with\u{1f}";

/// The number of a query by its alias; `None` for every other alias.
pub fn number(alias: &TableReference) -> Option<usize> {
    alias.table().strip_prefix(PREFIX)?.parse().ok()
}

/// Puts an alias round such queries.
pub fn mark(statement: &mut Statement, state: &SessionState, table_functions: &HashMap<&'static str, Arc<dyn TableFunction>>) {
    let _ = statement.visit(&mut Marker { state, table_functions, count: 0 });
}

struct Marker<'a> {
    state: &'a SessionState,
    table_functions: &'a HashMap<&'static str, Arc<dyn TableFunction>>,
    count: usize,
}

impl VisitorMut for Marker<'_> {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Some(with) = &mut query.with else { return ControlFlow::Continue(()) };
        for table in &mut with.cte_tables {
            let is_recursive = with.recursive && reads(&table.query, &table.alias.name);
            if !is_recursive && self.is_computed_once(table) && marked(table, self.count).is_some() {
                self.count += 1;
            }
        }
        ControlFlow::Continue(())
    }
}

impl Marker<'_> {
    fn is_computed_once(&self, table: &Cte) -> bool {
        let is_materialized = matches!(table.materialized, Some(CteAsMaterialized::Materialized));
        is_materialized || Visit::visit(&table.query, &mut Changing(self)).is_break()
    }

    fn is_volatile(&self, function: &Function) -> bool {
        let name = function.name.0.last().and_then(|part| part.as_ident()).map(folded);
        let known = name.and_then(|name| self.state.scalar_functions().get(&name));
        known.is_some_and(|function| function.signature().volatility == Volatility::Volatile)
    }
}

/// Stops at a call that may give something else the next time.
struct Changing<'a, 'b>(&'a Marker<'b>);

impl Visitor for Changing<'_, '_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if self.0.is_volatile(function) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Those of ours may ask a model.
    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<()> {
        match called_function(self.0.table_functions, relation) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }
}

/// Whether a relation of that name stands in a query.
fn reads(query: &Query, name: &Ident) -> bool {
    Visit::visit(query, &mut Reads(&folded(name))).is_break()
}

struct Reads<'a>(&'a str);

impl Visitor for Reads<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        match relation.0.as_slice() {
            [part] if part.as_ident().is_some_and(|name| folded(name) == self.0) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// `w AS (query)` as `w AS (SELECT * FROM (query) AS alias)`.
fn marked(table: &mut Cte, number: usize) -> Option<()> {
    let Some(rolloutdb_sql::Statement::Query(mut whole)) = rolloutdb_sql::parse("SELECT * FROM (SELECT 1) AS marked").ok()?.pop() else {
        return None;
    };
    let SetExpr::Select(select) = whole.body.as_mut() else { return None };
    let TableFactor::Derived { subquery, alias: Some(alias), .. } = &mut select.from[0].relation else { return None };
    alias.name = Ident::with_quote('"', format!("{PREFIX}{number}"));
    std::mem::swap(subquery, &mut table.query);
    table.query = whole;
    Some(())
}
