//! Sorts take their rows in pieces, so that none computes for long between two pauses.
//!
//! DataFusion sorts the batches that fit into memory one by one and merges them, or all of them as one if they are few. The first counts on the memory
//! of whole batches for the merge, which thousands of small ones exceed; the second computes for seconds without a pause: a cancel frees neither its
//! memory nor its thread. Pieces of some batches each are sorted in tens of milliseconds, and their merge needs one batch of each.

mod row_bytes;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, Statistics};
use futures::{TryStreamExt, stream};

use super::interruptible_sort::InterruptibleSortExec;
use super::interruption::CurrentStatement;
use super::session_memory::SessionMemory;
use row_bytes::{batch_bytes, with_own_texts};

/// Narrow rows: what a core sorts in some 50 ms.
const PIECE_ROWS: usize = 1 << 16;

/// A rule that gives sorts of all their rows pieces that fit the memory of the session, or one batch where that is larger, and ends them with their
/// statement. Those with a LIMIT keep few rows anyway.
#[derive(Debug)]
pub struct SortsInPieces {
    pub memory: Arc<SessionMemory>,
    pub current: CurrentStatement,
}

impl PhysicalOptimizerRule for SortsInPieces {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = config.execution.target_partitions;
        let wanted = self.current.wanted();
        let in_pieces = plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_none()) else {
                return Ok(Transformed::no(node));
            };
            let pieces: Arc<dyn ExecutionPlan> =
                Arc::new(SortPiecesExec { input: Arc::clone(sort.input()), memory: Arc::clone(&self.memory), partitions });
            let sort = SortExec::new(sort.expr().clone(), pieces).with_preserve_partitioning(sort.preserve_partitioning());
            Ok(Transformed::yes(Arc::new(InterruptibleSortExec::new(Arc::new(sort), wanted.clone())) as Arc<dyn ExecutionPlan>))
        });
        Ok(in_pieces?.data)
    }

    fn name(&self) -> &str {
        "sorts_in_pieces"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rows of its input, in their order, in larger batches.
#[derive(Debug)]
struct SortPiecesExec {
    input: Arc<dyn ExecutionPlan>,
    memory: Arc<SessionMemory>,
    /// Of sorts in the session.
    partitions: usize,
}

impl DisplayAs for SortPiecesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SortPiecesExec")
    }
}

impl ExecutionPlan for SortPiecesExec {
    fn name(&self) -> &str {
        "SortPiecesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { input: children.swap_remove(0), memory: Arc::clone(&self.memory), partitions: self.partitions }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let (memory, partitions) = (Arc::clone(&self.memory), self.partitions);
        let pieces = stream::try_unfold((memory, Some(input)), move |(memory, input)| async move {
            let Some(mut input) = input else { return Ok(None) };
            // Asked anew for each piece: which operators share the memory is known only while they run.
            let (batches, is_last) = next_batches(&mut input, memory.sort_piece(partitions)).await?;
            let piece = match batches.as_slice() {
                [] => return Ok(None),
                [batch] => batch.clone(),
                _ => concat_batches(&input.schema(), &batches)?,
            };
            Ok(Some((with_own_texts(piece)?, (memory, (!is_last).then_some(input)))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), pieces)))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        self.input.partition_statistics(partition)
    }
}

/// Batches that make one piece, and whether the input has ended.
async fn next_batches(input: &mut SendableRecordBatchStream, bytes_max: usize) -> Result<(Vec<RecordBatch>, bool)> {
    let (mut batches, mut rows, mut bytes) = (Vec::new(), 0, 0);
    while rows < PIECE_ROWS && bytes < bytes_max {
        let Some(batch) = input.try_next().await? else { return Ok((batches, true)) };
        rows += batch.num_rows();
        bytes += batch_bytes(&batch)?;
        batches.push(batch);
    }
    Ok((batches, false))
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    use super::*;

    fn batch(schema: &SchemaRef, values: std::ops::Range<i64>) -> RecordBatch {
        RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(Int64Array::from_iter_values(values))]).expect("one column of one type")
    }

    async fn pieces(batches: Vec<RecordBatch>, schema: SchemaRef, bytes: usize) -> Vec<Vec<i64>> {
        let input = MemorySourceConfig::try_new_exec(&[batches], schema, None).expect("batches of one schema");
        let memory = SessionMemory::new(Arc::new(UnboundedMemoryPool::default()), 16 * bytes);
        assert_eq!(memory.sort_piece(1), bytes);
        let exec = SortPiecesExec { input, memory, partitions: 1 };
        let pieces: Vec<RecordBatch> = exec.execute(0, Arc::default()).expect("a stream").try_collect().await.expect("rows of memory");
        let values = |piece: &RecordBatch| piece.column(0).as_any().downcast_ref::<Int64Array>().expect("integers").values().to_vec();
        pieces.iter().map(values).collect()
    }

    #[tokio::test]
    async fn batches_are_gathered_up_to_the_bytes_of_their_rows() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        // Slices of one large buffer: what counts is what they hold.
        let whole = batch(&schema, 0..1000);
        let slices = (0..10).map(|part| whole.slice(part * 100, 100)).collect();
        let found = pieces(slices, Arc::clone(&schema), 2000).await;
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [300, 300, 300, 100]);
        assert_eq!(found.concat(), (0..1000).collect::<Vec<_>>(), "all rows, in their order");
        assert_eq!(pieces(vec![], schema, 2000).await, Vec::<Vec<i64>>::new());
    }

    #[tokio::test]
    async fn a_batch_that_is_larger_is_a_piece() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        let batches = vec![batch(&schema, 0..500), batch(&schema, 500..1000), batch(&schema, 1000..1001)];
        let lengths: Vec<usize> = pieces(batches, schema, 8).await.iter().map(Vec::len).collect();
        assert_eq!(lengths, [500, 500, 1]);
    }
}
