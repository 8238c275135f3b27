//! Functions of rows in the list of SELECT: `SELECT id, generate_series(1, n) FROM t` gives n rows for each of t's, as in PostgreSQL. DataFusion has a function
//! of the name whose value is one array. `unnest` it knows itself.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, ObjectName, Query, Select, SelectItem, SetExpr,
    Statement, TableAlias, TableAliasColumnDef, TableFactor, TableFunctionArgs, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};

use super::apply::planner::TableFunction;
use crate::error::{Error, Result};

const SERIES: &str = "generate_series";
const UNNEST: &str = "unnest";

/// Functions of rows of one column.
const OF_ONE_COLUMN: [&str; 9] = [
    SERIES,
    "regexp_split_to_table",
    "string_to_table",
    "json_array_elements",
    "json_array_elements_text",
    "json_object_keys",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_object_keys",
];

/// Those of which another function gives all rows as one array.
const AS_ARRAYS: [(&str, &str); 3] =
    [(SERIES, SERIES), ("regexp_split_to_table", "regexp_split_to_array"), ("string_to_table", "string_to_array")];

/// The relation that its call becomes.
const RELATION: &str = "__series_in_select";

/// Moves them behind FROM where that is the same, and refuses them elsewhere.
///
/// # Errors
/// [`Error::NotSupported`].
pub fn write_out(
    statement: &mut Statement,
    state: &SessionState,
    table_functions: &HashMap<&'static str, Arc<dyn TableFunction>>,
) -> Result<()> {
    let mut mover = Mover { state };
    if let ControlFlow::Break(error) = statement.visit(&mut mover) {
        return Err(error);
    }
    let mut checker = Checker { state, table_functions, is_unnested: false };
    match Visit::visit(&*statement, &mut checker) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Mover<'a> {
    state: &'a SessionState,
}

impl VisitorMut for Mover<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        match self.body(&mut query.body) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Mover<'_> {
    fn body(&self, body: &mut SetExpr) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left)?;
                self.body(right)
            }
            _ => Ok(()),
        }
    }

    fn select(&self, select: &mut Select) -> Result<()> {
        let mut found = Found { state: self.state, depth: 0, calls: vec![], unnests: false, computes_groups: false };
        for item in &select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                let _ = Visit::visit(expr, &mut found);
            }
        }
        let Some(call) = found.calls.first() else { return Ok(()) };
        let has_groups = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty()) || select.having.is_some();
        // `*` would be the series too.
        let has_wildcard =
            select.projection.iter().any(|item| !matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }));
        let function = name_of(call);
        let is_several = found.unnests || found.calls.iter().any(|other| other != call);
        let is_of_groups = found.computes_groups || has_groups;
        if is_several && !is_of_groups && found.calls.iter().all(|call| as_array(call).is_some()) {
            side_by_side(select);
            return Ok(());
        }
        if is_several || is_of_groups || has_wildcard {
            return Err(not_here(&function));
        }
        let FunctionArguments::List(list) = &call.args else { return Err(not_here(&function)) };
        let column = TableAliasColumnDef { name: Ident::with_quote('"', &function), data_type: None };
        let relation = TableFactor::Table {
            name: ObjectName::from(vec![Ident::new(&function)]),
            alias: Some(TableAlias { explicit: true, name: Ident::with_quote('"', RELATION), columns: vec![column], at: None }),
            args: Some(TableFunctionArgs { args: list.args.clone(), settings: None }),
            with_hints: vec![],
            version: None,
            with_ordinality: false,
            partitions: vec![],
            json_path: None,
            sample: None,
            index_hints: vec![],
        };
        select.from.push(TableWithJoins { relation, joins: vec![] });
        let column_of_call = |expr: &mut Expr| {
            if matches!(expr, Expr::Function(call) if name_of(call) == function) {
                *expr = Expr::CompoundIdentifier([RELATION, &function].map(|name| Ident::with_quote('"', name)).into());
            }
        };
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                let _ = expr.visit(&mut Outermost { depth: 0, change: column_of_call });
            }
        }
        Ok(())
    }
}

