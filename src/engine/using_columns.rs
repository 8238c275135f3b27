//! Columns that `JOIN .. USING` makes one of two.
//!
//! To DataFusion `id` after `JOIN .. USING (id)` is a column of two relations. It takes the left one in the SELECT list, which is NULL where a RIGHT or FULL JOIN has
//! no row on the left, refuses the name as ambiguous in WHERE and in a later ON, and after LATERAL takes an `id` of the relations before it. So the
//! name is written out: `s.id`, of a RIGHT JOIN the right one, of a FULL JOIN the one that is there.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderBy, Query, ReplaceSelectElement, ReplaceSelectItem, Select,
    SelectItem, SetExpr, Statement, TableWithJoins, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use super::lateral_names::{folded, relation_name};
use crate::error::{Error, Result};

/// Writes such columns out in all queries of a statement.
///
/// # Errors
/// [`Error::NotSupported`] where the columns are not known (`NATURAL RIGHT JOIN`, `NATURAL FULL JOIN`, `FULL JOIN .. USING` behind joins without the column), and for
/// a column that is joined by once more behind a RIGHT or FULL JOIN.
pub fn write_out(statement: &mut Statement) -> Result<()> {
    match statement.visit(&mut Queries) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Queries;

impl VisitorMut for Queries {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        // An ORDER BY behind UNION names outputs.
        let mut order_by = if matches!(query.body.as_ref(), SetExpr::Select(_)) { query.order_by.take() } else { None };
        let written = write_out_body(&mut query.body, order_by.as_mut());
        if order_by.is_some() {
            query.order_by = order_by;
        }
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn write_out_body(body: &mut SetExpr, order_by: Option<&mut OrderBy>) -> Result<()> {
    match body {
        SetExpr::Select(select) => write_out_select(select, order_by),
        SetExpr::SetOperation { left, right, .. } => {
            write_out_body(left, None)?;
            write_out_body(right, None)
        }
        // A query in parentheses is visited by itself.
        _ => Ok(()),
    }
}

fn write_out_select(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<()> {
    let mut columns = HashMap::new();
    for table in &mut select.from {
        columns.extend(merged_columns(table)?);
    }
    if columns.is_empty() {
        return Ok(());
    }
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) if columns.contains_key(&folded(name)) => {
                *item = SelectItem::ExprWithAlias { alias: name.clone(), expr: Expr::Identifier(name.clone()) };
            }
            SelectItem::Wildcard(options) => replace_in_wildcard(options, &columns),
            _ => {}
        }
    }
    let from = std::mem::take(&mut select.from);
    let mut written = Written { columns, depth: 0 };
    let _ = select.visit(&mut written);
    select.from = from;
    // An ORDER BY names an output first.
    let outputs: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
    let has_all = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    written.columns.retain(|column, merged| !(outputs.contains(column) || has_all && merged.is_replaced));
    if let Some(order_by) = order_by {
        let _ = order_by.visit(&mut written);
    }
    Ok(())
}

fn alias_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

/// What stands for a column of USING.
struct Merged {
    name: Ident,
    value: Expr,
    /// `*` would give another value.
    is_replaced: bool,
}

/// Of a relation with its joins, whose conditions are written out on the way.
fn merged_columns(table: &mut TableWithJoins) -> Result<HashMap<String, Merged>> {
    let first = relation_name(&table.relation);
    let mut written = Written { columns: HashMap::new(), depth: 0 };
    for (position, join) in table.joins.iter_mut().enumerate() {
        let (side, constraint) = match &mut join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (Side::Either, constraint),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (Side::Left, constraint),
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (Side::Right, constraint),
            JoinOperator::FullOuter(constraint) => (Side::Full, constraint),
            _ => continue,
        };
        let names = match constraint {
            JoinConstraint::Using(names) => names,
            JoinConstraint::Natural if matches!(side, Side::Right | Side::Full) => {
                return Err(not_supported("NATURAL RIGHT JOIN and NATURAL FULL JOIN", "write the columns: JOIN .. USING (column)"));
            }
            JoinConstraint::On(condition) => {
                let _ = condition.visit(&mut written);
                continue;
            }
            _ => continue,
        };
        let right = relation_name(&join.relation);
        for name in names.iter().filter_map(|name: &ObjectName| name.0.last()?.as_ident()) {
            let of = |relation: &Option<Ident>| Some(Expr::CompoundIdentifier(vec![relation.clone()?, name.clone()]));
            // What is on the left of a later join may be without the column.
            let before = written.columns.get(&folded(name));
            if before.is_some_and(|merged| merged.is_replaced) {
                // DataFusion would join by the first of its columns.
                let what = format!("a JOIN .. USING ({name}) behind a RIGHT or FULL JOIN .. USING ({name})");
                return Err(not_supported(&what, "write the condition of the later one after ON"));
            }
            let left = before.map(|merged| merged.value.clone()).or_else(|| of(&first).filter(|_| position == 0));
            let right = of(&right);
            let is_replaced = matches!(side, Side::Right | Side::Full);
            match merged_value(side, left, right) {
                Some(value) => {
                    written.columns.insert(folded(name), Merged { name: name.clone(), value, is_replaced });
                }
                None if is_replaced => {
                    let what = format!(
                        "RIGHT JOIN or FULL JOIN .. USING ({name}) of relations without names, or behind joins without the column,"
                    );
                    return Err(not_supported(&what, "give the relations aliases and write the condition after ON"));
                }
                None => {}
            }
        }
    }
    Ok(written.columns)
}

