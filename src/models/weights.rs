//! Safetensors files: reading single files and shards, writing one file that transformers loads.
//!
//! Everything becomes f32: on a CPU bf16 arithmetic is emulated and f16 is converted on every use. Policies there keep what bf16 can hold in it (`panels.rs`).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, TensorInfo, View};
use serde_json::Value;

use super::config::read_json;
use super::decoding::decode;
use super::encoding::Encoding;
use super::gguf;
use super::shown::shown;
use crate::error::{Error, Result};
use crate::sha256;

/// File name of the weights in a model directory.
pub const WEIGHTS_FILE: &str = "model.safetensors";
pub(super) const INDEX_FILE: &str = "model.safetensors.index.json";

/// The longest header that the format has; a file of that size may say more.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// Name and shape of every tensor of a checkpoint.
pub type TensorShapes = BTreeMap<String, Vec<usize>>;

/// The weights of a checkpoint by name, each of which is read when it is asked for.
#[derive(Debug)]
pub struct Weights {
    /// The directory or the file, for messages.
    source: PathBuf,
    tensors: BTreeMap<String, Stored>,
}

/// Where the numbers of a tensor are.
#[derive(Debug)]
struct Stored {
    file: Arc<WeightFile>,
    info: TensorInfo,
    dtype: DType,
}

/// A safetensors file whose header was read.
#[derive(Debug)]
struct WeightFile {
    path: PathBuf,
    file: File,
    /// Bytes before the weights.
    header_bytes: u64,
}

impl Weights {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` lists, and reads what their headers say.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::Damaged`] if it is corrupt, or shorter or longer than its header says.
    pub fn open(directory: &Path) -> Result<Self> {
        Self::of(directory, &weight_files(directory)?)
    }

    /// Opens one safetensors file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_file(path: &Path) -> Result<Self> {
        Self::of(path, &[path.to_owned()])
    }

    fn of(source: &Path, files: &[PathBuf]) -> Result<Self> {
        let mut tensors = BTreeMap::new();
        for path in files {
            let (file, metadata) = WeightFile::open(path)?;
            let file = Arc::new(file);
            for (name, info) in metadata.tensors() {
                // Position ids and other integer buffers of old checkpoints are not weights.
                if let Some(dtype) = float_type(info.dtype) {
                    tensors.insert(name, Stored { file: Arc::clone(&file), info: info.clone(), dtype });
                }
            }
        }
        Ok(Self { source: source.to_owned(), tensors })
    }

    /// The names of the weights that were not taken, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether the checkpoint has this tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The numbers of a tensor, row by row, as f32.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is absent or of another shape, [`Error::Io`] if it cannot be read.
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.find(name, shape)?.values()
    }

    /// Takes a tensor out, as f32 on `device`: those that are left ([`Self::names`]) were not asked for.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn take(&mut self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor> {
        let values = self.values(name, shape)?;
        self.tensors.remove(name);
        Ok(Tensor::from_vec(values, shape, device)?)
    }

    fn find(&self, name: &str, shape: &[usize]) -> Result<&Stored> {
        let found = self.tensors.get(name);
        check_shape(&self.source, name, found.map(|stored| stored.info.shape.as_slice()), shape)?;
        found.ok_or_else(|| missing(&self.source, name))
    }
}

impl Stored {
    fn values(&self) -> Result<Vec<f32>> {
        let (start, end) = self.info.data_offsets;
        let bytes = self.file.read(start, end)?;
        let encoding = match self.dtype {
            DType::BF16 => Encoding::Bf16,
            DType::F16 => Encoding::F16,
            other => {
                return Ok(Tensor::from_raw_buffer(&bytes, other, &[self.num_values()], &Device::Cpu)?.to_dtype(DType::F32)?.to_vec1()?);
            }
        };
        let mut values = vec![0.0; self.num_values()];
        decode(encoding, &bytes, &mut values);
        Ok(values)
    }

    fn num_values(&self) -> usize {
        self.info.shape.iter().product()
    }
}

impl WeightFile {
    /// What a header says is believed only as far as the file has the bytes for it: the sizes of tensors are multiplied with care, and nothing is allocated by
    /// them.
    fn open(path: &Path) -> Result<(Self, Metadata)> {
        let file = File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let (header, data_bytes) = read_header(path, &file)?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| damaged(path, shown(&error.to_string())))?;
        if metadata.data_len() as u64 != data_bytes {
            let reason = format!("it has {data_bytes} bytes of weights, its header says {}", metadata.data_len());
            return Err(damaged(path, reason));
        }
        let header_bytes = size_of::<u64>() + header.len();
        Ok((Self { path: path.to_owned(), file, header_bytes: header_bytes as u64 }, metadata))
    }

    /// The bytes of the weights from `start` to `end`, which the file was seen to have.
    fn read(&self, start: usize, end: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; end - start];
        let read = self.file.read_exact_at(&mut bytes, self.header_bytes + start as u64);
        read.map_err(|source| Error::Io { path: self.path.clone(), source })?;
        Ok(bytes)
    }
}

/// Names and shapes of the weights in a checkpoint, from the file headers only: tensors of other types than floats are none.
///
/// # Errors
/// As [`Weights::open`].
pub fn read_shapes(directory: &Path) -> Result<TensorShapes> {
    Ok(Weights::open(directory)?.tensors.into_iter().map(|(name, stored)| (name, stored.info.shape)).collect())
}

