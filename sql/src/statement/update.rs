//! `UPDATE t SET ...`.

use std::fmt;

use super::target::{Assignment, Others, Returning, SetClause, Target, Where, WithQueries, assignments, refuse_with_in_returning};
use crate::ast::{self, Expr, SelectItem, TableWithJoins, UpdateTableFromKind, With};
use crate::error::{Error, Result};
use crate::parser::Parser;

/// `[WITH ...] UPDATE t [AS x] SET a = 1, ... [FROM others] [WHERE condition] [RETURNING ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// Queries that `from`, the values and the condition can name.
    pub with: Option<With>,
    pub target: Target,
    /// At least one.
    pub assignments: Vec<Assignment>,
    pub from: Vec<TableWithJoins>,
    pub condition: Option<Expr>,
    /// What is asked for of the new rows; empty: nothing.
    pub returning: Vec<SelectItem>,
}

impl Update {
    pub(crate) fn parse(parser: &mut Parser, with: Option<With>) -> Result<Self> {
        match parser.statement()? {
            ast::Statement::Update(update) => Self::from_ast(parser, with, update),
            other => Err(Error::not_supported(format!("the statement {other}"))),
        }
    }

    fn from_ast(parser: &Parser, with: Option<With>, update: ast::Update) -> Result<Self> {
        if !update.order_by.is_empty() || update.limit.is_some() {
            return Err(Error::not_supported_but(
                "UPDATE with ORDER BY or LIMIT",
                "write WHERE id IN (SELECT id ... ORDER BY ... LIMIT n)",
            ));
        }
        if update.or.is_some() || update.output.is_some() {
            return Err(Error::not_supported("this form of UPDATE"));
        }
        let returning = update.returning.unwrap_or_default();
        refuse_with_in_returning(with.as_ref(), &returning)?;
        Ok(Self {
            with,
            target: Target::from_joins(update.table, "UPDATE", "FROM")?,
            assignments: assignments(parser, update.assignments)?,
            from: match update.from {
                None => Vec::new(),
                Some(UpdateTableFromKind::AfterSet(others) | UpdateTableFromKind::BeforeSet(others)) => others,
            },
            condition: update.selection,
            returning,
        })
    }
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { with, target, assignments, from, condition, returning } = self;
        write!(f, "{}UPDATE {target}{}{}", WithQueries(with.as_ref()), SetClause(assignments), Others("FROM", from))?;
        write!(f, "{}{}", Where(condition.as_ref()), Returning(returning))
    }
}
