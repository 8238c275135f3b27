//! MERGE: the source joined with the target; of the clauses for a pair of rows, the first whose condition is true says what becomes of it.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Ident, JoinConstraint, JoinOperator, Query, SelectItem, SetExpr};
use futures::FutureExt;
use rolloutdb_catalogs::{IS_REMOVED, ROW_ADDRESS, Table};
use rolloutdb_sql::{Matching, Merge, MergeAction, MergeClause, MergeInsert};

use super::assignment::{NewValues, assigned_arms, complete, expression, typed};
use super::upsert::{and, equals, if_else, or};
use super::{Change, ChangeOf, column_of, name_relation, numbers, open_target, quoted, row_query, selected, template, unsupported};
use crate::engine::apply::extract::async_function;
use crate::engine::pinned_models;
use crate::engine::planning::{KeptRun, Planned, REWRITE_TARGET, plan_rewrite};
use crate::engine::session::{Description, Response, Session};
use crate::engine::statement::attempt::{Attempt, attempted};
use crate::engine::statement::insert::{Purpose, resolve_values};
use crate::error::Result;

/// The columns that tell a pair's side: both are true or NULL.
const HAS_SOURCE: &str = "__has_source";
/// The number of the clause that is done, from 1; 0: none.
const CLAUSE: &str = "__clause";

/// `kept`: for EXPLAIN ANALYZE.
pub async fn execute(session: &Session, merge: &Merge, parameters: &[ScalarValue], kept: Option<&KeptRun>) -> Result<Response> {
    attempted(|attempt| execute_once(session, merge, parameters, kept, attempt).boxed()).await
}

async fn execute_once(
    session: &Session,
    merge: &Merge,
    parameters: &[ScalarValue],
    kept: Option<&KeptRun>,
    attempt: Attempt,
) -> Result<Response> {
    let table = open_target(session, &merge.target).await?;
    pinned_models::check(session, &table)?;
    let rewrite = table.begin_rewrite().await?;
    let planned = plan(session, merge, rewrite.table(), parameters).await?;
    change_of(merge, kept).run(session, rewrite, planned, Change::Merge, parameters, attempt).await
}

pub async fn describe(session: &Session, merge: &Merge) -> Result<Description> {
    let table = open_target(session, &merge.target).await?;
    let planned = plan(session, merge, &table, &[]).await?;
    change_of(merge, None).describe(session, &table, &planned).await
}

/// The query that finds the rows, for plain EXPLAIN.
pub async fn explained(session: &Session, merge: &Merge, parameters: &[ScalarValue]) -> Result<(Arc<Table>, Planned)> {
    let table = open_target(session, &merge.target).await?;
    let planned = plan(session, merge, &table, parameters).await?;
    Ok((table, planned))
}

fn change_of<'a>(merge: &'a Merge, kept: Option<&'a KeptRun>) -> ChangeOf<'a> {
    ChangeOf { verb: "MERGE", statement: merge, alias: merge.target.name(), returning: &merge.returning, kept }
}

async fn plan(session: &Session, merge: &Merge, table: &Table, parameters: &[ScalarValue]) -> Result<Planned> {
    let alias = merge.target.name();
    let clauses = merge.clauses.iter().map(|clause| ClauseValues::of(clause, &alias, table)).collect::<Result<Vec<_>>>()?;
    let is_numbered = |index: &usize| clauses.iter().any(|clause| clause.numbered.contains(index));
    let numbered: Vec<usize> = (0..table.definition().schema.fields().len()).filter(is_numbered).collect();
    let mut query = query(merge, table, &clauses, &numbered)?;
    query.with.clone_from(&merge.with);
    let rows = plan_rewrite(session, query, parameters, table.with_addresses(), None).await?;
    refuse_volatile_conditions(&rows.plan)?;
    let rows = assigned_arms(row_query::computed_once(rows)?, table, 2 + numbered.len())?;
    let rows = numbers::number_rows(rows, table, 2, &numbered)?;
    let generated: Vec<String> = table.definition().generated.keys().cloned().collect();
    complete(rows, table, 2, &generated)
}

