//! What is known of the values of `$1 ...` while a statement is planned: all of them when it runs, none when it is described, and those that decide the
//! plan when one is made that serves for many values of the others.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Limit, LogicalPlan};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Value};

#[derive(Debug, Clone, Default)]
pub struct ParameterValues(BTreeMap<String, ScalarValue>);

impl ParameterValues {
    /// Of a statement's parameters in their order.
    pub fn all(values: &[ScalarValue]) -> Self {
        Self::some(values.iter().cloned().enumerate())
    }

    /// By position, from 0.
    pub fn some(values: impl IntoIterator<Item = (usize, ScalarValue)>) -> Self {
        Self(values.into_iter().map(|(position, value)| (format!("${}", position + 1), value)).collect())
    }

    /// Whether the parameter of this name has a value that is no text.
    pub fn is_typed(&self, id: &str) -> bool {
        self.0.get(id).is_some_and(|value| !value.is_null() && value.try_as_str().is_none())
    }

    /// The expression with the values that are known in the place of placeholders.
    pub fn bind(&self, expression: Expr) -> Result<Expr> {
        let bound = expression.transform_up(|inner| match &inner {
            Expr::Placeholder(placeholder) => Ok(match self.0.get(&placeholder.id) {
                Some(value) => Transformed::yes(Expr::Literal(value.clone(), None)),
                None => Transformed::no(inner),
            }),
            _ => Ok(Transformed::no(inner)),
        })?;
        Ok(bound.data)
    }

    /// The same of a syntax tree; `None` if a value is not known.
    pub fn written_into(&self, expression: &SqlExpr) -> Option<SqlExpr> {
        let mut written = expression.clone();
        let all_known = datafusion::sql::sqlparser::ast::visit_expressions_mut(&mut written, |inner| {
            let SqlExpr::Value(value) = &*inner else { return ControlFlow::Continue(()) };
            let Value::Placeholder(id) = &value.value else { return ControlFlow::Continue(()) };
            let known = match self.0.get(id) {
                Some(ScalarValue::Utf8(Some(text))) => Value::SingleQuotedString(text.clone()),
                Some(value) if value.data_type().is_integer() && !value.is_null() => Value::Number(value.to_string(), false),
                _ => return ControlFlow::Break(()),
            };
            *inner = SqlExpr::value(known);
            ControlFlow::Continue(())
        });
        all_known.is_continue().then_some(written)
    }

    /// The plan with the values of LIMIT and OFFSET, where they are known.
    pub fn bind_limits(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let bound = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Limit(limit) => {
                let value = |expression: Option<Box<Expr>>| expression.map(|inner| self.bind(*inner).map(Box::new)).transpose();
                let Limit { skip, fetch, input } = limit;
                Ok(Transformed::yes(LogicalPlan::Limit(Limit { skip: value(skip)?, fetch: value(fetch)?, input })))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(bound.data)
    }
}
