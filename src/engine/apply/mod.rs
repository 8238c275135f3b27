//! `Apply`: the one plan node through which a query runs models, agents and searches.
//!
//! `Apply(input, function, arguments)` calls an [`ApplyFunction`] once per batch of input rows and joins each input row with the rows that the
//! function gives for it. Three things in SQL become this node:
//!
//! - a table function of ours in FROM: `vector_search(wiki, 'q')` (input: one row without columns), see [`planner`];
//! - the same function after LATERAL, with columns of the relations before it as arguments, see [`lateral`];
//! - a model call in an expression, `embed('m', contents)`, hoisted below it by [`extract`].
//!
//! DataFusion's own async functions evaluate up to 8,192 rows under `LIMIT 1`, do not nest and run once per reference (its issue #20031); and it
//! plans LATERAL table functions that it then cannot run (#18121). Hence a node of ours.

pub mod arguments;
mod array_calls;
mod call_metrics;
mod called_rows;
mod column_list;
mod exec;
pub mod extract;
pub mod fewer_calls;
mod filter;
mod function;
mod join_calls;
pub mod lateral;
mod node;
mod open_call;
mod options_of_rows;
pub mod ordinality;
pub mod planner;
mod row_numbers;
mod rows_of_lists;
mod value_calls;

pub use called_rows::CalledRows;
pub use exec::{ApplyExtensionPlanner, row_by_row_input};
pub use extract::calls_model;
pub use function::{Applied, ApplyFunction, Asked, ModelUse};
pub use node::Apply;
