//! Rows as values: `(a, b)`, compared with others and with those of a query.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, Query};

use super::bind::Binder;
use super::bind_expression::{BOOL, Place, TEXT, Typed, comparable};
use super::{Binary, BindError, BindResult, Expression};
use crate::engine::pg_catalog::types::PgType;
use crate::error::Error;

impl Binder<'_> {
    /// `(a, b) = (c, d)`, value by value, so that a join finds its equalities.
    pub(super) fn rows_equal(&self, lefts: &[Expr], rights: &[Expr], place: &Place<'_>) -> BindResult<Expression> {
        if lefts.len() != rights.len() {
            return Err(Error::ColumnCount("rows that are compared must have the same number of values".to_owned()).into());
        }
        let pairs = lefts.iter().zip(rights).map(|(left, right)| self.compared(Binary::Equal, left, right, place));
        Ok(Expression::And(pairs.collect::<BindResult<_>>()?))
    }

    /// `(a, b)`, `ROW(a, b)`: its fields are `f1`, `f2` and so on.
    pub(super) fn row(&self, items: Vec<Typed>) -> BindResult<Typed> {
        if items.is_empty() {
            return Err(BindError::NotHere);
        }
        let (mut values, mut fields) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
        for (position, (value, from)) in items.into_iter().enumerate() {
            let pg_type = if from.is_unknown() { TEXT } else { from.clone() };
            values.push(self.cast_if_unknown(value, &from, &TEXT)?);
            fields.push((format!("f{}", position + 1), pg_type));
        }
        Ok((Expression::Row(values), PgType::Record(fields.into())))
    }

    /// `(a, b) IN (SELECT c, d ...)`
    pub(super) fn quantified_rows(
        &self,
        items: &[Expr],
        operator: Binary,
        query: &Query,
        all: bool,
        place: &Place<'_>,
    ) -> BindResult<Typed> {
        let plan = self.query(query, Some(place.scope), place.with)?;
        if plan.columns.len() != items.len() {
            let message = format!("the subquery has {} columns, and the row beside it {} values", plan.columns.len(), items.len());
            return Err(Error::ColumnCount(message).into());
        }
        let value = |(item, (_, to)): (&Expr, &(String, PgType))| -> BindResult<Expression> {
            let (value, from) = self.expression(item, place)?;
            if to.is_unknown() { Ok(value) } else { self.cast_if_unknown(value, &from, &comparable(to)) }
        };
        let values = items.iter().zip(&plan.columns).map(value).collect::<BindResult<_>>()?;
        Ok((Expression::QuantifiedQuery { operator, left: Box::new(Expression::Row(values)), query: Arc::new(plan), all }, BOOL))
    }
}

/// The values of `(a, b)`; `None`: it is no row. `(a)` is a value in parentheses.
pub(super) fn row_items(tree: &Expr) -> Option<&[Expr]> {
    match tree {
        Expr::Tuple(items) if !items.is_empty() => Some(items),
        Expr::Nested(inner) => row_items(inner),
        _ => None,
    }
}
