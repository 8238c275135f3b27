//! Queries about the catalog: names resolved, then run row by row.
//!
//! Clients ask the catalog in all that PostgreSQL's SQL has: subqueries that name columns of the query round them in any place, `ARRAY(SELECT ..)`,
//! `x = ANY(indkey)`, set-returning functions among the outputs, `(row).field`, `OPERATOR(pg_catalog.~)`. DataFusion plans a part of that. Catalog tables
//! have hundreds of rows, so a plain interpreter answers in milliseconds; what it does not know goes to DataFusion, over the same tables.

mod bind;
mod bind_call;
mod bind_expression;
mod bind_rows;
mod bind_select;
mod evaluate;
mod group;
mod inner_join;
mod join;
mod operators;
mod run;
mod scope;
mod sql_names;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use tokio::time::Instant;

use super::functions::{Function, shown};
use super::snapshot::Snapshot;
use super::types::PgType;
use super::value::{Row, Value};
use crate::error::{Error, Result};

pub use bind::{Bound, bind};
pub use operators::compiled;

/// The rows of a query.
pub fn run(bound: &Bound, context: &Context<'_>) -> Result<Vec<Row>> {
    let rows = run::rows(&bound.plan, None, context)?;
    let shown_row = |row: &Row| -> Result<Row> {
        context.step()?;
        row.iter().zip(&bound.plan.columns).map(|(value, (_, of))| shown(value.clone(), of, context)).collect()
    };
    rows.iter().map(shown_row).collect()
}

/// What binding does not know goes to DataFusion.
#[derive(Debug)]
pub enum BindError {
    /// Valid SQL that is not read here.
    NotHere,
    Wrong(Error),
}

