//! One run of a query for all its uses. Who needs the first row computes all of them; they are kept in memory, or in a file if they do not fit.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::disk_manager::RefCountedTempFile;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet, SpillMetrics};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties, SpillManager,
    Statistics,
};
use futures::{TryStreamExt, stream};
use tokio::sync::OnceCell;

/// The rows of one query, by the run of the statement that they are of.
#[derive(Debug, Default)]
pub struct SharedRows(Mutex<Option<OfRun>>);

type OfRun = (Arc<TaskContext>, Arc<OnceCell<Kept>>);

impl SharedRows {
    fn of_run(&self, run: &Arc<TaskContext>) -> Arc<OnceCell<Kept>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref().filter(|(known, _)| Arc::ptr_eq(known, run)) {
            Some((_, rows)) => Arc::clone(rows),
            None => {
                let rows = Arc::<OnceCell<Kept>>::default();
                *kept = Some((Arc::clone(run), Arc::clone(&rows)));
                rows
            }
        }
    }
}

#[derive(Debug)]
enum Kept {
    InMemory {
        batches: Vec<RecordBatch>,
        _bytes: MemoryReservation,
    },
    /// `None`: it has no rows.
    InFile(Option<RefCountedTempFile>),
}

#[derive(Debug)]
pub struct OnceExec {
    input: Arc<dyn ExecutionPlan>,
    rows: Arc<SharedRows>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl OnceExec {
    pub fn new(input: Arc<dyn ExecutionPlan>, rows: Arc<SharedRows>) -> Self {
        let equivalences = EquivalenceProperties::new(input.schema());
        let one = Partitioning::UnknownPartitioning(1);
        let properties = PlanProperties::new(equivalences, one, input.pipeline_behavior(), input.boundedness());
        Self { input, rows, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for OnceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "OnceExec")
    }
}

impl ExecutionPlan for OnceExec {
    fn name(&self) -> &str {
        "OnceExec"
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

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(children.swap_remove(0), Arc::clone(&self.rows))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.input.schema();
        let (kept, input) = (self.rows.of_run(&context), Arc::clone(&self.input));
        let files = SpillManager::new(context.runtime_env(), SpillMetrics::new(&self.metrics, partition), Arc::clone(&schema));
        let rows = stream::once(async move {
            let kept_rows = kept.get_or_try_init(|| computed(&input, &context, &files)).await?;
            rows_of(kept_rows, &files, input.schema())
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        self.input.partition_statistics(None)
    }
}

async fn computed(input: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>, files: &SpillManager) -> Result<Kept> {
    let bytes = MemoryConsumer::new("rows of WITH").with_can_spill(true).register(context.memory_pool());
    let mut rows = input.execute(0, Arc::clone(context))?;
    let mut batches = Vec::new();
    while let Some(batch) = rows.try_next().await? {
        let fits = bytes.try_grow(batch.get_array_memory_size()).is_ok();
        batches.push(batch);
        if !fits {
            return in_file(batches, rows, files).await;
        }
    }
    Ok(Kept::InMemory { batches, _bytes: bytes })
}

async fn in_file(batches: Vec<RecordBatch>, mut rows: SendableRecordBatchStream, files: &SpillManager) -> Result<Kept> {
    let mut file = files.create_in_progress_file("rows of WITH")?;
    for batch in &batches {
        file.append_batch(batch)?;
    }
    drop(batches);
    while let Some(batch) = rows.try_next().await? {
        file.append_batch(&batch)?;
    }
    Ok(Kept::InFile(file.finish()?))
}

fn rows_of(kept: &Kept, files: &SpillManager, schema: SchemaRef) -> Result<SendableRecordBatchStream> {
    match kept {
        Kept::InMemory { batches, .. } => {
            let batches = stream::iter(batches.clone().into_iter().map(Ok));
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
        }
        Kept::InFile(Some(file)) => files.read_spill_as_stream(file.clone(), None),
        Kept::InFile(None) => Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::empty()))),
    }
}
