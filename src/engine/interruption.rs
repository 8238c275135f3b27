//! Joins that make many rows of few let go of their thread as they go, and end when nobody wants their rows any more, as sorts do
//! ([`super::interruptible_sort`]).
//!
//! DataFusion's plans pause when they have read much. A join that holds one side in memory may compute for minutes between two reads, and a nested loop
//! whose condition few pairs meet without giving a row either: a cancel would wait for it, or leave it computing for nobody.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};

use crate::error::Error;

/// The statement that a session runs, for the plans that are made in it.
#[derive(Debug, Clone, Default)]
pub struct CurrentStatement(Arc<Mutex<Wanted>>);

/// Whether the rows of a statement are still wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    writes: bool,
    is_over: AtomicBool,
    /// The statement of the cursor that this one fetches from.
    reads: OnceLock<Wanted>,
    afterwards: Afterwards,
}

/// What is done when a statement is over.
#[derive(Default)]
struct Afterwards(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

impl Afterwards {
    fn take(&self) -> Vec<Box<dyn FnOnce() + Send>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Afterwards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Afterwards")
    }
}

/// Says that a statement is over when it is dropped.
pub struct OverWhenDropped(Wanted);

impl CurrentStatement {
    /// Another statement begins; the one before it goes on as it was.
    pub fn begin(&self, writes: bool) -> OverWhenDropped {
        let wanted = Wanted(Arc::new(Flags { writes, ..Flags::default() }));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = wanted.clone();
        OverWhenDropped(wanted)
    }

    /// The statement must end, whatever it computes. Whether it is one that writes.
    pub fn interrupt(&self) -> bool {
        let wanted = self.wanted();
        wanted.end();
        if let Some(of_cursor) = wanted.0.reads.get() {
            of_cursor.end();
        }
        wanted.0.writes
    }

    /// Whether no other statement has begun since.
    pub fn is(&self, statement: &OverWhenDropped) -> bool {
        Arc::ptr_eq(&self.wanted().0, &statement.0.0)
    }

    pub fn wanted(&self) -> Wanted {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Wanted {
    fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// The rows are those of a cursor, whose statement ends too if this one is interrupted.
    pub fn reads(&self, cursor: Wanted) {
        // A FETCH reads one cursor.
        let _ = self.0.reads.set(cursor);
    }

    /// What is to be done when the statement has given its last row, or failed.
    pub fn when_over(&self, work: impl FnOnce() + Send + 'static) {
        self.0.afterwards.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(work));
    }

    /// Whether nobody wants them any more.
    pub fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// [`Error::Cancelled`] if nobody does.
    pub fn check(&self) -> Result<()> {
        if self.is_over() { Err(Error::Cancelled("statement").into()) } else { Ok(()) }
    }
}

impl OverWhenDropped {
    pub fn wanted(&self) -> Wanted {
        self.0.clone()
    }
}

impl Drop for OverWhenDropped {
    fn drop(&mut self) {
        self.0.end();
        self.0.0.afterwards.take().into_iter().for_each(|work| work());
    }
}

/// Whether a plan belongs to the statement that it was made in and cannot be run in another one.
pub fn is_of_one_statement(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.downcast_ref::<NestedLoopJoinExec>().is_some_and(|join| join.filter().is_some())))
}

/// The last of the rules that make a plan.
#[derive(Debug)]
pub struct InterruptibleJoins(pub CurrentStatement);

impl PhysicalOptimizerRule for InterruptibleJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted = self.0.wanted();
        let interruptible = plan.transform_up(|node| {
            let node = match node.downcast_ref::<NestedLoopJoinExec>() {
                Some(join) => asking(join, &wanted)?,
                None if node.downcast_ref::<CrossJoinExec>().is_some() || node.downcast_ref::<HashJoinExec>().is_some() => node,
                None => return Ok(Transformed::no(node)),
            };
            Ok(Transformed::yes(Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>))
        });
        Ok(interruptible?.data)
    }

    fn name(&self) -> &str {
        "interruptible_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The join with a condition that ends it.
fn asking(join: &NestedLoopJoinExec, wanted: &Wanted) -> Result<Arc<dyn ExecutionPlan>> {
    let filter = join.filter().map(|filter| {
        let condition = WhileWanted::new(Arc::clone(filter.expression()), wanted.clone());
        JoinFilter::new(Arc::new(condition), filter.column_indices().to_vec(), Arc::clone(filter.schema()))
    });
    let projection = join.projection().as_ref().map(|columns| columns.to_vec());
    let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
    Ok(Arc::new(NestedLoopJoinExec::try_new(left, right, filter, join.join_type(), projection)?))
}

/// An expression that fails when its statement is over: the condition of a join, the key of a sort.
#[derive(Debug, Clone)]
pub struct WhileWanted {
    expression: Arc<dyn PhysicalExpr>,
    wanted: Wanted,
}

impl WhileWanted {
    pub fn new(expression: Arc<dyn PhysicalExpr>, wanted: Wanted) -> Self {
        Self { expression, wanted }
    }
}

impl PartialEq for WhileWanted {
    fn eq(&self, other: &Self) -> bool {
        self.expression.eq(&other.expression)
    }
}

impl Eq for WhileWanted {}

impl Hash for WhileWanted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
    }
}

impl fmt::Display for WhileWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

impl PhysicalExpr for WhileWanted {
    fn data_type(&self, input_schema: &Schema) -> Result<DataType> {
        self.expression.data_type(input_schema)
    }

    fn nullable(&self, input_schema: &Schema) -> Result<bool> {
        self.expression.nullable(input_schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.wanted.check()?;
        self.expression.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expression]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { expression: children.swap_remove(0), wanted: self.wanted.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt_sql(f)
    }
}
