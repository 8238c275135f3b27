//! Names of columns that no query writes.

use std::cell::Cell;

use datafusion::common::Column;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;

const PREFIX: &str = "__outer_";

/// Relations `__outer_1`, `__outer_2` and so on, each once in a plan.
pub struct Names {
    last: Cell<usize>,
}

impl Names {
    /// Names that are not in `plan`, of which a part may have been unnested before.
    pub fn not_in(plan: &LogicalPlan) -> Result<Self> {
        let mut last = 0;
        plan.apply_with_subqueries(|node| {
            for (relation, _) in node.schema().iter() {
                let number = relation.and_then(|relation| relation.table().strip_prefix(PREFIX)).and_then(|number| number.parse().ok());
                last = last.max(number.unwrap_or(0));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self { last: Cell::new(last) })
    }

    /// A relation of its own.
    pub fn relation(&self) -> String {
        self.last.set(self.last.get() + 1);
        format!("{PREFIX}{}", self.last.get())
    }

    /// A column of a relation of its own.
    pub fn next(&self, name: &str) -> Column {
        column(&self.relation(), name)
    }
}

/// The name bears the relation in it too, for columns of the subquery may have no relation.
pub fn column(relation: &str, name: impl std::fmt::Display) -> Column {
    Column::new(Some(relation), format!("{relation}_{name}"))
}
