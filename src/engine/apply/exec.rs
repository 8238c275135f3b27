//! The physical node: one call per slice of input rows, results joined back by row number.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{take, take_arrays};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::{StreamExt, TryStreamExt};

use super::call_metrics::NodeCalls;
use super::{Applied, Apply, ApplyFunction};
use crate::engine::task_history::calls_of;
use crate::models::CallCounts;

/// Turns [`Apply`] nodes into [`ApplyExec`].
pub struct ApplyExtensionPlanner;

#[async_trait]
impl ExtensionPlanner for ApplyExtensionPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session_state: &SessionState,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(apply) = node.as_any().downcast_ref::<Apply>() else { return Ok(None) };
        let arguments = apply
            .arguments
            .iter()
            .map(|argument| planner.create_physical_expr(argument, logical_inputs[0].schema(), session_state))
            .collect::<Result<Vec<_>>>()?;
        let schema = Arc::new(UserDefinedLogicalNode::schema(apply).as_arrow().clone());
        let input = Arc::clone(&physical_inputs[0]);
        Ok(Some(Arc::new(ApplyExec::new(input, Arc::clone(&apply.function), arguments, apply.is_outer, schema, apply.call_text()))))
    }
}

/// The input of a node that gives one row for each of its input; `None` for every other plan.
pub fn row_by_row_input(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let exec = plan.downcast_ref::<ApplyExec>()?;
    exec.call.function.is_row_preserving().then_some(&exec.input)
}

#[derive(Debug)]
pub(super) struct ApplyExec {
    pub(super) input: Arc<dyn ExecutionPlan>,
    call: Call,
    text: String,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    pub(super) calls: Arc<NodeCalls>,
}

/// What one call needs; shared by all partitions.
#[derive(Debug, Clone)]
struct Call {
    function: Arc<dyn ApplyFunction>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    is_outer: bool,
    schema: SchemaRef,
}

impl ApplyExec {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        function: Arc<dyn ApplyFunction>,
        arguments: Vec<Arc<dyn PhysicalExpr>>,
        is_outer: bool,
        schema: SchemaRef,
        text: String,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        let call = Call { function, arguments, is_outer, schema };
        Self { input, call, text, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new(), calls: Arc::default() }
    }

    pub(super) fn function(&self) -> &dyn ApplyFunction {
        self.call.function.as_ref()
    }
}

impl DisplayAs for ApplyExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ApplyExec: {}", self.text)
    }
}

impl ExecutionPlan for ApplyExec {
    fn name(&self) -> &str {
        "ApplyExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    /// Model calls are batched within a partition: splitting a small input would only make the batches smaller.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Call { function, arguments, is_outer, schema } = self.call.clone();
        Ok(Arc::new(Self::new(children.swap_remove(0), function, arguments, is_outer, schema, self.text.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let counts = calls_of(&context).into_iter().chain([Arc::clone(&self.calls.counts)]);
        let counts = Arc::new(CallCounts::counted_by(counts));
        let input = self.input.execute(partition, context)?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let num_calls = MetricBuilder::new(&self.metrics).counter("calls", partition);
        let call_time = MetricBuilder::new(&self.metrics).subset_time("call_time", partition);
        let (call, calls) = (self.call.clone(), Arc::clone(&self.calls));
        let slice_call = call.clone();
        let slices = input
            .map_ok(move |batch| {
                futures::stream::iter(slices(&batch, slice_call.function.batch_rows()).into_iter().map(Ok::<_, DataFusionError>))
            })
            .try_flatten();
        let output = slices.then(move |slice| {
            let (call, baseline) = (call.clone(), baseline.clone());
            let (num_calls, call_time) = (num_calls.clone(), call_time.clone());
            let (calls, counts) = (Arc::clone(&calls), Arc::clone(&counts));
            async move {
                let slice = slice?;
                let (started, num_rows) = (Instant::now(), slice.num_rows());
                let in_flight = calls.begin();
                let batch: RecordBatch = counts.scope(call.run(slice)).await?;
                drop(in_flight);
                calls.rows.fetch_add(num_rows as u64, Ordering::Relaxed);
                num_calls.add(1);
                call_time.add_duration(started.elapsed());
                baseline.record_output(batch.num_rows());
                Ok(batch)
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.call.schema), output)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.metrics.clone_inner();
        self.calls.metrics().into_iter().for_each(|metric| metrics.push(metric));
        Some(metrics)
    }
}

fn slices(batch: &RecordBatch, rows: usize) -> Vec<RecordBatch> {
    (0..batch.num_rows()).step_by(rows.max(1)).map(|start| batch.slice(start, rows.min(batch.num_rows() - start))).collect()
}

impl Call {
    async fn run(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let num_rows = batch.num_rows();
        let arguments =
            self.arguments.iter().map(|argument| argument.evaluate(&batch)?.into_array(num_rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let applied = self.function.call(arguments, num_rows).await?;
        let (input_rows, output_rows) = join_rows(&applied, num_rows, self.is_outer);
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for column in batch.columns() {
            columns.push(take(column, &input_rows, None)?);
        }
        match output_rows {
            Some(rows) => columns.extend(take_arrays(applied.batch.columns(), &rows, None)?),
            None => columns.extend_from_slice(applied.batch.columns()),
        }
        let options = RecordBatchOptions::new().with_row_count(Some(input_rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// For each joined row, its row in the input and its row in the function's output (NULL: the input row has none, outer joins only; absent: all, in order).
fn join_rows(applied: &Applied, num_rows: usize, is_outer: bool) -> (UInt32Array, Option<UInt32Array>) {
    if !is_outer {
        return (applied.input_rows.clone(), None);
    }
    let mut joined: Vec<(u32, Option<u32>)> = Vec::with_capacity(num_rows);
    let mut next_input = 0;
    for (output, input) in applied.input_rows.values().iter().enumerate() {
        joined.extend((next_input..*input).map(|missing| (missing, None)));
        joined.push((*input, Some(output as u32)));
        next_input = next_input.max(input + 1);
    }
    joined.extend((next_input..num_rows as u32).map(|missing| (missing, None)));
    (joined.iter().map(|(input, _)| Some(*input)).collect(), Some(joined.iter().map(|(_, output)| *output).collect()))
}
