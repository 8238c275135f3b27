//! From a query's syntax tree to a plan: names are resolved, types are found, and nothing runs.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    Cte, Expr, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, SetExpr, SetOperator as AstSetOperator, SetQuantifier,
    Value as Literal,
};

use super::bind_expression::Place;
use super::scope::{Scope, WithQuery};
use super::{BindError, BindResult, Body, Expression, Plan, SetOperator, SortKey};
use crate::engine::output_names::folded;
use crate::engine::pg_catalog::snapshot::Snapshot;
use crate::engine::pg_catalog::types::{Kind, PgType, UNKNOWN};
use crate::error::Error;

/// A query that is ready to run.
#[derive(Debug)]
pub struct Bound {
    pub plan: Plan,
    /// What `$1 ...` are compared with or cast to; `None`: nothing tells.
    pub parameters: Vec<Option<PgType>>,
}

/// Queries of WITH that can be named at a place.
pub(super) type With = Vec<(String, WithQuery)>;

pub(super) struct Binder<'s> {
    pub snapshot: &'s Snapshot,
    pub parameters: RefCell<Vec<Option<PgType>>>,
    recursions: Cell<usize>,
}

/// # Errors
/// [`BindError::NotHere`] for SQL that is not read here; 42703, 42883 and the like for what is wrong.
///
/// `parameters`: the types that are known of `$1 ...`, as a client declares them.
pub fn bind(query: &Query, snapshot: &Snapshot, parameters: Vec<Option<PgType>>) -> BindResult<Bound> {
    let binder = Binder { snapshot, parameters: RefCell::new(parameters), recursions: Cell::new(0) };
    let mut plan = binder.query(query, None, &With::new())?;
    // What nothing gives a type is text to a client.
    for (_, pg_type) in plan.columns.iter_mut().filter(|(_, pg_type)| pg_type.is_unknown()) {
        *pg_type = PgType::One(Kind::Text);
    }
    Ok(Bound { plan, parameters: binder.parameters.into_inner() })
}

/// The type of a plan's only column.
pub(super) fn only_type(plan: &Plan) -> PgType {
    plan.columns.first().map_or(UNKNOWN, |(_, pg_type)| pg_type.clone())
}

