//! Rewards of trajectories as published systems give them, from the columns of a table of rollouts.
//!
//! They see what the policy wrote and what was made of it, never a prompt or a passage: an answer in an example of the prompt earns nothing, and
//! markup in a passage breaks no format.

mod completion_parts;
mod format_reward;
mod last_answer;
mod outcome_reward;
mod redundant_searches;
mod relevance_reward;
mod well_formed;

pub(crate) const FUNCTIONS: &[&crate::function::Function] = &[
    &outcome_reward::FUNCTION,
    &relevance_reward::FUNCTION,
    &well_formed::FUNCTION,
    &format_reward::FUNCTION,
    &redundant_searches::FUNCTION,
    &last_answer::FUNCTION,
    &completion_parts::PARTS,
    &completion_parts::MASK,
];
