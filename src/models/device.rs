//! Where a model computes, or a training: the option `device` of `CREATE MODEL` and `TRAIN`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What the errors of CUDA and cuBLAS say of memory that is not there.
const OUT_OF_MEMORY: [&str; 2] = ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED"];

#[cfg(feature = "cuda")]
pub use rolloutdb_kernels::cuda::Gpu;

/// What the option says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Device {
    /// The first GPU for what runs on one, if there is one and this build knows GPUs; the CPU otherwise.
    #[default]
    Auto,
    Cpu,
    /// The GPU of this number, from 0.
    Cuda(usize),
}

/// The memory that a model's weights are in, and so what computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The machine's own; the CPU computes.
    Cpu,
    /// That of the GPU of this number.
    Gpu(usize),
}

impl Place {
    /// The device, with the name of a GPU.
    pub fn description(self) -> String {
        match self {
            Self::Cpu => Device::Cpu.description(),
            Self::Gpu(number) => Device::Cuda(number).description(),
        }
    }

    /// Bytes that a GPU has; None of the machine, and of a GPU that cannot be asked.
    pub(super) fn gpu_memory(self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        if let Self::Gpu(number) = self {
            return Device::Cuda(number).gpu().ok().flatten().map(|gpu| gpu.memory());
        }
        None
    }
}

impl Device {
    /// Of a version that was made before there was a choice: a GPU would give its vectors other digits than those that are stored.
    pub(super) fn of_old_versions() -> Self {
        Self::Cpu
    }
}

/// An error of a device, with `advice` where it has no memory left. By its text: the types of CUDA's errors are there in builds for it only.
pub(super) fn of_memory(error: Error, advice: &str) -> Error {
    let is_meant = |inner: &candle_core::Error| {
        let text = inner.to_string();
        OUT_OF_MEMORY.iter().any(|code| text.contains(code))
    };
    match error {
        Error::Tensor(inner) if is_meant(&inner) => Error::OutOfMemory(format!("the GPU has no memory left; {advice}")),
        other => other,
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "auto" => Some(Self::Auto),
            None if text == "cpu" => Some(Self::Cpu),
            None if text == "cuda" => Some(Self::Cuda(0)),
            Some(("cuda", number)) => number.parse().ok().map(Self::Cuda),
            _ => None,
        }
        .ok_or_else(|| Error::InvalidParameter {
            name: "device".to_owned(),
            found: format!("'{text}'"),
            expected: "'auto', 'cpu', 'cuda' or 'cuda:N'".to_owned(),
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

impl TryFrom<String> for Device {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(feature = "cuda")]
impl Device {
    /// The GPU, opened once per process; `None` for the CPU.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if a GPU is named that cannot be used.
    pub fn gpu(self) -> Result<Option<std::sync::Arc<Gpu>>> {
        use std::collections::BTreeMap;
        use std::sync::{Arc, Mutex, PoisonError};
        static GPUS: Mutex<BTreeMap<usize, Arc<Gpu>>> = Mutex::new(BTreeMap::new());
        let Some(number) = self.number() else { return Ok(None) };
        let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = gpus.get(&number) {
            return Ok(Some(Arc::clone(gpu)));
        }
        match Gpu::open(number) {
            Ok(gpu) => Ok(Some(Arc::clone(gpus.entry(number).or_insert(Arc::new(gpu))))),
            Err(_) if self == Self::Auto => Ok(None),
            Err(error) => Err(Error::NotSupported(format!("GPU {number} cannot be used: {error}"))),
        }
    }

    /// The number of the GPU; `None` for the CPU, and for a GPU that cannot be used.
    pub fn gpu_number(self) -> Option<usize> {
        self.gpu().ok().flatten().and(self.number())
    }

    fn number(self) -> Option<usize> {
        match self {
            Self::Cpu => None,
            Self::Auto => Some(0),
            Self::Cuda(number) => Some(number),
        }
    }

    /// Fails if this process has not got the device.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check(self) -> Result<()> {
        self.gpu().map(drop)
    }

    /// The option, and what it means here.
    pub fn description(self) -> String {
        match self.gpu() {
            Ok(Some(gpu)) => format!("{self} ({})", gpu.name()),
            _ => self.to_string(),
        }
    }
}

/// A GPU for candle, opened once per process, with a stream of its own: candle's default is another stream in each thread.
///
/// # Errors
/// [`Error::NotSupported`] if it cannot be used.
#[cfg(feature = "cuda-policies")]
pub(super) fn candle_gpu(number: usize) -> Result<candle_core::Device> {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};
    static GPUS: Mutex<BTreeMap<usize, candle_core::Device>> = Mutex::new(BTreeMap::new());
    let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(gpu) = gpus.get(&number) {
        return Ok(gpu.clone());
    }
    let gpu = open_gpu(number)?;
    gpus.insert(number, gpu.clone());
    Ok(gpu)
}

/// As [`candle_gpu`], for one user alone.
#[cfg(feature = "cuda-policies")]
pub(super) fn open_gpu(number: usize) -> Result<candle_core::Device> {
    let gpu = candle_core::Device::new_cuda_with_stream(number)
        .map_err(|error| Error::NotSupported(format!("GPU {number} cannot be used: {error}")))?;
    // SAFETY: one stream uses this memory, so that no event is needed to order its uses.
    unsafe { gpu.as_cuda_device()?.disable_event_tracking() };
    Ok(gpu)
}

#[cfg(not(feature = "cuda"))]
impl Device {
    /// Fails if this process has not got the device.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check(self) -> Result<()> {
        match self {
            Self::Auto | Self::Cpu => Ok(()),
            Self::Cuda(_) => {
                Err(Error::NotSupported(format!("device = '{self}': this program was built without CUDA; `make cuda` builds one with it")))
            }
        }
    }

    /// The option, and what it means here.
    pub fn description(self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for text in ["auto", "cpu", "cuda:0", "cuda:7"] {
            assert_eq!(text.parse::<Device>().expect("a device").to_string(), text);
        }
        assert_eq!("cuda".parse::<Device>().expect("a device"), Device::Cuda(0));
        for text in ["", "gpu", "cuda:", "cuda:-1", "CUDA", "cpu:0"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
