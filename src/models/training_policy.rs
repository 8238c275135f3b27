//! The decode runtime's side of a policy that is being trained: it writes with the weights of the moment, of which no version is on the disk.
//!
//! Each set of weights is a policy of its own for the model thread, with its own key-value caches: what was computed with other weights is never taken over.

use std::sync::Arc;

use super::chat_template::ChatTemplate;
use super::decoder::Decoder;
use super::kv_budget::KvBudget;
use super::owner::{LoadedPolicy, Owner};
use super::packed::PackedDecoder;
use super::policy_decoder::PolicyDecoder;
use super::registry::ModelInfo;
use super::runtime::Policy;
use super::tokenizer::Tokenizer;
use crate::error::Result;

/// Tokenizer, chat template and memory of a base, for the weights that training makes of it. They compute on the CPU, wherever they are trained.
#[derive(Debug)]
pub struct TrainingPolicy {
    info: Arc<ModelInfo>,
    tokenizer: Tokenizer,
    kv_budget: Arc<KvBudget>,
    owner: Owner,
}

impl TrainingPolicy {
    /// # Errors
    /// Those of the tokenizer's files.
    pub(super) fn new(info: ModelInfo, kv_budget: Arc<KvBudget>, owner: Owner) -> Result<Self> {
        let tokenizer = Tokenizer::load(&info.directory)?;
        Ok(Self { info: Arc::new(info), tokenizer, kv_budget, owner })
    }

    /// The base's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// A policy with the decoder's weights as they are, adapters added: a packed copy, which later changes of the decoder do not reach. It takes as much memory
    /// as the weights, until the last handle is dropped. Blocks while it packs.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::Error::Tensor); [`Error::Internal`](crate::Error::Internal) if the model thread has ended.
    pub fn with_weights(&self, decoder: &Decoder) -> Result<Policy> {
        // Wakes the model thread, which lets a copy go that nobody holds any more.
        self.owner.post(|| {})?;
        let decoder = PackedDecoder::new(decoder)?;
        let mut eos_token_ids = decoder.config().eos_token_ids.clone();
        eos_token_ids.extend(self.tokenizer.eos_token_id());
        let model = LoadedPolicy {
            decoder: PolicyDecoder::Cpu(Arc::new(decoder)),
            tokenizer: self.tokenizer.clone(),
            chat_template: ChatTemplate::of(&self.info).map_err(|error| error.to_string()),
            eos_token_ids,
            kv_budget: Arc::clone(&self.kv_budget),
            kv_counters: Arc::default(),
        };
        Ok(Policy::new(Arc::clone(&self.info), Arc::new(model), self.owner.clone()))
    }
}
