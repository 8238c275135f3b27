//! Statements that are planned once and run often: the agent's inner loop asks thousands of times for the rows nearest to a vector, and making the
//! plan takes longer than running it.
//!
//! What is kept is the plan of a retrieval: nearest-neighbour scans and search functions, with parameters where they have no influence on the plan.
//! It serves as long as the tables have the versions and the session the settings that it was made for. Every other statement is planned each time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TableScan, Volatility,
};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::sqlparser::ast::{Query, Statement as SqlStatement};
use futures::Stream;
use rolloutdb_catalogs::{NearestRows, Parameters, Table};
use rolloutdb_sql::Statement;

use super::apply::Apply;
use super::planning::plan_query;
use super::session::{Description, Session};
use super::views;
use crate::error::Result;

/// A statement with the plan that its runs share. Made by [`Session::prepare`].
#[derive(Debug)]
pub struct PreparedStatement {
    pub(super) statement: Statement,
    description: Description,
    plan: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
enum Kept {
    /// It has not run yet: many statements run once.
    #[default]
    New,
    /// Planned each time.
    Unfit,
    Ready(Box<KeptPlan>),
    /// A run has the plan; another one at the same time makes its own.
    Lent,
}

impl PreparedStatement {
    pub(super) fn new(statement: Statement, description: Description) -> Self {
        Self { statement, description, plan: Arc::default() }
    }

    #[must_use]
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The rows of the kept plan; `None` if there is none for these parameters.
    pub(super) async fn run(&self, session: &Session, parameters: &[ScalarValue]) -> Result<Option<SendableRecordBatchStream>> {
        let Statement::Query(query) = &self.statement else { return Ok(None) };
        let Some(plan) = self.take(session, query, parameters).await? else { return Ok(None) };
        let rows = plan.run(parameters)?;
        Ok(Some(Box::pin(Run { rows, plan: Some(plan), home: Arc::clone(&self.plan) })))
    }

    /// A plan that fits, out of the statement: until it is given back, no other run has it.
    async fn take(&self, session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Option<Box<KeptPlan>>> {
        // Filters with a NULL are planned otherwise.
        if parameters.iter().any(ScalarValue::is_null) {
            return Ok(None);
        }
        let kept = std::mem::replace(&mut *lock(&self.plan), Kept::Lent);
        let (plan, left) = match kept {
            Kept::New => (None, Kept::Unfit),
            Kept::Unfit => return Ok(self.leave(Kept::Unfit)),
            Kept::Lent => return Ok(None),
            Kept::Ready(plan) if plan.serves(session, parameters).await? => (Some(plan), Kept::Lent),
            Kept::Ready(_) => (None, Kept::Unfit),
        };
        let plan = match plan {
            Some(plan) => Some(plan),
            None => KeptPlan::make(session, query).await?.filter(|plan| plan.takes(parameters)).map(Box::new),
        };
        if plan.is_none() {
            self.leave(left);
        }
        Ok(plan)
    }

    fn leave(&self, kept: Kept) -> Option<Box<KeptPlan>> {
        *lock(&self.plan) = kept;
        None
    }
}

fn lock(plan: &Mutex<Kept>) -> std::sync::MutexGuard<'_, Kept> {
    plan.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A physical plan, and what it was made for.
#[derive(Debug)]
struct KeptPlan {
    plan: Arc<dyn ExecutionPlan>,
    parameters: Parameters,
    types: Vec<DataType>,
    tables: Vec<Arc<Table>>,
    settings: u64,
    context: Arc<TaskContext>,
}

impl KeptPlan {
    /// `None`: something other than tables, settings and parameters decides what the query gives.
    async fn make(session: &Session, query: &Query) -> Result<Option<Self>> {
        let settings = session.settings_epoch();
        if reads_views(session, query)? {
            return Ok(None);
        }
        let planned = plan_query(session, query, &[]).await?;
        let Some(types) = parameter_types(&planned.plan) else { return Ok(None) };
        let state = repeatable(&planned.state);
        // A shape that needs the values to be planned is an error here and none with them.
        let Ok(optimized) = state.optimize(&planned.plan) else { return Ok(None) };
        let Some(tables) = tables_of(&optimized)? else { return Ok(None) };
        let parameters = Parameters::default();
        let bound = bind(optimized, &parameters)?;
        let Ok(plan) = state.query_planner().create_physical_plan(&bound, &state).await else { return Ok(None) };
        Ok(Some(Self { plan, parameters, types, tables, settings, context: state.task_ctx() }))
    }

