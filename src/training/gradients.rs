//! Gradients by parameter name, summed over the batches of one optimiser step.

use std::collections::BTreeMap;

use candle_core::{Tensor, Var};

use crate::error::{Error, Result};

/// One gradient per trainable parameter, each with its parameter's shape.
#[derive(Debug, Clone, Default)]
pub struct Gradients(BTreeMap<String, Tensor>);

impl Gradients {
    /// Adds the gradient of one parameter in one batch.
    ///
    /// # Errors
    /// [`Error::Tensor`] if it has another shape than the sum so far.
    pub(crate) fn add_one(&mut self, name: &str, gradient: &Tensor) -> Result<()> {
        match self.0.get_mut(name) {
            Some(sum) => *sum = (&*sum + gradient)?.detach(),
            None => {
                self.0.insert(name.to_owned(), gradient.detach());
            }
        }
        Ok(())
    }

    /// Refuses gradients that lack one of these parameters.
    ///
    /// # Errors
    /// [`Error::Internal`]: a silently frozen parameter would look like a policy that learns badly.
    pub(crate) fn require_all(&self, parameters: &BTreeMap<String, Var>) -> Result<()> {
        match parameters.keys().find(|name| !self.0.contains_key(*name)) {
            Some(name) => Err(Error::Internal(format!("no gradient reached the parameter {name}"))),
            None => Ok(()),
        }
    }

    /// The same gradients, each under its name with `prefix` before it.
    pub(crate) fn with_prefix(self, prefix: &str) -> Self {
        Self(self.0.into_iter().map(|(name, gradient)| (format!("{prefix}{name}"), gradient)).collect())
    }

    #[cfg(test)]
    pub(crate) fn from_tensors(tensors: BTreeMap<String, Tensor>) -> Self {
        Self(tensors)
    }

    /// The gradient of a parameter.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }

    /// The global L2 norm: squares are summed in f64 in the order of the names, so that a run repeats bit by bit. Those of a gradient on a device are summed
    /// there.
    pub fn norm(&self) -> Result<f64> {
        let squares = |gradient: &Tensor| if gradient.device().is_cpu() { host_squares(gradient) } else { device_squares(gradient) };
        Ok(self.0.values().map(squares).sum::<Result<f64>>()?.sqrt())
    }
}

fn host_squares(gradient: &Tensor) -> Result<f64> {
    let values = gradient.flatten_all()?.to_vec1::<f32>()?;
    Ok(values.into_iter().map(|value| f64::from(value) * f64::from(value)).sum())
}

fn device_squares(gradient: &Tensor) -> Result<f64> {
    Ok(f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_sums_the_squares_that_the_host_does() {
        let values: Vec<f32> = (0..6000).map(|index| (index as f32).sin()).collect();
        let gradient = Tensor::from_vec(values, (60, 100), &candle_core::Device::Cpu).expect("the shape fits");
        let (host, device) = (host_squares(&gradient).expect("f32"), device_squares(&gradient).expect("f32"));
        assert!((host - device).abs() < 1e-5 * host, "{host} and {device}");
    }
}
