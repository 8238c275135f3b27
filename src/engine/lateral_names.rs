//! Names in a subquery after LATERAL that DataFusion would take for columns of the relations before it, or give a name of its own.
//!
//! - `id` after `JOIN .. USING (id)` is a column of two relations within, and so, to DataFusion, not one of them: if a relation before LATERAL has an `id`, it
//!   would be that one. It is written `s.id` here.
//! - `SELECT q.id` of a relation before LATERAL is a column `id`, as everywhere, not `outer_ref(q.id)`.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem, SetExpr, Statement, TableFactor, VisitMut,
    VisitorMut,
};

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
    let mut of_using = UsingColumns { relations: using_columns(select), depth: 0 };
    if !of_using.relations.is_empty() {
        // An ORDER BY may name an output instead.
        let outputs: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
        let from = std::mem::take(&mut select.from);
        let _ = select.visit(&mut of_using);
        select.from = from;
        of_using.relations.retain(|column, _| !outputs.contains(column));
        let _ = query.order_by.visit(&mut of_using);
    }
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    name_columns_from_before(select);
}

fn alias_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

/// Puts the relation before the columns of USING, outside of queries within.
struct UsingColumns {
    relations: HashMap<String, Ident>,
    depth: usize,
}

impl VisitorMut for UsingColumns {
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
        if let Expr::Identifier(ident) = expr
            && self.depth == 0
            && let Some(relation) = self.relations.get(&folded(ident))
        {
            *expr = Expr::CompoundIdentifier(vec![relation.clone(), ident.clone()]);
        }
        ControlFlow::Continue(())
    }
}

/// The columns of USING, each with a relation that has its value: of an inner join the right one, of a left join the left one.
fn using_columns(select: &Select) -> HashMap<String, Ident> {
    let mut relations = HashMap::new();
    for table in &select.from {
        for (position, join) in table.joins.iter().enumerate() {
            let Some((columns, is_inner)) = using(join) else { continue };
            let side = if is_inner { &join.relation } else { &table.relation };
            // What is on the left of a later join may be without the column.
            let Some(relation) = relation_name(side).filter(|_| is_inner || position == 0) else { continue };
            for column in columns.iter().filter_map(|column| column.0.last()?.as_ident()) {
                relations.entry(folded(column)).or_insert_with(|| relation.clone());
            }
        }
    }
    relations
}

/// The columns of an inner or a left join with USING, and whether it is an inner one.
fn using(join: &Join) -> Option<(&[ObjectName], bool)> {
    match &join.join_operator {
        JoinOperator::Join(JoinConstraint::Using(columns)) | JoinOperator::Inner(JoinConstraint::Using(columns)) => {
            Some((columns.as_slice(), true))
        }
        JoinOperator::Left(JoinConstraint::Using(columns)) | JoinOperator::LeftOuter(JoinConstraint::Using(columns)) => {
            Some((columns.as_slice(), false))
        }
        _ => None,
    }
}

/// The name by which expressions know a relation.
fn relation_name(relation: &TableFactor) -> Option<Ident> {
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
    fn columns_of_using_get_a_relation_and_outer_columns_their_name() {
        check(
            "SELECT id FROM q CROSS JOIN LATERAL (SELECT q.word, note, id AS mine FROM t AS s JOIN m USING (id) WHERE id > 1 ORDER BY id LIMIT 1) AS h",
            "SELECT id FROM q CROSS JOIN LATERAL (SELECT q.word AS word, note, m.id AS mine FROM t AS s JOIN m USING(id) WHERE m.id > 1 ORDER BY m.id LIMIT 1) AS h",
        );
        check(
            "SELECT 1 FROM q CROSS JOIN LATERAL (SELECT max(x) AS id FROM t AS s LEFT JOIN m USING (id) WHERE id IN (SELECT id FROM q) ORDER BY id) AS h",
            "SELECT 1 FROM q CROSS JOIN LATERAL (SELECT max(x) AS id FROM t AS s LEFT JOIN m USING(id) WHERE s.id IN (SELECT id FROM q) ORDER BY id) AS h",
        );
        // Two outputs of one name stay as they are, and so does what is not after LATERAL.
        let same =
            "SELECT 1 FROM q CROSS JOIN LATERAL (SELECT q.id, s.id FROM t AS s) AS h JOIN (SELECT id FROM t JOIN m USING(id)) AS o ON true";
        check(same, same);
    }
}
