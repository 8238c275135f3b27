//! `DELETE FROM t ...`.

use std::fmt;

use super::target::{Others, Returning, Target, Where, WithQueries, refuse_with_in_returning};
use crate::ast::{self, Expr, FromTable, SelectItem, TableWithJoins, With};
use crate::error::{Error, Result};
use crate::parser::Parser;

/// `[WITH ...] DELETE FROM t [AS x] [USING others] [WHERE condition] [RETURNING ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    /// Queries that `using` and the condition can name.
    pub with: Option<With>,
    pub target: Target,
    pub using: Vec<TableWithJoins>,
    /// Absent: all rows.
    pub condition: Option<Expr>,
    /// What is asked for of the removed rows; empty: nothing.
    pub returning: Vec<SelectItem>,
}

impl Delete {
    pub(crate) fn parse(parser: &mut Parser, with: Option<With>) -> Result<Self> {
        match parser.statement()? {
            ast::Statement::Delete(delete) => Self::from_ast(with, delete),
            other => Err(Error::not_supported(format!("the statement {other}"))),
        }
    }

    fn from_ast(with: Option<With>, delete: ast::Delete) -> Result<Self> {
        if !delete.order_by.is_empty() || delete.limit.is_some() {
            return Err(Error::not_supported_but(
                "DELETE with ORDER BY or LIMIT",
                "write WHERE id IN (SELECT id ... ORDER BY ... LIMIT n)",
            ));
        }
        if !delete.tables.is_empty() || delete.output.is_some() {
            return Err(Error::not_supported("this form of DELETE"));
        }
        let (FromTable::WithFromKeyword(mut from) | FromTable::WithoutKeyword(mut from)) = delete.from;
        let (Some(table), true) = (from.pop(), from.is_empty()) else {
            return Err(Error::not_supported_but("DELETE from several tables", "name the others after USING"));
        };
        let returning = delete.returning.unwrap_or_default();
        refuse_with_in_returning(with.as_ref(), &returning)?;
        Ok(Self {
            with,
            target: Target::from_joins(table, "DELETE", "USING")?,
            using: delete.using.unwrap_or_default(),
            condition: delete.selection,
            returning,
        })
    }
}

impl fmt::Display for Delete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { with, target, using, condition, returning } = self;
        write!(f, "{}DELETE FROM {target}{}", WithQueries(with.as_ref()), Others("USING", using))?;
        write!(f, "{}{}", Where(condition.as_ref()), Returning(returning))
    }
}
