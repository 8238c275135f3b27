//! The weights of a GGUF file, by Hugging Face's names and in Hugging Face's order of rows.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::config::{ROPE_FACTORS, decoder_config, tensor_name};
use super::header::{Header, TensorInfo, TensorType};
use super::{GgufInfo, damaged};
use crate::error::{Error, Result};
use crate::models::config::{DecoderArchitecture, DecoderConfig};
use crate::models::decoding::decode;
use crate::models::encoded::EncodedMatrix;
use crate::models::linear::Matrix;
use crate::models::packed::WeightSource;
use crate::models::shown::shown;

/// A file whose header was read and is that of a decoder; the weights are read one by one.
#[derive(Debug)]
pub struct GgufWeights {
    header: Header,
    config: DecoderConfig,
    frequencies: Vec<f64>,
    file: File,
}

impl GgufWeights {
    /// Reads the header of a file and checks the name and shape of every tensor.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] for a broken file, a missing tensor, a wrong shape; [`Error::NotSupported`] for another architecture, a
    /// feature that is not computed, and a type of tensors that is not read.
    pub fn open(path: &Path) -> Result<Self> {
        let header = Header::read(path)?;
        let config = decoder_config(&header)?;
        check_tensors(&header, &config)?;
        let file = File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let mut weights = Self { frequencies: config.rope.frequencies(config.head_dim), header, config, file };
        weights.divide_frequencies()?;
        Ok(weights)
    }

    /// The shape of the model.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// How the weights are stored.
    pub fn info(&self) -> GgufInfo {
        let tensors = self.header.tensors().values();
        let types: BTreeSet<TensorType> = tensors.clone().map(|info| info.kind).collect();
        GgufInfo {
            weight_bytes: tensors.map(|info| info.bytes as u64).sum(),
            tensor_types: types.into_iter().map(|kind| kind.name().to_owned()).collect(),
        }
    }

    /// Llama 3.1's scaling is not in the metadata, but a tensor of what each frequency is divided by.
    fn divide_frequencies(&mut self) -> Result<()> {
        let Some(info) = self.header.tensors().get(ROPE_FACTORS) else { return Ok(()) };
        let refuse = || {
            let expected = format!("{} positive numbers", self.frequencies.len());
            damaged(self.header.path(), format!("the tensor \"{ROPE_FACTORS}\" is not {expected}"))
        };
        // Before it is read: its shape is not one that the configuration asks for.
        if info.shape != [self.frequencies.len()] {
            return Err(refuse());
        }
        let factors = values(info.kind, &self.bytes(info)?);
        if !factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            return Err(refuse());
        }
        self.frequencies.iter_mut().zip(&factors).for_each(|(frequency, factor)| *frequency /= f64::from(*factor));
        Ok(())
    }

    /// The tensor that Hugging Face calls `name`.
    fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        let found = tensor_name(name).and_then(|name| self.header.tensors().get(&name));
        found.ok_or_else(|| Error::Internal(format!("the file was opened without the tensor {name}")))
    }

    /// The bytes of a tensor, which the file was seen to have.
    fn bytes(&self, info: &TensorInfo) -> Result<Vec<u8>> {
        let mut bytes = vec![0; info.bytes];
        let mut file = &self.file;
        let read = file.seek(SeekFrom::Start(info.start)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|source| Error::Io { path: self.header.path().to_owned(), source })?;
        Ok(bytes)
    }

    /// Whether the rows of a matrix are not in Hugging Face's order.
    fn is_interleaved(&self, name: &str) -> bool {
        let is_rotated = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
        is_rotated && self.config.architecture == DecoderArchitecture::Llama
    }
}

impl WeightSource for GgufWeights {
    fn config(&self) -> &DecoderConfig {
        &self.config
    }

    fn frequencies(&self) -> Vec<f64> {
        self.frequencies.clone()
    }

