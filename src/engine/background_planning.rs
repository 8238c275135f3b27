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

use super::abandonable_rules::abandonable;
use super::interruption::CurrentStatement;
use crate::error::{Error, Result};

/// Nodes of a plan and of its expressions, from which on it is planned in the background; smaller ones take a few milliseconds.
const LARGE: usize = 400;

/// The plan that runs. Dropping the future stops what makes it, soon after its statement is over.
pub async fn physical_plan(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    if !is_large(plan)? {
        return Ok(state.create_physical_plan(plan).await?);
    }
    in_background(state, plan, |state, plan| async move { state.create_physical_plan(&plan).await }).await
}

/// The same, with the logical plan that it is made of.
pub async fn both_plans(state: &SessionState, plan: &LogicalPlan) -> Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
    if !is_large(plan)? {
        return Ok(make_both(state, plan).await?);
    }
    in_background(state, plan, |state, plan| async move { make_both(&state, &plan).await }).await
}

async fn make_both(state: &SessionState, plan: &LogicalPlan) -> DataFusionResult<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
    let optimized = state.optimize(plan)?;
    let physical = state.query_planner().create_physical_plan(&optimized, state).await?;
    Ok((optimized, physical))
}

async fn in_background<T, F>(state: &SessionState, plan: &LogicalPlan, make: impl FnOnce(SessionState, LogicalPlan) -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = DataFusionResult<T>> + Send + 'static,
{
    let state = match state.config().get_extension::<CurrentStatement>() {
        Some(current) => abandonable(state, &current.wanted()),
        None => state.clone(),
    };
    match SpawnedTask::spawn(make(state, plan.clone())).join_unwind().await {
        Ok(made) => Ok(made?),
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
            let (optimized, _) = both_plans(&context.state(), &plan).await.expect("it plans");
            assert_eq!(optimized, context.state().optimize(&plan).expect("it plans"));
        }
    }
}
