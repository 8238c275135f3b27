//! Rows in pieces, where what is made of a batch of them would be large.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, PlanProperties, Statistics};
use futures::{TryStreamExt, stream};

use super::bounded::is_bounded;

/// In bytes: what expressions may make of the rows of a piece that has more than one.
const PIECE_BYTES: u64 = 16 << 20;

/// A constant of this many bytes is wide: a batch of rows holds a copy for each.
const WIDE: usize = 1 << 12;

thread_local! {
    /// What was made of the rows that this thread is at, in bytes, if it can be made of fewer.
    static MADE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// It is computed for fewer rows then, and never seen outside of this file.
#[derive(Debug)]
struct TooManyRows;

impl fmt::Display for TooManyRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many rows for a piece")
    }
}

impl std::error::Error for TooManyRows {}

/// Whether so many bytes may be made of so many rows, besides what was made of them already.
pub(super) fn check(bytes: u64, num_rows: usize) -> Result<()> {
    let Some(made) = MADE.get().filter(|_| num_rows > 1) else { return Ok(()) };
    let made = made.saturating_add(bytes);
    MADE.set(Some(made));
    if made > PIECE_BYTES { Err(DataFusionError::External(Box::new(TooManyRows))) } else { Ok(()) }
}

/// The result for the rows; `None`: they are too many.
fn divisible<T>(num_rows: usize, compute: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    let before = Before(MADE.replace((num_rows > 1).then_some(0)));
    let result = compute();
    drop(before);
    match result {
        Ok(result) => Ok(Some(result)),
        Err(error) => match error.find_root() {
            DataFusionError::External(root) if root.is::<TooManyRows>() => Ok(None),
            _ => Err(error),
        },
    }
}

/// Holds again when this is dropped.
struct Before(Option<u64>);

impl Drop for Before {
    fn drop(&mut self) {
        MADE.set(self.0);
    }
}

fn halves(batch: &RecordBatch) -> [RecordBatch; 2] {
    let middle = batch.num_rows() / 2;
    [batch.slice(0, middle), batch.slice(middle, batch.num_rows() - middle)]
}

/// A rule that gives such pieces to the projections and filters that need them.
#[derive(Debug)]
pub struct InPieces;

impl PhysicalOptimizerRule for InPieces {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let in_pieces = plan.transform_up(|node| {
            if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
                let Some(row_bytes) = large(projection.expr().iter().map(|output| &output.expr))? else { return Ok(Transformed::no(node)) };
                let input = Arc::clone(projection.input());
                let projection = Arc::new(ProjectionExec::try_new(projection.expr().to_vec(), input)?);
                let divided = PiecesExec { projection, row_bytes, metrics: ExecutionPlanMetricsSet::new() };
                return Ok(Transformed::yes(Arc::new(divided) as Arc<dyn ExecutionPlan>));
            }
            if let Some(filter) = node.downcast_ref::<FilterExec>()
                && large([filter.predicate()])?.is_some()
            {
                let predicate = Arc::new(PieceByPiece(Arc::clone(filter.predicate())));
                let divided = FilterExecBuilder::from(filter).with_predicate(predicate).build()?;
                return Ok(Transformed::yes(Arc::new(divided) as Arc<dyn ExecutionPlan>));
            }
            Ok(Transformed::no(node))
        });
        Ok(in_pieces?.data)
    }

    fn name(&self) -> &str {
        "in_pieces"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What wide constants take for each row, in bytes; `None`: there are none, nor a function that can make large values.
fn large<'a>(expressions: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>) -> Result<Option<u64>> {
    let (mut row_bytes, mut is_large) = (0, false);
    for expression in expressions {
        expression.apply(|inner| {
            let inner = inner.as_ref() as &dyn Any;
            if let Some(constant) = inner.downcast_ref::<Literal>() {
                let bytes = constant.value().size();
                row_bytes += if bytes > WIDE { bytes as u64 } else { 0 };
            }
            is_large |= inner.downcast_ref::<ScalarFunctionExpr>().is_some_and(|call| is_bounded(call.fun()));
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })?;
    }
    Ok((is_large || row_bytes > 0).then_some(row_bytes))
}

