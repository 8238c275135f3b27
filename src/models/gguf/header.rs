//! The header of a GGUF file: metadata, and the name, type, shape and place of every tensor.
//!
//! What a header says is believed only as far as the file has the bytes for it: lengths and counts are compared with what is left, sizes are
//! multiplied with care, tensors lie inside the file and none lies on another. So the weights of a model take no more memory than its file has bytes, and
//! its header at most [`MEMORY_MAX`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::damaged;
use crate::error::{Error, Result};
use crate::models::encoding::Encoding;
use crate::models::shown::shown;

const MAGIC: [u8; 4] = *b"GGUF";
/// Of the metadata and the list of tensors: ten times those of the largest vocabularies.
const HEADER_BYTES_MAX: u64 = 128 << 20;
/// Keys of the metadata: fifty times those of the files that llama.cpp writes, which have 20 to 60.
const VALUES_MAX: u64 = 1 << 12;
/// Eight times those of the largest models of llama.cpp, which have fewer than 2,000.
const TENSORS_MAX: u64 = 1 << 14;
/// Of all lists of the metadata together; each takes some dozens of bytes in memory, however few it has in the file. Three times those of the largest
/// vocabularies, if one had a quarter of a million tokens with scores and kinds, and half a million merges too.
const ELEMENTS_MAX: u64 = 1 << 22;
/// Bytes of memory of all that is read of a header: three times those of such a vocabulary, whose elements and texts take some 60 MB.
const MEMORY_MAX: u64 = 192 << 20;
/// Of these, what a key takes beside its value, and what a tensor takes beside its name: in the list, in the map, and by its place.
const ENTRY_BYTES: u64 = 512;
/// The least that a text takes.
const TEXT_BYTES: u64 = 16;
/// The bytes of U+FFFD.
const REPLACEMENT_BYTES: usize = char::REPLACEMENT_CHARACTER.len_utf8();
const DIMENSIONS_MAX: u32 = 4;
/// Where tensors begin if the file does not say it.
const ALIGNMENT: i64 = 32;
const ALIGNMENT_MAX: i64 = 1 << 20;
/// A size beyond this is damage, not a model, as in `config.json`.
const SIZE_MAX: usize = 1 << 24;

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of any width; one beyond 63 bits is the largest.
    Integer(i64),
    Number(f64),
    Flag(bool),
    Text(String),
    List(Vec<Value>),
}

/// How a tensor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TensorType {
    F32,
    Encoded(Encoding),
}

/// A tensor in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    pub kind: TensorType,
    /// The last dimension lies side by side in the file: `[output, input]` of a matrix.
    pub shape: Vec<usize>,
    /// First byte in the file.
    pub start: u64,
    pub bytes: usize,
}

/// The header of a file.
#[derive(Debug)]
pub struct Header {
    path: PathBuf,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl TensorType {
    /// By the number of `ggml_type`.
    fn of(number: u32) -> Option<Self> {
        Some(Self::Encoded(match number {
            0 => return Some(Self::F32),
            1 => Encoding::F16,
            2 => Encoding::Q4_0,
            3 => Encoding::Q4_1,
            6 => Encoding::Q5_0,
            7 => Encoding::Q5_1,
            8 => Encoding::Q8_0,
            12 => Encoding::Q4K,
            13 => Encoding::Q5K,
            14 => Encoding::Q6K,
            30 => Encoding::Bf16,
            _ => return None,
        }))
    }

    /// As GGUF names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::Encoded(encoding) => encoding.name(),
        }
    }

    /// Bytes of so many values; `None` if they are not whole blocks, or beyond all memory.
    fn bytes(self, values: usize) -> Option<usize> {
        match self {
            Self::F32 => values.checked_mul(size_of::<f32>()),
            Self::Encoded(encoding) => encoding.bytes(values),
        }
    }
}

