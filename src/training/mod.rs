//! Learning: what changes the weights of a policy, on the CPU, in f32.
//!
//! Token ids and options in, a trained decoder and one [`StepMetrics`] per optimiser step out. Statements read their rows,
//! tokenise them and publish the result; this module knows no SQL, no tables and no tokenizer. On the disk it knows checkpoints alone.
//!
//! | file | subject |
//! |---|---|
//! | `sft`, `dpo` | the methods: demonstrations ([`train_sft`]), preference pairs ([`train_dpo`], [`reference_logps`]) |
//! | `trainer` | the loop that they share |
//! | `validation`, `checkpoint`, `metrics_log` | early stopping; what a run leaves for one that goes on |
//! | [`losses`] | losses, advantages and their derivatives, pure f64 |
//! | `backward` | the model's blocks one by one, forward and backward |
//! | `head` | the vocabulary head outside the autograd graph |
//! | `example`, `batch`, `plan` | truncation, padding-free batches, the order of the examples |
//! | `gradients`, `adamw`, `schedule` | accumulation and clipping, the update, the learning rate |
//! | `options` | names, defaults and ranges of `WITH (...)` |
//! | `estimate` | what a run would take |
//! | `metrics` | the names of what is logged |
//! | `stop`, `warnings`, `thread` | the flag that ends a run; what ends nothing; the deep stack that backpropagation needs |

mod adamw;
mod backward;
mod batch;
mod checkpoint;
mod dpo;
mod estimate;
mod example;
mod gradients;
mod head;
pub mod losses;
mod metrics;
mod metrics_log;
mod options;
mod plan;
mod schedule;
mod sft;
mod stop;
mod thread;
mod trainer;
mod validation;
mod warnings;

#[cfg(test)]
mod tests;

pub use adamw::{AdamW, AdamWOptions, clip_scale};
pub use checkpoint::Checkpoints;
pub use dpo::{ReferenceLogps, reference_logps, train_dpo, train_dpo_validated};
pub use estimate::{Estimate, estimate};
pub use example::{DpoExample, Kept, SftExample, keep_dpo, keep_sft};
pub(crate) use example::{dpo_sequences, sft_sequences};
pub use gradients::Gradients;
pub use losses::{
    AdvantageScaling, Clip, LengthNormalization, PairLengths, PairLogps, Preference, PreferenceLoss, PreferenceTerm, RewardTerm, ScoreTerm,
    ScoredStep, TokenNormalizer, TokenTerm, batch_advantages, bradley_terry, clipped_surrogate, clipped_value, d_weighted_nll,
    dual_advantage, gae, group_advantages, k3, leave_one_out, likelihood_guard, log_sigmoid, log1m_exp, reinforce, sequence_ratio, sigmoid,
    step_advantages, step_cross_entropy, step_squared_error, token_weights, weighted_nll, whiten,
};
pub use options::{DpoOptions, LongPrompts, RftOptions, RunOptions, SftOptions};
pub use schedule::{LearningRate, Schedule};
pub use sft::{train_sft, train_sft_validated};
pub use stop::Stop;
pub use trainer::{Metrics, StepMetrics, Trained};
pub use warnings::Warnings;
