//! The decoder of a policy that is in memory here: on the CPU, or on a GPU.

use std::sync::Arc;

use super::config::DecoderConfig;
use super::device::{Device, Place};
use super::device_decoder::DeviceDecoder;
use super::gguf::GgufInfo;
use super::kv_budget::KvShare;
use super::packed::PackedDecoder;
use super::registry::ModelInfo;
use super::scheduler::{Decode, Schedule, Scheduler};
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};

/// What computes a policy.
#[derive(Debug, Clone)]
pub enum PolicyDecoder {
    Cpu(Arc<PackedDecoder>),
    Device(Arc<DeviceDecoder>),
}

impl PolicyDecoder {
    /// Loads a policy's files to where they compute.
    ///
    /// # Errors
    /// Those of [`Self::check`], of [`PackedDecoder::load`] and of [`DeviceDecoder::load`].
    pub fn load(info: &ModelInfo) -> Result<Self> {
        Self::check(info.gguf.as_ref(), info.device)?;
        #[cfg(feature = "cuda-policies")]
        if let Place::Gpu(number) = Self::place(info) {
            let device = super::device::candle_gpu(number)?;
            return Ok(Self::Device(Arc::new(DeviceDecoder::load(&info.directory, &device, candle_core::DType::BF16)?)));
        }
        Ok(Self::Cpu(Arc::new(PackedDecoder::load(&info.directory)?)))
    }

    /// Fails if this device cannot compute a policy whose weights are in a GGUF file, or are not, or is not there.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check(gguf: Option<&GgufInfo>, device: Device) -> Result<()> {
        match (device, gguf) {
            (Device::Cuda(_), Some(_)) => Err(Error::NotSupported(format!(
                "device = '{device}': a policy of a GGUF file computes on the CPU; leave the option out, say 'cpu', or make a model of the safetensors that \
                 the file was converted from"
            ))),
            (Device::Cuda(_), None) if !cfg!(feature = "cuda-policies") => Err(Error::NotSupported(format!(
                "device = '{device}': in this program a model that generates runs on the CPU; leave the option out, say 'cpu', or build one with the \
                 feature cuda-policies"
            ))),
            _ => device.check(),
        }
    }

    /// Where [`Self::load`] would put a policy.
    pub fn place(info: &ModelInfo) -> Place {
        #[cfg(feature = "cuda-policies")]
        if let (Some(number), None) = (info.device.gpu_number(), &info.gguf) {
            return Place::Gpu(number);
        }
        // Without the feature the CPU computes them all.
        let _ = info;
        Place::Cpu
    }

    /// The shape of the model.
    pub fn config(&self) -> &DecoderConfig {
        match self {
            Self::Cpu(decoder) => decoder.config(),
            Self::Device(decoder) => decoder.config(),
        }
    }

    /// A scheduler of its sequences, without work. They end at any of the `eos_token_ids`.
    pub fn scheduler(&self, tokenizer: Tokenizer, eos_token_ids: Vec<u32>, memory: KvShare) -> Box<dyn Schedule> {
        match self {
            Self::Cpu(decoder) => Box::new(Scheduler::new(Arc::clone(decoder), tokenizer, eos_token_ids, memory)),
            Self::Device(decoder) => Box::new(Scheduler::new(Arc::clone(decoder), tokenizer, eos_token_ids, memory)),
        }
    }
}
