//! The plan of a query that serves for many values of its parameters.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::sqlparser::ast::Query;
use rolloutdb_catalogs::{MatchingRows, NearestRows, Parameters, Table};

use super::bound_parameter::bound_expression;
use super::made_vectors::MadeVectors;
use crate::engine::apply::Apply;
use crate::engine::interruptible_sort::of_statement;
use crate::engine::interruption::is_of_one_statement;
use crate::engine::parameter_values::ParameterValues;
use crate::engine::planning::{plan_open_query, plan_query};
use crate::engine::privileges::Fingerprint;
use crate::engine::session::Session;
use crate::engine::task_history::CurrentTask;
use crate::engine::temporary::resolved_query;
use crate::engine::{search_path, versions, views};
use crate::error::Result;

/// A physical plan, and what it was made for.
///
/// Most parameters are read when it runs. Those that decide the plan, as that of LIMIT does, have one value in it, and runs with another are planned
/// each time. A vector that a model makes of parameters is one more parameter, whose value the model gives before the run.
#[derive(Debug)]
pub struct KeptPlan {
    pub plan: Arc<dyn ExecutionPlan>,
    parameters: Parameters,
    types: Vec<Option<DataType>>,
    decided: Vec<(usize, ScalarValue)>,
    made: MadeVectors,
    tables: Vec<Arc<Table>>,
    /// Whether its work hangs on the tables alone, and not on the values of parameters: it sorts nothing but what a search has found.
    pub is_bounded: bool,
    settings: u64,
    /// Of the catalog: whether names stand for what they stood for.
    names: u64,
    /// Whose rights it was checked with.
    rights: Fingerprint,
    /// Of the statement that runs it.
    task: Arc<CurrentTask>,
    context: Arc<TaskContext>,
}

impl KeptPlan {
    /// `None`: something other than tables, settings and parameters decides what the query gives.
    pub async fn make(session: &Session, query: &Query, parameters: &[ScalarValue]) -> Result<Option<Self>> {
        // Before the plan is made: what is granted or taken meanwhile counts from the next run on.
        let (settings, rights) = (session.settings_epoch(), session.access().fingerprint());
        let catalog = &session.database().shared.catalog;
        let names = catalog.names_epoch();
        let mut resolved = resolved_query(session, query)?.into_owned();
        search_path::qualify(session, &mut resolved)?;
        let query = &resolved;
        if views::are_read(catalog, query) || versions::are_read(query) {
            return Ok(None);
        }
        let mut planned = plan_query(session, query, &[]).await?;
        let Some(types) = parameter_types(&planned.plan).filter(|types| types.len() == parameters.len()) else { return Ok(None) };
        let decided: Vec<_> = deciding(&planned.plan)?.into_iter().map(|position| (position, parameters[position].clone())).collect();
        if !decided.is_empty() {
            planned = plan_open_query(session, query, &ParameterValues::some(decided.iter().cloned())).await?;
        }
        let state = repeatable(&planned.state);
        let (open, made) = MadeVectors::of(planned.plan, types.len(), &state)?;
        // Before the optimizer writes the time of this run in the place of now().
        if changes_by_itself(&open)? {
            return Ok(None);
        }
        // A shape that needs the values to be planned is an error here and none with them.
        let Ok(optimized) = state.optimize(&open) else { return Ok(None) };
        let Some(tables) = tables_of(&optimized)? else { return Ok(None) };
        let is_bounded = !sorts_a_table(&optimized)?;
        let parameters = Parameters::default();
        let bound = bind(optimized, &parameters)?;
        let Ok(plan) = state.query_planner().create_physical_plan(&bound, &state).await else { return Ok(None) };
        if is_of_one_statement(&plan)? {
            return Ok(None);
        }
        let task = state.config().get_extension::<CurrentTask>().unwrap_or_default();
        let context = state.task_ctx();
        Ok(Some(Self { plan, parameters, types, decided, made, tables, is_bounded, settings, names, rights, task, context }))
    }

