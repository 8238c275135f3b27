//! The order of a subquery's rows: `SELECT * FROM (SELECT a FROM t ORDER BY a) s LIMIT 5` gives the first five in that order, and
//! `SELECT string_agg(a, ',') FROM (..) s` joins them in it, as in PostgreSQL.
//!
//! To DataFusion such an order is nothing that somebody asked for: its rules take the sort away, or share the sorted rows out among partitions and
//! gather them as they come. Sorts whose order nobody can see go first (`needless`). Each of the others gets an operator above it that asks for its
//! order while the rules run (`kept`). After them nothing divides its rows, and branches of a UNION ALL follow each other (`in_turn`).

mod in_turn;
mod kept;
mod needless;

use std::sync::Arc;

use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;

pub use needless::NeedlessSorts;

/// DataFusion's rules, with those that keep orders before and behind them; the plan is checked last.
pub fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    let check = rules.iter().position(|rule| rule.name() == SanityCheckPlan::new().name());
    rules.insert(check.unwrap_or(rules.len()), Arc::new(kept::OrdersKept));
    rules.insert(0, Arc::new(kept::OrdersAskedFor));
    rules
}