impl Header {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] if it is no such file, or not all there; [`Error::NotSupported`] for another version of the format and
    /// for tensors of a type that is not read.
    pub fn read(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        let mut reader = Reader { file: BufReader::new(file), left: file_bytes.min(HEADER_BYTES_MAX), num_elements: 0, memory: 0, path };
        let all = reader.left;
        reader.begin()?;
        let (num_tensors, num_values) = (reader.count("tensors", TENSORS_MAX)?, reader.count("keys", VALUES_MAX)?);
        let metadata = reader.metadata(num_values)?;
        let listed = (0..num_tensors).map(|_| reader.tensor()).collect::<Result<Vec<_>>>()?;
        let mut header = Self { path: path.to_owned(), metadata, tensors: BTreeMap::new() };
        let alignment = header.alignment()?;
        let data = Data { start: (all - reader.left).next_multiple_of(alignment), alignment, file_bytes };
        for tensor in listed {
            let (name, info) = header.place(tensor, &data)?;
            match header.tensors.entry(name) {
                Entry::Vacant(free) => free.insert(info),
                Entry::Occupied(known) => return Err(damaged(path, format!("it has the tensor \"{}\" twice", shown(known.key())))),
            };
        }
        header.check_places()?;
        Ok(header)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors, by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// A text of the metadata.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is something else.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.get(key, "a text", as_text)
    }

    /// A size or a number of things.
    ///
    /// # Errors
    /// As [`Self::text`], also for a number that is no size.
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        let size = |value: &Value| {
            let Value::Integer(integer) = value else { return None };
            usize::try_from(*integer).ok().filter(|size| *size <= SIZE_MAX)
        };
        self.get(key, &format!("a whole number up to {SIZE_MAX}"), size)
    }

    /// The number of a token; one below zero is none.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn token(&self, key: &str) -> Result<Option<u32>> {
        let integer = |value: &Value| if let Value::Integer(integer) = value { Some(*integer) } else { None };
        // Written as 32 bits without a sign, the number -1 is 2^32 - 1.
        let token = |integer: i64| u32::try_from(integer).ok().filter(|id| *id < u32::MAX);
        Ok(self.get(key, "a token id", integer)?.and_then(token))
    }

    /// A number, whole or not.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let number = |value: &Value| match value {
            Value::Number(number) => Some(*number),
            Value::Integer(integer) => Some(*integer as f64),
            _ => None,
        };
        self.get(key, "a number", number)
    }

    /// True or false.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.get(key, "true or false", |value| if let Value::Flag(flag) = value { Some(*flag) } else { None })
    }

    /// A list of texts.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.get(key, "a list of texts", |value| as_list(value)?.iter().map(as_text).collect())
    }

    /// A list of whole numbers.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>> {
        let integer = |value: &Value| if let Value::Integer(integer) = value { Some(*integer) } else { None };
        self.get(key, "a list of whole numbers", |value| as_list(value)?.iter().map(integer).collect())
    }

    fn get<'a, T>(&'a self, key: &str, expected: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let wrong = || {
            let found = match value {
                Value::Integer(integer) => integer.to_string(),
                Value::Number(number) => number.to_string(),
                Value::Flag(flag) => flag.to_string(),
                Value::Text(_) => "a text".to_owned(),
                Value::List(_) => "a list".to_owned(),
            };
            damaged(&self.path, format!("\"{key}\" is {found}, expected {expected}"))
        };
        read(value).map(Some).ok_or_else(wrong)
    }

    fn alignment(&self) -> Result<u64> {
        let key = "general.alignment";
        let power = |value: &Value| {
            let Value::Integer(integer) = value else { return None };
            (1..=ALIGNMENT_MAX).contains(integer).then(|| integer.cast_unsigned()).filter(|integer| integer.is_power_of_two())
        };
        let given = self.get(key, &format!("a power of two up to {ALIGNMENT_MAX}"), power)?;
        Ok(given.unwrap_or(ALIGNMENT.cast_unsigned()))
    }

    /// Where a tensor is, if the file can have it there.
    fn place(&self, tensor: ListedTensor, data: &Data) -> Result<(String, TensorInfo)> {
        let ListedTensor { name, dimensions, type_number, offset } = tensor;
        let wrong = |reason: String| damaged(&self.path, format!("the tensor \"{}\" {reason}", shown(&name)));
        let kind = TensorType::of(type_number).ok_or_else(|| self.unknown_type(&name, type_number))?;
        // The file lists the dimension first whose values lie side by side.
        let shape: Option<Vec<usize>> = dimensions.iter().rev().map(|size| usize::try_from(*size).ok().filter(|size| *size > 0)).collect();
        let values = shape.as_ref().and_then(|shape| shape.iter().try_fold(1_usize, |values, size| values.checked_mul(*size)));
        let (Some(shape), Some(values)) = (shape, values) else { return Err(wrong(format!("would have the shape {dimensions:?}"))) };
        let row = shape.last().copied().unwrap_or(1);
        // Whole blocks of each row are whole blocks of all.
        let (Some(_), Some(bytes)) = (kind.bytes(row), kind.bytes(values)) else {
            return Err(wrong(format!("has rows of {row} values, which are not whole blocks of {}", kind.name())));
        };
        if !offset.is_multiple_of(data.alignment) {
            return Err(wrong(format!("begins at {offset}, which is no multiple of {}", data.alignment)));
        }
        let start = data.start.checked_add(offset);
        match start.filter(|start| start.checked_add(bytes as u64).is_some_and(|end| end <= data.file_bytes)) {
            Some(start) => Ok((name, TensorInfo { kind, shape, start, bytes })),
            None => Err(wrong(format!("would have {bytes} bytes from {offset} on, the file has {}", data.file_bytes))),
        }
    }

    /// Tensors on one another would take more memory than the file has bytes.
    fn check_places(&self) -> Result<()> {
        let mut places: Vec<_> = self.tensors.iter().map(|(name, info)| (info.start, info.bytes as u64, name)).collect();
        places.sort_unstable();
        match places.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            Some(pair) => {
                let [one, other] = [shown(pair[0].2), shown(pair[1].2)];
                Err(damaged(&self.path, format!("the tensors \"{one}\" and \"{other}\" lie on one another")))
            }
            None => Ok(()),
        }
    }

    fn unknown_type(&self, name: &str, number: u32) -> Error {
        let found = type_name(number).map_or_else(|| format!("number {number}"), str::to_owned);
        let known: Vec<&str> = ["F32"].into_iter().chain(Encoding::ALL.map(Encoding::name)).collect();
        let (path, name) = (self.path.display(), shown(name));
        Error::NotSupported(format!(
            "{path}: the tensor \"{name}\" is of type {found}; supported: {}; take a file in Q8_0 or Q4_K_M of the model",
            known.join(", ")
        ))
    }
}

