//! Policies behind servers that speak OpenAI's API (vLLM, SGLang, llama.cpp, OpenAI): no weights here, requests instead of forwards.
//!
//! A completion is asked for once: an answer is kept on the disk before anybody sees it (`answers`), equal requests in flight are one (`flights`), and
//! what fails is tried again (`retry`) at the server with the least to do (`endpoints`). Which hosts may be asked, and what a secret's value is, the
//! process around the models tells ([`Connections`]).

mod answers;
mod attempt;
mod connections;
mod endpoints;
mod failure;
mod flights;
mod model;
mod options;
mod pace;
mod record;
mod remotes;
mod request;
mod response;
mod retry;
#[cfg(test)]
mod tests;
mod usage;

pub use answers::AnswerCounts;
pub use connections::{Connections, Credential};
pub use model::RemoteModel;
pub use options::{Api, RemoteOptions};
pub use remotes::Remotes;
pub use request::RemoteRequest;
pub use response::RemoteCompletion;
pub use usage::UsageRow;
