//! Where a training computes, by its option `device`: the CPU, or a GPU of a program with the feature `cuda-policies`.
//!
//! The weights that a training begins with are loaded to host memory in f32. On a GPU a copy of them is trained, by candle's operations with products in bf16,
//! and what it has learned is taken back at the end, so that weights which do not learn stay what they were to the last digit.

use candle_core::DType;

use super::decoder::Decoder;
use super::device::{Device, of_memory};
use super::ops::Arithmetic;
use crate::error::{Error, Result};

/// Of products on a GPU.
const DTYPE: DType = DType::BF16;

impl Device {
    /// Where a training with this option computes: the CPU, or a GPU by its number. `auto` is the first GPU of a program that trains on one.
    #[must_use]
    pub fn of_training(self) -> Self {
        #[cfg(feature = "cuda-policies")]
        if self == Self::Auto {
            return self.gpu_number().map_or(Self::Cpu, Self::Cuda);
        }
        if self == Self::Auto { Self::Cpu } else { self }
    }

    /// By which operations such a training computes.
    pub fn arithmetic_of_training(self) -> Arithmetic {
        match self.of_training() {
            Self::Cuda(_) => Arithmetic::Plain(DTYPE),
            Self::Auto | Self::Cpu => Arithmetic::Fused,
        }
    }

    /// Fails if nothing is trained there.
    ///
    /// # Errors
    /// [`Error::NotSupported`].
    pub fn check_training(self) -> Result<()> {
        match self.of_training() {
            Self::Cuda(_) if !cfg!(feature = "cuda-policies") => Err(Error::NotSupported(format!(
                "device = '{self}': in this program TRAIN computes on the CPU; leave the option out, say 'cpu', or build one with the feature cuda-policies"
            ))),
            device => device.check(),
        }
    }
}

/// A GPU for one training, with a stream that nothing else uses.
#[derive(Debug)]
pub struct TrainingGpu {
    device: candle_core::Device,
    dtype: DType,
}

impl TrainingGpu {
    /// `None`: the training computes on the CPU.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it cannot be used.
    pub fn open(device: Device) -> Result<Option<Self>> {
        device.check_training()?;
        #[cfg(feature = "cuda-policies")]
        if let Device::Cuda(number) = device.of_training() {
            return Ok(Some(Self { device: super::device::open_gpu(number)?, dtype: DTYPE }));
        }
        Ok(None)
    }

    /// The operations of a GPU, on candle's CPU device.
    #[cfg(test)]
    pub fn on_cpu(dtype: DType) -> Self {
        Self { device: candle_core::Device::Cpu, dtype }
    }

    pub fn device(&self) -> &candle_core::Device {
        &self.device
    }

    /// A copy to be trained, see [`Decoder::on`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no room.
    pub fn copy_of(&self, decoder: &Decoder) -> Result<Decoder> {
        decoder.on(&self.device, self.dtype).map_err(of_training)
    }
}

/// An error of a training as its user sees it.
pub fn of_training(error: Error) -> Error {
    of_memory(
        error,
        "take a smaller batch_tokens, recompute = true or adapters (lora_rank), let models on it go with UNLOAD MODEL, or train with device = 'cpu'",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of cudarc, which only builds for CUDA have.
    #[test]
    fn memory_that_a_gpu_has_not_got_is_no_fault_of_ours() {
        let cuda = |text: &str| Error::Tensor(candle_core::Error::Cuda(text.into()).context("a product"));
        for text in ["DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", "CublasError(CUBLAS_STATUS_ALLOC_FAILED)"] {
            assert!(matches!(of_training(cuda(text)), Error::OutOfMemory(message) if message.contains("batch_tokens")), "{text}");
        }
        assert!(matches!(of_training(cuda("CublasError(CUBLAS_STATUS_EXECUTION_FAILED)")), Error::Tensor(_)));
    }

    #[cfg(not(feature = "cuda-policies"))]
    #[test]
    fn a_program_without_cuda_trains_on_the_cpu() {
        for device in [Device::Auto, Device::Cpu] {
            assert_eq!((device.of_training(), device.arithmetic_of_training()), (Device::Cpu, Arithmetic::Fused));
            assert!(TrainingGpu::open(device).expect("every machine has one").is_none());
        }
        assert_eq!(Device::Cuda(1).arithmetic_of_training(), Arithmetic::Plain(DType::BF16));
        assert!(matches!(TrainingGpu::open(Device::Cuda(0)), Err(Error::NotSupported(message)) if message.contains("cuda-policies")));
    }
}