impl Binder<'_> {
    /// `parent`: the SELECT round it; `with`: what can be named in it.
    pub(super) fn query(&self, query: &Query, parent: Option<&Scope<'_>>, with: &With) -> BindResult<Plan> {
        if query.fetch.is_some() || query.for_clause.is_some() || !query.pipe_operators.is_empty() {
            return Err(BindError::NotHere);
        }
        let mut with = with.clone();
        if let Some(own) = &query.with {
            for table in &own.cte_tables {
                let name = folded(&table.alias.name);
                // As a query in FROM: it sees what is round the query that has it.
                let blank = Scope::within(parent);
                let plan = self.with_query(table, &name, own.recursive, &blank, &with)?;
                let is_correlated = blank.reads_outer.get();
                with.push((name, WithQuery::Plan { plan: Arc::new(Plan { is_correlated, ..plan }), level: blank.level() }));
            }
        }
        let order = keys(query.order_by.as_ref())?;
        let mut plan = self.body(&query.body, order, parent, &with)?;
        let (limit, offset) = match &query.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(_) => return Err(BindError::NotHere),
        };
        let number = |expression: Option<&Expr>| -> BindResult<Option<Expression>> {
            let Some(expression) = expression else { return Ok(None) };
            let blank = Scope::within(parent);
            let (bound, pg_type) = self.expression(expression, &Place::plain(&blank, &with))?;
            Ok(Some(self.cast_if_unknown(bound, &pg_type, &PgType::One(Kind::Int8))?))
        };
        let (limit, offset) = (number(limit)?, number(offset)?);
        if limit.is_some() || offset.is_some() {
            plan = wrapped_if_limited(plan);
            (plan.limit, plan.offset) = (limit, offset);
        }
        Ok(plan)
    }

    fn with_query(&self, table: &Cte, name: &str, may_recur: bool, blank: &Scope<'_>, with: &With) -> BindResult<Plan> {
        let recursive = match table.query.body.as_ref() {
            SetExpr::SetOperation { op: AstSetOperator::Union, set_quantifier, left, right } if may_recur => {
                Some((left, right, is_all(*set_quantifier)?))
            }
            _ => None,
        };
        let Some((left, right, all)) = recursive.filter(|_| names_table(&table.query, name)) else {
            return Ok(renamed(self.query(&table.query, Some(blank), with)?, &aliases(table)));
        };
        if table.query.order_by.is_some() || table.query.limit_clause.is_some() || table.query.with.is_some() {
            return Err(BindError::NotHere);
        }
        let first = renamed(self.body(left, &[], Some(blank), with)?, &aliases(table));
        let working = self.recursions.get();
        self.recursions.set(working + 1);
        let mut within = with.clone();
        within.push((name.to_owned(), WithQuery::Working(working, first.columns.clone())));
        let step = self.body(right, &[], Some(blank), &within)?;
        let columns = first.columns.clone();
        let body = Body::Recursive { first: Arc::new(first), step: Arc::new(step), all, working };
        Ok(Plan { columns, body, order: vec![], limit: None, offset: None, is_correlated: false })
    }

    pub(super) fn body(&self, body: &SetExpr, order: &[OrderByExpr], parent: Option<&Scope<'_>>, with: &With) -> BindResult<Plan> {
        match body {
            SetExpr::Select(select) => self.select(select, order, parent, with),
            SetExpr::Query(query) => {
                let inner = self.query(query, parent, with)?;
                if order.is_empty() {
                    return Ok(inner);
                }
                let order = output_order(order, &inner.columns)?;
                Ok(Plan { order, ..over(inner) })
            }
            SetExpr::Values(values) => {
                let rows: Vec<&Vec<Expr>> = values.rows.iter().map(|row| &row.content).collect();
                let plan = self.values(&rows, parent, with)?;
                let order = output_order(order, &plan.columns)?;
                Ok(Plan { order, ..plan })
            }
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let operator = match op {
                    AstSetOperator::Union => SetOperator::Union,
                    AstSetOperator::Except | AstSetOperator::Minus => SetOperator::Except,
                    AstSetOperator::Intersect => SetOperator::Intersect,
                };
                let all = is_all(*set_quantifier)?;
                let (left, right) = (self.body(left, &[], parent, with)?, self.body(right, &[], parent, with)?);
                if left.columns.len() != right.columns.len() {
                    let message = format!("each query of a {op} must have the same number of columns").to_lowercase();
                    return Err(Error::ColumnCount(message).into());
                }
                let pairs = left.columns.iter().zip(&right.columns);
                let columns: Vec<(String, PgType)> =
                    pairs.map(|((name, first), (_, second))| (name.clone(), wider(first, second))).collect();
                let order = output_order(order, &columns)?;
                let is_correlated = left.is_correlated || right.is_correlated;
                let body = Body::Set { operator, all, left: Arc::new(left), right: Arc::new(right) };
                Ok(Plan { columns, body, order, limit: None, offset: None, is_correlated })
            }
            _ => Err(BindError::NotHere),
        }
    }

    fn values(&self, rows: &[&Vec<Expr>], parent: Option<&Scope<'_>>, with: &With) -> BindResult<Plan> {
        let scope = Scope::within(parent);
        let place = Place::plain(&scope, with);
        let width = rows.first().map_or(0, |row| row.len());
        let mut bound = Vec::with_capacity(rows.len());
        let mut types = vec![UNKNOWN; width];
        for row in rows {
            if row.len() != width {
                return Err(Error::ColumnCount("the rows of VALUES must all have the same number of values".to_owned()).into());
            }
            let values = row.iter().map(|value| self.expression(value, &place)).collect::<BindResult<Vec<_>>>()?;
            for (known, (_, pg_type)) in types.iter_mut().zip(&values) {
                *known = wider(known, pg_type);
            }
            bound.push(values);
        }
        let cast_row = |row: Vec<(Expression, PgType)>| -> BindResult<Vec<Expression>> {
            let cells = row.into_iter().zip(&types);
            cells.map(|((value, from), to)| if to.is_unknown() { Ok(value) } else { self.cast_if_unknown(value, &from, to) }).collect()
        };
        let rows = bound.into_iter().map(cast_row).collect::<BindResult<Vec<_>>>()?;
        let columns = types.into_iter().enumerate().map(|(number, pg_type)| (format!("column{}", number + 1), pg_type)).collect();
        let is_correlated = scope.reads_outer.get();
        Ok(Plan { columns, body: Body::Values(rows), order: vec![], limit: None, offset: None, is_correlated })
    }

    pub(super) fn cast_if_unknown(&self, value: Expression, from: &PgType, to: &PgType) -> BindResult<Expression> {
        if from.is_unknown() { self.cast(value, from, to) } else { Ok(value) }
    }
}

