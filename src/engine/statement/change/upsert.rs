//! INSERT ... ON CONFLICT.
//!
//! DO NOTHING leaves rows out while they are written. DO UPDATE joins the new rows with the stored ones of the same key: a row without a partner is
//! inserted, one with a partner replaces it by what SET says, all in one commit.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::datasource::ViewTable;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, JoinConstraint, JoinOperator, Query, SelectItem, SetExpr, VisitMut, VisitorMut,
};
use rolloutdb_catalogs::{Error as CatalogError, ROW_ADDRESS, Table};
use rolloutdb_sql::{Assignment, Insert};

use super::assignment::{NewValues, assigned_arms, complete, expression, typed};
use super::returning::KeptRows;
use super::{Change, ChangeOf, column_of, name_relation, numbers, quoted, returning, row_query, selected, template};
use crate::engine::lineage::Draft;
use crate::engine::planning::{KeptRun, Planned, REWRITE_SOURCE, REWRITE_TARGET, plan_rewrite};
use crate::engine::session::{Response, Session};
use crate::engine::statement::attempt::Attempt;
use crate::engine::statement::insert::complete_source;
use crate::engine::statement::upkeep::after_write;
use crate::engine::statement::{done, insert};
use crate::error::{Error, Result};

/// What a DO UPDATE calls the row that was to be inserted.
const EXCLUDED: &str = "excluded";

/// `columns`: of the constraint; empty: of any. `kept_run`: for EXPLAIN ANALYZE.
pub async fn insert_or_skip(
    session: &Session,
    insert: &Insert,
    table: &Table,
    columns: &[Ident],
    parameters: &[ScalarValue],
    kept_run: Option<&KeptRun>,
    attempt: Attempt,
) -> Result<Response> {
    let alias = insert.target.name();
    let columns: Vec<String> = columns.iter().map(|column| column.value.clone()).collect();
    table.definition().check_conflict_target(table.name(), &columns)?;
    if !insert.returning.is_empty() {
        returning::plan(session, &insert.returning, &alias, table).await?;
    }
    let planned = insert::plan(session, insert, table, parameters).await?;
    let hold = attempt.hold(&planned.plan)?;
    let draft = Draft::of_rows(&planned.plan, table, insert)?;
    let rows = insert::watched_rows(session, table, planned.start(kept_run).await?)?;
    let (kept, sink) = KeptRows::of_written(table);
    let sink = (!insert.returning.is_empty()).then_some(sink);
    let count = table.append_new(rows, columns, sink, hold).await?;
    insert::note(draft, session, table, count).await;
    after_write(session, table).await;
    match insert.returning.as_slice() {
        [] => Ok(done(format!("INSERT 0 {count}"))),
        items => returning::response(session, items, &alias, kept, parameters, "INSERT").await,
    }
}

/// `kept`: for EXPLAIN ANALYZE.
pub async fn insert_or_update(
    session: &Session,
    insert: &Insert,
    table: &Table,
    conflict: &DoUpdate<'_>,
    parameters: &[ScalarValue],
    kept: Option<&KeptRun>,
    attempt: Attempt,
) -> Result<Response> {
    let rewrite = table.begin_rewrite().await?;
    let planned = conflict.plan(session, insert, rewrite.table(), parameters).await?;
    let change = ChangeOf { verb: "INSERT", statement: insert, alias: insert.target.name(), returning: &insert.returning, kept };
    let result = change.run(session, rewrite, planned, Change::Update { keys_change: true }, parameters, attempt).await;
    // The stored rows of these keys are replaced, so that only two new rows can share one.
    let target = conflict.constraint(table);
    result.map_err(|error| match error {
        Error::Catalog(CatalogError::UniqueViolation { table, constraint, .. }) if Some(&constraint) == target.as_ref() => {
            Error::Catalog(CatalogError::RowTwice { table })
        }
        other => other,
    })
}

/// `ON CONFLICT (columns) DO UPDATE SET assignments WHERE condition`
pub struct DoUpdate<'a> {
    pub columns: &'a [Ident],
    pub assignments: &'a [Assignment],
    pub condition: Option<&'a SqlExpr>,
}

