//! `row_to_json(t)`, `json_agg(t)`: the name of a relation as an argument is its whole row. DataFusion knows columns alone, so the columns are written out, as arguments
//! of `json_row`.
//!
//! Which columns a relation has the planner says, unless its query names each of them. A column of the same name comes first, as in PostgreSQL.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, Select, SelectItem, SetExpr, Statement, TableFactor,
    Value, VisitMut, VisitorMut, With,
};

use rolloutdb_sql::call;

use super::lateral_names::{folded, relation_name};
use super::visible_queries::VisibleQueries;

/// The functions that take a row.
const FUNCTIONS: [&str; 5] = ["row_to_json", "to_json", "to_jsonb", "json_agg", "jsonb_agg"];

/// What makes a row of its columns a value.
pub const JSON_ROW: &str = "json_row";

/// Writes out the rows in the lists of SELECT; what is none, or of which the columns are not known, stays.
pub async fn write_out(statement: &mut Statement, state: &SessionState) {
    // The innermost queries come first: those round them are planned with what stands for their rows.
    let mut num_left = 0;
    while let Some(found) = find(statement, num_left) {
        match columns_of(&found, state).await {
            Some(columns) => replace(statement, num_left, row_of(&found.name, &columns)),
            None => num_left += 1,
        }
    }
}

/// A relation whose row is asked for.
struct Found {
    name: Ident,
    relation: TableFactor,
    /// The queries of WITH that it may name.
    with: Option<With>,
}

fn find(statement: &mut Statement, place: usize) -> Option<Found> {
    let mut places = Places { visible: VisibleQueries::default(), place, action: Action::Find(None) };
    let _ = statement.visit(&mut places);
    match places.action {
        Action::Find(found) => found.map(|found| *found),
        Action::Replace(_) => None,
    }
}

fn replace(statement: &mut Statement, place: usize, row: Expr) {
    let _ = statement.visit(&mut Places { visible: VisibleQueries::default(), place, action: Action::Replace(Box::new(row)) });
}

enum Action {
    Find(Option<Box<Found>>),
    Replace(Box<Expr>),
}

/// Does something with the place of that number among those where a row may stand.
struct Places {
    visible: VisibleQueries,
    place: usize,
    action: Action,
}

impl VisitorMut for Places {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.visible.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // With the rows that are written out in them by now.
        self.visible.see_all(query);
        let flow = self.in_body(&mut query.body);
        self.visible.leave(query);
        flow
    }
}

impl Places {
    fn in_body(&mut self, body: &mut SetExpr) -> ControlFlow<()> {
        match body {
            SetExpr::Select(select) => self.in_select(select),
            SetExpr::SetOperation { left, right, .. } => {
                self.in_body(left)?;
                self.in_body(right)
            }
            // A query in parentheses is visited by itself.
            _ => ControlFlow::Continue(()),
        }
    }

    fn in_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut projection = std::mem::take(&mut select.projection);
        let mut flow = ControlFlow::Continue(());
        for item in &mut projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                && flow.is_continue()
            {
                flow = expr.visit(&mut Rows { places: self, select, depth: 0 });
            }
        }
        select.projection = projection;
        flow
    }
}

struct Rows<'a> {
    places: &'a mut Places,
    select: &'a Select,
    /// Subqueries have relations of their own.
    depth: usize,
}

impl VisitorMut for Rows<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let Some(row) = row_argument(function) else { return ControlFlow::Continue(()) };
        let Expr::Identifier(name) = &*row else { return ControlFlow::Continue(()) };
        let Some(relation) = relation_of(self.select, name) else { return ControlFlow::Continue(()) };
        if self.places.place > 0 {
            self.places.place -= 1;
            return ControlFlow::Continue(());
        }
        if let Action::Replace(written) = &self.places.action {
            *row = written.as_ref().clone();
        } else {
            let found = Found { name: name.clone(), relation: relation.clone(), with: self.places.visible.with() };
            self.places.action = Action::Find(Some(Box::new(found)));
        }
        ControlFlow::Break(())
    }
}

/// The first argument of a function that takes a row.
fn row_argument(function: &mut Function) -> Option<&mut Expr> {
    let name = function.name.0.last()?.as_ident()?.value.to_ascii_lowercase();
    let FunctionArguments::List(list) = &mut function.args else { return None };
    match list.args.first_mut()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) if FUNCTIONS.contains(&name.as_str()) => Some(argument),
        _ => None,
    }
}

fn relation_of<'a>(select: &'a Select, name: &Ident) -> Option<&'a TableFactor> {
    let mut relations =
        select.from.iter().flat_map(|table| std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)));
    relations.find(|relation| relation_name(relation).is_some_and(|known| folded(&known) == folded(name)))
}

/// `None`: they are not known, or one of them has the name of the relation.
async fn columns_of(found: &Found, state: &SessionState) -> Option<Vec<String>> {
    let columns = match named_outputs(&found.relation) {
        Some(columns) => columns,
        None => planned_columns(found, state).await?,
    };
    (!columns.contains(&folded(&found.name))).then_some(columns)
}

/// The columns of a subquery that names each of them; such a one may read relations round it, which cannot be planned without them.
fn named_outputs(relation: &TableFactor) -> Option<Vec<String>> {
    let TableFactor::Derived { subquery, alias, .. } = relation else { return None };
    let SetExpr::Select(select) = subquery.body.as_ref() else { return None };
    if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
        return None;
    }
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(folded(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(folded),
        _ => None,
    };
    select.projection.iter().map(name).collect()
}

async fn planned_columns(found: &Found, state: &SessionState) -> Option<Vec<String>> {
    let Some(rolloutdb_sql::Statement::Query(mut query)) = rolloutdb_sql::parse("SELECT * FROM relation").ok()?.pop() else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.from[0].relation = found.relation.clone();
    query.with.clone_from(&found.with);
    let plan = state.statement_to_plan(PlannerStatement::Statement(Box::new(Statement::Query(query)))).await.ok()?;
    Some(plan.schema().fields().iter().map(|field| field.name().clone()).collect())
}

/// `json_row('a', t."a", 'b', t."b")`
fn row_of(relation: &Ident, columns: &[String]) -> Expr {
    let of_column = |name: &String| {
        let column = vec![relation.clone(), Ident::with_quote('"', name)];
        [Expr::value(Value::SingleQuotedString(name.clone())), Expr::CompoundIdentifier(column)]
    };
    call(JSON_ROW, columns.iter().flat_map(of_column))
}
