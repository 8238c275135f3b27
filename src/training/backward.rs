//! Forward and backward of one batch: the trunk block by block, the head by hand, their gradients put together.
//!
//! The head, of a vocabulary or a score, is never in an autograd graph. The trunk gives hidden states `[N, H]`; the rows that count pass the head with
//! hand-written derivatives; the trunk's gradient is that of `Σ hidden ⊙ d_hidden` with `d_hidden` held constant. How the trunk keeps
//! or recomputes its blocks is the decoder's business (`models/decoder.rs`).

use candle_core::Tensor;

use super::batch::Batch;
use super::gradients::Gradients;
use super::head::{DecoderHead, HeadGradients};
use super::trainer::Metrics;
use crate::error::Result;
use crate::models::decoder::Keep;
use crate::models::lora::LoraOptions;
use crate::models::ops::Arithmetic;
use crate::models::{Decoder, DecoderConfig};

/// Adds one batch's gradients to `sum` and returns its metrics.
///
/// `differentiate`: the head and the batch's rows `[R, H]`, detached, to the derivatives of the loss and the metrics. `recompute`:
/// whether the backward pass computes each block a second time instead of keeping its graph; the numbers are the same, bit by bit.
///
/// # Errors
/// [`Error::Internal`](crate::error::Error::Internal) if a parameter received no gradient; the error of `differentiate`.
pub(crate) fn add_batch<H: DecoderHead>(
    decoder: &Decoder,
    batch: &Batch,
    recompute: bool,
    differentiate: impl FnOnce(&H, &Tensor) -> Result<(HeadGradients, Metrics)>,
    sum: &mut Gradients,
) -> Result<Metrics> {
    let keep = if recompute { Keep::Inputs } else { Keep::Graphs };
    let (head, head_name) = (H::of(decoder)?, decoder.head_parameter());
    let forward = decoder.forward_blocks(&batch.tokens, &batch.layout, keep)?;
    let rows = Tensor::from_slice(&batch.rows, batch.rows.len(), forward.hidden.device())?;
    let counted = forward.hidden.index_select(&rows, 0)?; // [R, H]
    let (HeadGradients { d_hidden, mut d_weight, .. }, metrics) = differentiate(&head, &counted)?;
    let d_hidden = forward.hidden.zeros_like()?.index_add(&rows, &d_hidden, 0)?; // [N, H]
    decoder.backward_blocks(forward, &d_hidden, &mut |name, gradient| {
        // A tied head is the embedding: autograd saw one of its two uses.
        match d_weight.take_if(|_| head_name == Some(name)) {
            Some(d_weight) => sum.add_one(name, &(gradient + d_weight)?),
            None => sum.add_one(name, gradient),
        }
    })?;
    if let (Some(name), Some(d_weight)) = (head_name, &d_weight) {
        sum.add_one(name, d_weight)?;
    }
    sum.require_all(decoder.parameters())?;
    Ok(metrics)
}

/// The hidden states `[R, H]` of the batch's rows, without a graph and with the activations of one block at a time.
///
/// # Errors
/// As [`Decoder::hidden`].
pub(crate) fn rows(decoder: &Decoder, batch: &Batch) -> Result<Tensor> {
    let hidden = decoder.forward_blocks(&batch.tokens, &batch.layout, Keep::Nothing)?.hidden;
    let rows = Tensor::from_slice(&batch.rows, batch.rows.len(), hidden.device())?;
    Ok(hidden.index_select(&rows, 0)?)
}

/// Bytes of the activations of a batch of so many tokens when every block's graph is kept. Where the lowest adapter is not in the first block, it is less.
///
/// `lora`: adapters that the decoder can have; others count nothing.
pub(crate) fn activation_bytes(config: &DecoderConfig, lora: Option<&LoraOptions>, arithmetic: Arithmetic, num_tokens: usize) -> usize {
    let (hidden, query, key_value) = (config.hidden_size, config.query_width(), config.key_value_width());
    let normed_heads = if config.architecture.has_query_key_norm() { query + key_value } else { 0 };
    let (wide, narrow, narrow_bytes) = match arithmetic {
        // The input, both norms, the result of attention, of the MLP, and the sums after them; gate, up and their product; queries
        // before and after rotation and what attention mixes; keys before and after rotation and values. Norms of heads keep one more tensor each.
        Arithmetic::Fused => (7 * hidden + 3 * config.intermediate_size + 3 * (query + key_value) + normed_heads, 0, 0),
        Arithmetic::Plain(dtype) => (
            // In f32: the input, what is added to it twice and the sums; of a norm squares, quotient and product; queries and keys on their way through the
            // rotation.
            11 * hidden + 4 * (query + key_value) + 3 * normed_heads,
            // In the type of the products: what five of them read; queries, keys and values before and after their bias, rotated, and mixed; the results of
            // attention and MLP; gate, before and after its function, up and their product.
            7 * hidden + 4 * query + 5 * key_value + 4 * config.intermediate_size,
            dtype.size_in_bytes(),
        ),
    };
    // The embedded tokens, and the last norm with a copy of its input.
    let ends = 3 * hidden;
    let layers = config.num_hidden_layers;
    let adapters = lora.and_then(|lora| lora.num_activations(config).ok()).unwrap_or(0);
    let adapter_bytes = adapters * if narrow_bytes > 0 { narrow_bytes } else { size_of::<f32>() };
    num_tokens * (size_of::<f32>() * (layers * wide + ends) + layers * narrow * narrow_bytes + adapter_bytes)
}