    fn vector(&self, name: &str) -> Result<Vec<f32>> {
        let info = self.tensor(name)?;
        Ok(values(info.kind, &self.bytes(info)?))
    }

    fn matrix(&self, name: &str) -> Result<Matrix> {
        let info = self.tensor(name)?;
        let mut bytes = self.bytes(info)?;
        if self.is_interleaved(name) {
            bytes = halves_together(&bytes, info.bytes / info.shape[0], self.config.head_dim);
        }
        match info.kind {
            TensorType::F32 => Ok(Matrix::Values(values(info.kind, &bytes))),
            TensorType::Encoded(encoding) => {
                let matrix = EncodedMatrix::new(encoding, info.shape[1], bytes);
                matrix.map(Matrix::Encoded).ok_or_else(|| Error::Internal(format!("the tensor {name} is not whole rows")))
            }
        }
    }
}

/// Refuses a file in which a tensor is absent, of another shape, or one that the decoder does not have: a bias that is left out would change the
/// numbers.
fn check_tensors(header: &Header, config: &DecoderConfig) -> Result<()> {
    let mut expected = BTreeSet::new();
    for (name, shape) in config.tensor_shapes() {
        let name = tensor_name(&name).ok_or_else(|| Error::Internal(format!("GGUF has no name for the tensor {name}")))?;
        let wrong = |reason: String| Err(damaged(header.path(), format!("tensor \"{name}\" {reason}")));
        match header.tensors().get(&name) {
            Some(info) if info.shape == shape => {}
            Some(info) => return wrong(format!("has shape {:?}, the metadata say {shape:?}", info.shape)),
            None => return wrong("is missing".to_owned()),
        }
        expected.insert(name);
    }
    if config.architecture == DecoderArchitecture::Llama {
        expected.insert(ROPE_FACTORS.to_owned());
    }
    match header.tensors().keys().find(|name| !expected.contains(*name)) {
        Some(name) => {
            let (path, kind, name) = (header.path().display(), config.architecture.model_type(), shown(name));
            Err(Error::NotSupported(format!("{path}: the tensor \"{name}\" is none of a model of type \"{kind}\"")))
        }
        None => Ok(()),
    }
}

/// The values of a whole tensor.
fn values(kind: TensorType, bytes: &[u8]) -> Vec<f32> {
    match kind {
        TensorType::F32 => bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        TensorType::Encoded(encoding) => {
            let mut values = vec![0.0; bytes.len() / encoding.block_bytes() * encoding.block_values()];
            decode(encoding, bytes, &mut values);
            values
        }
    }
}

/// The rows of queries or keys of a llama as Hugging Face has them. The pairs of a head that are rotated together are there the rows `i` of its
/// two halves; llama.cpp's converter writes them side by side.
fn halves_together(bytes: &[u8], row_bytes: usize, head_dim: usize) -> Vec<u8> {
    let mut rows = Vec::with_capacity(bytes.len());
    for head in bytes.chunks_exact(head_dim * row_bytes) {
        for half in 0..2 {
            for pair in 0..head_dim / 2 {
                rows.extend_from_slice(&head[(2 * pair + half) * row_bytes..][..row_bytes]);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_back_to_their_halves() {
        // Two heads of three pairs, rows of two bytes; the converter's order, from its definition.
        let [heads, pairs, row_bytes] = [2, 3, 2];
        let row = |index: usize| [index as u8, 100 + index as u8];
        let original: Vec<u8> = (0..heads * 2 * pairs).flat_map(row).collect();
        let mut written = vec![0; original.len()];
        for head in 0..heads {
            for half in 0..2 {
                for pair in 0..pairs {
                    let (from, to) = ((head * 2 + half) * pairs + pair, (head * pairs + pair) * 2 + half);
                    written[to * row_bytes..][..row_bytes].copy_from_slice(&row(from));
                }
            }
        }
        assert_ne!(written, original);
        assert_eq!(halves_together(&written, row_bytes, 2 * pairs), original);
    }
}
