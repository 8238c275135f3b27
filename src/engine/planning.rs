//! From a query's syntax tree to a running stream.

use std::collections::HashMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::sql::TableReference;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{Query, Statement as SqlStatement, TableFactor, Visit, Visitor};
use rolloutdb_catalogs::Table;

use super::apply::ApplyExtensionPlanner;
use super::apply::planner::{TableFunctionPlanner, called_function, split_table_name, table_arguments};
use super::background_planning::{both_plans, physical_plan};
use super::function::{nested_arguments, unknown};
use super::known_rows::known_rows;
use super::nearest_neighbours::with_current_subqueries;
use super::output_names::OutputNames;
use super::parameter_values::ParameterValues;
use super::privileges::relations::{Relations, check_models};
use super::session::Session;
use super::statement_catalog::{OpenedTables, with_opened_tables};
use super::task_history::CurrentTask;
use super::unnesting::SharedRowsPlanner;
use super::views::TablesOfViews;
use super::with_queries::FencePlanner;
use super::{
    aggregate_forms, any_of_arrays, arrays_of_queries, casts, constants, counted_sets, function_columns, jsonb_comparisons, kept_types,
    lateral_names, macros, mixed_times, named_windows, output_names, parameter_types, pattern_operators, pg_catalog, postgres_forms,
    quoted_constants, row_comparisons, rows_in_select, search_path, table_calls, using_columns, versions, views, whole_rows,
    wildcards_of_joins, window_defaults, with_queries,
};
use crate::error::{Error, Result};

/// DataFusion's physical planner, with [`super::apply::Apply`] added.
#[derive(Debug)]
pub struct RolloutQueryPlanner;

#[async_trait]
impl QueryPlanner for RolloutQueryPlanner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, state: &SessionState) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let plan = with_current_subqueries(plan)?;
        DefaultPhysicalPlanner::with_extension_planners(vec![
            Arc::new(ApplyExtensionPlanner),
            Arc::new(FencePlanner),
            Arc::new(SharedRowsPlanner),
        ])
        .create_physical_plan(&plan, state)
        .await
    }
}

/// A logical plan together with the state that planned it: both see the same table versions.
pub struct Planned {
    pub plan: LogicalPlan,
    pub state: SessionState,
}

impl Planned {
    pub async fn stream(self) -> Result<SendableRecordBatchStream> {
        Ok(self.start(None).await?.rows)
    }

    /// The same, with the plan that runs; `kept` keeps it too.
    pub async fn start(self, kept: Option<&KeptRun>) -> Result<Started> {
        let (optimized, plan) = match kept {
            Some(_) => both_plans(&self.state, &self.plan).await.map(|(optimized, plan)| (Some(optimized), plan))?,
            None => (None, physical_plan(&self.state, &self.plan).await?),
        };
        let rows = execute_stream(Arc::clone(&plan), self.state.task_ctx())?;
        if let (Some(kept), Some(optimized)) = (kept, optimized) {
            *kept.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Run { optimized, plan: Arc::clone(&plan) });
        }
        Ok(Started { rows, plan })
    }
}

/// A plan that runs.
pub struct Started {
    pub rows: SendableRecordBatchStream,
    pub plan: Arc<dyn ExecutionPlan>,
}

impl Started {
    /// How many rows come, if that is known before they do.
    pub fn num_rows(&self) -> Option<u64> {
        known_rows(&self.plan)
    }
}

/// What EXPLAIN ANALYZE shows of a statement that writes: its last run.
#[derive(Default)]
pub struct KeptRun(Mutex<Option<Run>>);

/// A plan that has run, with what was measured.
pub struct Run {
    pub optimized: LogicalPlan,
    pub plan: Arc<dyn ExecutionPlan>,
}

