//! The functions that need the engine: table functions over tables, agents and HopWorld. Pure functions are in `rolloutdb_udfs`.

mod advisory;
mod answer;
pub mod chat_content;
mod chunk;
mod clock;
mod files;
pub mod formats;
mod hopworld;
mod identity;
pub mod interval_times;
mod json_parts;
mod json_texts;
pub mod judge;
mod lineage;
pub mod nested_arguments;
mod only_value;
mod rollout_summary;
mod rollout_tree;
mod search;
mod search_options;
mod series;
pub mod session_state;
mod sleep;
mod step_prompt;
pub mod unknown;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::planner::ExprPlanner;
use rolloutdb_catalogs::Catalog;

use super::AgentRegistry;
use super::apply::planner::TableFunction;
use super::database::Shared;
use super::retrieval_cache::RetrievalCache;
use crate::models::{Registry, Runtime};

pub use advisory::functions as advisory_functions;
pub use identity::identity_numbers;
pub use only_value::only_value;

/// Whether each call of an asynchronous function does something, so that one must not stand for another.
pub fn acts(name: &str) -> bool {
    name == "pg_sleep" || name.starts_with("pg_advisory_")
}

/// Every table function by name.
pub fn table_functions(
    catalog: &Arc<Catalog>,
    registry: &Arc<Registry>,
    models: &Arc<Runtime>,
    agents: &AgentRegistry,
    retrievals: &Arc<RetrievalCache>,
) -> HashMap<&'static str, Arc<dyn TableFunction>> {
    let mut functions: Vec<Arc<dyn TableFunction>> = search::functions(models);
    functions.extend(hopworld::functions());
    functions.extend(json_parts::functions());
    functions.extend(files::functions());
    functions.extend(chunk::functions(registry));
    functions.extend(answer::functions(catalog, models, agents, retrievals));
    functions.extend([rollout_tree::function(), rollout_summary::function(), lineage::function()]);
    functions.into_iter().map(|function| (function.name(), function)).collect()
}

/// Registers scalar and aggregate functions and the operators that stand for them.
pub fn register_scalar_functions(state: &mut SessionState, shared: &Shared) {
    let models: Arc<dyn rolloutdb_udfs::model::ModelRuntime> = shared.models.clone();
    let mut scalar = rolloutdb_udfs::scalar_functions();
    scalar.extend(rolloutdb_udfs::format_functions(&formats::formats()));
    scalar.extend(rolloutdb_udfs::model_functions(&models, &judge::model_judge(&shared.catalog, &shared.models)));
    scalar.extend([step_prompt::function(), json_texts::function(), chat_content::function(), clock::function(), sleep::function()]);
    scalar.extend(interval_times::functions());
    state.register_udtf(series::NAME, Arc::new(series::SeriesFunction));
    for function in scalar {
        state.register_udf(Arc::new(function)).expect("registering a function never fails in a session state");
    }
    if let Some(uuid) = state.scalar_functions().get("uuid").cloned() {
        let alias = uuid.as_ref().clone().with_aliases(["gen_random_uuid"]);
        state.register_udf(Arc::new(alias)).expect("registering a function never fails in a session state");
    }
    for name in ["to_timestamp", "to_date"] {
        if let Some(function) = state.scalar_functions().get(name).cloned() {
            let function = rolloutdb_udfs::template::with_patterns(&function);
            state.register_udf(Arc::new(function)).expect("registering a function never fails in a session state");
        }
    }
    for name in rolloutdb_udfs::OF_ONE_TYPE {
        if let Some(function) = state.scalar_functions().get(name).cloned() {
            let function = rolloutdb_udfs::beside_texts(&function);
            state.register_udf(Arc::new(function)).expect("registering a function never fails in a session state");
        }
    }
    for name in rolloutdb_udfs::COUNTS {
        if let Some(function) = state.scalar_functions().get(name).cloned() {
            let function = rolloutdb_udfs::with_integers(&function);
            state.register_udf(Arc::new(function)).expect("registering a function never fails in a session state");
        }
    }
    if let Some(sum) = state.aggregate_functions().get("sum").cloned() {
        let sum = rolloutdb_udfs::checked_sum(&sum);
        state.register_udaf(Arc::new(sum)).expect("registering an aggregate never fails in a session state");
    }
    for name in ["avg", "sum"] {
        if let Some(function) = state.aggregate_functions().get(name).cloned() {
            let function = rolloutdb_udfs::vector::with_vectors(&function);
            state.register_udaf(Arc::new(function)).expect("registering an aggregate never fails in a session state");
        }
    }
    for name in ["array_agg", "string_agg"] {
        if let Some(function) = state.aggregate_functions().get(name).cloned() {
            let function = rolloutdb_udfs::in_own_order(&function);
            state.register_udaf(Arc::new(function)).expect("registering an aggregate never fails in a session state");
        }
    }
    for (name, data_type) in rolloutdb_udfs::WINDOW_NUMBERS {
        if let Some(function) = state.window_functions().get(name).cloned() {
            let function = rolloutdb_udfs::with_numbers(&function, data_type);
            state.register_udwf(Arc::new(function)).expect("registering a window function never fails in a session state");
        }
    }
    for function in rolloutdb_udfs::aggregate_functions() {
        state.register_udaf(Arc::new(function)).expect("registering an aggregate never fails in a session state");
    }
    let planners: [Arc<dyn ExprPlanner>; 6] = [
        Arc::new(rolloutdb_udfs::BitOperatorPlanner),
        Arc::new(rolloutdb_udfs::json::JsonOperatorPlanner),
        Arc::new(rolloutdb_udfs::ArrayConstantPlanner),
        Arc::new(rolloutdb_udfs::ArrayOverlapPlanner),
        Arc::new(rolloutdb_udfs::TimeOperatorPlanner),
        Arc::new(rolloutdb_udfs::MathOperatorPlanner),
    ];
    for planner in planners {
        state.register_expr_planner(planner).expect("registering an expression planner never fails in a session state");
    }
}
