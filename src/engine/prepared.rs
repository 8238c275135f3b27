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
    /// It has not run yet. Its first run is planned as any other: many statements run once.
    #[default]
    New,
    /// The next run makes a plan to keep.
    RunOnce,
    /// Planned each time.
    Unfit,
    Ready(Box<KeptPlan>),
    /// A run has the plan, or makes one; another one at the same time plans for itself.
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
        // Filters with a NULL are planned otherwise.
        if parameters.iter().any(ScalarValue::is_null) {
            return Ok(None);
        }
        let Some(mut loan) = self.borrow() else { return Ok(None) };
        loan.fit(session, query, parameters).await?;
        let Kept::Ready(plan) = &loan.kept else { return Ok(None) };
        let rows = plan.run(parameters)?;
        Ok(Some(Box::pin(Run { rows, _loan: loan })))
    }

    /// What is kept, out of the statement: until it is given back, no other run has it. `None`: this run plans for itself.
    fn borrow(&self) -> Option<Loan> {
        let mut home = lock(&self.plan);
        match std::mem::replace(&mut *home, Kept::Lent) {
            Kept::New => *home = Kept::RunOnce,
            Kept::Unfit => *home = Kept::Unfit,
            Kept::Lent => {}
            kept @ (Kept::RunOnce | Kept::Ready(_)) => return Some(Loan { kept, home: Arc::clone(&self.plan) }),
        }
        None
    }
}

fn lock(plan: &Mutex<Kept>) -> std::sync::MutexGuard<'_, Kept> {
    plan.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is kept of a statement while a run has it; it goes back when the run ends, however it ends.
struct Loan {
    kept: Kept,
    home: Arc<Mutex<Kept>>,
}

impl Loan {
    /// Makes a plan if there is none, or one that no longer serves.
    async fn fit(&mut self, session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<()> {
        if let Kept::Ready(plan) = &self.kept
            && plan.serves(session, parameters).await?
        {
            return Ok(());
        }
        self.kept = match KeptPlan::make(session, query).await?.filter(|plan| plan.takes(parameters)) {
            Some(plan) => Kept::Ready(Box::new(plan)),
            None => Kept::Unfit,
        };
        Ok(())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        *lock(&self.home) = std::mem::take(&mut self.kept);
    }
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
        // Before the optimizer writes the time of this run in the place of now().
        if changes_by_itself(&planned.plan)? {
            return Ok(None);
        }
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

/// Whether an expression of a plan depends on more than rows and parameters.
fn changes_by_itself(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                found |= depends_on_more(inner);
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    })?;
    Ok(found)
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
        Ok(if is_fit { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
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
    _loan: Loan,
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

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;
    use crate::engine::{Database, Response};

    async fn run(session: &Session, prepared: &PreparedStatement, parameters: &[ScalarValue]) -> Result<()> {
        match session.execute_prepared(prepared, parameters.to_vec()).await? {
            Response::Rows { stream, .. } => stream.try_collect::<Vec<_>>().await.map(|_| ()).map_err(Into::into),
            Response::Done { .. } => Ok(()),
        }
    }

    /// Where the plan that is kept is in memory: another plan is elsewhere.
    fn kept(prepared: &PreparedStatement) -> Option<usize> {
        match &*lock(&prepared.plan) {
            Kept::Ready(plan) => Some(Arc::as_ptr(&plan.plan).addr()),
            _ => None,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn retrievals_are_planned_at_the_second_run_and_after_writes() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        let sql = async |text: &str| session.sql(text).await?.try_collect::<Vec<_>>().await.map(|_| ()).map_err(crate::Error::from);
        sql("CREATE TABLE t (id bigint PRIMARY KEY, words text, v vector(2))").await?;
        sql("INSERT INTO t VALUES (1, 'one', '[1,0]'), (2, 'two', '[0,1]')").await?;
        let prepare = async |text: &str| session.prepare(session.parse(text)?.remove(0)).await;
        let retrieval = prepare("SELECT id FROM t ORDER BY v <=> '[1,1]' LIMIT 1").await?;
        run(&session, &retrieval, &[]).await?;
        assert_eq!(kept(&retrieval), None, "a statement that runs once is planned once");
        run(&session, &retrieval, &[]).await?;
        let first = kept(&retrieval);
        assert!(first.is_some());
        run(&session, &retrieval, &[]).await?;
        assert_eq!(kept(&retrieval), first);
        sql("INSERT INTO t VALUES (3, 'three', '[1,1]')").await?;
        run(&session, &retrieval, &[]).await?;
        assert!(kept(&retrieval).is_some_and(|second| Some(second) != first), "the table has another version");
        // What reads more than tables that are searched, or what a run decides.
        for text in ["SELECT id FROM t WHERE id = 1", "SELECT now()", "SELECT id, now() FROM t ORDER BY v <=> '[1,1]' LIMIT 1"] {
            let other = prepare(text).await?;
            for _ in 0..3 {
                run(&session, &other, &[]).await?;
            }
            assert!(matches!(&*lock(&other.plan), Kept::Unfit), "{text}");
        }
        Ok(())
    }
}
