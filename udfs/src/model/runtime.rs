//! What the functions need from models.

use std::fmt::Debug;

use arrow::array::{FixedSizeListArray, Float64Array, StringArray};
use async_trait::async_trait;
use datafusion::error::Result;

/// What a text is embedded as; many retrieval models prefix the two differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EmbedKind {
    Query,
    Passage,
}

/// How to sample. The same prompt, model and options give the same text.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens to generate, >= 1.
    pub max_tokens: usize,
    /// >= 0; 0 takes the most probable token at each position.
    pub temperature: f64,
    /// Nucleus: share of the probability that is sampled from, in (0, 1].
    pub top_p: f64,
    pub seed: u64,
    /// Texts that end the generation, none empty.
    pub stop: Vec<String>,
    /// The most probable tokens to sample from; 0 is all.
    pub top_k: usize,
    /// Least probability of a token beside the most probable one's, in [0, 1]; 0 is any.
    pub min_p: f64,
    /// > 0; 1 changes nothing.
    pub repetition_penalty: f64,
}

impl Default for GenerateOptions {
    /// Greedy, up to 256 tokens.
    fn default() -> Self {
        Self { max_tokens: 256, temperature: 0.0, top_p: 1.0, seed: 0, stop: Vec::new(), top_k: 0, min_p: 0.0, repetition_penalty: 1.0 }
    }
}

/// Runs models by name, `name` or `name@version`. The caller may drop a future to cancel it.
#[async_trait]
pub trait ModelRuntime: Send + Sync + Debug {
    /// Width of the vectors of an embedding model, asked in planning.
    ///
    /// # Errors
    /// Unknown model, or one that does not embed.
    fn embedding_dim(&self, model: &str) -> Result<usize>;

    /// Told, when a batch is answered, of its inputs that stand beside an equal one, whose answer they have.
    fn note_repeats(&self, count: usize) {
        let _ = count;
    }

    /// One row per text, NULL for a NULL text, of type [`crate::vector::vector_type`]`(embedding_dim)`; vectors have length 1
    /// if the model says so.
    async fn embed(&self, model: &str, texts: &StringArray, kind: EmbedKind) -> Result<FixedSizeListArray>;

    /// One completion per prompt, without the prompt and without the stop text; NULL for a NULL prompt.
    async fn generate(&self, model: &str, prompts: &StringArray, options: GenerateOptions) -> Result<StringArray>;

    /// One text per conversation, a JSON array of messages; the column has no NULLs.
    async fn apply_chat_template(&self, model: &str, conversations: &StringArray, add_generation_prompt: bool) -> Result<StringArray>;

    /// One score per pair of `queries[i]` and `passages[i]`, larger if the passage answers the query better, NULL for a pair that the model cannot read;
    /// neither column has NULLs.
    async fn rerank(&self, model: &str, queries: &StringArray, passages: &StringArray) -> Result<Float64Array>;
}