impl KeptRun {
    /// `None`: nothing has run.
    pub fn into_run(self) -> Option<Run> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plans a query whose columns have the names that PostgreSQL gives them.
pub async fn plan_query(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Planned> {
    let (Planned { plan, state }, names) =
        with_distinct_outputs(query, |query| plan_statement(session, statement_of(query), parameters)).await?;
    Ok(Planned { plan: names.restored(plan)?, state })
}

/// Plans a query whose outputs DataFusion does not take for one another, and says what they are called. By their texts one cannot tell all that are one to
/// it: `d + 2` is `2 + d`, and `ceil(x)` is `ceiling(x)`.
pub async fn with_distinct_outputs<F>(query: &Query, plan: impl Fn(Query) -> F) -> Result<(Planned, OutputNames)>
where
    F: Future<Output = Result<Planned>>,
{
    let mut distinct = query.clone();
    let names = output_names::distinct(&mut distinct);
    match plan(distinct).await {
        Err(error) if output_names::is_clash(&error) => {
            let mut distinct = query.clone();
            let names = output_names::all_distinct(&mut distinct);
            Ok((Box::pin(plan(distinct)).await?, names))
        }
        planned => Ok((planned?, names)),
    }
}

fn statement_of(query: Query) -> SqlStatement {
    SqlStatement::Query(Box::new(query))
}

/// Plans a query whose columns go by their positions.
pub async fn plan_source(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Planned> {
    Ok(with_distinct_outputs(query, |query| plan_statement(session, statement_of(query), parameters)).await?.0)
}

/// Plans a query for many values of its parameters: only those that decide the plan are known.
pub async fn plan_open_query(session: &Session, query: &Query, known: &ParameterValues) -> Result<Planned> {
    let (mut planned, names) = with_distinct_outputs(query, |query| plan_with(session, statement_of(query), known, HashMap::new())).await?;
    planned.plan = names.restored(known.bind_limits(planned.plan)?)?;
    Ok(planned)
}

/// The name by which the query of a change reads the table that it changes.
pub const REWRITE_TARGET: &str = "__rewrite_target";
/// The name by which the query of an INSERT ... ON CONFLICT reads the rows to insert.
pub const REWRITE_SOURCE: &str = "__rewrite_source";

/// Plans the query of a change; `target` and `source` are what [`REWRITE_TARGET`] and [`REWRITE_SOURCE`] stand for.
pub async fn plan_rewrite(
    session: &Session,
    query: Query,
    parameters: &[ScalarValue],
    target: Arc<dyn TableProvider>,
    source: Option<Arc<dyn TableProvider>>,
) -> Result<Planned> {
    let mut named: HashMap<String, Arc<dyn TableProvider>> = HashMap::from([(REWRITE_TARGET.to_owned(), target)]);
    named.extend(source.map(|source| (REWRITE_SOURCE.to_owned(), source)));
    plan_over(session, SqlStatement::Query(Box::new(query)), parameters, named).await
}

/// Plans any statement that DataFusion plans. Tables are opened once, here, so that the statement reads one snapshot of each.
pub async fn plan_statement(session: &Session, statement: SqlStatement, parameters: &[ScalarValue]) -> Result<Planned> {
    plan_over(session, statement, parameters, HashMap::new()).await
}

async fn plan_over(
    session: &Session,
    statement: SqlStatement,
    parameters: &[ScalarValue],
    named: HashMap<String, Arc<dyn TableProvider>>,
) -> Result<Planned> {
    let Planned { mut plan, state } = plan_with(session, statement, &ParameterValues::all(parameters), named).await?;
    if !parameters.is_empty() {
        plan = casts::exact_parameters(plan.with_param_values(ParamValues::from(parameters.to_vec()))?, &state)?;
        check_models(&session.access(), &plan)?;
    }
    Ok(Planned { plan, state })
}

/// The plan with placeholders; what is known of their values serves where a plan needs them.
async fn plan_with(
    session: &Session,
    mut statement: SqlStatement,
    parameters: &ParameterValues,
    mut named: HashMap<String, Arc<dyn TableProvider>>,
) -> Result<Planned> {
    let mut state = session.context().state();
    // Rows may be read when the session is at another statement.
    let task = CurrentTask::default();
    task.set_as(session.current_task());
    state.config_mut().set_extension(Arc::new(task));
    search_path::qualify(session, &mut statement)?;
    // While the text still says through which view a table is read.
    let relations = Relations::of(session, &statement, &named)?;
    let of_views = views::expand(session, &mut statement, state.scalar_functions())?;
    let expanded = macros::expand(&mut statement, state.scalar_functions())?;
    named_windows::write_out(&mut statement)?;
    output_names::subqueries::name_outputs(&mut statement);
    any_of_arrays::write_out(&mut statement);
    arrays_of_queries::write_out(&mut statement)?;
    window_defaults::write_out(&mut statement);
    row_comparisons::write_out(&mut statement)?;
    pattern_operators::write_out(&mut statement);
    rows_in_select::write_out(&mut statement, &state, &session.database().shared.functions)?;
    constants::rewrite(&mut statement)?;
    quoted_constants::write_out(&mut statement);
    using_columns::write_out(&mut statement)?;
    lateral_names::qualify(&mut statement);
    let searched = versions::open(session, &mut statement, parameters, &mut named).await?;
    Box::pin(pg_catalog::open(session, &mut state, &mut statement, &mut named)).await?;
    table_calls::write_out(&mut statement);
    function_columns::write_out(&mut statement);
    postgres_forms::rewrite(&mut statement);
    let of_views = Arc::new(Box::pin(views::open(session, of_views)).await?);
    let mut opened = of_views.opened.clone();
    opened.extend(searched);
    let tables = open_table_arguments(session, &statement, &opened).await?;
    opened.extend(tables.iter().map(|(name, table)| (split_table_name(name), Arc::clone(table))));
    if !opened.is_empty() {
        state = with_opened_tables(state, opened);
    }
    let functions = Arc::clone(&session.database().shared.functions);
    state.register_relation_planner(Arc::new(TableFunctionPlanner {
        functions,
        tables,
        named: named.clone(),
        of_views: Arc::clone(&of_views),
        notices: session.notices().clone(),
        gate: session.gate(),
        effort: session.effort().asked(),
        parameters: parameters.clone(),
    }))?;
    wildcards_of_joins::write_out(&mut statement, &state).await;
    whole_rows::write_out(&mut statement, &state).await;
    aggregate_forms::rewrite(&mut statement)?;
    with_queries::mark(&mut statement, &state, &session.database().shared.functions);
    let statement = PlannerStatement::Statement(Box::new(statement));
    let unknown_function = match &statement {
        PlannerStatement::Statement(statement) => unknown::in_from(statement, &state, &session.database().shared.functions),
        _ => None,
    };
    if let Err(error) = check_tables(session, &state, &statement, &named, &of_views).await {
        return Err(unknown_function.unwrap_or(error));
    }
    let plan = match state.statement_to_plan(statement).await {
        Ok(plan) => plan,
        Err(error) => {
            let found = || unknown::explained(error.into(), &state, &session.database().shared.functions);
            let error = unknown_function.unwrap_or_else(found);
            return Err(Box::pin(macros::explained(session, error, &expanded)).await);
        }
    };
    check_size(&plan)?;
    let plan = counted_sets::counted(plan)?;
    let plan = parameter_types::typed(plan)?;
    nested_arguments::check(&plan)?;
    parameter_types::check_sums(&plan, &|id| parameters.is_typed(id))?;
    let plan = parameter_types::read_texts(plan, session.notices())?;
    let plan = quoted_constants::read_arguments(plan, &state)?;
    let plan = casts::typed(plan, &state)?;
    let plan = quoted_constants::typed(kept_types::typed(plan)?, &state)?;
    let plan = jsonb_comparisons::typed(mixed_times::typed(plan, &state)?, &state)?;
    relations.check_plan(&plan, &of_views)?;
    Ok(Planned { plan, state })
}

/// Nodes of a plan. A name of WITH stands for its query wherever it is read, so a dozen short ones that read each other twice are a plan without an end.
const PLAN_NODES_MAX: usize = 10_000;

fn check_size(plan: &LogicalPlan) -> Result<()> {
    let mut count = 0;
    plan.apply_with_subqueries(|_| {
        count += 1;
        Ok(if count > PLAN_NODES_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match count > PLAN_NODES_MAX {
        true => Err(rolloutdb_sql::Error::TooDeep { limit: PLAN_NODES_MAX, what: "steps in the plan of a query" }.into()),
        false => Ok(()),
    }
}

/// An unknown table is our error, which names the nearest ones, rather than the planner's.
async fn check_tables(
    session: &Session,
    state: &SessionState,
    statement: &PlannerStatement,
    named: &HashMap<String, Arc<dyn TableProvider>>,
    of_views: &TablesOfViews,
) -> Result<()> {
    for reference in state.resolve_table_references(statement)? {
        let is_function = matches!(&reference, TableReference::Bare { table }
            if state.table_functions().contains_key(table.as_ref()) || session.database().shared.functions.contains_key(table.as_ref()));
        let schema_name = reference.schema().unwrap_or(super::session::DEFAULT_SCHEMA).to_owned();
        let is_function = is_function || named.contains_key(reference.table()) || of_views.get(reference.table()).is_some();
        let is_known_catalog = reference.catalog().is_none_or(|catalog| catalog == super::session::CATALOG_NAME);
        if is_function || !is_known_catalog || schema_name == "information_schema" {
            continue;
        }
        let exists = match session.context().catalog(super::session::CATALOG_NAME).and_then(|catalog| catalog.schema(&schema_name)) {
            Some(schema) => schema.table(reference.table()).await?.is_some(),
            None => false,
        };
        if !exists {
            // The catalog's own error names the tables that are near.
            session.database().shared.catalog.table(&schema_name, reference.table()).await?;
        }
    }
    Ok(())
}

/// `known`: tables that the statement has opened already.
async fn open_table_arguments(session: &Session, statement: &SqlStatement, known: &OpenedTables) -> Result<HashMap<String, Arc<Table>>> {
    let shared = &session.database().shared;
    let mut names = TableNames { session, names: vec![] };
    let _ = statement.visit(&mut names);
    let mut tables: HashMap<String, Arc<Table>> = HashMap::new();
    for name in names.names {
        let key = split_table_name(&name);
        let opened = tables.iter().find(|(name, _)| split_table_name(name) == key).map(|(_, opened)| opened);
        let table = match opened.or_else(|| known.get(&key)) {
            Some(opened) => Arc::clone(opened),
            None => shared.catalog.table(&key.0, &key.1).await?,
        };
        tables.insert(name, table);
    }
    Ok(tables)
}

struct TableNames<'a> {
    session: &'a Session,
    names: Vec<String>,
}

impl Visitor for TableNames<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<()> {
        let functions = &self.session.database().shared.functions;
        if let Some((function, arguments)) = called_function(functions, relation) {
            self.names.extend(table_arguments(function.as_ref(), arguments));
        }
        ControlFlow::Continue(())
    }
}

/// The columns that a query must give for a statement of ours, by name.
///
/// # Errors
/// [`Error::MissingColumn`] for the first one that is absent.
pub fn require_columns(of: &str, plan: &LogicalPlan, names: &[&str]) -> Result<()> {
    let known: Vec<String> = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
    match names.iter().find(|name| !known.iter().any(|known| known == *name)) {
        Some(name) => Err(Error::MissingColumn { of: of.to_owned(), name: (*name).to_owned(), known }),
        None => Ok(()),
    }
}