    pub async fn serves(&self, session: &Session, parameters: &[ScalarValue]) -> Result<bool> {
        let is_of_now = self.settings == session.settings_epoch() && self.names == session.database().shared.catalog.names_epoch();
        if !is_of_now || !self.takes(parameters) || self.rights != session.access().fingerprint() {
            return Ok(false);
        }
        for table in &self.tables {
            if !table.is_latest().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the parameters have its types; one that the statement gives no type is a text.
    pub fn takes(&self, parameters: &[ScalarValue]) -> bool {
        let is_of = |(value, known): (&ScalarValue, &Option<DataType>)| value.data_type() == *known.as_ref().unwrap_or(&DataType::Utf8);
        parameters.len() == self.types.len() && parameters.iter().zip(&self.types).all(is_of)
    }

    /// Whether the parameters that decide the plan have the values that it was made for.
    pub fn is_for(&self, parameters: &[ScalarValue]) -> bool {
        self.decided.iter().all(|(position, value)| parameters[*position] == *value)
    }

    /// `None` if a model makes something else than the plan was made for.
    pub async fn run(&self, session: &Session, parameters: &[ScalarValue]) -> Result<Option<SendableRecordBatchStream>> {
        self.task.set_as(session.current_task());
        let Some(made) = self.made.make(parameters).await? else { return Ok(None) };
        self.parameters.set(parameters.iter().cloned().chain(made).collect());
        let plan = of_statement(reset_plan_states(Arc::clone(&self.plan))?, &session.wanted())?;
        Ok(Some(execute_stream(plan, Arc::clone(&self.context))?))
    }
}

/// Sorts tell the scans below them what they no longer want; a plan that runs again must not remember it.
fn repeatable(state: &SessionState) -> SessionState {
    let mut state = state.clone();
    state.config_mut().options_mut().optimizer.enable_dynamic_filter_pushdown = false;
    state
}

/// The types of `$1 ...`, where they are known; `None` if a number is left out.
fn parameter_types(plan: &LogicalPlan) -> Option<Vec<Option<DataType>>> {
    let types = plan.get_parameter_types().ok()?;
    (1..=types.len()).map(|number| types.get(&format!("${number}")).cloned()).collect()
}

/// The positions of the parameters whose values decide the plan: LIMIT, OFFSET, and constants of search functions.
fn deciding(plan: &LogicalPlan) -> Result<BTreeSet<usize>> {
    let mut found = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        let expressions: Vec<&Expr> = match node {
            LogicalPlan::Limit(limit) => limit.skip.iter().chain(&limit.fetch).map(AsRef::as_ref).collect(),
            LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<Apply>() {
                Some(apply) => apply.function.open_constants().iter().collect(),
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        for expression in expressions {
            expression.apply(|inner| {
                if let Expr::Placeholder(placeholder) = inner {
                    found.extend(position(&placeholder.id));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// 0 for `$1`.
fn position(id: &str) -> Option<usize> {
    id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
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

/// The tables that a plan reads, if it does nothing but find rows and show them; `None` for any other plan.
fn tables_of(plan: &LogicalPlan) -> Result<Option<Vec<Arc<Table>>>> {
    let mut tables = Vec::new();
    let mut is_fit = true;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => match (nearest_rows(scan), table(scan)) {
                (Some(nearest), _) if !nearest.has_late_query() => tables.push(Arc::new(nearest.table().clone())),
                (None, Some(table)) => tables.push(Arc::new(table)),
                _ => is_fit = false,
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
            | LogicalPlan::Subquery(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Values(_) => {}
            _ => is_fit = false,
        }
        Ok(if is_fit { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok((is_fit && !tables.is_empty()).then_some(tables))
}

/// Whether it sorts rows of a plain scan, whose number hangs on a condition.
fn sorts_a_table(plan: &LogicalPlan) -> Result<bool> {
    let (mut sorts, mut scans, mut within) = (false, false, false);
    plan.apply(|node| {
        match node {
            LogicalPlan::Sort(_) => sorts = true,
            LogicalPlan::TableScan(scan) => scans |= nearest_rows(scan).is_none(),
            _ => {}
        }
        node.apply_subqueries(|subquery| {
            within |= sorts_a_table(subquery).unwrap_or(true);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok((sorts && scans) || within)
}

fn nearest_rows(scan: &TableScan) -> Option<NearestRows> {
    let provider = source_as_provider(&scan.source).ok()?;
    let nearest = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<NearestRows>()?;
    Some(nearest.with_parameters(&Parameters::default()))
}

fn table(scan: &TableScan) -> Option<Table> {
    let provider = source_as_provider(&scan.source).ok()?;
    (provider.as_ref() as &dyn std::any::Any).downcast_ref::<Table>().cloned()
}

/// `now()` and the like, and subqueries; but for those that give one value to a whole run.
fn depends_on_more(expression: &Expr) -> bool {
    match expression {
        Expr::ScalarFunction(function) => function.func.signature().volatility != Volatility::Immutable,
        Expr::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
        Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) | Expr::ScalarVariable(..) => true,
        _ => false,
    }
}

/// The plan with placeholders that read `parameters` when it runs.
fn bind(plan: LogicalPlan, parameters: &Parameters) -> Result<LogicalPlan> {
    let bound = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::TableScan(scan) => {
            // Their filters are bound by the scans themselves, for Lance has no functions of ours.
            let source = match (nearest_rows(&scan), table(&scan)) {
                (Some(nearest), _) => provider_as_source(Arc::new(nearest.with_parameters(parameters))),
                (None, Some(table)) => provider_as_source(Arc::new(MatchingRows::new(&table, parameters))),
                _ => return Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            };
            Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan })))
        }
        node => node.map_expressions(|expression| expression.transform_up(|inner| Ok(bound_expression(inner, parameters)))),
    })?;
    Ok(bound.data)
}
