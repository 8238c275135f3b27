//! MERGE: the source joined with the target; of the clauses for a pair of rows, the first whose condition is true says what becomes of it.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Ident, JoinConstraint, JoinOperator, Query, SelectItem, SetExpr};
use rolloutdb_catalogs::{IS_REMOVED, Identity, ROW_ADDRESS, Table};
use rolloutdb_sql::{Matching, Merge, MergeAction, MergeClause, is_default};

use super::assignment::{NewValues, complete, expression, new_value, typed};
use super::upsert::{and, equals, if_else, or};
use super::{Change, ChangeOf, column_of, name_relation, open_target, quoted, selected, template, unsupported};
use crate::engine::pinned_models;
use crate::engine::planning::{Planned, REWRITE_TARGET, plan_rewrite};
use crate::engine::session::{Description, Response, Session};
use crate::engine::statement::insert::target_columns;
use crate::error::{Error, Result};

/// The columns that tell a pair's side: both are true or NULL.
const HAS_SOURCE: &str = "__has_source";
/// The number of the clause that is done, from 1; 0: none.
const CLAUSE: &str = "__clause";

pub async fn execute(session: &Session, merge: &Merge, parameters: &[ScalarValue]) -> Result<Response> {
    let table = open_target(session, &merge.target).await?;
    pinned_models::check(session, &table)?;
    let rewrite = table.begin_rewrite().await?;
    let planned = plan(session, merge, rewrite.table(), parameters).await?;
    change_of(merge).run(session, rewrite, planned, Change::Merge, parameters).await
}

pub async fn describe(session: &Session, merge: &Merge) -> Result<Description> {
    let table = open_target(session, &merge.target).await?;
    let planned = plan(session, merge, &table, &[]).await?;
    change_of(merge).describe(session, &table, &planned).await
}

/// The query that finds the rows, for EXPLAIN.
pub async fn explained(session: &Session, merge: &Merge, parameters: &[ScalarValue]) -> Result<(Arc<Table>, Planned)> {
    let table = open_target(session, &merge.target).await?;
    let planned = plan(session, merge, &table, parameters).await?;
    Ok((table, planned))
}

fn change_of(merge: &Merge) -> ChangeOf<'_> {
    ChangeOf { verb: "MERGE", alias: merge.target.name(), returning: &merge.returning }
}

async fn plan(session: &Session, merge: &Merge, table: &Table, parameters: &[ScalarValue]) -> Result<Planned> {
    let numbers_rows = table.definition().identity.iter().next();
    if let (Some((column, _)), true) = (numbers_rows, merge.clauses.iter().any(|clause| matches!(clause.action, MergeAction::Insert(..)))) {
        return Err(unsupported(&format!("MERGE with INSERT into a table that numbers its column \"{column}\"")));
    }
    let query = query(merge, table)?;
    let rows = plan_rewrite(session, query, parameters, table.with_addresses(), None).await?;
    let generated: Vec<String> = table.definition().generated.keys().cloned().collect();
    complete(rows, table, 2, &generated)
}

/// `SELECT _rowaddr, removed, columns FROM (SELECT *, clause number FROM source FULL JOIN target) WHERE clause > 0`, with each column a CASE over the
/// clauses. One SELECT: the number is spelled out where it is needed, since a nested one would hide the names that the clauses use.
fn query(merge: &Merge, table: &Table) -> Result<Query> {
    let alias = merge.target.name();
    let address = column_of(&alias, ROW_ADDRESS);
    let has_target = SqlExpr::IsNotNull(Box::new(address.clone()));
    let has_source = SqlExpr::IsNotNull(Box::new(SqlExpr::Identifier(quoted(HAS_SOURCE))));
    let applies: Vec<SqlExpr> = merge
        .clauses
        .iter()
        .map(|clause| {
            let side = match clause.matching {
                Matching::Matched => and(has_target.clone(), has_source.clone()),
                Matching::NotMatchedByTarget => SqlExpr::IsNull(Box::new(address.clone())),
                Matching::NotMatchedBySource => SqlExpr::IsNull(Box::new(SqlExpr::Identifier(quoted(HAS_SOURCE)))),
            };
            match &clause.condition {
                Some(condition) => and(side, SqlExpr::Nested(Box::new(condition.clone()))),
                None => side,
            }
        })
        .collect();
    let mut number = expression("0")?;
    for (position, condition) in applies.iter().enumerate().rev() {
        let done = if matches!(merge.clauses[position].action, MergeAction::Nothing) { 0 } else { position + 1 };
        number = if_else(condition, expression(&done.to_string())?, number)?;
    }
    let is_clause = |position: usize| Ok::<_, Error>(equals(SqlExpr::Identifier(quoted(CLAUSE)), expression(&(position + 1).to_string())?));
    let mut removed = expression("false")?;
    for (position, clause) in merge.clauses.iter().enumerate() {
        if matches!(clause.action, MergeAction::Delete) {
            removed = or(removed, is_clause(position)?);
        }
    }
    let mut items = vec![
        SelectItem::ExprWithAlias { expr: address, alias: quoted(ROW_ADDRESS) },
        SelectItem::ExprWithAlias { expr: removed, alias: quoted(IS_REMOVED) },
    ];
    let values = merge.clauses.iter().map(|clause| ClauseValues::of(clause, &alias, table)).collect::<Result<Vec<_>>>()?;
    for (index, field) in table.definition().schema.fields().iter().enumerate() {
        let mut value = column_of(&alias, field.name());
        for (position, values) in values.iter().enumerate().rev() {
            if let Some(values) = &values.0 {
                value = if_else(&is_clause(position)?, typed(values[index].clone(), field.data_type())?, value)?;
            }
        }
        items.push(selected(value, field));
    }
    assemble(merge, &alias, items, number)
}

