//! Learning: supervised fine-tuning and direct preference optimisation of a policy, on the CPU, in f32.
//!
//! Token ids and options in, a trained decoder and one [`StepMetrics`] per optimiser step out. Statements read their rows,
//! tokenise them and publish the result; this module knows no SQL, no tables and no tokenizer.
//!
//! | file | subject |
//! |---|---|
//! | `sft`, `dpo` | the two methods: [`train_sft`], [`train_dpo`], [`reference_logps`] |
//! | `trainer` | the loop that they share |
//! | `loss` | losses and their derivatives, pure f64 |
//! | `head` | the vocabulary head outside the autograd graph |
//! | `example`, `batch`, `plan` | truncation, padding-free batches, the order of the examples |
//! | `gradients`, `adamw`, `schedule` | accumulation and clipping, the update, the learning rate |
//! | `options` | names, defaults and ranges of `WITH (...)` |
//! | `thread` | the deep stack that backpropagation needs |

mod adamw;
mod batch;
mod dpo;
mod example;
mod gradients;
mod head;
mod loss;
mod options;
mod plan;
mod schedule;
mod sft;
mod stop;
mod thread;
mod trainer;

#[cfg(test)]
mod tests;

pub use adamw::{AdamW, AdamWOptions, clip_scale};
pub use dpo::{ReferenceLogps, reference_logps, train_dpo};
pub use example::{DpoExample, SftExample};
pub use gradients::Gradients;
pub use loss::{DpoTerm, PairLogps, d_weighted_nll, dpo_sigmoid, log_sigmoid, sigmoid, weighted_nll};
pub use options::{DpoOptions, RunOptions, SftOptions};
pub use schedule::{LearningRate, Schedule};
pub use sft::train_sft;
pub use stop::Stop;
pub use trainer::{Metrics, StepMetrics};
