//! The models: policies of the Qwen2, Qwen3 and Llama architectures, policies of servers, BERT-family embedders and cross-encoders in candle, their
//! tokenizers, versions on disk, and the thread that runs them in batches. Knows nothing of SQL and tables.

mod builtin;
mod cache;
mod calls;
pub mod chat_template;
pub mod checkpoint;
pub mod config;
pub mod decoder;
pub mod device;
pub mod device_decoder;
pub mod embedder;
pub mod embedder_settings;
pub mod encoded;
pub mod encoder;
pub mod generation;
pub mod gguf;
pub mod hub;
mod kv_budget;
pub mod kv_cache;
mod limits;
pub mod linear;
pub mod lora;
pub mod owner;
pub mod packed;
pub mod panels;
pub mod policy_decoder;
mod pool;
mod prefix_tree;
pub mod random;
pub mod registry;
pub mod remote;
pub mod reranker;
pub mod runtime;
mod sampling;
mod scheduler;
mod shared_forward;
mod shown;
mod source;
#[cfg(test)]
mod tests;
pub mod tokenizer;
mod tokenizer_growth;
pub mod weights;

pub use rolloutdb_kernels::{decoding, dots, encoding, kernel, ops, simd};

pub use calls::{CallCounts, Calls};
pub(crate) use calls::{count_kept_answers, count_retrieval, counted_here};
pub use config::{DecoderConfig, EncoderConfig};
pub use decoder::Decoder;
pub use device::{Device, Place};
pub use embedder::Embedder;
pub use embedder_settings::EmbedderSettings;
pub use generation::{Completion, Finish, GenerateRequest};
pub use limits::ModelLimits;
pub use lora::LoraOptions;
pub use pool::LoadedModel;
pub use registry::{CreateModel, ModelInfo, Registry, StagedModel, Task};
pub use reranker::Reranker;
pub use runtime::{Policy, Runtime};
pub use sampling::Sampler;
pub use tokenizer::Tokenizer;
