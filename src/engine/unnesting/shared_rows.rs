//! Rows that a plan reads several times and computes once.
//!
//! The values of a domain are those of the rows round a subquery. Where two runs of these could differ (something is drawn, a model answers, some of many
//! rows are taken), values of a second run would not be found among the first one's rows.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::common::DFSchemaRef;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::physical_expr::{Distribution, EquivalenceProperties};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

/// The plan, to be read several times.
pub fn shared(plan: LogicalPlan) -> LogicalPlan {
    if shared_input(&plan).is_some() {
        return plan;
    }
    LogicalPlan::Extension(Extension { node: Arc::new(SharedRows { input: plan, runs: Arc::default() }) })
}

/// What is shared, if the plan shares it.
pub fn shared_input(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    let LogicalPlan::Extension(extension) = plan else { return None };
    extension.node.as_any().downcast_ref::<SharedRows>().map(|shared| &shared.input)
}

/// Copies of the node share their rows.
#[derive(Clone)]
struct SharedRows {
    input: LogicalPlan,
    runs: Arc<Runs>,
}

/// The rows of each run of the plan: one that is kept may run for several statements at once.
#[derive(Debug, Default)]
struct Runs(Mutex<Vec<OfRun>>);

type OfRun = (Weak<TaskContext>, Arc<OnceCell<Rows>>);

#[derive(Debug)]
struct Rows {
    batches: Vec<RecordBatch>,
    /// Counts them as the statement's memory.
    _reservation: MemoryReservation,
}

impl Runs {
    fn of(&self, context: &Arc<TaskContext>) -> Arc<OnceCell<Rows>> {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|(run, _)| run.strong_count() > 0);
        let known = runs.iter().find(|(run, _)| std::ptr::eq(run.as_ptr(), Arc::as_ptr(context)));
        if let Some((_, rows)) = known {
            return Arc::clone(rows);
        }
        let rows = Arc::default();
        runs.push((Arc::downgrade(context), Arc::clone(&rows)));
        rows
    }
}

impl fmt::Debug for SharedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedRows")
    }
}

impl PartialEq for SharedRows {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.runs, &other.runs) && self.input == other.input
    }
}

impl Eq for SharedRows {}

impl PartialOrd for SharedRows {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (self == other).then_some(std::cmp::Ordering::Equal)
    }
}

impl Hash for SharedRows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for SharedRows {
    fn name(&self) -> &str {
        "SharedRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    /// A condition of one reader is none of the others.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.input.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("SharedRows")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { input: inputs.swap_remove(0), runs: Arc::clone(&self.runs) })
    }

    /// All of them: readers differ in what they need.
    fn necessary_children_exprs(&self, _: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![(0..self.input.schema().fields().len()).collect()])
    }
}

/// Plans the node.
pub struct SharedRowsPlanner;

#[async_trait]
impl ExtensionPlanner for SharedRowsPlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _: &SessionState,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(shared) = node.as_any().downcast_ref::<SharedRows>() else { return Ok(None) };
        Ok(Some(Arc::new(SharedRowsExec::new(Arc::clone(&physical_inputs[0]), Arc::clone(&shared.runs)))))
    }
}

#[derive(Debug)]
struct SharedRowsExec {
    input: Arc<dyn ExecutionPlan>,
    runs: Arc<Runs>,
    properties: Arc<PlanProperties>,
}

impl SharedRowsExec {
    fn new(input: Arc<dyn ExecutionPlan>, runs: Arc<Runs>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, runs, properties: Arc::new(properties) }
    }
}

impl DisplayAs for SharedRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("SharedRowsExec")
    }
}

impl ExecutionPlan for SharedRowsExec {
    fn name(&self) -> &str {
        "SharedRowsExec"
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

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children.swap_remove(0), Arc::clone(&self.runs))))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (rows, input) = (self.runs.of(&context), Arc::clone(&self.input));
        let batches = async move {
            let rows = rows.get_or_try_init(|| computed(input, context)).await?;
            Ok::<_, datafusion::error::DataFusionError>(stream::iter(rows.batches.clone().into_iter().map(Ok)))
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::once(batches).try_flatten())))
    }
}

async fn computed(input: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<Rows> {
    let reservation = MemoryConsumer::new("SharedRowsExec").register(context.memory_pool());
    let mut stream = input.execute(0, context)?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await.transpose()? {
        reservation.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    Ok(Rows { batches, _reservation: reservation })
}