/// The value of a column that is joined by, of those that are known.
pub fn merged_value(side: Side, left: Option<Expr>, right: Option<Expr>) -> Option<Expr> {
    match side {
        Side::Either => left.or(right),
        Side::Left => left,
        Side::Right => right,
        Side::Full => left.zip(right).map(|(left, right)| the_one_that_is_there(left, right)),
    }
}

/// Whose value the column of a join has.
#[derive(Clone, Copy)]
pub enum Side {
    Either,
    Left,
    Right,
    Full,
}

fn not_supported(what: &str, instead: &str) -> Error {
    Error::NotSupported(format!("{what} is not supported; {instead}"))
}

fn the_one_that_is_there(left: Expr, right: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: Expr::IsNotNull(Box::new(left.clone())), result: left }],
        else_result: Some(Box::new(right)),
    }
}

/// `* REPLACE (b.id AS id)`, of the columns that a wildcard would give otherwise.
fn replace_in_wildcard(options: &mut WildcardAdditionalOptions, columns: &HashMap<String, Merged>) {
    let mut replaced: Vec<_> = columns.iter().filter(|(_, merged)| merged.is_replaced).collect();
    replaced.sort_by_key(|(column, _)| column.as_str());
    let items = replaced.into_iter().map(|(_, merged)| {
        Box::new(ReplaceSelectElement { expr: merged.value.clone(), column_name: merged.name.clone(), as_keyword: true })
    });
    let items: Vec<_> = items.collect();
    if !items.is_empty() {
        options.opt_replace.get_or_insert_with(|| ReplaceSelectItem { items: vec![] }).items.extend(items);
    }
}

/// Puts the values in the place of the names, outside of queries within.
struct Written {
    columns: HashMap<String, Merged>,
    depth: usize,
}

impl VisitorMut for Written {
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
            && let Some(merged) = self.columns.get(&folded(ident))
        {
            *expr = merged.value.clone();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_out(sql: &str) -> Result<String> {
        let parsed = rolloutdb_sql::parse(sql).expect("it parses").pop();
        let Some(rolloutdb_sql::Statement::Query(query)) = parsed else { panic!("a query: {sql}") };
        let mut statement = Statement::Query(query);
        write_out(&mut statement)?;
        Ok(statement.to_string())
    }

    #[test]
    fn a_column_of_using_is_that_of_a_relation_that_has_it() {
        for (sql, expected) in [
            (
                "SELECT id, b.x FROM a JOIN b USING (id) WHERE id = 1 ORDER BY id",
                "SELECT a.id AS id, b.x FROM a JOIN b USING(id) WHERE a.id = 1 ORDER BY id",
            ),
            ("SELECT 1 FROM s.a AS q LEFT JOIN b USING (id) ORDER BY id", "SELECT 1 FROM s.a AS q LEFT JOIN b USING(id) ORDER BY q.id"),
            ("SELECT max(id) FROM a RIGHT JOIN b USING (id) GROUP BY ID", "SELECT max(b.id) FROM a RIGHT JOIN b USING(id) GROUP BY b.id"),
            (
                "SELECT * FROM a FULL JOIN b USING (id)",
                "SELECT * REPLACE (CASE WHEN a.id IS NOT NULL THEN a.id ELSE b.id END AS id) FROM a FULL JOIN b USING(id)",
            ),
            (
                "SELECT id FROM a JOIN b USING (id) LEFT JOIN c ON c.x = id JOIN d USING (id, y)",
                "SELECT a.id AS id FROM a JOIN b USING(id) LEFT JOIN c ON c.x = a.id JOIN d USING(id, y)",
            ),
            (
                "SELECT id FROM a JOIN b USING (id) WHERE EXISTS (SELECT id FROM c WHERE id > 1) UNION SELECT id FROM a RIGHT JOIN b USING (id) ORDER BY id",
                "SELECT a.id AS id FROM a JOIN b USING(id) WHERE EXISTS (SELECT id FROM c WHERE id > 1) UNION SELECT b.id AS id FROM a RIGHT JOIN b USING(id) ORDER BY id",
            ),
        ] {
            assert_eq!(written_out(sql).expect(sql), expected);
        }
        let same = "SELECT id, * FROM a JOIN b ON a.id = b.key WHERE id = 1";
        assert_eq!(written_out(same).expect(same), same);
    }

    #[test]
    fn what_cannot_be_known_is_refused() {
        for sql in [
            "SELECT * FROM a NATURAL FULL JOIN b",
            "SELECT * FROM a JOIN b ON true FULL JOIN c USING (id)",
            "SELECT * FROM a FULL JOIN b USING (id) JOIN c USING (id)",
            "SELECT * FROM a RIGHT JOIN (b JOIN c ON true) USING (id)",
        ] {
            assert!(matches!(written_out(sql), Err(Error::NotSupported(_))), "{sql}");
        }
    }
}
