//! Models that judge: what they are asked, and how their verdicts are read. The tree search asks about steps ([`super::Judge`]), SQL's
//! `judge` about answers.
//!
//! What they are asked is a template, of `rollout.prompts` unless a statement gives one. Both are shown the golden answers, which the policy
//! is not. A verdict that cannot be read is none, and never a zero.

mod answer;
mod prompts;
mod template;
mod verdict;

pub use answer::answer_prompt;
pub use prompts::{Subject, builtin_prompts, template};
pub use template::{check, render};
pub use verdict::{is_correct, score};

/// Temperatures of the attempts. Greedy first; a verdict that cannot be read is asked for once more, with some chance that it reads otherwise.
pub const TEMPERATURES: [f64; 2] = [0.0, 0.7];
