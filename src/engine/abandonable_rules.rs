//! The rules that make a plan end when nobody wants it any more.
//!
//! A join of hundreds of tables is planned for a minute by rules that each take little: asked before each of them, and at each node that the optimizer
//! walks for them, planning ends soon after its statement.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;

use super::interruption::Wanted;

/// The same state, whose planning fails with [`crate::Error::Cancelled`] when its statement is over.
pub fn abandonable(state: &SessionState, wanted: &Wanted) -> SessionState {
    let mut builder = SessionStateBuilder::new_from_existing(state.clone());
    if let Some(analyzer) = builder.analyzer() {
        for rule in &mut analyzer.rules {
            *rule = Arc::new(Abandonable { rule: Arc::clone(rule), wanted: wanted.clone() });
        }
    }
    if let Some(optimizer) = builder.optimizer() {
        for rule in &mut optimizer.rules {
            *rule = Arc::new(Abandonable { rule: Arc::clone(rule), wanted: wanted.clone() });
        }
    }
    if let Some(optimizer) = builder.physical_optimizers() {
        for rule in &mut optimizer.rules {
            *rule = Arc::new(Abandonable { rule: Arc::clone(rule), wanted: wanted.clone() });
        }
    }
    builder.build()
}

#[derive(Debug)]
struct Abandonable<R: ?Sized> {
    wanted: Wanted,
    rule: Arc<R>,
}

impl AnalyzerRule for Abandonable<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        self.wanted.check()?;
        self.rule.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }
}

impl OptimizerRule for Abandonable<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        self.wanted.check()?;
        // It compares each join with all below it, for most of a minute where there are hundreds, and deaf to a cancel: only where there is something to eliminate.
        if self.rule.name() == EliminateCrossJoin::new().name() && !plan.exists(|node| Ok(is_cross_join(node)))? {
            return Ok(Transformed::no(plan));
        }
        self.rule.rewrite(plan, config)
    }
}

fn is_cross_join(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Join(join) if join.join_type == JoinType::Inner && join.on.is_empty() && join.filter.is_none())
}

impl PhysicalOptimizerRule for Abandonable<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        self.wanted.check()?;
        self.rule.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.wanted.check()?;
        self.rule.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::engine::interruption::CurrentStatement;

    /// A rule that a cancel arrives in.
    #[derive(Debug)]
    struct Cancelling(CurrentStatement);

    impl OptimizerRule for Cancelling {
        fn name(&self) -> &str {
            "cancelling"
        }

        fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
            self.0.interrupt();
            Ok(Transformed::no(plan))
        }
    }

    #[tokio::test]
    async fn planning_ends_with_its_statement_and_another_goes_on() {
        let current = CurrentStatement::default();
        let _statement = current.begin(false);
        let context = SessionContext::new();
        let plan = context.state().create_logical_plan("SELECT a + 1 FROM (VALUES (1), (2)) AS t (a) WHERE a > 1").await.expect("it plans");
        let state =
            SessionStateBuilder::new_from_existing(context.state()).with_optimizer_rule(Arc::new(Cancelling(current.clone()))).build();

        let error = abandonable(&state, &current.wanted()).create_physical_plan(&plan).await.expect_err("the statement is over");
        assert!(error.to_string().contains("cancel"), "{error}");
        let _next = current.begin(false);
        let wanted = current.wanted();
        let of_next = abandonable(&context.state(), &wanted).create_physical_plan(&plan).await.expect("it is wanted");
        let plain = context.state().create_physical_plan(&plan).await.expect("it plans");
        let shown = |plan: &dyn ExecutionPlan| datafusion::physical_plan::displayable(plan).indent(true).to_string();
        assert_eq!(shown(of_next.as_ref()), shown(plain.as_ref()));
        current.interrupt();
        assert!(abandonable(&context.state(), &wanted).create_physical_plan(&plan).await.is_err());
    }

    #[tokio::test]
    async fn joins_without_a_condition_are_still_eliminated() {
        let current = CurrentStatement::default();
        let context = SessionContext::new();
        for name in ["a", "b", "c"] {
            context.sql(&format!("CREATE TABLE {name} AS VALUES (1, 2)")).await.expect("it plans").collect().await.expect("it runs");
        }
        for (from, joins) in
            [("a, b, c WHERE a.column1 = c.column1 AND b.column2 = c.column2", 2), ("a JOIN b ON a.column1 = b.column1 + 1", 1)]
        {
            let plan = context.state().create_logical_plan(&format!("SELECT count(*) FROM {from}")).await.expect("it plans");
            let optimized = abandonable(&context.state(), &current.wanted()).optimize(&plan).expect("it is wanted");
            let shown = optimized.display_indent().to_string();
            assert_eq!(shown.matches("Inner Join").count(), joins, "{shown}");
            assert!(!shown.contains("Cross Join"), "{shown}");
        }
    }
}