/// Numbers of a checkpoint that are stored in bf16 in tensors of two dimensions or more, from the file headers only.
///
/// # Errors
/// As [`read_shapes`].
pub fn num_halves(directory: &Path) -> Result<u64> {
    let weights = Weights::open(directory)?;
    let halves = weights.tensors.values().filter(|stored| stored.dtype == DType::BF16 && stored.info.shape.len() > 1);
    Ok(halves.map(|stored| stored.num_values() as u64).sum())
}

/// Refuses a checkpoint in which an expected tensor is absent or of another shape.
///
/// # Errors
/// [`Error::Damaged`], naming the tensor.
pub fn check_shapes(directory: &Path, found: &TensorShapes, expected: &[(String, Vec<usize>)]) -> Result<()> {
    for (name, shape) in expected {
        check_shape(directory, name, found.get(name).map(Vec::as_slice), shape)?;
    }
    Ok(())
}

/// Writes f32 tensors to `directory/model.safetensors` with the metadata `format = pt` that transformers asks for.
///
/// # Errors
/// [`Error::Io`], [`Error::Tensor`].
pub fn save<'a>(directory: &Path, tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<()> {
    save_file(&directory.join(WEIGHTS_FILE), tensors)
}

/// As [`save`], to a file of any name.
///
/// # Errors
/// As [`save`].
pub fn save_file<'a>(path: &Path, tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>) -> Result<()> {
    let views = tensors.into_iter().map(|(name, tensor)| Ok((name, FloatView::new(tensor)?))).collect::<Result<Vec<_>>>()?;
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(metadata), path).map_err(|error| match error {
        SafeTensorError::IoError(source) => Error::Io { path: path.to_owned(), source },
        other => Error::Internal(format!("writing {}: {other}", path.display())),
    })
}

/// The digest of a model's weights, see [`super::ModelInfo::digest`].
///
/// # Errors
/// [`Error::Io`], [`Error::Damaged`] for an index that names no files.
pub fn weights_digest(directory: &Path) -> Result<String> {
    let files = match gguf::file(directory) {
        Some(file) => vec![file],
        None => weight_files(directory)?,
    };
    sha256::of_files(&files).map_err(|source| Error::Io { path: directory.to_owned(), source })
}

fn weight_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let index_path = directory.join(INDEX_FILE);
    if !index_path.exists() {
        return Ok(vec![directory.join(WEIGHTS_FILE)]);
    }
    let index = read_json(&index_path)?;
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Err(damaged(&index_path, "the field \"weight_map\" is missing"));
    };
    let mut names: Vec<&str> = map.values().filter_map(Value::as_str).collect();
    names.sort_unstable();
    names.dedup();
    // A shard is a file of this directory, never a path out of it.
    match names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
        Some(name) => Err(damaged(&index_path, format!("\"{}\" is not a file name", shown(name)))),
        None => Ok(names.into_iter().map(|name| directory.join(name)).collect()),
    }
}

/// The JSON header, and the number of bytes that follow it.
fn read_header(path: &Path, mut file: &File) -> Result<(Vec<u8>, u64)> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let total = file.metadata().map_err(io)?.len();
    let mut prefix = [0_u8; size_of::<u64>()];
    if total < prefix.len() as u64 {
        return Err(damaged(path, "the file is too short to have a header"));
    }
    file.read_exact(&mut prefix).map_err(io)?;
    let header_bytes = u64::from_le_bytes(prefix);
    let data_bytes = total.checked_sub(prefix.len() as u64).and_then(|rest| rest.checked_sub(header_bytes));
    let Some(data_bytes) = data_bytes else {
        return Err(damaged(path, format!("its header would be {header_bytes} bytes, the file has {total}")));
    };
    if header_bytes > HEADER_BYTES_MAX {
        return Err(damaged(path, format!("its header would be {header_bytes} bytes, the format has at most {HEADER_BYTES_MAX}")));
    }
    let mut header = Vec::new();
    file.take(header_bytes).read_to_end(&mut header).map_err(io)?;
    Ok((header, data_bytes))
}

fn check_shape(directory: &Path, name: &str, found: Option<&[usize]>, expected: &[usize]) -> Result<()> {
    match found {
        Some(shape) if shape == expected => Ok(()),
        Some(shape) => {
            // A header may list any number of dimensions.
            let found = shown(&format!("{shape:?}"));
            Err(damaged(directory, format!("tensor \"{name}\" has shape {found}, the configuration says {expected:?}")))
        }
        None => Err(missing(directory, name)),
    }
}

fn missing(directory: &Path, name: &str) -> Error {
    damaged(directory, format!("tensor \"{name}\" is missing"))
}

fn damaged(path: &Path, reason: impl ToString) -> Error {
    Error::Damaged { path: path.to_owned(), reason: reason.to_string() }
}

fn float_type(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::F64 => Some(DType::F64),
        _ => None,
    }
}

/// A tensor's values as the bytes of a safetensors file.
struct FloatView {
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl FloatView {
    fn new(tensor: &Tensor) -> Result<Self> {
        let values = tensor.flatten_all()?.to_vec1::<f32>()?;
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(Self { shape: tensor.dims().to_vec(), bytes })
    }
}

impl View for FloatView {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
