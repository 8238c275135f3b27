//! The rules before and behind DataFusion's own: what asks for the order of a sorted subquery, and what follows from it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering};
use datafusion::physical_expr_common::sort_expr::OrderingRequirements;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::tree_node::PlanContext;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties, Statistics,
};

use super::in_turn::InTurnExec;

/// Puts a [`KeptOrderExec`] above each sort but the last one of the statement, which DataFusion keeps by itself.
#[derive(Debug)]
pub struct OrdersAskedFor;

impl PhysicalOptimizerRule for OrdersAskedFor {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        asked_for_below_last(plan)
    }

    fn name(&self) -> &str {
        "orders_asked_for"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn asked_for_below_last(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let is_narrowing = plan.downcast_ref::<ProjectionExec>().is_some_and(|projection| {
        projection.expr().iter().all(|output| output.expr.is::<datafusion::physical_expr::expressions::Column>())
    });
    let children: Vec<_> = plan.children().into_iter().cloned().collect();
    let [child] = children.as_slice() else { return asked_for(plan) };
    let child = match plan.downcast_ref::<SortExec>() {
        Some(_) => asked_for(Arc::clone(child))?,
        None if is_narrowing || plan.downcast_ref::<GlobalLimitExec>().is_some() => asked_for_below_last(Arc::clone(child))?,
        None => return asked_for(plan),
    };
    datafusion::physical_plan::with_new_children_if_necessary(plan, vec![child])
}

fn asked_for(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let asked_for = plan.transform_up(|node| {
        let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
        let order = sort.expr().clone();
        Ok(Transformed::yes(Arc::new(KeptOrderExec::new(node, order)) as Arc<dyn ExecutionPlan>))
    });
    Ok(asked_for?.data)
}

/// Gives its input's rows, and asks for their order: it is there while rules run.
#[derive(Debug)]
struct KeptOrderExec {
    input: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    properties: Arc<PlanProperties>,
}

impl KeptOrderExec {
    fn new(input: Arc<dyn ExecutionPlan>, order: LexOrdering) -> Self {
        let equivalences: EquivalenceProperties = input.equivalence_properties().clone();
        let one = Partitioning::UnknownPartitioning(1);
        let properties = PlanProperties::new(equivalences, one, input.pipeline_behavior(), input.boundedness());
        Self { input, order, properties: Arc::new(properties) }
    }
}

impl DisplayAs for KeptOrderExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "KeptOrderExec: [{}]", self.order)
    }
}

impl ExecutionPlan for KeptOrderExec {
    fn name(&self) -> &str {
        "KeptOrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![Some(OrderingRequirements::from(self.order.clone()))]
    }

    /// So that no rule moves another sort from above it to below.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children.swap_remove(0), self.order.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        self.input.partition_statistics(None)
    }
}

/// Takes these operators out again, with what would divide or mix their rows above them.
#[derive(Debug)]
pub struct OrdersKept;

impl PhysicalOptimizerRule for OrdersKept {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let may_have_order =
            |node: &Arc<dyn ExecutionPlan>| node.is::<KeptOrderExec>() || node.is::<UnionExec>() || node.is::<RecursiveQueryExec>();
        if !plan.exists(|node| Ok(may_have_order(node)))? {
            return Ok(plan);
        }
        Ok(PlanContext::<Rows>::new_default(plan).transform_up(kept)?.data.plan)
    }

    fn name(&self) -> &str {
        "orders_kept"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What is known of the rows of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Rows {
    #[default]
    InAnyOrder,
    /// Written in the text of the statement, and shown in the order of the text where that costs nothing.
    Constant,
    /// Of one partition, in an order that somebody asked for.
    InOrder,
}

fn kept(mut node: PlanContext<Rows>) -> Result<Transformed<PlanContext<Rows>>> {
    let has_order = node.children.iter().any(|child| child.data == Rows::InOrder);
    let is_constant = !node.children.is_empty() && node.children.iter().all(|child| child.data == Rows::Constant);
    if node.plan.downcast_ref::<KeptOrderExec>().is_some() || (has_order && is_only_dividing(node.plan.as_ref())) {
        let mut input = node.children.swap_remove(0);
        input.data = Rows::InOrder;
        return Ok(Transformed::yes(input));
    }
    if node.plan.downcast_ref::<UnionExec>().is_some() && (has_order || is_constant) {
        return in_turn(node, is_constant).map(Transformed::yes);
    }
    if let Some(merge) = node.plan.downcast_ref::<SortPreservingMergeExec>()
        && (has_order || is_constant)
    {
        // Branches that follow each other are no longer merged.
        let sort = SortExec::new(merge.expr().clone(), Arc::clone(&node.children[0].plan)).with_fetch(merge.fetch());
        return Ok(Transformed::yes(PlanContext::new_default(Arc::new(sort))));
    }
    // A tree is seen as it is walked: those that a step has found come before those of the next.
    let is_walked = node.plan.is::<RecursiveQueryExec>();
    node.data = if is_walked || (has_order && passes_order(&node)) {
        Rows::InOrder
    } else if is_constant_leaf(node.plan.as_ref()) || (is_constant && is_row_by_row(node.plan.as_ref())) {
        Rows::Constant
    } else {
        Rows::InAnyOrder
    };
    Ok(Transformed::no(node))
}

/// Whether it only shares rows out in turns, or gathers them: of one partition that is nothing.
fn is_only_dividing(plan: &dyn ExecutionPlan) -> bool {
    match plan.downcast_ref::<RepartitionExec>() {
        Some(repartition) => matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_)),
        None => plan.downcast_ref::<CoalescePartitionsExec>().is_some() && plan.fetch().is_none(),
    }
}

/// Its children have been visited, so that those in order are of one partition.
fn passes_order(node: &PlanContext<Rows>) -> bool {
    let is_in_order = |position: usize| node.children[position].data == Rows::InOrder;
    let plan = node.plan.as_ref();
    if plan.output_partitioning().partition_count() != 1 {
        return false;
    }
    plan.downcast_ref::<UnnestExec>().is_some()
        || plan.downcast_ref::<CoalescePartitionsExec>().is_some()
        || plan.maintains_input_order().into_iter().enumerate().any(|(position, maintains)| maintains && is_in_order(position))
}

fn in_turn(node: PlanContext<Rows>, is_constant: bool) -> Result<PlanContext<Rows>> {
    let branches = node.children.iter().map(|branch| {
        let plan = Arc::clone(&branch.plan);
        match plan.output_partitioning().partition_count() {
            1 => plan,
            _ => Arc::new(CoalescePartitionsExec::new(plan)) as Arc<dyn ExecutionPlan>,
        }
    });
    let union = UnionExec::try_new(branches.collect())?;
    let rows = if is_constant { Rows::Constant } else { Rows::InOrder };
    let mut node = PlanContext::<Rows>::new_default(Arc::new(InTurnExec::new(union)));
    node.data = rows;
    Ok(node)
}

fn is_constant_leaf(plan: &dyn ExecutionPlan) -> bool {
    let is_memory = |source: &DataSourceExec| source.data_source().downcast_ref::<MemorySourceConfig>().is_some();
    plan.downcast_ref::<PlaceholderRowExec>().is_some() || plan.downcast_ref::<DataSourceExec>().is_some_and(is_memory)
}

fn is_row_by_row(plan: &dyn ExecutionPlan) -> bool {
    let is_one = plan.output_partitioning().partition_count() == 1;
    is_one && (plan.downcast_ref::<ProjectionExec>().is_some() || plan.downcast_ref::<FilterExec>().is_some())
}