/// A projection of as many rows at a time as make a piece. To others it is the projection that it was.
#[derive(Debug)]
struct PiecesExec {
    projection: Arc<ProjectionExec>,
    /// Of constants, for each row.
    row_bytes: u64,
    metrics: ExecutionPlanMetricsSet,
}

impl DisplayAs for PiecesExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.projection.fmt_as(format, f)
    }
}

impl ExecutionPlan for PiecesExec {
    fn name(&self) -> &str {
        self.projection.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.projection.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.projection.properties()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.projection.required_input_distribution()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.projection.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.projection.benefits_from_input_partitioning()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.projection.children()
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = Arc::new(ProjectionExec::try_new(self.projection.expr().to_vec(), children.swap_remove(0))?);
        Ok(Arc::new(Self { projection, row_bytes: self.row_bytes, metrics: ExecutionPlanMetricsSet::new() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let work = Work {
            input: self.projection.input().execute(partition, context)?,
            outputs: self.projection.expr().to_vec(),
            schema: self.projection.schema(),
            row_bytes: self.row_bytes,
            counted: BaselineMetrics::new(&self.metrics, partition),
            waiting: Vec::new(),
        };
        let pieces = stream::try_unfold(work, |mut work| async move { Ok(work.next().await?.map(|piece| (piece, work))) });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.projection.schema(), pieces)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        self.projection.partition_statistics(partition)
    }
}

/// One partition of it.
struct Work {
    input: SendableRecordBatchStream,
    outputs: Vec<ProjectionExpr>,
    schema: SchemaRef,
    row_bytes: u64,
    counted: BaselineMetrics,
    /// Rows that were read, the next ones last.
    waiting: Vec<RecordBatch>,
}

impl Work {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let batch = match self.waiting.pop() {
                Some(batch) => {
                    // It was cut off a larger one: what is made of it takes its time, and between two of them the statement may be ended.
                    tokio::task::yield_now().await;
                    batch
                }
                None => match self.input.try_next().await? {
                    Some(batch) => batch,
                    None => return Ok(None),
                },
            };
            match self.projected(&batch)? {
                Some(piece) => return Ok(Some(piece.record_output(&self.counted))),
                None => self.waiting.extend(halves(&batch).into_iter().rev()),
            }
        }
    }

    /// `None`: the rows are too many.
    fn projected(&self, batch: &RecordBatch) -> Result<Option<RecordBatch>> {
        let num_rows = batch.num_rows();
        if num_rows > 1 && self.row_bytes.saturating_mul(num_rows as u64) > PIECE_BYTES {
            return Ok(None);
        }
        let timer = self.counted.elapsed_compute().timer();
        let piece = divisible(num_rows, || {
            let columns =
                self.outputs.iter().map(|output| output.expr.evaluate(batch)?.into_array(num_rows)).collect::<Result<Vec<_>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
        });
        timer.done();
        piece
    }
}

/// An expression that is computed for as many rows at a time as make a piece; its own values are small.
#[derive(Debug, Clone)]
struct PieceByPiece(Arc<dyn PhysicalExpr>);

impl PartialEq for PieceByPiece {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}

impl Eq for PieceByPiece {}

impl Hash for PieceByPiece {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for PieceByPiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PhysicalExpr for PieceByPiece {
    fn data_type(&self, input_schema: &Schema) -> Result<DataType> {
        self.0.data_type(input_schema)
    }

    fn nullable(&self, input_schema: &Schema) -> Result<bool> {
        self.0.nullable(input_schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if let Some(result) = divisible(batch.num_rows(), || self.0.evaluate(batch))? {
            return Ok(result);
        }
        let parts = halves(batch).map(|half| self.evaluate(&half).and_then(|part| part.into_array(half.num_rows())));
        let [first, second] = parts;
        let (first, second) = (first?, second?);
        Ok(ColumnarValue::Array(concat(&[first.as_ref() as &dyn Array, second.as_ref()])?))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self(children.swap_remove(0))))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}