/// Where the tensors are.
struct Data {
    start: u64,
    alignment: u64,
    file_bytes: u64,
}

/// A tensor as the header lists it.
struct ListedTensor {
    name: String,
    dimensions: Vec<u64>,
    type_number: u32,
    /// From the start of the tensors.
    offset: u64,
}

/// Reads the parts of a header.
struct Reader<'a> {
    file: BufReader<File>,
    /// Bytes that the header may still have.
    left: u64,
    /// Of the lists so far.
    num_elements: u64,
    /// Bytes that what was read takes.
    memory: u64,
    path: &'a Path,
}

impl Reader<'_> {
    /// The magic bytes and the version.
    fn begin(&mut self) -> Result<()> {
        if self.left < MAGIC.len() as u64 || self.take::<4>()? != MAGIC {
            return Err(damaged(self.path, "it does not begin as a GGUF file"));
        }
        match self.u32()? {
            2 | 3 => Ok(()),
            version => {
                // Of a machine that writes the most significant byte first, the version has its bytes the other way round.
                let which = if (1..=3).contains(&version.swap_bytes()) { "big-endian".to_owned() } else { format!("of version {version}") };
                let path = self.path.display();
                Err(Error::NotSupported(format!("{path}: GGUF files that are {which} are not supported; convert the model anew")))
            }
        }
    }

    /// How many there are of something.
    fn count(&mut self, what: &str, max: u64) -> Result<u64> {
        let found = self.u64()?;
        if found > max { Err(damaged(self.path, format!("it has {found} {what}, at most {max} are read"))) } else { Ok(found) }
    }

    fn metadata(&mut self, num_values: u64) -> Result<BTreeMap<String, Value>> {
        let mut metadata = BTreeMap::new();
        for _ in 0..num_values {
            self.hold(ENTRY_BYTES)?;
            let key = self.text()?;
            let kind = self.u32()?;
            let value = self.value(kind)?;
            match metadata.entry(key) {
                Entry::Vacant(free) => free.insert(value),
                Entry::Occupied(known) => return Err(damaged(self.path, format!("it has \"{}\" twice", shown(known.key())))),
            };
        }
        Ok(metadata)
    }

    /// Takes bytes of the file that the header may have.
    fn spend(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| self.ends_early())?;
        Ok(())
    }

    /// Takes bytes of memory, before they are allocated.
    fn hold(&mut self, bytes: u64) -> Result<()> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > MEMORY_MAX {
            return Err(damaged(self.path, format!("its header takes more than {MEMORY_MAX} bytes of memory")));
        }
        Ok(())
    }

    fn ends_early(&self) -> Error {
        damaged(self.path, format!("its header ends early, or has more than {HEADER_BYTES_MAX} bytes"))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.spend(N as u64)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact(bytes).map_err(|source| Error::Io { path: self.path.to_owned(), source })
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A text; what is not UTF-8 in it becomes U+FFFD.
    fn text(&mut self) -> Result<String> {
        let len = self.u64()?;
        // The file has as many bytes, at most as many as a header may have.
        self.spend(len)?;
        self.hold(len.next_multiple_of(TEXT_BYTES))?;
        let mut bytes = vec![0; len as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).or_else(|error| self.replaced(error.as_bytes()))
    }

    /// A text with U+FFFD where bytes are not UTF-8, which may take three times what they take.
    fn replaced(&mut self, bytes: &[u8]) -> Result<String> {
        let replacement = |invalid: &[u8]| if invalid.is_empty() { 0 } else { REPLACEMENT_BYTES };
        let len: usize = bytes.utf8_chunks().map(|chunk| chunk.valid().len() + replacement(chunk.invalid())).sum();
        self.hold(len as u64)?;
        let mut text = String::with_capacity(len);
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend((!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER));
        }
        Ok(text)
    }

    /// A value of the type of this number.
    fn value(&mut self, kind: u32) -> Result<Value> {
        const LIST: u32 = 9;
        if kind != LIST {
            return self.single(kind);
        }
        let (kind, len) = (self.u32()?, self.u64()?);
        self.num_elements = self.num_elements.saturating_add(len);
        if self.num_elements > ELEMENTS_MAX {
            return Err(damaged(self.path, format!("its lists have more than {ELEMENTS_MAX} elements")));
        }
        if kind == LIST {
            return Err(damaged(self.path, "it has a list of lists"));
        }
        // Each has a byte in the file at least.
        if len > self.left {
            return Err(self.ends_early());
        }
        self.hold(len * size_of::<Value>() as u64)?;
        let mut values = Vec::with_capacity(len as usize);
        for _ in 0..len {
            values.push(self.single(kind)?);
        }
        Ok(Value::List(values))
    }

    fn single(&mut self, kind: u32) -> Result<Value> {
        Ok(match kind {
            0 => Value::Integer(self.take().map(u8::from_le_bytes)?.into()),
            1 => Value::Integer(self.take().map(i8::from_le_bytes)?.into()),
            2 => Value::Integer(self.take().map(u16::from_le_bytes)?.into()),
            3 => Value::Integer(self.take().map(i16::from_le_bytes)?.into()),
            4 => Value::Integer(self.u32()?.into()),
            5 => Value::Integer(self.take().map(i32::from_le_bytes)?.into()),
            6 => Value::Number(self.take().map(f32::from_le_bytes)?.into()),
            7 => Value::Flag(self.take::<1>()? != [0]),
            8 => Value::Text(self.text()?),
            10 => Value::Integer(i64::try_from(self.u64()?).unwrap_or(i64::MAX)),
            11 => Value::Integer(self.take().map(i64::from_le_bytes)?),
            12 => Value::Number(self.take().map(f64::from_le_bytes)?),
            other => return Err(damaged(self.path, format!("it has a value of the unknown type {other}"))),
        })
    }

    fn tensor(&mut self) -> Result<ListedTensor> {
        self.hold(ENTRY_BYTES)?;
        let name = self.text()?;
        let num_dimensions = self.u32()?;
        if num_dimensions == 0 || num_dimensions > DIMENSIONS_MAX {
            let name = shown(&name);
            return Err(damaged(
                self.path,
                format!("the tensor \"{name}\" has {num_dimensions} dimensions, expected 1 to {DIMENSIONS_MAX}"),
            ));
        }
        let dimensions = (0..num_dimensions).map(|_| self.u64()).collect::<Result<_>>()?;
        Ok(ListedTensor { name, dimensions, type_number: self.u32()?, offset: self.u64()? })
    }
}

fn as_text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn as_list(value: &Value) -> Option<&[Value]> {
    if let Value::List(values) = value { Some(values) } else { None }
}

/// Names of types that are not read.
fn type_name(number: u32) -> Option<&'static str> {
    Some(match number {
        10 => "Q2_K",
        11 => "Q3_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return None,
    })
}
