//! Columns of the relations before LATERAL that a subquery after it gives: `SELECT q.id` is a column `id`, as everywhere, and not `outer_ref(q.id)`, as
//! DataFusion has it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, TableFactor, VisitMut, VisitorMut};

/// Changes the subqueries after LATERAL in a statement.
pub fn qualify(statement: &mut Statement) {
    let _ = statement.visit(&mut Laterals);
}

struct Laterals;

impl VisitorMut for Laterals {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { lateral: true, subquery, .. } = relation {
            qualify_query(subquery);
        }
        ControlFlow::Continue(())
    }
}

fn qualify_query(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    name_columns_from_before(select);
}

/// A name as it is compared.
pub fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

/// The name by which expressions know a relation.
pub fn relation_name(relation: &TableFactor) -> Option<Ident> {
    match relation {
        TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => match alias {
            Some(alias) => Some(alias.name.clone()),
            None => name.0.last()?.as_ident().cloned(),
        },
        TableFactor::Derived { alias, .. } | TableFactor::NestedJoin { alias, .. } | TableFactor::UNNEST { alias, .. } => {
            Some(alias.as_ref()?.name.clone())
        }
        _ => None,
    }
}

/// Gives a column of a relation that is not in FROM its own name, if no other output has it.
fn name_columns_from_before(select: &mut Select) {
    let factors =
        select.from.iter().flat_map(|table| std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)));
    // Relations within parentheses are not looked for.
    let Some(within) = factors.map(|relation| relation_name(relation).map(|name| folded(&name))).collect::<Option<HashSet<_>>>() else {
        return;
    };
    if select.projection.iter().any(|item| output_name(item).is_none()) {
        return;
    }
    let outputs: Vec<Ident> = select.projection.iter().filter_map(output_name).flatten().collect();
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) = item
            && let [relation, column] = parts.as_slice()
            && !within.contains(&folded(relation))
            && outputs.iter().filter(|name| folded(name) == folded(column)).count() == 1
        {
            *item = SelectItem::ExprWithAlias { alias: column.clone(), expr: Expr::CompoundIdentifier(parts.clone()) };
        }
    }
}

/// `None` for a wildcard; `Some(None)` for an expression without a name of its own.
fn output_name(item: &SelectItem) -> Option<Option<Ident>> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(Some(alias.clone())),
        SelectItem::UnnamedExpr(Expr::Identifier(column)) => Some(Some(column.clone())),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => Some(parts.last().cloned()),
        SelectItem::UnnamedExpr(_) => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sql: &str, expected: &str) {
        let parsed = rolloutdb_sql::parse(sql).expect("it parses").pop();
        let Some(rolloutdb_sql::Statement::Query(query)) = parsed else { panic!("a query: {sql}") };
        let mut statement = Statement::Query(query);
        qualify(&mut statement);
        assert_eq!(statement.to_string(), expected);
    }

    #[test]
    fn outer_columns_have_their_name() {
        check(
            "SELECT id FROM q CROSS JOIN LATERAL (SELECT q.word, note, s.id AS mine FROM t AS s LIMIT 1) AS h",
            "SELECT id FROM q CROSS JOIN LATERAL (SELECT q.word AS word, note, s.id AS mine FROM t AS s LIMIT 1) AS h",
        );
        // Two outputs of one name stay as they are, and so does what is not after LATERAL.
        let same = "SELECT 1 FROM q CROSS JOIN LATERAL (SELECT q.id, s.id FROM t AS s) AS h JOIN (SELECT q.id FROM t) AS o ON true";
        check(same, same);
    }
}
