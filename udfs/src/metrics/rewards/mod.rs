//! Rewards of trajectories as published systems give them, from the columns of a table of rollouts.
//!
//! They see what the policy wrote and what was made of it, never a prompt or a passage: an answer in an example of the prompt earns nothing, and
//! markup in a passage breaks no format. Whether a format was kept is for its protocol to say (`formats`).

mod completion_parts;
mod format_reward;
mod formats;
mod last_answer;
mod outcome_reward;
mod redundant_searches;
mod relevance_reward;
mod sequence_logp;
mod sequence_tokens;
mod step_reward;
mod well_formed;

pub use formats::{Formats, KeptFormat, WrittenStep};
pub use outcome_reward::{Outcome, OutcomeReward};
pub use redundant_searches::redundant_searches;
pub use relevance_reward::relevance_factor;
pub use step_reward::prorag_step_reward;

pub(crate) const FUNCTIONS: &[&crate::function::Function] = &[
    &outcome_reward::FUNCTION,
    &relevance_reward::FUNCTION,
    &step_reward::FUNCTION,
    &redundant_searches::FUNCTION,
    &last_answer::FUNCTION,
    &completion_parts::PARTS,
    &completion_parts::MASK,
    &sequence_logp::FUNCTION,
    &sequence_tokens::PROMPT,
    &sequence_tokens::TOKENS,
    &sequence_tokens::MASK,
];

pub(crate) const FORMAT_FUNCTIONS: &[&formats::FormatFunction] = &[&well_formed::TRAJECTORY, &well_formed::STEPS, &format_reward::FUNCTION];
