//! Which part of a plan is the query of a view: clients are told that its columns are the view's. The name of the view stands there as an alias until the plan
//! is analyzed, so that nothing else meets it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{LogicalPlan, SubqueryAlias};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::TableReference;

/// Starts such an alias.
const PREFIX: &str = "__view_of ";
/// Between schema and view: no name that somebody types has it.
const SEPARATOR: char = '\u{1f}';

/// The alias round the query of a view.
#[derive(Debug, PartialEq, Eq)]
pub struct ViewName {
    pub schema: String,
    pub view: String,
}

impl ViewName {
    /// The view of which the alias tells; `None` for every other one.
    pub fn of(alias: &TableReference) -> Option<Self> {
        let (schema, view) = alias.table().strip_prefix(PREFIX)?.split_once(SEPARATOR)?;
        Some(Self { schema: schema.to_owned(), view: view.to_owned() })
    }
}

impl fmt::Display for ViewName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}{SEPARATOR}{}", self.schema, self.view)
    }
}

/// Takes these aliases out: round each there is the one by which the statement knows the view.
#[derive(Debug)]
pub struct WithoutViewNames;

impl AnalyzerRule for WithoutViewNames {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let without = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::SubqueryAlias(outer) => match outer.input.as_ref() {
                LogicalPlan::SubqueryAlias(inner) if ViewName::of(&inner.alias).is_some() => {
                    let renamed = SubqueryAlias::try_new(Arc::clone(&inner.input), outer.alias)?;
                    Ok(Transformed::yes(LogicalPlan::SubqueryAlias(renamed)))
                }
                _ => Ok(Transformed::no(LogicalPlan::SubqueryAlias(outer))),
            },
            other => Ok(Transformed::no(other)),
        })?;
        Ok(without.data)
    }

    fn name(&self) -> &str {
        "without_view_names"
    }
}
