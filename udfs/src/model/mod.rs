//! `embed`, `generate`, `rerank`, `judge`, `judge_relevance` and `apply_chat_template`: a model's answers as columns, through traits that the engine implements.
//!
//! All are asynchronous and volatile, so that no optimizer rule calls a model in planning or twice for one row. Equal
//! inputs of a batch reach the model once.

pub(crate) mod apply_chat_template;
mod call;
mod distinct;
pub(crate) mod embed;
pub(crate) mod generate;
pub(crate) mod judge;
pub(crate) mod judge_relevance;
mod judging;
pub(crate) mod rerank;
mod runtime;

pub use judging::{JudgeOptions, JudgedAnswer, JudgedStep, ModelJudge, Ruling};
pub use runtime::{EmbedKind, GenerateOptions, ModelRuntime};

const SECTION: &str = "Models";
