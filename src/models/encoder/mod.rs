//! The BERT-family encoder: padding-free batches of texts to one vector each, on the CPU or on a GPU.

mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
mod weights;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

pub use cpu::CpuEncoder;
#[cfg(feature = "cuda")]
pub use gpu::GpuEncoder;
use serde::{Deserialize, Serialize};
pub use weights::{Source, tensor_prefix};

use super::config::EncoderConfig;
use super::device::{Device, Place};
use super::shared_forward::FORWARD_TOKENS;
use crate::error::{Error, Result};

/// How hidden states become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The mean over all tokens.
    Mean,
    /// The first token.
    Cls,
    /// The last token: what ends the text. There is no padding that could stand after it.
    Last,
    /// In each dimension the largest value of all tokens.
    Max,
}

/// Texts laid end to end, as tokens.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Ids, `N` of them.
    pub tokens: &'a [u32],
    /// The segment of each token, 0 for those of a single text.
    pub segments: &'a [u32],
    /// Tokens of each text, summing to `N`.
    pub lengths: &'a [usize],
}

/// An encoder in memory.
#[derive(Debug)]
#[cfg_attr(feature = "cuda", allow(clippy::large_enum_variant, reason = "there is one of a model"))]
pub enum Encoder {
    Cpu(CpuEncoder),
    #[cfg(feature = "cuda")]
    Gpu(GpuEncoder),
}

impl Encoder {
    /// Loads `config.json` and the safetensors of a directory, and gives the tensors that are not the encoder's.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], [`Error::NotSupported`] (not of the BERT family; a device that is not there).
    pub fn load(directory: &Path, device: Device) -> Result<(Self, Source)> {
        device.check()?;
        let (config, source) = (EncoderConfig::load(directory)?, Source::load(directory)?);
        #[cfg(feature = "cuda")]
        match (device.gpu()?, GpuEncoder::check(&config)) {
            (Some(gpu), Ok(())) => return Ok((Self::Gpu(GpuEncoder::new(gpu, config, &source)?), source)),
            (Some(_), Err(error)) if device != Device::Auto => return Err(error),
            _ => {}
        }
        Ok((Self::Cpu(CpuEncoder::new(config, &source)?), source))
    }

    /// Fails if this device cannot compute a model of this shape, or is not there.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check(config: &EncoderConfig, device: Device) -> Result<()> {
        device.check()?;
        #[cfg(feature = "cuda")]
        if let Device::Cuda(_) = device {
            return GpuEncoder::check(config);
        }
        // A CPU computes them all.
        let _ = config;
        Ok(())
    }

    /// Where [`Self::load`] would put a model of this shape.
    pub fn place(config: &EncoderConfig, device: Device) -> Place {
        #[cfg(feature = "cuda")]
        if let (Some(number), Ok(())) = (device.gpu_number(), GpuEncoder::check(config)) {
            return Place::Gpu(number);
        }
        // Without CUDA the CPU computes them all.
        let _ = (config, device);
        Place::Cpu
    }

    /// The shape of the model.
    pub fn config(&self) -> &EncoderConfig {
        match self {
            Self::Cpu(encoder) => encoder.config(),
            #[cfg(feature = "cuda")]
            Self::Gpu(encoder) => encoder.config(),
        }
    }

    /// The longest text, in tokens with the special ones.
    pub fn max_tokens(&self) -> usize {
        self.config().max_tokens()
    }

    /// Tokens of one forward.
    pub fn forward_tokens(&self) -> usize {
        match self {
            Self::Cpu(_) => FORWARD_TOKENS,
            #[cfg(feature = "cuda")]
            Self::Gpu(_) => gpu::FORWARD_TOKENS,
        }
    }

    /// One vector `[hidden]` per text, of length 1 if `normalise`.
    ///
    /// # Errors
    /// [`Error::Internal`] if an id, a segment or a length is out of range, which the tokenizer and the truncation prevent;
    /// [`Error::Tensor`] from a GPU.
    pub fn vectors(&self, batch: Batch<'_>, pooling: Pooling, normalise: bool) -> Result<Vec<f32>> {
        match self {
            Self::Cpu(encoder) => encoder.vectors(batch, pooling, normalise),
            #[cfg(feature = "cuda")]
            Self::Gpu(encoder) => encoder.vectors(batch, pooling, normalise),
        }
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Last => "last",
            Self::Max => "max",
        })
    }
}

impl FromStr for Pooling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "mean" => Ok(Self::Mean),
            "cls" => Ok(Self::Cls),
            "last" => Ok(Self::Last),
            "max" => Ok(Self::Max),
            other => Err(Error::InvalidParameter {
                name: "pooling".to_owned(),
                found: format!("'{other}'"),
                expected: "'mean', 'cls', 'last' or 'max'".to_owned(),
            }),
        }
    }
}

impl Batch<'_> {
    /// Fails unless the model can read it.
    fn check(&self, config: &EncoderConfig) -> Result<()> {
        let Self { tokens, segments, lengths } = self;
        let fits = lengths.iter().all(|length| *length <= config.max_tokens()) && lengths.iter().sum::<usize>() == tokens.len();
        let has_segments = segments.len() == tokens.len() && segments.iter().all(|id| (*id as usize) < config.type_vocab_size.max(1));
        if !fits || !has_segments || tokens.iter().any(|id| *id as usize >= config.vocab_size) {
            return Err(Error::Internal("the encoder got token ids, segments or lengths out of range".to_owned()));
        }
        Ok(())
    }

    /// For each token the row of its segment and position in the table of positions.
    fn places<'a>(&'a self, config: &'a EncoderConfig) -> impl Iterator<Item = usize> + 'a {
        let positions = self.lengths.iter().flat_map(|length| 0..*length);
        positions.zip(self.segments).map(|(position, segment)| *segment as usize * config.max_tokens() + position)
    }
}
