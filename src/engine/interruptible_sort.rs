//! A sort that ends with its statement.
//!
//! DataFusion gives every piece of a sort to a task of its own, hundreds at once. Dropping the sort takes their turn in the queue of the threads, behind the
//! pieces themselves: they would all be sorted first, for nobody.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, Statistics};

use super::interruption::{Wanted, WhileWanted};

/// A sort of all rows whose keys are computed only while its statement is not over. To others it is the sort that it was.
#[derive(Debug)]
pub struct InterruptibleSortExec {
    sort: Arc<SortExec>,
    wanted: Wanted,
    /// What runs: made when it starts, for all partitions.
    asking: OnceLock<Arc<SortExec>>,
}

impl InterruptibleSortExec {
    pub fn new(sort: Arc<SortExec>, wanted: Wanted) -> Self {
        Self { sort, wanted, asking: OnceLock::new() }
    }

    /// The sort with a first key that fails when the statement is over. What it says of its order would not be understood by the plans above it.
    fn asking(&self) -> Arc<SortExec> {
        let mut keys: Vec<PhysicalSortExpr> = self.sort.expr().iter().cloned().collect();
        keys[0].expr = Arc::new(WhileWanted::new(Arc::clone(&keys[0].expr), self.wanted.clone()));
        let keys = LexOrdering::new(keys).expect("a sort has keys");
        Arc::new(SortExec::new(keys, Arc::clone(self.sort.input())).with_preserve_partitioning(self.sort.preserve_partitioning()))
    }
}

/// The plan with its sorts made those of another statement, which runs it.
///
/// # Errors
/// None that is known.
pub fn of_statement(plan: Arc<dyn ExecutionPlan>, wanted: &Wanted) -> Result<Arc<dyn ExecutionPlan>> {
    let made = plan.transform_up(|node| {
        Ok(match (node.as_ref() as &dyn Any).downcast_ref::<InterruptibleSortExec>() {
            Some(of_another) => {
                let sort: Arc<dyn ExecutionPlan> = Arc::new(InterruptibleSortExec::new(Arc::clone(&of_another.sort), wanted.clone()));
                Transformed::yes(sort)
            }
            None => Transformed::no(node),
        })
    });
    Ok(made?.data)
}

impl DisplayAs for InterruptibleSortExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.sort.fmt_as(format, f)
    }
}

impl ExecutionPlan for InterruptibleSortExec {
    fn name(&self) -> &str {
        self.sort.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.sort.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sort.properties()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.sort.required_input_distribution()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.sort.benefits_from_input_partitioning()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.sort.cardinality_effect()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.sort.children()
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let sort = SortExec::new(self.sort.expr().clone(), children.swap_remove(0));
        let sort = Arc::new(sort.with_preserve_partitioning(self.sort.preserve_partitioning()));
        Ok(Arc::new(Self::new(sort, self.wanted.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.asking.get_or_init(|| self.asking()).execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.asking.get().and_then(|sort| sort.metrics())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        self.sort.partition_statistics(partition)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::collect;

    use super::super::interruption::CurrentStatement;
    use super::*;

    fn sort(wanted: Wanted) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(vec![3, 1, 2]))]).expect("one column");
        let input = MemorySourceConfig::try_new_exec(&[vec![rows]], Arc::clone(&schema), None).expect("rows of the schema");
        let key = PhysicalSortExpr::new_default(col("a", &schema).expect("there is a column a"));
        let sort = SortExec::new(LexOrdering::new([key]).expect("one key"), input);
        Arc::new(InterruptibleSortExec::new(Arc::new(sort), wanted))
    }

    #[tokio::test]
    async fn a_sort_fails_once_its_statement_is_over() {
        let current = CurrentStatement::default();
        let first = current.begin(false);
        let plan = sort(current.wanted());
        let rows = collect(Arc::clone(&plan), Arc::default()).await.expect("the statement runs");
        assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3]);
        assert_eq!(plan.metrics().and_then(|metrics| metrics.output_rows()), Some(3), "as EXPLAIN ANALYZE shows it");
        drop(first);
        let error = collect(Arc::clone(&plan), Arc::default()).await.expect_err("nobody wants the rows");
        assert_eq!(crate::error::Error::from(error).sqlstate(), "57014");
        let _second = current.begin(false);
        let plan = of_statement(plan, &current.wanted()).expect("the same sort");
        assert_eq!(collect(plan, Arc::default()).await.expect("another statement runs")[0].num_rows(), 3);
    }

    #[test]
    fn it_passes_for_the_sort_that_it_was() {
        let plan = sort(CurrentStatement::default().wanted());
        assert!(plan.is::<SortExec>());
        let again = Arc::clone(&plan).with_new_children(plan.children().into_iter().cloned().collect()).expect("one input");
        assert_eq!(again.properties().output_ordering(), plan.properties().output_ordering());
    }
}