fn keys(order: Option<&OrderBy>) -> BindResult<&[OrderByExpr]> {
    match order.map(|order| &order.kind) {
        None => Ok(&[]),
        Some(OrderByKind::Expressions(keys)) => Ok(keys),
        Some(OrderByKind::All(_)) => Err(BindError::NotHere),
    }
}

fn is_all(quantifier: SetQuantifier) -> BindResult<bool> {
    match quantifier {
        SetQuantifier::All => Ok(true),
        SetQuantifier::Distinct | SetQuantifier::None => Ok(false),
        _ => Err(BindError::NotHere),
    }
}

/// Descending, and NULL first, which is the order of a descending key unless it says otherwise.
pub(super) fn direction(key: &OrderByExpr) -> (bool, bool) {
    let descending = key.options.asc == Some(false);
    (descending, key.options.nulls_first.unwrap_or(descending))
}

/// The number of an output that ORDER BY or GROUP BY names by position.
pub(super) fn ordinal(expression: &Expr, num_outputs: usize) -> BindResult<Option<usize>> {
    let Expr::Value(value) = expression else { return Ok(None) };
    let Literal::Number(digits, _) = &value.value else { return Ok(None) };
    match digits.parse::<usize>() {
        Ok(number) if (1..=num_outputs).contains(&number) => Ok(Some(number - 1)),
        _ => Err(Error::ColumnCount(format!("position {digits} is not in the list of outputs, which has {num_outputs}")).into()),
    }
}

/// ORDER BY of a query whose rows are already made: by position or by name.
fn output_order(order: &[OrderByExpr], columns: &[(String, PgType)]) -> BindResult<Vec<SortKey>> {
    let key = |key: &OrderByExpr| -> BindResult<SortKey> {
        let named = |name: String| columns.iter().position(|(known, _)| *known == name);
        let position = match (&key.expr, ordinal(&key.expr, columns.len())?) {
            (_, Some(position)) => Some(position),
            (Expr::Identifier(name), None) => named(folded(name)),
            _ => None,
        };
        let (descending, nulls_first) = direction(key);
        position.map(|position| SortKey { position, descending, nulls_first }).ok_or(BindError::NotHere)
    };
    order.iter().map(key).collect()
}

/// The same rows, as those of a query in parentheses.
fn over(inner: Plan) -> Plan {
    let (columns, is_correlated) = (inner.columns.clone(), inner.is_correlated);
    Plan { columns, body: Body::Query(Arc::new(inner)), order: vec![], limit: None, offset: None, is_correlated }
}

/// `(SELECT .. LIMIT 3) LIMIT 2` has two limits.
fn wrapped_if_limited(plan: Plan) -> Plan {
    if plan.limit.is_some() || plan.offset.is_some() { over(plan) } else { plan }
}

fn renamed(mut plan: Plan, names: &[String]) -> Plan {
    plan.columns.iter_mut().zip(names).for_each(|((name, _), given)| name.clone_from(given));
    plan
}

fn aliases(table: &Cte) -> Vec<String> {
    table.alias.columns.iter().map(|column| folded(&column.name)).collect()
}

/// Whether the query reads a table of this name anywhere.
fn names_table(query: &Query, name: &str) -> bool {
    let mut is_named = false;
    let _ = datafusion::sql::sqlparser::ast::visit_relations(query, |relation| {
        is_named |= matches!(relation.0.as_slice(), [only] if only.as_ident().is_some_and(|ident| folded(ident) == name));
        std::ops::ControlFlow::<()>::Continue(())
    });
    is_named
}

/// The type of values that come of two.
pub(super) fn wider(first: &PgType, second: &PgType) -> PgType {
    let rank = |kind: Kind| match kind {
        Kind::Int2 => Some(1),
        Kind::Int4 => Some(2),
        Kind::Int8 => Some(3),
        Kind::Numeric => Some(4),
        Kind::Float4 => Some(5),
        Kind::Float8 => Some(6),
        _ => None,
    };
    match (first.kind(), second.kind()) {
        (Some(Kind::Unknown), _) => second.clone(),
        // Literals and names beside longer texts.
        (Some(Kind::Name | Kind::Char), Some(Kind::Text | Kind::Varchar)) => second.clone(),
        (Some(left), Some(right)) if rank(left) < rank(right) && rank(left).is_some() => second.clone(),
        _ => first.clone(),
    }
}
