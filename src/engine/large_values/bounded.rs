//! A function that says how much it will make before it makes it.

use std::any::Any;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::counted::counted;
use super::pieces;
use super::size::{Arguments, Growth};
use crate::engine::session_memory::SessionMemory;
use crate::error::Error;

/// The longest value, as in PostgreSQL, whose values have four bytes of length before them.
pub const VALUE_BYTES_MAX: u64 = 0x3fff_ffff - 4;

/// In bytes: a value from here on is counted, and a column of smaller ones.
const COUNTED_VALUE: u64 = 1 << 16;
const COUNTED_COLUMN: u64 = 4 << 20;

/// Texts of a batch are found by numbers of 32 bits.
const BATCH_BYTES_MAX: u64 = i32::MAX as u64;

/// Where the memory of what a function makes comes from.
#[derive(Debug, Clone)]
pub struct Memory {
    pool: Arc<SessionMemory>,
    /// What all calls share and hold as long as they are there; `None`: each result holds its own.
    kept: Option<Arc<MemoryReservation>>,
}

impl Memory {
    pub fn of_each_call(pool: &Arc<SessionMemory>) -> Self {
        Self { pool: Arc::clone(pool), kept: None }
    }

    /// Of calls whose results are copied at once, and all kept.
    pub fn of_all_calls(pool: &Arc<SessionMemory>) -> Self {
        let pool = Arc::clone(pool);
        let kept = Some(Arc::new(reservation(&pool, "the rows of VALUES")));
        Self { pool, kept }
    }
}

fn reservation(pool: &Arc<SessionMemory>, name: &str) -> MemoryReservation {
    MemoryConsumer::new(name).register(&(Arc::clone(pool) as Arc<dyn MemoryPool>))
}

/// The function, which fails before it makes what is too large.
#[derive(Debug)]
pub struct Bounded {
    function: Arc<ScalarUDF>,
    growth: Growth,
    memory: Memory,
}

impl Bounded {
    pub fn function(function: Arc<ScalarUDF>, growth: Growth, memory: Memory) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(Self { function, growth, memory }))
    }

    /// The function without bounds.
    pub fn of(&self) -> &ScalarUDF {
        &self.function
    }

    /// What is set aside for a result; `None`: it is small.
    fn ask(&self, arguments: &ScalarFunctionArgs) -> Result<Option<MemoryReservation>> {
        let (mut total, mut largest) = (0_u64, 0_u64);
        let known = Arguments::new(&arguments.args);
        for row in 0..arguments.number_rows {
            let size = (self.growth.size)(&known, row);
            (total, largest) = (total.saturating_add(size), largest.max(size));
        }
        let constant_max = self.growth.constant_max;
        if PLANNING.get() && total > constant_max {
            return Err(DataFusionError::Execution("a large value is computed when it is asked for".to_owned()));
        }
        if PLANNING.get() || (total <= constant_max && self.memory.kept.is_none()) {
            return Ok(None);
        }
        if largest > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge { what: format!("{}()", self.name()), bytes: largest }.into());
        }
        pieces::check(total, arguments.number_rows)?;
        if total > BATCH_BYTES_MAX {
            let (rows, name) = (arguments.number_rows, self.name());
            let message = format!(
                "{rows} rows of {name}() hold {total} bytes, more than a batch may; compute it in a subquery, whose rows come in pieces"
            );
            return Err(Error::OutOfMemory(message).into());
        }
        let bytes = usize::try_from(total).unwrap_or(usize::MAX);
        if let Some(kept) = &self.memory.kept {
            kept.try_grow(bytes)?;
        }
        if largest < COUNTED_VALUE && total < COUNTED_COLUMN {
            return Ok(None);
        }
        let memory = reservation(&self.memory.pool, &format!("{}()", self.name()));
        memory.try_grow(bytes)?;
        Ok(Some(memory))
    }
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

/// In all but its result it is the function within. That one's own simplification would put it in this one's place, and is done without.
impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.function.schema_name(arguments)
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.function.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.function.return_field_from_args(arguments)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(arguments)
    }

    fn short_circuits(&self) -> bool {
        self.function.short_circuits()
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.function.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.function.preserves_lex_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let num_rows = arguments.number_rows;
        let Some(memory) = self.ask(&arguments)? else { return self.function.invoke_with_args(arguments) };
        // A single value would be copied, uncounted, for each row.
        let column = self.function.invoke_with_args(arguments)?.into_array(num_rows)?;
        Ok(ColumnarValue::Array(counted(&column, memory)?))
    }
}

/// Whether an expression is a call of such a function.
pub fn is_bounded(function: &ScalarUDF) -> bool {
    (function.inner().as_ref() as &dyn Any).is::<Bounded>()
}

thread_local! {
    /// Whether this thread makes a plan, which would keep what it computes.
    static PLANNING: Cell<bool> = const { Cell::new(false) };
}

/// The rules, which leave large values to be computed when the plan runs. The optimizer keeps an expression that fails as it is.
pub fn without_large_constants(rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(WithoutLargeConstants(rule)) as Arc<dyn OptimizerRule + Send + Sync>).collect()
}

#[derive(Debug)]
struct WithoutLargeConstants(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for WithoutLargeConstants {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let _planning = Planning::begin();
        self.0.rewrite(plan, config)
    }
}

struct Planning(bool);

impl Planning {
    fn begin() -> Self {
        Self(PLANNING.replace(true))
    }
}

impl Drop for Planning {
    fn drop(&mut self) {
        PLANNING.set(self.0);
    }
}
