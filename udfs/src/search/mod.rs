//! Scores of Monte Carlo tree search, as SQL functions and as the Rust functions that the search itself calls.

mod puct_score;
mod spre;
mod uct_score;

pub use puct_score::puct_score;
pub use spre::spre;
pub use uct_score::uct_score;

pub(crate) const FUNCTIONS: &[&crate::function::Function] = &[&uct_score::FUNCTION, &puct_score::FUNCTION, &spre::FUNCTION];

const SECTION: &str = "Search";