impl From<Error> for BindError {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

type BindResult<T> = std::result::Result<T, BindError>;

/// An expression whose names are resolved.
#[derive(Debug, Clone)]
pub enum Expression {
    Constant(Value),
    /// From 0.
    Parameter(usize),
    /// `depth`: how many queries further out the row is.
    Column {
        depth: usize,
        index: usize,
    },
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Not(Box<Expression>),
    IsNull(Box<Expression>),
    /// `IS TRUE`, `IS FALSE`: never NULL.
    Is(Box<Expression>, bool),
    IsDistinct(Box<Expression>, Box<Expression>),
    Binary {
        operator: Binary,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    /// `left operator ANY (list)`, or ALL.
    Quantified {
        operator: Binary,
        left: Box<Expression>,
        list: Box<Expression>,
        all: bool,
    },
    /// `left operator ANY (query)`, or ALL.
    QuantifiedQuery {
        operator: Binary,
        left: Box<Expression>,
        query: Arc<Plan>,
        all: bool,
    },
    Exists(Arc<Plan>),
    /// The only value of a query, NULL if it has no row.
    Scalar(Arc<Plan>),
    /// `ARRAY(query)`
    ArrayOf(Arc<Plan>),
    Case {
        branches: Vec<(Expression, Expression)>,
        otherwise: Box<Expression>,
    },
    Coalesce(Vec<Expression>),
    Call {
        function: &'static Function,
        arguments: Vec<Expression>,
        types: Vec<PgType>,
    },
    Cast {
        operand: Box<Expression>,
        from: PgType,
        to: PgType,
    },
    Field(Box<Expression>, usize),
    Row(Vec<Expression>),
    Array(Vec<Expression>),
    /// `list[index]`; `first`: the number of the first item.
    Item {
        list: Box<Expression>,
        index: Box<Expression>,
        first: i64,
    },
    Slice {
        list: Box<Expression>,
        from: Option<Box<Expression>>,
        to: Option<Box<Expression>>,
        first: i64,
    },
}

/// Operators of two operands; NULL if one of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    BitAnd,
    BitOr,
    ShiftLeft,
    ShiftRight,
    /// `||` of texts.
    Concatenate,
    /// `||` of arrays and their items.
    Append,
    Prepend,
    ConcatenateLists,
    /// `&&`, `@>`, `<@` of arrays.
    Overlaps,
    Contains,
    ContainedIn,
    Regex {
        ignore_case: bool,
        negated: bool,
    },
    Like {
        ignore_case: bool,
        negated: bool,
    },
}

/// A query.
#[derive(Debug)]
pub struct Plan {
    pub columns: Vec<(String, PgType)>,
    body: Body,
    order: Vec<SortKey>,
    limit: Option<Expression>,
    offset: Option<Expression>,
    /// Whether it names columns of the queries round it: else its rows are the same each time.
    is_correlated: bool,
}

#[derive(Debug)]
enum Body {
    Select(Box<Select>),
    Query(Arc<Plan>),
    Values(Vec<Vec<Expression>>),
    Set {
        operator: SetOperator,
        all: bool,
        left: Arc<Plan>,
        right: Arc<Plan>,
    },
    /// `WITH RECURSIVE`: the rows of `first`, then those of `step` over the rows that came last, until there are none.
    Recursive {
        first: Arc<Plan>,
        step: Arc<Plan>,
        all: bool,
        working: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetOperator {
    Union,
    Except,
    Intersect,
}

/// Sorts by the value at `position` of the output row, which may lie behind the columns that are shown.
#[derive(Debug, Clone)]
struct SortKey {
    position: usize,
    descending: bool,
    nulls_first: bool,
}

#[derive(Debug)]
struct Select {
    from: Option<Source>,
    /// Joined by AND.
    conditions: Vec<Expression>,
    group: Option<Vec<Expression>>,
    /// Whether rows are made of lists before they are grouped, as it is by their items.
    groups_items: bool,
    having: Option<Expression>,
    /// Width of a row of `from`; the values of `extras` follow.
    width: usize,
    extras: Vec<Extra>,
    /// Outputs, then what ORDER BY needs beyond them.
    outputs: Vec<Expression>,
    distinct: bool,
    /// `DISTINCT ON`: of the rows that have the same values at these places of the outputs, the first in their order.
    distinct_on: Option<Vec<usize>>,
}

/// What a SELECT computes over its rows before its outputs.
#[derive(Debug, Clone)]
enum Extra {
    Aggregate(Aggregate),
    Window(Window),
    /// One row for each item of a list.
    Unnest(Expression),
}

#[derive(Debug, Clone)]
struct Aggregate {
    function: AggregateFunction,
    arguments: Vec<Expression>,
    distinct: bool,
    filter: Option<Expression>,
    order: Vec<(Expression, bool, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AggregateFunction {
    Count,
    Min,
    Max,
    Sum,
    Average,
    BoolAnd,
    BoolOr,
    ArrayAgg,
    StringAgg,
}

/// `row_number()`, `rank()` and `dense_rank()` OVER (...).
#[derive(Debug, Clone)]
struct Window {
    function: WindowFunction,
    partition: Vec<Expression>,
    order: Vec<(Expression, bool, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
}

/// What stands in FROM. The values of its columns are those from `offset` on in a row of the SELECT.
#[derive(Debug)]
struct Source {
    offset: usize,
    width: usize,
    kind: SourceKind,
}

#[derive(Debug)]
enum SourceKind {
    Rows(Arc<Vec<Row>>),
    Query {
        plan: Arc<Plan>,
        /// Whether it may read rows of what stands before it in FROM, and which of their columns it does read.
        is_lateral: bool,
        reads: Vec<usize>,
        /// How many queries further out it was bound than it stands, as a query of WITH may be.
        num_outward: usize,
    },
    /// Rows that the last step of a recursive query gave.
    Working(usize),
    /// A list, a row for each item; items that are rows of fields give their fields.
    Function {
        list: Expression,
        spread: bool,
        ordinality: bool,
    },
    Join {
        kind: JoinKind,
        left: Box<Source>,
        right: Box<Source>,
        conditions: Vec<Expression>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

impl Source {
    /// Whether it reads rows of what stands before it in FROM. What stands side by side in a join may be lateral to each other and not to that.
    fn is_lateral(&self) -> bool {
        self.reads_before(self.offset)
    }

    fn reads_before(&self, offset: usize) -> bool {
        let is_before = |column: &usize| *column < offset;
        match &self.kind {
            SourceKind::Rows(_) | SourceKind::Working(_) => false,
            SourceKind::Query { reads, .. } => reads.iter().any(is_before),
            // A subquery among the arguments may read any column.
            SourceKind::Function { list, .. } => list.has_subquery() || list.columns().iter().any(is_before),
            SourceKind::Join { left, right, conditions, .. } => {
                let condition_reads = conditions.iter().any(|condition| condition.columns().iter().any(is_before));
                left.reads_before(offset) || right.reads_before(offset) || condition_reads
            }
        }
    }
}

/// Rows and operations that one query may take: what a client asks of the catalog takes a thousandth of it.
const STEPS_MAX: u64 = 100_000_000;

/// Values of joined rows that one query may hold at a time, of 24 bytes each; texts are shared.
const CELLS_MAX: usize = 10_000_000;

/// Values that memory is asked for at once.
const CELLS_PER_QUESTION: usize = 1 << 15;

/// Steps between two looks whether the statement is over.
const STEPS_PER_LOOK: u64 = 1 << 12;

/// Places of rows by the text of a value.
type RowsByValue = HashMap<String, Vec<usize>>;

/// What an expression reads beyond its row.
pub struct Context<'a> {
    pub snapshot: &'a Snapshot,
    parameters: &'a [Value],
    /// Rows of queries that are the same each time.
    results: RefCell<HashMap<usize, Arc<Vec<Row>>>>,
    /// Rows of tables by the value of a column.
    indexes: RefCell<HashMap<(usize, usize), Arc<RowsByValue>>>,
    /// Rows of the last steps of recursive queries.
    working: RefCell<HashMap<usize, Arc<Vec<Row>>>>,
    steps: Cell<u64>,
    /// Values of rows that are held.
    cells: Cell<usize>,
    /// What was set aside for them.
    memory: MemoryReservation,
}

impl<'a> Context<'a> {
    pub fn new(snapshot: &'a Snapshot, parameters: &'a [Value]) -> Self {
        Self {
            snapshot,
            parameters,
            results: RefCell::default(),
            indexes: RefCell::default(),
            working: RefCell::default(),
            steps: Cell::new(0),
            cells: Cell::new(0),
            memory: MemoryConsumer::new("a query about the catalog").register(&snapshot.memory),
        }
    }

    /// Counts a row that was made and is kept until the SELECT has its outputs.
    ///
    /// # Errors
    /// 53200.
    fn hold(&self, row: &[Value]) -> Result<()> {
        self.hold_values(row.len())
    }

    /// # Errors
    /// 53200.
    fn hold_values(&self, count: usize) -> Result<()> {
        let cells = self.cells.get().saturating_add(count);
        if cells > CELLS_MAX {
            return Err(Error::OutOfMemory(format!("a query about the catalog holds more than {CELLS_MAX} values; join fewer rows")));
        }
        self.cells.set(cells);
        // It stays set aside until the query is over: what was held once may be held again.
        let wanted = cells * size_of::<Value>();
        if wanted > self.memory.size() {
            self.memory.try_grow(wanted - self.memory.size() + CELLS_PER_QUESTION * size_of::<Value>())?;
        }
        Ok(())
    }

    /// How many values are held.
    fn held(&self) -> usize {
        self.cells.get()
    }

    /// What was held beyond so many values is gone.
    fn release(&self, held: usize) {
        self.cells.set(held);
    }

    /// # Errors
    /// 57014 if the statement is over, or its time is.
    fn look(&self) -> Result<()> {
        if self.snapshot.wanted.is_over() {
            return Err(Error::Cancelled("statement"));
        }
        match self.snapshot.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            true => Err(Error::StatementTimeout),
            false => Ok(()),
        }
    }

    /// # Errors
    /// 57014, 53200.
    fn step(&self) -> Result<()> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps.is_multiple_of(STEPS_PER_LOOK) {
            self.look()?;
        }
        match steps > STEPS_MAX {
            true => Err(Error::OutOfMemory(format!("a query about the catalog took more than {STEPS_MAX} steps; join fewer rows"))),
            false => Ok(()),
        }
    }
}

/// The row that an expression is evaluated for, and those round it.
#[derive(Clone, Copy)]
struct Env<'a> {
    row: &'a [Value],
    /// The column of the SELECT that is the first of `row`.
    base: usize,
    /// What stands before in FROM, for LATERAL.
    left: Option<&'a Env<'a>>,
    outer: Option<&'a Env<'a>>,
}

impl Env<'_> {
    fn column(&self, depth: usize, index: usize) -> Result<&Value> {
        let missing = || Error::Internal(format!("a catalog query has no column {index} at depth {depth}"));
        if depth > 0 {
            return self.outer.ok_or_else(missing)?.column(depth - 1, index);
        }
        match index.checked_sub(self.base) {
            Some(position) => self.row.get(position).ok_or_else(missing),
            None => self.left.ok_or_else(missing)?.column(0, index),
        }
    }
}