fn assemble(merge: &Merge, alias: &Ident, items: Vec<SelectItem>, number: SqlExpr) -> Result<Query> {
    let by_source = merge.clauses.iter().any(|clause| clause.matching == Matching::NotMatchedBySource);
    let join = if by_source { "FULL JOIN" } else { "LEFT JOIN" };
    let sql = format!(
        "SELECT 1 FROM (SELECT 1) AS a CROSS JOIN (SELECT true AS \"{HAS_SOURCE}\") AS c {join} {REWRITE_TARGET} AS b ON true WHERE true"
    );
    let mut query = template(&sql)?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        let from = &mut select.from[0];
        from.relation = merge.source.clone();
        name_relation(&mut from.joins[1].relation, alias);
        from.joins[1].join_operator = match by_source {
            true => JoinOperator::FullOuter(JoinConstraint::On(merge.on.clone())),
            false => JoinOperator::Left(JoinConstraint::On(merge.on.clone())),
        };
        let clause = SqlExpr::Identifier(quoted(CLAUSE));
        select.selection = Some(SqlExpr::BinaryOp {
            left: Box::new(number.clone()),
            op: datafusion::sql::sqlparser::ast::BinaryOperator::Gt,
            right: Box::new(expression("0")?),
        });
        select.projection = items.into_iter().map(|item| with_number(item, &clause, &number)).collect();
    }
    Ok(query)
}

/// Spells the number of the clause out where an item names it.
fn with_number(mut item: SelectItem, clause: &SqlExpr, number: &SqlExpr) -> SelectItem {
    struct SpellOut<'a>(&'a SqlExpr, &'a SqlExpr);
    impl datafusion::sql::sqlparser::ast::VisitorMut for SpellOut<'_> {
        type Break = ();
        fn post_visit_expr(&mut self, expression: &mut SqlExpr) -> std::ops::ControlFlow<()> {
            if expression == self.0 {
                *expression = SqlExpr::Nested(Box::new(self.1.clone()));
            }
            std::ops::ControlFlow::Continue(())
        }
    }
    let _ = datafusion::sql::sqlparser::ast::VisitMut::visit(&mut item, &mut SpellOut(clause, number));
    item
}

/// What a clause makes of each column of the table, in order; none for DELETE and DO NOTHING.
struct ClauseValues(Option<Vec<SqlExpr>>);

impl ClauseValues {
    fn of(clause: &MergeClause, alias: &Ident, table: &Table) -> Result<Self> {
        let fields = table.definition().schema.fields();
        match &clause.action {
            MergeAction::Nothing | MergeAction::Delete => Ok(Self(None)),
            MergeAction::Update(assignments) => {
                let new_values = NewValues::of(table, assignments)?;
                Ok(Self(Some(fields.iter().map(|field| new_values.expression(alias, field)).collect())))
            }
            MergeAction::Insert(columns, values) => inserted(table, columns, values).map(|values| Self(Some(values))),
        }
    }
}

fn inserted(table: &Table, columns: &[Ident], values: &[SqlExpr]) -> Result<Vec<SqlExpr>> {
    let definition = table.definition();
    let names: Vec<String> = columns.iter().map(|column| column.value.clone()).collect();
    let targets = target_columns(table, &names)?;
    if values.len() > targets.len() || (!names.is_empty() && values.len() < targets.len()) {
        return Err(Error::ColumnCount(format!("INSERT of MERGE has {} values for {} columns", values.len(), targets.len())));
    }
    let mut row = Vec::with_capacity(definition.schema.fields().len());
    for (index, field) in definition.schema.fields().iter().enumerate() {
        let default = definition.defaults.get(field.name()).map_or("NULL", String::as_str);
        row.push(match targets.iter().position(|target| *target == index).and_then(|position| values.get(position)) {
            Some(value) if is_default(value) => expression(default)?,
            Some(_) if definition.identity.get(field.name()) == Some(&Identity::Always) => {
                return Err(Error::GeneratedColumn(field.name().clone()));
            }
            Some(value) => new_value(definition, field, value)?,
            None => expression(default)?,
        });
    }
    Ok(row)
}
