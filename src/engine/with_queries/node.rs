//! A node that nothing is pushed through: all rows and all columns of its input.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::DFSchemaRef;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::once::{OnceExec, SharedRows};

#[derive(Clone)]
pub struct Fence {
    input: LogicalPlan,
    /// What all uses of a query share; `None`: it is used once.
    rows: Option<Arc<SharedRows>>,
}

impl Fence {
    pub fn new(input: LogicalPlan, rows: Option<Arc<SharedRows>>) -> Self {
        Self { input, rows }
    }

    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// Uses of one query have one number, which holds while there are any.
    fn identity(&self) -> Option<usize> {
        self.rows.as_ref().map(|rows| Arc::as_ptr(rows).addr())
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(UserDefinedLogicalNodeCore::name(self))
    }
}

impl PartialEq for Fence {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity() && self.input == other.input
    }
}

impl Eq for Fence {}

impl PartialOrd for Fence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for Fence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for Fence {
    fn name(&self) -> &str {
        if self.rows.is_some() { "Once" } else { "Fence" }
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(UserDefinedLogicalNodeCore::name(self))
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { input: inputs.swap_remove(0), rows: self.rows.clone() })
    }
}

/// Turns [`Fence`] into its input, or into [`OnceExec`].
pub struct FencePlanner;

#[async_trait]
impl ExtensionPlanner for FencePlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _: &SessionState,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(fence) = node.as_any().downcast_ref::<Fence>() else { return Ok(None) };
        let input = Arc::clone(&physical_inputs[0]);
        let plan: Arc<dyn ExecutionPlan> = match &fence.rows {
            Some(rows) => Arc::new(OnceExec::new(input, Arc::clone(rows))),
            None => input,
        };
        Ok(Some(plan))
    }
}
