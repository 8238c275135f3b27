//! The agent: a policy and a retriever in a protocol, run to an answer or searched as a tree.
//!
//! ```text
//! Context ─Protocol::prompt─► PolicyClient ─Protocol::parse─► Action ─(query: Retriever)─► StepRecord ─► next Context
//!    answer()  follows one trajectory to its end          Search    grows a tree of them (MCTS) and rewards every step
//! ```
//!
//! Policy and retriever are traits that `src/engine` implements. This module knows no SQL text, no tables, no tensors and
//! no sockets: what it makes are record batches ([`answer_batch()`], [`answer_steps_batch`], [`SearchTree::to_record_batch`]).
//! Nothing is spawned: dropping a future of this module cancels its work. Randomness is a pure function of seeds
//! ([`sampling`]), so results do not depend on scheduling.

mod answer;
mod answer_batch;
mod client;
mod columns;
mod environment;
mod in_work;
pub mod judging;
mod mcts;
mod options;
mod prompt_check;
pub mod prompts;
pub mod protocol;
mod reward;
pub mod sampling;
mod search_options;
mod search_tree;

pub use answer::{Trajectory, answer, answer_group, answer_many};
pub use answer_batch::{answer_batch, answer_schema, answer_steps_batch, answer_steps_schema};
pub use client::{Generated, Passage, PolicyClient, Prompt, RetrievalCounters, Retriever};
pub use environment::{Agent, Next, StepRecord};
pub use in_work::in_work;
pub use mcts::{Journal, Judge, ProcessRewardModel, Question, Search, SearchCounters, SearchCounts, Valuer};
pub use options::{AgentOptions, RetrieverKind};
pub use prompt_check::Placeholders;
pub use prompts::{PromptRow, PromptSet, builtin_prompts};
pub use protocol::{Action, Context, Protocol, State, StopReason};
pub use reward::{AnswerReward, RewardOptions, kept_format_of};
pub use sampling::Sampling;
pub use search_options::{Method, Returns, SearchOptions, Selection, ValueSource};
pub use search_tree::{SearchTree, node_schema};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
