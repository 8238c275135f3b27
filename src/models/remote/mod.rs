//! Policies behind servers that speak OpenAI's API (vLLM, SGLang, llama.cpp, OpenAI): no weights here, requests instead of forwards.
//!
//! A completion is asked for once: an answer is kept on the disk before anybody sees it (`answers`), equal requests in flight are one
//! (`src/flights.rs`), and what fails is tried again (`retry`) at the server with the least to do (`endpoints`). An answer may be read as it is written
//! (`events`, `stream`), and hold several samples. Which hosts may be asked, and what a secret's value is, the process around the models tells
//! ([`Connections`]).

mod answers;
pub(super) mod attempt;
mod complaint;
pub(super) mod connections;
mod content;
mod endpoints;
mod events;
pub(super) mod failure;
mod model;
pub(super) mod options;
mod pace;
pub(crate) mod record;
pub(crate) mod records;
mod remotes;
mod request;
mod response;
pub(super) mod retry;
mod stream;
#[cfg(test)]
mod tests;
mod usage;

pub use answers::{AnswerCounts, Cleared};
pub use connections::{Connections, Credential};
pub use model::RemoteModel;
pub use options::{Api, RemoteOptions};
pub use remotes::Remotes;
pub use request::{AnswerSource, RemoteRequest};
pub use response::RemoteCompletion;
pub use usage::UsageRow;
