//! Plans of large queries are made on a task of their own.
//!
//! DataFusion's optimizer is one long computation without a point at which it waits. Inside the statement's own task nothing could end it: neither a
//! cancel nor `statement_timeout` would be heard before the plan is ready.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;

use crate::error::{Error, Result};

/// Nodes of a plan and of its expressions, from which on it is planned in the background; smaller ones take a few milliseconds.
const LARGE: usize = 400;

/// The plan that runs. Dropping the future stops what makes it, or leaves it to end unheard if it computes.
pub async fn physical_plan(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    if !is_large(plan)? {
        return Ok(state.create_physical_plan(plan).await?);
    }
    let (state, plan) = (state.clone(), plan.clone());
    let task = SpawnedTask::spawn(async move { state.create_physical_plan(&plan).await });
    match task.join_unwind().await {
        Ok(planned) => Ok(planned?),
        Err(_) => Err(Error::Cancelled("planning")),
    }
}

fn is_large(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut count = 0;
    plan.apply_with_subqueries(|node| {
        count += 1;
        node.apply_expressions(|expression| {
            expression.apply(|_| {
                count += 1;
                Ok(if count < LARGE { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })?;
        Ok(if count < LARGE { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(count >= LARGE)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn long_lists_are_large_and_plans_of_both_sizes_run() {
        let context = SessionContext::new();
        let list = (0..1000).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
        for (sql, large) in [("SELECT 1 AS a".to_owned(), false), (format!("SELECT a FROM (SELECT 1 AS a) t WHERE a IN ({list})"), true)] {
            let plan = context.state().create_logical_plan(&sql).await.expect("it plans");
            assert_eq!(is_large(&plan).expect("it is counted"), large, "{sql}");
            let physical = physical_plan(&context.state(), &plan).await.expect("it plans");
            let rows = datafusion::physical_plan::collect(physical, context.task_ctx()).await.expect("it runs");
            assert_eq!(rows.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(), 1);
        }
    }
}
