//! Queries after WITH that are more than a name for their text.
//!
//! To DataFusion each use of a name is a copy of its query. So `WITH w AS (SELECT random() AS r) SELECT * FROM w a, w b` had two numbers, where PostgreSQL
//! computes one, and one after MATERIALIZED was computed for each use. [`mark`] puts an alias round such queries, by which they are known in the plan;
//! if there are several of one, [`OfWith`] lets them share their rows (`once`).
//!
//! A recursive query gives all its columns, whatever is read of them: DataFusion would leave those out that its outer query does not read, and the
//! recursive term with them.

mod marks;
mod node;
mod once;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{LogicalPlan, SubqueryAlias};
use datafusion::optimizer::AnalyzerRule;

pub use marks::mark;
pub use node::FencePlanner;

use node::Fence;
use once::SharedRows;

/// Gives queries after WITH their nodes, last of all that analyzes a plan.
#[derive(Debug)]
pub struct OfWith;

impl AnalyzerRule for OfWith {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let shared = shared(&plan)?;
        let fenced = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::RecursiveQuery(_) => Ok(Transformed::yes(Fence::new(node, None).into_plan())),
            LogicalPlan::SubqueryAlias(alias) => match marks::number(&alias.alias).and_then(|number| shared.get(&number)) {
                Some(rows) => {
                    let once = Fence::new(Arc::unwrap_or_clone(alias.input), Some(Arc::clone(rows))).into_plan();
                    Ok(Transformed::yes(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(once), alias.alias)?)))
                }
                None => Ok(Transformed::no(LogicalPlan::SubqueryAlias(alias))),
            },
            other => Ok(Transformed::no(other)),
        })?;
        Ok(fenced.data)
    }

    fn name(&self) -> &str {
        "of_with"
    }
}

/// The rows of marked queries that are used more than once. One that reads columns of a query round it has other rows for each of them.
fn shared(plan: &LogicalPlan) -> Result<HashMap<usize, Arc<SharedRows>>> {
    let mut uses: HashMap<usize, usize> = HashMap::new();
    let mut is_open: HashMap<usize, bool> = HashMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = node
            && let Some(number) = marks::number(&alias.alias)
        {
            *uses.entry(number).or_default() += 1;
            let reads_outside = !alias.input.all_out_ref_exprs().is_empty();
            *is_open.entry(number).or_default() |= reads_outside;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let several = uses.into_iter().filter(|(number, count)| *count > 1 && !is_open[number]);
    Ok(several.map(|(number, _)| (number, Arc::default())).collect())
}