    async fn serves(&self, session: &Session, parameters: &[ScalarValue]) -> Result<bool> {
        if !self.takes(parameters) || self.settings != session.settings_epoch() {
            return Ok(false);
        }
        for table in &self.tables {
            if !table.is_latest().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn takes(&self, parameters: &[ScalarValue]) -> bool {
        parameters.len() == self.types.len() && parameters.iter().zip(&self.types).all(|(value, data_type)| value.data_type() == *data_type)
    }

    fn run(&self, parameters: &[ScalarValue]) -> Result<SendableRecordBatchStream> {
        self.parameters.set(parameters.to_vec());
        Ok(execute_stream(reset_plan_states(Arc::clone(&self.plan))?, Arc::clone(&self.context))?)
    }
}

/// Sorts tell the scans below them what they no longer want; a plan that runs again must not remember it.
fn repeatable(state: &SessionState) -> SessionState {
    let mut state = state.clone();
    state.config_mut().options_mut().optimizer.enable_dynamic_filter_pushdown = false;
    state
}

fn reads_views(session: &Session, query: &Query) -> Result<bool> {
    let written = SqlStatement::Query(Box::new(query.clone()));
    let mut expanded = written.clone();
    views::expand(&session.database().shared.catalog, &mut expanded)?;
    Ok(written != expanded)
}

/// The types of `$1 ...`; `None` if one is not known.
fn parameter_types(plan: &LogicalPlan) -> Option<Vec<DataType>> {
    let types = plan.get_parameter_types().ok()?;
    (1..=types.len()).map(|number| types.get(&format!("${number}")).cloned().flatten()).collect()
}

/// The tables that a plan of nothing but retrievals reads; `None` for any other plan.
fn tables_of(plan: &LogicalPlan) -> Result<Option<Vec<Arc<Table>>>> {
    let mut tables = Vec::new();
    let mut is_fit = true;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => match nearest_rows(scan).filter(|nearest| !nearest.has_late_query()) {
                Some(nearest) => tables.push(Arc::new(nearest.table().clone())),
                None => is_fit = false,
            },
            LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<Apply>().map(|apply| apply.function.tables())
            {
                Some(Some(searched)) => tables.extend(searched),
                _ => is_fit = false,
            },
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Values(_) => {}
            _ => is_fit = false,
        }
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                is_fit &= !depends_on_more(inner);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok((is_fit && !tables.is_empty()).then_some(tables))
}

fn nearest_rows(scan: &TableScan) -> Option<NearestRows> {
    let provider = source_as_provider(&scan.source).ok()?;
    let nearest = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<NearestRows>()?;
    Some(nearest.with_parameters(&Parameters::default()))
}

/// `now()` and the like, and subqueries.
fn depends_on_more(expression: &Expr) -> bool {
    match expression {
        Expr::ScalarFunction(function) => function.func.signature().volatility != Volatility::Immutable,
        Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) | Expr::ScalarVariable(..) => true,
        _ => false,
    }
}

/// The plan with placeholders that read `parameters` when it runs.
fn bind(plan: LogicalPlan, parameters: &Parameters) -> Result<LogicalPlan> {
    let bound = plan.transform_up(|node| match node {
        LogicalPlan::TableScan(scan) => match nearest_rows(&scan) {
            // Its filters are bound by the scan itself, for Lance has no functions of ours.
            Some(nearest) => {
                let source = provider_as_source(Arc::new(nearest.with_parameters(parameters)));
                Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan })))
            }
            None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        },
        node => node.map_expressions(|expression| expression.transform_up(|inner| Ok(bound_expression(inner, parameters)))),
    })?;
    Ok(bound.data)
}

fn bound_expression(expression: Expr, parameters: &Parameters) -> Transformed<Expr> {
    match expression {
        Expr::Placeholder(Placeholder { id, field: Some(field) }) => {
            let function = BoundParameter {
                id,
                data_type: field.data_type().clone(),
                parameters: parameters.clone(),
                signature: Signature::exact(vec![], Volatility::Volatile),
            };
            Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), vec![])))
        }
        other => Transformed::no(other),
    }
}

/// A parameter as a function without arguments, whose value is another in each run.
#[derive(Debug)]
struct BoundParameter {
    id: String,
    data_type: DataType,
    parameters: Parameters,
    signature: Signature,
}

impl PartialEq for BoundParameter {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.parameters.identity() == other.parameters.identity()
    }
}

impl Eq for BoundParameter {}

impl std::hash::Hash for BoundParameter {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.id, self.parameters.identity()).hash(state);
    }
}

impl ScalarUDFImpl for BoundParameter {
    fn name(&self) -> &str {
        &self.id
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        match self.parameters.get(&self.id) {
            Some(value) => Ok(ColumnarValue::Scalar(value)),
            None => datafusion::common::internal_err!("{} has no value", self.id),
        }
    }
}

/// The rows of one run, which has the plan until it ends.
struct Run {
    rows: SendableRecordBatchStream,
    plan: Option<Box<KeptPlan>>,
    home: Arc<Mutex<Kept>>,
}

impl Stream for Run {
    type Item = DataFusionResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rows.as_mut().poll_next(context)
    }
}

impl RecordBatchStream for Run {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(plan) = self.plan.take() {
            *lock(&self.home) = Kept::Ready(plan);
        }
    }
}
