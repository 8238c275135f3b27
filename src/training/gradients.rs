//! Gradients by parameter name, summed over the batches of one optimiser step.

use std::collections::BTreeMap;

use candle_core::{Tensor, Var, backprop::GradStore};

use crate::error::{Error, Result};

/// The name of the input embedding; of the head too when the two are tied.
const EMBEDDING: &str = "model.embed_tokens.weight";
/// The name of a head with a weight of its own.
const HEAD: &str = "lm_head.weight";

/// One gradient per trainable parameter, each with its parameter's shape.
#[derive(Debug, Clone, Default)]
pub struct Gradients(BTreeMap<String, Tensor>);

impl Gradients {
    /// Adds the gradients of one batch: of the trunk from autograd, and `d_head` (`[V, H]`), which autograd never saw.
    ///
    /// # Errors
    /// [`Error::Internal`] if a parameter received none: candle cuts graphs without a word, and a silently frozen parameter
    /// would look like a policy that learns badly.
    pub(crate) fn add(&mut self, parameters: &BTreeMap<String, Var>, trunk: &mut GradStore, d_head: &Tensor) -> Result<()> {
        let head = if parameters.contains_key(HEAD) { HEAD } else { EMBEDDING };
        for (name, parameter) in parameters {
            let from_trunk = trunk.remove(parameter.as_tensor());
            let gradient = match (from_trunk, name == head) {
                (Some(gradient), true) => (gradient + d_head)?,
                (Some(gradient), false) => gradient,
                (None, true) if head == HEAD => d_head.clone(),
                (None, _) => return Err(Error::Internal(format!("no gradient reached the parameter {name}"))),
            };
            let sum = match self.0.remove(name) {
                Some(sum) => (sum + gradient)?,
                None => gradient,
            };
            self.0.insert(name.clone(), sum.detach());
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn from_tensors(tensors: BTreeMap<String, Tensor>) -> Self {
        Self(tensors)
    }

    /// The gradient of a parameter.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }

    /// The global L2 norm: squares are summed in f64 in the order of the names, so that a run repeats bit by bit.
    pub fn norm(&self) -> Result<f64> {
        let mut sum = 0.0;
        for gradient in self.0.values() {
            let squares = gradient.flatten_all()?.to_vec1::<f32>()?;
            sum += squares.into_iter().map(|value| f64::from(value) * f64::from(value)).sum::<f64>();
        }
        Ok(sum.sqrt())
    }
}
