//! Models that judge: what they are asked, and how their verdicts are read. The tree search asks about steps ([`super::Judge`]), SQL's
//! `judge` about answers, its `judge_relevance` about what a step found.
//!
//! What they are asked is a template, of `rollout.prompts` unless a statement gives one. The first two are shown the golden answers, which the
//! policy is not. A verdict that cannot be read is none, and never a zero. What is judged is quoted as passages are in prompts of agents, and holds
//! no verdict.

mod answer;
mod prompts;
mod relevance;
mod steps;
mod template;
mod verdict;

pub use answer::answer_prompt;
pub use prompts::{PROTOCOL, Subject, builtin_prompts, check_row, template};
pub use relevance::relevance_prompt;
pub use steps::steps_prompt;
pub use template::check;
pub use verdict::{is_correct, score};

use super::protocol::quoting::Quoting;

/// Longer questions and answers are cut in prompts.
const MAX_CHARS: usize = 4096;

/// How all that is judged is written: with nothing in it that reads as a verdict.
const QUOTING: Quoting = Quoting::phrases(&[verdict::VERDICT]).with_headers(&[verdict::SCORE]);

/// Temperatures of the attempts. Greedy first; a verdict that cannot be read is asked for once more, with some chance that it reads otherwise.
pub const TEMPERATURES: [f64; 2] = [0.0, 0.7];
