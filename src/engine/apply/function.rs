//! What an [`Apply`](super::Apply) node calls.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use rolloutdb_catalogs::Table;

use crate::agent::AgentOptions;
use crate::error::Result;

/// A function from argument rows to result rows, called batch-wise and asynchronously.
#[async_trait]
pub trait ApplyFunction: Debug + Send + Sync {
    /// The name in SQL and in EXPLAIN.
    fn name(&self) -> &str;

    /// What EXPLAIN shows besides the arguments: table, agent, `k`.
    fn details(&self) -> String {
        String::new()
    }

    /// The columns that the function adds.
    fn schema(&self) -> SchemaRef;

    /// Whether each input row gives exactly one output row, in order; a LIMIT may then be pushed below.
    fn is_row_preserving(&self) -> bool {
        false
    }

    /// The tables whose versions, with the arguments, decide what a call gives; `None` if something else has a part in it.
    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        None
    }

    /// Whether it searches a corpus, by itself or by way of an agent: what it gives is one version's.
    fn retrieves(&self) -> bool {
        false
    }

    /// Whether rows come from it, rather than from its arguments.
    fn is_source(&self) -> bool {
        self.retrieves()
    }

    /// The agent that it asks.
    fn agent(&self) -> Option<&str> {
        None
    }

    /// What that agent answered with; `None` while nothing was asked.
    fn asked(&self) -> Option<Asked> {
        None
    }

    /// Whether its arguments are constants, so that every row gets the same: it computes that once, and [`Self::call`] needs no arguments.
    fn is_constant(&self) -> bool {
        false
    }

    /// How often it calls models, for who tells how far a statement is.
    fn model_use(&self) -> ModelUse {
        ModelUse::Little
    }

    /// Constants of the call that are parameters without values, so that it can be described and not run.
    fn open_constants(&self) -> &[Expr] {
        &[]
    }

    /// How many input rows to hand over at once: enough to fill a model's batch, few enough that results stream.
    fn batch_rows(&self) -> usize {
        256
    }

    /// Calls the function on `num_rows` rows; `arguments[i]` holds argument `i` of each row.
    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> Result<Applied>;
}

/// An agent that has answered.
#[derive(Debug, Clone)]
pub struct Asked {
    pub agent: String,
    pub options: AgentOptions,
    /// `name@version`.
    pub policy: String,
    pub corpus_version: u64,
}

/// How often a function calls models.
#[derive(Debug, Clone)]
pub enum ModelUse {
    /// Not at all, or once for all rows.
    Little,
    /// Once for each row.
    EachRow,
    /// Several times for each row. Counts the rows that have theirs, those of calls in flight too.
    Often(Arc<AtomicU64>),
}

/// The rows that a call gave: `batch` has the function's schema, and `batch` row `j` belongs to input row `input_rows[j]` (ascending).
pub struct Applied {
    pub batch: RecordBatch,
    pub input_rows: UInt32Array,
}

impl Applied {
    /// One output row for each input row, in order.
    pub fn row_by_row(batch: RecordBatch) -> Self {
        let input_rows = UInt32Array::from_iter_values(0..batch.num_rows() as u32);
        Self { batch, input_rows }
    }

    /// Rows by the input rows that they are for, those of one as they stand.
    pub fn in_input_order(batch: RecordBatch, input_rows: Vec<u32>) -> Result<Self> {
        if input_rows.is_sorted() {
            return Ok(Self { batch, input_rows: UInt32Array::from(input_rows) });
        }
        let mut order: Vec<u32> = (0..input_rows.len() as u32).collect();
        order.sort_by_key(|row| input_rows[*row as usize]);
        let input_rows = UInt32Array::from_iter_values(order.iter().map(|row| input_rows[*row as usize]));
        let batch = take_record_batch(&batch, &UInt32Array::from(order)).map_err(DataFusionError::from)?;
        Ok(Self { batch, input_rows })
    }
}
