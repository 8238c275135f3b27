//! Learning: what changes the weights of a policy: on the CPU in f32, or on a GPU with products in bf16 and weights in f32.
//!
//! Token ids and options in, a trained decoder and one [`StepMetrics`] per optimiser step out. Statements read their rows,
//! tokenise them and publish the result; this module knows no SQL, no tables and no tokenizer. On the disk it knows checkpoints alone.
//!
//! | file | subject |
//! |---|---|
//! | `sft`, `dpo`, `prm` | the methods: demonstrations ([`train_sft`]), preference pairs ([`train_dpo`], [`reference_logps`]), reward models ([`train_prm_validated`]) |
//! | `trainer` | the loop that they share |
//! | `online` | GRPO, REINFORCE and PPO ([`train_online`]): a loop of their own, in which the policy makes what it learns from |
//! | `validation`, `checkpoint`, `recovery`, `metrics_log` | early stopping; what a run leaves for one that goes on, or where it diverged |
//! | [`losses`] | losses, advantages and their derivatives, pure f64 |
//! | `backward` | the model's blocks one by one, forward and backward |
//! | `head`, `logits`, `score_head` | the vocabulary head, or a score, outside the autograd graph |
//! | `example`, `batch`, `plan` | truncation, padding-free batches, the order of the examples |
//! | `forest`, `sharing` | beginnings that sequences share: laid out once in a batch, and found among all examples |
//! | `gradients`, `adamw`, `schedule` | accumulation and clipping, the update, the learning rate |
//! | `options`, `token_weights` | names, defaults and ranges of `WITH (...)`; texts whose tokens weigh more |
//! | `estimate` | what a run would take |
//! | `metrics`, `tensorboard` | the names of what is logged; the bytes of event files |
//! | `stop`, `warnings`, `thread` | the flag that ends a run; what ends nothing; the deep stack that backpropagation needs |

mod adamw;
mod backward;
mod batch;
mod checkpoint;
mod dpo;
mod estimate;
mod example;
mod forest;
mod gradients;
mod head;
mod kept_reference;
mod logits;
pub mod losses;
mod metrics;
mod metrics_log;
mod online;
mod options;
mod plan;
mod prm;
mod recovery;
mod schedule;
mod score_head;
mod sft;
mod sharing;
mod stop;
mod tensorboard;
mod thread;
mod token_weights;
mod trainer;
mod validation;
mod warnings;

#[cfg(test)]
mod tests;

pub use adamw::{AdamW, AdamWOptions, ParameterGroup, clip_scale};
pub use checkpoint::Checkpoints;
pub use dpo::{ReferenceLogps, reference_logps, train_dpo, train_dpo_validated};
pub use estimate::{Estimate, estimate};
pub use example::{DpoExample, Kept, SftExample, StepExample, keep_dpo, keep_sft, keep_steps, room_for_prompt};
pub(crate) use example::{dpo_sequences, sft_sequences};
pub use gradients::Gradients;
pub use kept_reference::{keep_reference, kept_reference};
pub use losses::{
    AdvantageScaling, Clip, LengthNormalization, PairLengths, PairLogps, Preference, PreferenceLoss, PreferenceTerm, RewardLoss,
    RewardTerm, ScoreTerm, ScoredStep, TokenNormalizer, TokenTerm, batch_advantages, bradley_terry, clipped_surrogate, clipped_value,
    d_weighted_nll, dual_advantage, gae, group_advantages, k3, leave_one_out, likelihood_guard, log_sigmoid, log1m_exp, reinforce,
    sequence_ratio, sigmoid, step_advantages, step_cross_entropy, step_squared_error, token_weights, weighted_nll, whiten,
};
pub use metrics::{DROPPED_EXAMPLES, StoppingMetric, TRUNCATED_DOCUMENTS, TRUNCATED_PROMPTS};
pub use online::{
    Beside, Critic, CriticOptions, Draw, Estimator, GaeScope, GroupOptions, Learner, Normalization, ONLINE_STATEMENT_OPTIONS,
    OnlineOptions, PolicyCall, RolloutSource, SampledTrajectory, forward_flops_of, scaling_name, train_online,
};
pub use options::{DpoOptions, LongPrompts, PrmOptions, RftOptions, RunOptions, STATEMENT_OPTIONS, SftOptions};
pub use prm::{PrmExamples, train_prm_validated};
pub use recovery::{Recovered, recover};
pub use schedule::{LearningRate, Schedule};
pub use sft::{train_sft, train_sft_validated};
pub use sharing::Sharing;
pub use stop::Stop;
pub use tensorboard::EventWriter;
pub use token_weights::TokenWeights;
pub use trainer::{Metrics, StepMetrics, Trained};
pub use warnings::Warnings;
