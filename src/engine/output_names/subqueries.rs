//! Outputs of subqueries in FROM and of queries after WITH: `SELECT s.max FROM (SELECT max(a) FROM t) s`.
//!
//! There an output needs its name in the text. Two of one name get a mark behind it, which [`shown`] takes away again: both are shown by `*`, and a
//! reference to one of them finds none.

use std::ops::ControlFlow;

use datafusion::common::Column;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor, Value, Visit, VisitMut, Visitor,
    VisitorMut,
};

use super::{column_name, folded, is_wildcard, leftmost, name_of, order_by_outputs};

/// No name that somebody types has it.
const MARK: char = '\u{1f}';

/// A name as clients see it.
pub fn shown(name: &str) -> &str {
    name.split_once(MARK).map_or(name, |(shown, _)| shown)
}

/// Whether a column that is not found is there more than once.
pub fn is_repeated(column: &Column, known: &[Column]) -> bool {
    let is_in_reach = |other: &Column| column.relation.is_none() || column.relation == other.relation;
    known.iter().any(|other| is_in_reach(other) && other.name != shown(&other.name) && shown(&other.name) == column.name)
}

/// Gives the outputs of such queries PostgreSQL's names.
pub fn name_outputs(statement: &mut Statement) {
    let _ = statement.visit(&mut Subqueries);
}

struct Subqueries;

impl VisitorMut for Subqueries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            name_outputs_of(&mut table.query);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = relation {
            name_outputs_of(subquery);
        }
        ControlFlow::Continue(())
    }
}

fn name_outputs_of(query: &mut Query) {
    order_by_outputs(query);
    order_by_names(query);
    name_body(&mut query.body, query.order_by.as_ref());
}

fn name_body(body: &mut SetExpr, order_by: Option<&OrderBy>) {
    match body {
        SetExpr::Select(select) => name_select(select, order_by),
        SetExpr::SetOperation { left, right, .. } => {
            name_body(left, None);
            name_body(right, None);
        }
        SetExpr::Query(query) => name_outputs_of(query),
        _ => {}
    }
}

/// Gives keys of ORDER BY that are the names of computed outputs their positions: `SELECT a::text .. ORDER BY a` goes by the text.
pub fn order_by_names(query: &mut Query) {
    let Some(order_by) = &mut query.order_by else { return };
    let OrderByKind::Expressions(keys) = &mut order_by.kind else { return };
    let items = leftmost(&query.body).map(|select| select.projection.as_slice()).unwrap_or_default();
    if items.iter().any(is_wildcard) {
        return;
    }
    let position = |name: &Ident| items.iter().position(|item| computed_name(item).is_some_and(|known| known == folded(name)));
    for key in keys {
        if let Expr::Identifier(name) = &key.expr
            && let Some(position) = position(name)
        {
            key.expr = Expr::value(Value::Number((position + 1).to_string(), false));
        }
    }
}

/// Of an output that has no name in the text.
fn computed_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) if column_name(expression).is_none() => name_of(expression),
        _ => None,
    }
}

fn any_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) => column_name(expression).map(folded).or_else(|| name_of(expression)),
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

fn name_select(select: &mut Select, order_by: Option<&OrderBy>) {
    let names: Vec<Option<String>> = select.projection.iter().map(any_name).collect();
    for (position, item) in select.projection.iter_mut().enumerate() {
        let Some(name) = &names[position] else { continue };
        let is_repeated = names.iter().flatten().filter(|other| *other == name).count() > 1;
        let is_computed = computed_name(item).is_some();
        if !is_repeated && !is_computed {
            continue;
        }
        // To DataFusion an expression in ORDER BY reads an output of the name, to PostgreSQL a column.
        let is_marked = is_repeated || order_by.is_some_and(|order_by| reads_column(order_by, name));
        let alias = if is_marked { format!("{name}{MARK}{position}") } else { name.clone() };
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
        }
    }
}

fn reads_column(order_by: &OrderBy, name: &str) -> bool {
    Visit::visit(order_by, &mut Reads(name)).is_break()
}

struct Reads<'a>(&'a str);

impl Visitor for Reads<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) if folded(name) == self.0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sql: &str, expected: &str) {
        let parsed = rolloutdb_sql::parse(sql).expect("it parses").pop();
        let Some(rolloutdb_sql::Statement::Query(query)) = parsed else { panic!("a query: {sql}") };
        let mut statement = Statement::Query(query);
        name_outputs(&mut statement);
        assert_eq!(statement.to_string(), expected);
    }

    #[test]
    fn outputs_of_subqueries_have_their_names() {
        for (sql, expected) in [
            ("SELECT max(a) FROM (SELECT max(a) FROM t) AS s", r#"SELECT max(a) FROM (SELECT max(a) AS "max" FROM t) AS s"#),
            ("WITH w AS (SELECT 1, a FROM t) SELECT * FROM w", r#"WITH w AS (SELECT 1 AS "?column?", a FROM t) SELECT * FROM w"#),
            ("SELECT * FROM (SELECT a::TEXT FROM t ORDER BY a) AS s", r#"SELECT * FROM (SELECT a::TEXT AS "a" FROM t ORDER BY 1) AS s"#),
            (
                "SELECT * FROM (SELECT a, x.a, count(*) FROM t) AS s",
                "SELECT * FROM (SELECT a AS \"a\u{1f}0\", x.a AS \"a\u{1f}1\", count(*) AS \"count\" FROM t) AS s",
            ),
            (
                "SELECT * FROM (SELECT a::TEXT FROM t ORDER BY a + 1) AS s",
                "SELECT * FROM (SELECT a::TEXT AS \"a\u{1f}0\" FROM t ORDER BY a + 1) AS s",
            ),
            (
                "SELECT * FROM (SELECT max(a) FROM t UNION SELECT 1 ORDER BY max) AS s",
                r#"SELECT * FROM (SELECT max(a) AS "max" FROM t UNION SELECT 1 AS "?column?" ORDER BY 1) AS s"#,
            ),
        ] {
            check(sql, expected);
        }
        assert_eq!((shown("a\u{1f}0"), shown("a")), ("a", "a"));
    }
}
