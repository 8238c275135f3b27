//! The settings of PostgreSQL's chapter "Query Planning", and its memory and workers for single steps of a plan.
//!
//! Plans are made otherwise here, so they change nothing. They are known because programs and guides for PostgreSQL set them without asking; whoever does
//! is told.

use super::Definition;
use super::Values::{Choice, Memory, Real, Switch, Whole};
use super::setting;

const METHODS: &str = "Query Tuning / Planner Method Configuration";
const COSTS: &str = "Query Tuning / Planner Cost Constants";
const GENETIC: &str = "Query Tuning / Genetic Query Optimizer";
const OTHERS: &str = "Query Tuning / Other Planner Options";
const MEMORY: &str = "Resource Usage / Memory";
const WORKERS: &str = "Resource Usage / Asynchronous Behavior";

/// What all of them say of themselves.
const WITHOUT_EFFECT: &str = "Known for PostgreSQL's sake; plans are made otherwise here, so it changes nothing.";

const fn ignored(name: &'static str, default: &'static str, values: super::Values, category: &'static str) -> Definition {
    setting(name, default, values, category, WITHOUT_EFFECT)
}

/// The largest cost.
const COST_MAX: f64 = 1.79769e308;

/// By name; the ranges and defaults are PostgreSQL's.
pub static PLANNER_SETTINGS: &[Definition] = &[
    ignored("constraint_exclusion", "partition", Choice(&["partition", "on", "off"]), OTHERS),
    ignored("cpu_index_tuple_cost", "0.005", Real(0.0..=COST_MAX), COSTS),
    ignored("cpu_operator_cost", "0.0025", Real(0.0..=COST_MAX), COSTS),
    ignored("cpu_tuple_cost", "0.01", Real(0.0..=COST_MAX), COSTS),
    ignored("cursor_tuple_fraction", "0.1", Real(0.0..=1.0), OTHERS),
    ignored("default_statistics_target", "100", Whole(1..=10_000), OTHERS),
    ignored("effective_cache_size", "524288", Memory { unit: 8192, range: 1..=2_147_483_647 }, COSTS),
    ignored("enable_async_append", "on", Switch, METHODS),
    ignored("enable_bitmapscan", "on", Switch, METHODS),
    ignored("enable_gathermerge", "on", Switch, METHODS),
    ignored("enable_hashagg", "on", Switch, METHODS),
    ignored("enable_hashjoin", "on", Switch, METHODS),
    ignored("enable_incremental_sort", "on", Switch, METHODS),
    ignored("enable_indexonlyscan", "on", Switch, METHODS),
    ignored("enable_indexscan", "on", Switch, METHODS),
    ignored("enable_material", "on", Switch, METHODS),
    ignored("enable_memoize", "on", Switch, METHODS),
    ignored("enable_mergejoin", "on", Switch, METHODS),
    ignored("enable_nestloop", "on", Switch, METHODS),
    ignored("enable_parallel_append", "on", Switch, METHODS),
    ignored("enable_parallel_hash", "on", Switch, METHODS),
    ignored("enable_partition_pruning", "on", Switch, METHODS),
    ignored("enable_partitionwise_aggregate", "off", Switch, METHODS),
    ignored("enable_partitionwise_join", "off", Switch, METHODS),
    ignored("enable_seqscan", "on", Switch, METHODS),
    ignored("enable_sort", "on", Switch, METHODS),
    ignored("enable_tidscan", "on", Switch, METHODS),
    ignored("from_collapse_limit", "8", Whole(1..=2_147_483_647), OTHERS),
    ignored("geqo", "on", Switch, GENETIC),
    ignored("geqo_effort", "5", Whole(1..=10), GENETIC),
    ignored("geqo_generations", "0", Whole(0..=2_147_483_647), GENETIC),
    ignored("geqo_pool_size", "0", Whole(0..=2_147_483_647), GENETIC),
    ignored("geqo_seed", "0", Real(0.0..=1.0), GENETIC),
    ignored("geqo_selection_bias", "2", Real(1.5..=2.0), GENETIC),
    ignored("geqo_threshold", "12", Whole(2..=2_147_483_647), GENETIC),
    ignored("hash_mem_multiplier", "2", Real(1.0..=1000.0), MEMORY),
    ignored("jit", "off", Switch, OTHERS),
    ignored("jit_above_cost", "100000", Real(-1.0..=COST_MAX), COSTS),
    ignored("jit_inline_above_cost", "500000", Real(-1.0..=COST_MAX), COSTS),
    ignored("jit_optimize_above_cost", "500000", Real(-1.0..=COST_MAX), COSTS),
    ignored("join_collapse_limit", "8", Whole(1..=2_147_483_647), OTHERS),
    ignored("maintenance_work_mem", "65536", Memory { unit: 1024, range: 1024..=2_147_483_647 }, MEMORY),
    ignored("max_parallel_maintenance_workers", "2", Whole(0..=1024), WORKERS),
    ignored("max_parallel_workers", "8", Whole(0..=1024), WORKERS),
    ignored("max_parallel_workers_per_gather", "2", Whole(0..=1024), WORKERS),
    ignored("min_parallel_index_scan_size", "64", Memory { unit: 8192, range: 0..=715_827_882 }, COSTS),
    ignored("min_parallel_table_scan_size", "1024", Memory { unit: 8192, range: 0..=715_827_882 }, COSTS),
    ignored("parallel_leader_participation", "on", Switch, WORKERS),
    ignored("parallel_setup_cost", "1000", Real(0.0..=COST_MAX), COSTS),
    ignored("parallel_tuple_cost", "0.1", Real(0.0..=COST_MAX), COSTS),
    ignored("plan_cache_mode", "auto", Choice(&["auto", "force_generic_plan", "force_custom_plan"]), OTHERS),
    ignored("random_page_cost", "4", Real(0.0..=COST_MAX), COSTS),
    ignored("recursive_worktable_factor", "10", Real(0.001..=1_000_000.0), OTHERS),
    ignored("seq_page_cost", "1", Real(0.0..=COST_MAX), COSTS),
    ignored("work_mem", "4096", Memory { unit: 1024, range: 64..=2_147_483_647 }, MEMORY),
];
