//! Learning from what the policy does: GRPO, REINFORCE and PPO on trajectories that are sampled with the weights of the moment.
//!
//! ```text
//! questions ─RolloutSource::sample─► trajectories with rewards ─► advantages ─► loss over sampled tokens ─► AdamW ─► next questions
//! ```
//!
//! A trajectory is a list of policy calls, each a prompt and what was sampled after it: passages are in prompts, and no loss, advantage or statistic sees them.
//! Who samples is a trait: this module knows no agent, no table and no reward function. Losses and advantages are those of [`losses`](super::losses).
//!
//! | file | subject |
//! |---|---|
//! | `options` | names, defaults and ranges of `WITH (...)` |
//! | `trajectory` | what is sampled, and who samples it ([`RolloutSource`]) |
//! | `order` | which questions a step samples |
//! | `calls` | the policy calls of a step, and how they pass a decoder |
//! | `advantages`, `group` | GRPO and REINFORCE: trajectories of a question beside each other |
//! | `critic`, `actor_critic` | PPO: a value for every token |
//! | `objective` | the loss of the policy and its gradient |
//! | `statistics` | what is told of what was sampled |
//! | `run` | the loop: steps, validation, checkpoints |

mod actor_critic;
mod advantages;
mod calls;
mod critic;
mod group;
mod objective;
mod options;
mod order;
mod run;
mod statistics;
#[cfg(test)]
mod tests;
mod trajectory;

pub use calls::forward_flops_of;
pub use critic::Critic;
pub use options::{
    CriticOptions, Estimator, GaeScope, GroupOptions, Learner, Normalization, ONLINE_STATEMENT_OPTIONS, OnlineOptions, scaling_name,
};
pub use run::{Beside, train_online};
pub use trajectory::{Draw, PolicyCall, RolloutSource, SampledTrajectory};
