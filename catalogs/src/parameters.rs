//! The values of `$1 ...` in a plan that is kept: it reads them when it runs.

use std::sync::{Arc, PoisonError, RwLock};

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;

/// Clones are the same values. Two are equal if they are.
#[derive(Debug, Clone, Default)]
pub struct Parameters(Arc<RwLock<Vec<ScalarValue>>>);

impl Parameters {
    /// The values of the next run, `$1` first.
    pub fn set(&self, values: Vec<ScalarValue>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = values;
    }

    /// The value of a placeholder such as `$1`.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<ScalarValue> {
        let number: usize = id.strip_prefix('$')?.parse().ok()?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(number.checked_sub(1)?).cloned()
    }

    /// Which values these are, for comparing plans.
    #[must_use]
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The expression with values for its placeholders.
    pub(crate) fn bind(&self, expression: Expr) -> Result<Expr> {
        let bound = expression.transform_up(|inner| match &inner {
            Expr::Placeholder(placeholder) => Ok(match self.get(&placeholder.id) {
                Some(value) => Transformed::yes(Expr::Literal(value, None)),
                None => Transformed::no(inner),
            }),
            _ => Ok(Transformed::no(inner)),
        })?;
        Ok(bound.data)
    }
}