/// The number of the clause that is done is worked out where it is needed, and has to be the same everywhere.
fn refuse_volatile_conditions(plan: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Projection(projection) = plan else { return Ok(()) };
    let LogicalPlan::Filter(filter) = projection.input.as_ref() else { return Ok(()) };
    let is_volatile = |inner: &Expr| {
        let Expr::ScalarFunction(function) = inner else { return Ok(false) };
        // Models give the same answer to the same input.
        Ok(function.func.signature().volatility == Volatility::Volatile && async_function(inner).is_none())
    };
    match filter.predicate.exists(is_volatile)? {
        true => Err(unsupported("a condition of WHEN with a function whose result changes by itself")),
        false => Ok(()),
    }
}

/// `SELECT _rowaddr, removed, numbered, columns FROM (SELECT *, clause number FROM source FULL JOIN target) WHERE clause > 0`, with each column a CASE
/// over the clauses; of each column that is `numbered`, whether the clause leaves its value to the table. One SELECT: the number is spelled out where
/// it is needed, since a nested one would hide the names that the clauses use.
fn query(merge: &Merge, table: &Table, clauses: &[ClauseValues], numbered: &[usize]) -> Result<Query> {
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
    let removed = is_one_of(merge.clauses.iter().map(|clause| matches!(clause.action, MergeAction::Delete)))?;
    let mut items = vec![
        SelectItem::ExprWithAlias { expr: address, alias: quoted(ROW_ADDRESS) },
        SelectItem::ExprWithAlias { expr: removed, alias: quoted(IS_REMOVED) },
    ];
    for index in numbered {
        let condition = is_one_of(clauses.iter().map(|clause| clause.numbered.contains(index)))?;
        items.push(numbers::is_numbered(*index, condition));
    }
    for (index, field) in table.definition().schema.fields().iter().enumerate() {
        let mut value = column_of(&alias, field.name());
        for (position, clause) in clauses.iter().enumerate().rev() {
            if let Some(values) = &clause.values {
                value = if_else(&is_clause(position)?, typed(values[index].clone(), field)?, value)?;
            }
        }
        items.push(selected(value, field));
    }
    assemble(merge, &alias, items, number)
}

/// Whether the clause that is done is the one at this position.
fn is_clause(position: usize) -> Result<SqlExpr> {
    Ok(equals(SqlExpr::Identifier(quoted(CLAUSE)), expression(&(position + 1).to_string())?))
}

/// Whether it is one of those that are meant.
fn is_one_of(is_meant: impl Iterator<Item = bool>) -> Result<SqlExpr> {
    let mut some = expression("false")?;
    for (position, _) in is_meant.enumerate().filter(|(_, is_meant)| *is_meant) {
        some = or(some, is_clause(position)?);
    }
    Ok(some)
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

struct ClauseValues {
    /// What the clause makes of each column of the table, in order; none for DELETE and DO NOTHING.
    values: Option<Vec<SqlExpr>>,
    /// The columns that take their next number.
    numbered: Vec<usize>,
}

impl ClauseValues {
    fn of(clause: &MergeClause, alias: &Ident, table: &Table) -> Result<Self> {
        let fields = table.definition().schema.fields();
        match &clause.action {
            MergeAction::Nothing | MergeAction::Delete => Ok(Self { values: None, numbered: vec![] }),
            MergeAction::Update(assignments) => {
                let new_values = NewValues::of(table, assignments)?;
                let values = fields.iter().map(|field| new_values.expression(alias, field)).collect();
                Ok(Self { values: Some(values), numbered: new_values.numbered(table) })
            }
            MergeAction::Insert(insert) => Self::of_insert(insert, table),
        }
    }

    fn of_insert(insert: &MergeInsert, table: &Table) -> Result<Self> {
        let definition = table.definition();
        let (rows, purposes) = resolve_values(table, &insert.columns, insert.overriding, std::slice::from_ref(&insert.values))?;
        let given: Vec<SqlExpr> = rows.into_iter().flatten().collect();
        let (mut values, mut numbered) = (Vec::with_capacity(definition.schema.fields().len()), vec![]);
        for (index, field) in definition.schema.fields().iter().enumerate() {
            let position = purposes.iter().position(|purpose| *purpose == Purpose::Values(index));
            let default = definition.defaults.get(field.name()).map_or("NULL", String::as_str);
            values.push(match position {
                Some(position) => given[position].clone(),
                None => expression(default)?,
            });
            if position.is_none() && definition.identity.contains_key(field.name()) {
                numbered.push(index);
            }
        }
        Ok(Self { values: Some(values), numbered })
    }
}