impl DoUpdate<'_> {
    pub async fn plan(&self, session: &Session, insert: &Insert, table: &Table, parameters: &[ScalarValue]) -> Result<Planned> {
        let columns: Vec<String> = self.columns.iter().map(|column| column.value.clone()).collect();
        if columns.is_empty() {
            return Err(Error::ColumnCount("ON CONFLICT DO UPDATE needs the columns of a constraint: ON CONFLICT (id)".to_owned()));
        }
        table.definition().check_conflict_target(table.name(), &columns)?;
        let source = complete_source(session, insert, table, parameters).await?;
        let source = Arc::new(ViewTable::new(source.plan, None));
        let alias = insert.target.name();
        let new_values = NewValues::of(table, self.assignments)?;
        let numbered = new_values.numbered(table);
        let mut query = self.query(&alias, table, &columns, &new_values)?;
        query.with.clone_from(&insert.with);
        let rows = plan_rewrite(session, query, parameters, table.with_addresses(), Some(source)).await?;
        let rows = assigned_arms(row_query::computed_once(rows)?, table, 1 + numbered.len())?;
        let rows = numbers::number_rows(rows, table, 1, &numbered)?;
        let generated: Vec<String> = table.definition().generated.keys().cloned().collect();
        complete(rows, table, 1, &generated)
    }

    /// The name of the constraint in the catalog's error.
    fn constraint(&self, table: &Table) -> Option<String> {
        let is_on = |columns: &Vec<String>| {
            columns.len() == self.columns.len() && self.columns.iter().all(|column| columns.contains(&column.value))
        };
        let number = table.definition().unique_constraints().position(|(columns, _)| is_on(columns))?;
        table.definition().constraint_names(table.name()).into_iter().nth(number)
    }

    /// `SELECT t._rowaddr, CASE WHEN t._rowaddr IS NULL THEN excluded.a ELSE new END, ... FROM source AS excluded LEFT JOIN target AS t ON keys
    /// WHERE t._rowaddr IS NULL OR condition`
    fn query(&self, alias: &Ident, table: &Table, key: &[String], new_values: &NewValues) -> Result<Query> {
        let excluded = Ident::new(EXCLUDED);
        let address = column_of(alias, ROW_ADDRESS);
        let is_new = SqlExpr::IsNull(Box::new(address.clone()));
        let mut items = vec![SelectItem::ExprWithAlias { expr: address, alias: quoted(ROW_ADDRESS) }];
        let is_stored = SqlExpr::IsNotNull(Box::new(column_of(alias, ROW_ADDRESS)));
        items.extend(new_values.numbered(table).into_iter().map(|position| numbers::is_numbered(position, is_stored.clone())));
        for field in table.definition().schema.fields() {
            let inserted = column_of(&excluded, field.name());
            let updated = typed(in_scope(new_values.expression(alias, field), alias, table), field)?;
            items.push(selected(if_else(&is_new, inserted, updated)?, field));
        }
        let condition = self.condition.cloned().map(|condition| in_scope(condition, alias, table));
        let join = format!("SELECT 1 FROM {REWRITE_SOURCE} AS a LEFT JOIN {REWRITE_TARGET} AS b ON true");
        let mut query = template(&join)?;
        if let SetExpr::Select(select) = query.body.as_mut() {
            name_relation(&mut select.from[0].relation, &excluded);
            let join = &mut select.from[0].joins[0];
            name_relation(&mut join.relation, alias);
            let equal = key.iter().map(|column| Ok(equals(compared(&excluded, column, table)?, compared(alias, column, table)?)));
            let mut equal = equal.collect::<Result<Vec<_>>>()?.into_iter();
            let first = equal.next().ok_or_else(|| Error::Internal("a constraint without columns".to_owned()))?;
            let on = equal.fold(first, and);
            join.join_operator = JoinOperator::Left(JoinConstraint::On(on));
            select.selection = condition.map(|condition| or(is_new, SqlExpr::Nested(Box::new(condition))));
            select.projection = items;
        }
        Ok(query)
    }
}

/// A column of a key as the two rows compare it: minus zero plus zero is zero, and Arrow takes the two for different numbers.
fn compared(alias: &Ident, column: &str, table: &Table) -> Result<SqlExpr> {
    let value = column_of(alias, column);
    let is_float = table.definition().schema.field_with_name(column).is_ok_and(|field| field.data_type().is_floating());
    match is_float {
        true => Ok(binary(value, datafusion::sql::sqlparser::ast::BinaryOperator::Plus, expression("0.0")?)),
        false => Ok(value),
    }
}

/// In SET and WHERE a bare column is the stored row's, though the new row has one of the same name. In a subquery with a FROM it may be one of its own.
fn in_scope(mut expression: SqlExpr, alias: &Ident, table: &Table) -> SqlExpr {
    struct Qualify<'a> {
        alias: &'a Ident,
        table: &'a Table,
        /// Of the queries round the expression, the inner one last: whether it has a FROM.
        have_from: Vec<bool>,
    }
    impl VisitorMut for Qualify<'_> {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            let has_none = matches!(query.body.as_ref(), SetExpr::Select(select) if select.from.is_empty());
            self.have_from.push(!has_none);
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.have_from.pop();
            ControlFlow::Continue(())
        }
        fn post_visit_expr(&mut self, expression: &mut SqlExpr) -> ControlFlow<()> {
            if let SqlExpr::Identifier(name) = expression
                && !self.have_from.contains(&true)
            {
                let folded = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() };
                if self.table.definition().schema.field_with_name(&folded).is_ok() {
                    *expression = column_of(self.alias, &folded);
                }
            }
            ControlFlow::Continue(())
        }
    }
    let _ = VisitMut::visit(&mut expression, &mut Qualify { alias, table, have_from: vec![] });
    expression
}

/// `CASE WHEN condition THEN yes ELSE no END`
pub fn if_else(condition: &SqlExpr, yes: SqlExpr, no: SqlExpr) -> Result<SqlExpr> {
    match expression("CASE WHEN true THEN 1 ELSE 2 END")? {
        SqlExpr::Case { case_token, end_token, operand, mut conditions, .. } => {
            conditions[0].condition = condition.clone();
            conditions[0].result = yes;
            Ok(SqlExpr::Case { case_token, end_token, operand, conditions, else_result: Some(Box::new(no)) })
        }
        other => Err(Error::Internal(format!("not a CASE: {other}"))),
    }
}

pub fn equals(left: SqlExpr, right: SqlExpr) -> SqlExpr {
    binary(left, datafusion::sql::sqlparser::ast::BinaryOperator::Eq, right)
}

pub fn and(left: SqlExpr, right: SqlExpr) -> SqlExpr {
    binary(left, datafusion::sql::sqlparser::ast::BinaryOperator::And, right)
}

pub fn or(left: SqlExpr, right: SqlExpr) -> SqlExpr {
    binary(left, datafusion::sql::sqlparser::ast::BinaryOperator::Or, right)
}

fn binary(left: SqlExpr, op: datafusion::sql::sqlparser::ast::BinaryOperator, right: SqlExpr) -> SqlExpr {
    SqlExpr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}
