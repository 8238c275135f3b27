//! The scan of a table, with the columns as a query sees them: names, types and nullability, no metadata.
//!
//! Stored fields carry defaults, generated expressions and descriptions as metadata. DataFusion keeps or drops field metadata as a column passes
//! through its nodes, and then refuses its own plan because two schemas differ in it ("ProjectionPushdown failed. Schema mismatch").

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, MutableArrayData, RecordBatch, RecordBatchOptions, make_array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Statistics;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::scanner::Scanner;
use lance::io::exec::filtered_read::FilteredReadExec;

/// The metadata of a field that says what its values are, and goes with them through a query.
const LOGICAL_TYPE: &str = "rolloutdb.type";

/// A batch may hold this part of its values' size in vain.
const SPARE_PART: usize = 4;

/// Bytes that a scan reads ahead of what it has decoded. Lance's own bound lets a scan hold hundreds of megabytes of a large table, and takes twice the time
/// in the system's share of it; a local disk is read no slower with this one.
const READ_AHEAD: u64 = 16 << 20;

/// A scan of a version in the order of its rows, in memory that does not grow with the table.
pub(crate) fn scan_of(dataset: &Dataset) -> Scanner {
    let mut scanner = dataset.scan();
    scanner.io_buffer_size(READ_AHEAD);
    scanner
}

/// A scan that Lance planned, with the same bound. Its filters stay those that it planned in the session.
pub(crate) fn with_bounded_reading(scan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let bounded = scan.transform_down(|node| {
        let Some(read) = node.downcast_ref::<FilteredReadExec>() else {
            return Ok(Transformed::no(node));
        };
        let options = read.options().clone().with_io_buffer_size(READ_AHEAD);
        // What says which rows to read: the rows of another scan, where only their wide columns are left to read, or those of an index.
        let rows = read.row_stream_input().or_else(|| read.index_input()).cloned();
        let bounded = FilteredReadExec::try_new(Arc::clone(read.dataset()), options, rows)?;
        Ok(Transformed::yes(Arc::new(bounded)))
    });
    Ok(bounded?.data)
}

/// A schema without metadata of its own, and of its fields only what concerns their values.
pub(crate) fn without_metadata(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let logical_type = field.metadata().get(LOGICAL_TYPE).map(|name| (LOGICAL_TYPE.to_owned(), name.clone()));
        field.as_ref().clone().with_metadata(logical_type.into_iter().collect())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The values in memory of their own, if they are a part of a page that is much larger: held on to, they would hold the page, and a sort counts all of it
/// for each batch.
fn of_its_own(column: &ArrayRef) -> ArrayRef {
    let values = column.to_data();
    let needed = values.get_slice_memory_size().unwrap_or(usize::MAX);
    if values.get_buffer_memory_size() <= needed.saturating_add(needed / SPARE_PART) {
        return Arc::clone(column);
    }
    let mut copied = MutableArrayData::new(vec![&values], false, values.len());
    copied.extend(0, 0, values.len());
    make_array(copied.freeze())
}

#[derive(Debug)]
pub(crate) struct TableScanExec {
    /// `public.wiki@12`
    table: String,
    /// Not removed as long as a scan has it.
    version: Arc<Dataset>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl TableScanExec {
    pub(crate) fn new(table: String, version: Arc<Dataset>, input: Arc<dyn ExecutionPlan>) -> Self {
        let schema = without_metadata(&input.schema());
        let properties = PlanProperties::new(
            // The columns are those of the input, in its order: a sort that was pushed below is known above.
            EquivalenceProperties::new_with_orderings(schema, input.output_ordering().cloned()),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { table, version, input, properties: Arc::new(properties) }
    }
}

impl DisplayAs for TableScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TableScanExec: {}", self.table)
    }
}

impl ExecutionPlan for TableScanExec {
    fn name(&self) -> &str {
        "TableScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
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
        Ok(Arc::new(Self::new(self.table.clone(), Arc::clone(&self.version), children.swap_remove(0))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let (target, version) = (Arc::clone(&schema), Arc::clone(&self.version));
        let batches = self.input.execute(partition, context)?.and_then(move |batch| {
            let _read = &version;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = batch.columns().iter().map(of_its_own).collect();
            let plain = RecordBatch::try_new_with_options(Arc::clone(&target), columns, &options);
            std::future::ready(plain.map_err(Into::into))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        self.input.partition_statistics(partition)
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}