/// Several lists come side by side, and the shorter ones have NULL at their end: so does `unnest` of their arrays.
fn side_by_side(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            let name = match expr {
                Expr::Function(call) => as_array(call).map(|_| name_of(call)),
                _ => None,
            };
            let _ = expr.visit(&mut Outermost { depth: 0, change: unnest_array });
            if let (Some(name), SelectItem::UnnamedExpr(expr)) = (name, &*item) {
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
            }
        }
    }
}

/// The function whose value is the array of the rows of a call.
fn as_array(call: &Function) -> Option<&'static str> {
    let name = name_of(call);
    AS_ARRAYS.iter().find(|(of_rows, _)| *of_rows == name).map(|(_, array)| *array)
}

/// Writes a call as `unnest` of an array, unless it stands in one.
fn unnest_array(expr: &mut Expr) {
    let Expr::Function(call) = expr else { return };
    if let Some(array) = as_array(call) {
        call.name = ObjectName::from(vec![Ident::new(array)]);
        *expr = rolloutdb_sql::call(UNNEST, [expr.clone()]);
    } else if name_of(call) == UNNEST
        && let [Expr::Function(inner)] = arguments(call)[..]
        && name_of(inner) == UNNEST
        && matches!(arguments(inner)[..], [Expr::Function(array)] if AS_ARRAYS.iter().any(|(_, name)| *name == name_of(array)))
    {
        *expr = Expr::Function(inner.clone());
    }
}

/// Those without a name.
fn arguments(call: &Function) -> Vec<&Expr> {
    let FunctionArguments::List(list) = &call.args else { return Vec::new() };
    let given = list.args.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    });
    given.collect()
}

/// Changes expressions, the inner ones first, and leaves those of subqueries alone.
struct Outermost<F> {
    depth: usize,
    change: F,
}

impl<F: Fn(&mut Expr)> VisitorMut for Outermost<F> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0 {
            (self.change)(expr);
        }
        ControlFlow::Continue(())
    }
}

/// What the list of a SELECT calls, without its subqueries.
struct Found<'a> {
    state: &'a SessionState,
    depth: usize,
    calls: Vec<Function>,
    /// Whether `unnest` is among them.
    unnests: bool,
    /// Aggregates and window functions, which PostgreSQL computes before rows become more.
    computes_groups: bool,
}

impl Visitor for Found<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr
            && self.depth == 0
        {
            let name = name_of(call);
            self.computes_groups |= call.over.is_some() || self.state.aggregate_functions().contains_key(&name);
            if OF_ONE_COLUMN.contains(&name.as_str()) {
                self.calls.push(call.clone());
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr
            && self.depth == 0
            && name_of(call) == UNNEST
        {
            self.unnests = true;
            // An array of all values, which `unnest` takes apart again.
            if self.calls.last().is_some_and(|inner| call.to_string().contains(&inner.to_string())) {
                self.calls.pop();
            }
        }
        ControlFlow::Continue(())
    }
}

/// Refuses what is left of such calls.
struct Checker<'a> {
    state: &'a SessionState,
    table_functions: &'a HashMap<&'static str, Arc<dyn TableFunction>>,
    /// Whether the next expression stands in `unnest(..)`.
    is_unnested: bool,
}

impl Visitor for Checker<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
        let is_unnested = std::mem::take(&mut self.is_unnested);
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let name = name_of(call);
        self.is_unnested = name == UNNEST;
        let is_of_rows = match name.as_str() {
            SERIES => !is_unnested,
            other if OF_ONE_COLUMN.contains(&other) => true,
            other => self.table_functions.contains_key(other) && !self.state.scalar_functions().contains_key(other),
        };
        if is_of_rows { ControlFlow::Break(not_here(&name)) } else { ControlFlow::Continue(()) }
    }
}

fn name_of(call: &Function) -> String {
    call.name.0.last().and_then(|part| part.as_ident()).map(|name| name.value.to_lowercase()).unwrap_or_default()
}

fn not_here(name: &str) -> Error {
    let instead = match name {
        SERIES => "write it in FROM, where it may name columns of the relations before it",
        _ => "write it in FROM",
    };
    Error::NotSupported(format!("{name}, a function of rows, is not supported here yet: {instead}"))
}
