//! AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101) on a decoder's variables.
//!
//! candle-nn's optimiser keeps its moments in the dtype of the parameter, has no groups, no clipping and no state that can be
//! saved. This one works in place, in the order of the parameters' names, and equals `torch.optim.AdamW`. Its moments are where its parameters are.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use candle_core::{CpuStorage, InplaceOp1, Layout, Tensor, Var};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, View};

use super::gradients::Gradients;
use super::options::RunOptions;
use crate::error::{Error, Result};
use crate::models::Decoder;
use crate::models::ops::Arithmetic;

/// Elements that one thread updates at a time: each of them alone, so the cuts do not change a bit of the result.
pub(super) const CHUNK: usize = 1 << 15;

/// Constants of the update that stay the same over a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWOptions {
    /// Decay of the first moment, the mean of the gradients.
    pub mean_decay: f64,
    /// Decay of the second moment, the mean of their squares.
    pub square_decay: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Share of a matrix that a step of learning rate 1 takes away. Biases and norm weights do not decay, embeddings do,
    /// which are the groups of Hugging Face's trainer.
    pub weight_decay: f64,
    /// By which operations. Fused ones update parameters in host memory in one pass; candle's those of any device, beside which the moments are then.
    pub arithmetic: Arithmetic,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self { mean_decay: 0.9, square_decay: 0.999, epsilon: 1e-8, weight_decay: 0.0, arithmetic: Arithmetic::Fused }
    }
}

/// Parameters that are updated alike in one step, and their gradients.
#[derive(Debug, Clone, Copy)]
pub struct ParameterGroup<'a> {
    pub parameters: &'a BTreeMap<String, Var>,
    pub gradients: &'a Gradients,
    pub learning_rate: f64,
    /// 1, or less to clip the gradients.
    pub gradient_scale: f64,
}

/// First and second moment of one parameter, element by element.
#[derive(Debug, Clone)]
enum Moments {
    Host(HostMoments),
    /// f32, of the shape of the parameter.
    Device {
        mean: Tensor,
        square: Tensor,
    },
}

#[derive(Debug, Clone)]
struct HostMoments {
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl Moments {
    /// `mean`, `square`: element by element.
    fn new(mean: Vec<f32>, square: Vec<f32>, parameter: &Tensor, arithmetic: Arithmetic) -> Result<Self> {
        if arithmetic == Arithmetic::Fused {
            return Ok(Self::Host(HostMoments { mean, square }));
        }
        let placed = |values| Tensor::from_vec(values, parameter.shape(), parameter.device());
        Ok(Self::Device { mean: placed(mean)?, square: placed(square)? })
    }

    /// Of a parameter that was never updated.
    fn zeros(parameter: &Tensor, arithmetic: Arithmetic) -> Result<Self> {
        let zeros = vec![0.0; parameter.elem_count()];
        Self::new(zeros.clone(), zeros, parameter, arithmetic)
    }

    fn update(&mut self, parameter: &Var, gradient: &Tensor, rule: Rule) -> Result<()> {
        match self {
            Self::Host(moments) => {
                let gradient = gradient.flatten_all()?.to_vec1::<f32>()?;
                Ok(parameter.inplace_op1(&Update { rule, gradient: &gradient, moments: RefCell::new(moments) })?)
            }
            Self::Device { mean, square } => Ok(rule.apply_to_tensors(parameter, gradient, mean, square)?),
        }
    }

    /// Mean and square, in host memory.
    fn values(&self) -> Result<[Cow<'_, [f32]>; 2]> {
        let host = |tensor: &Tensor| Ok::<Cow<'_, [f32]>, Error>(Cow::Owned(tensor.flatten_all()?.to_vec1()?));
        match self {
            Self::Host(HostMoments { mean, square }) => Ok([mean.into(), square.into()]),
            Self::Device { mean, square } => Ok([host(mean)?, host(square)?]),
        }
    }
}

/// The optimiser and its state.
#[derive(Debug, Clone)]
pub struct AdamW {
    options: AdamWOptions,
    step: u64,
    moments: BTreeMap<String, Moments>,
}

impl AdamW {
    /// A fresh optimiser: all moments zero.
    pub fn new(options: AdamWOptions) -> Self {
        Self { options, step: 0, moments: BTreeMap::new() }
    }

    /// A fresh optimiser with the moments of all these parameters, whose state is whole even where some of them are never updated.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the device has no memory left.
    pub(crate) fn of(options: AdamWOptions, parameters: &BTreeMap<String, Var>) -> Result<Self> {
        let zeros = |(name, parameter): (&String, &Var)| Ok::<_, Error>((name.clone(), Moments::zeros(parameter, options.arithmetic)?));
        Ok(Self { moments: parameters.iter().map(zeros).collect::<Result<_>>()?, ..Self::new(options) })
    }

    /// As [`AdamW::step_groups`], of one group.
    ///
    /// # Errors
    /// As [`AdamW::step_groups`].
    pub fn step(
        &mut self,
        parameters: &BTreeMap<String, Var>,
        gradients: &Gradients,
        learning_rate: f64,
        gradient_scale: f64,
    ) -> Result<()> {
        self.step_groups(&[ParameterGroup { parameters, gradients, learning_rate, gradient_scale }])
    }

    /// One step: updates every parameter of every group in place, with the gradient first scaled by the group's `gradient_scale`. A name belongs to one
    /// group.
    ///
    /// `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`, `θ ← θ − η (λ θ + m̂ / (√v̂ + ε))` with `m̂ = m / (1 − β₁ᵗ)` and
    /// `v̂ = v / (1 − β₂ᵗ)`; λ is 0 for vectors.
    ///
    /// # Errors
    /// [`Error::Internal`] if a parameter has no gradient, [`Error::Tensor`] if one is not an f32 tensor, or not where the options want it.
    pub fn step_groups(&mut self, groups: &[ParameterGroup<'_>]) -> Result<()> {
        self.step += 1;
        for ParameterGroup { parameters, gradients, learning_rate, gradient_scale } in groups {
            for (name, parameter) in *parameters {
                let gradient = gradients.get(name).ok_or_else(|| Error::Internal(format!("no gradient for the parameter {name}")))?;
                let rule = self.options.rule(self.step, *learning_rate, *gradient_scale, parameter.rank() >= 2);
                let moments = match self.moments.entry(name.clone()) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(Moments::zeros(parameter, self.options.arithmetic)?),
                };
                moments.update(parameter, gradient, rule)?;
            }
        }
        Ok(())
    }

    /// Writes the moments and the step count as safetensors: `<parameter>.mean`, `<parameter>.square`, metadata `step`.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Tensor`] if a moment cannot be read from its device.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut views = Vec::with_capacity(2 * self.moments.len());
        for (name, moments) in &self.moments {
            let [mean, square] = moments.values()?;
            views.extend([(format!("{name}.mean"), MomentView::new(mean)), (format!("{name}.square"), MomentView::new(square))]);
        }
        let metadata = HashMap::from([("step".to_string(), self.step.to_string())]);
        safetensors::serialize_to_file(views, Some(metadata), path).map_err(|error| match error {
            SafeTensorError::IoError(source) => Error::Io { path: path.into(), source },
            other => Error::Internal(format!("writing {}: {other}", path.display())),
        })
    }

    /// Reads what [`AdamW::save`] wrote.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] if the file is not such a state or not one of these `parameters`; [`Error::Tensor`].
    pub fn load(path: &Path, options: AdamWOptions, parameters: &BTreeMap<String, Var>) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.into(), source })?;
        Self::decode(path, &bytes, options, parameters)
    }

    /// As [`AdamW::load`], of a file that is in memory already; `path` is for errors.
    pub(crate) fn decode(path: &Path, bytes: &[u8], options: AdamWOptions, parameters: &BTreeMap<String, Var>) -> Result<Self> {
        let damaged = |reason: String| Error::Damaged { path: path.into(), reason };
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| damaged(error.to_string()))?;
        let step = metadata.metadata().as_ref().and_then(|metadata| metadata.get("step")?.parse().ok());
        let step = step.ok_or_else(|| damaged("it has no step count".into()))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|error| damaged(error.to_string()))?;
        let mut moments = BTreeMap::new();
        for (name, parameter) in parameters {
            let read = |suffix: &str| read_moment(&tensors, &format!("{name}.{suffix}"), parameter).map_err(damaged);
            moments.insert(name.clone(), Moments::new(read("mean")?, read("square")?, parameter, options.arithmetic)?);
        }
        Ok(Self { options, step, moments })
    }
}

/// One moment as a vector of a safetensors file. Its bytes are made when they are written, so that a state is never in host memory twice.
struct MomentView<'a> {
    values: Cow<'a, [f32]>,
    shape: [usize; 1],
}

impl<'a> MomentView<'a> {
    fn new(values: Cow<'a, [f32]>) -> Self {
        Self { shape: [values.len()], values }
    }
}

impl View for MomentView<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::with_capacity(self.data_len());
        for value in self.values.iter() {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes.into()
    }

    fn data_len(&self) -> usize {
        size_of_val(&*self.values)
    }
}

fn read_moment(tensors: &SafeTensors<'_>, name: &str, parameter: &Tensor) -> Result<Vec<f32>, String> {
    let view = tensors.tensor(name).map_err(|error| error.to_string())?;
    let expected = parameter.elem_count();
    if view.dtype() != Dtype::F32 || view.shape() != [expected] {
        return Err(format!("{name} is {:?} {:?}, expected F32 [{expected}]", view.dtype(), view.shape()));
    }
    let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok(view.data().chunks_exact(4).map(value).collect())
}

/// The factor that brings a gradient of this norm down to `max_norm`, at most 1 (as `torch.nn.utils.clip_grad_norm_`).
pub fn clip_scale(norm: f64, max_norm: f64) -> f64 {
    (max_norm / (norm + 1e-6)).min(1.0)
}

/// The update of one element, all that does not depend on the element worked out beforehand.
#[derive(Debug, Clone, Copy)]
struct Rule {
    gradient_scale: f32,
    mean_decay: f32,
    one_minus_mean_decay: f32,
    square_decay: f32,
    one_minus_square_decay: f32,
    /// `1 − η λ`
    keep: f32,
    /// `η / (1 − β₁ᵗ)`
    step_size: f32,
    /// `1 / √(1 − β₂ᵗ)`
    root_scale: f32,
    epsilon: f32,
}

impl AdamWOptions {
    /// Those of a run that trains this decoder.
    pub(crate) fn of(run: &RunOptions, decoder: &Decoder) -> Self {
        let [mean_decay, square_decay] = run.adam_betas;
        Self { mean_decay, square_decay, weight_decay: run.weight_decay, arithmetic: decoder.arithmetic(), ..Self::default() }
    }

    fn rule(&self, step: u64, learning_rate: f64, gradient_scale: f64, is_matrix: bool) -> Rule {
        let exponent = i32::try_from(step).unwrap_or(i32::MAX);
        let decay = if is_matrix { self.weight_decay } else { 0.0 };
        Rule {
            gradient_scale: gradient_scale as f32,
            mean_decay: self.mean_decay as f32,
            one_minus_mean_decay: (1.0 - self.mean_decay) as f32,
            square_decay: self.square_decay as f32,
            one_minus_square_decay: (1.0 - self.square_decay) as f32,
            keep: (1.0 - learning_rate * decay) as f32,
            step_size: (learning_rate / (1.0 - self.mean_decay.powi(exponent))) as f32,
            root_scale: (1.0 / (1.0 - self.square_decay.powi(exponent)).sqrt()) as f32,
            epsilon: self.epsilon as f32,
        }
    }
}

impl Rule {
    #[inline(always)]
    fn apply(&self, parameter: &mut f32, gradient: f32, mean: &mut f32, square: &mut f32) {
        let gradient = gradient * self.gradient_scale;
        *mean = self.mean_decay * *mean + self.one_minus_mean_decay * gradient;
        *square = self.square_decay * *square + self.one_minus_square_decay * gradient * gradient;
        *parameter = self.keep * *parameter - self.step_size * *mean / (square.sqrt() * self.root_scale + self.epsilon);
    }

    /// The same by candle's operations, on the device of all of them.
    fn apply_to_tensors(&self, parameter: &Var, gradient: &Tensor, mean: &mut Tensor, square: &mut Tensor) -> candle_core::Result<()> {
        let times = |tensor: &Tensor, factor: f32| tensor.affine(f64::from(factor), 0.0);
        let gradient = times(gradient, self.gradient_scale)?;
        *mean = (times(mean, self.mean_decay)? + times(&gradient, self.one_minus_mean_decay)?)?;
        *square = (times(square, self.square_decay)? + times(&gradient.sqr()?, self.one_minus_square_decay)?)?;
        let root = square.sqrt()?.affine(f64::from(self.root_scale), f64::from(self.epsilon))?;
        let step = times(&(&*mean / root)?, self.step_size)?;
        parameter.set(&(times(&parameter.as_detached_tensor(), self.keep)? - step)?)
    }
}

/// [`Rule`] over one parameter, in its own memory. The cell is there because candle hands an in-place operation out as `&self`.
struct Update<'a> {
    rule: Rule,
    gradient: &'a [f32],
    moments: RefCell<&'a mut HostMoments>,
}

impl InplaceOp1 for Update<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let CpuStorage::F32(values) = storage else {
            candle_core::bail!("a trainable parameter must be f32");
        };
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("a trainable parameter must be contiguous");
        };
        let values = &mut values[start..end];
        let moments = &mut **self.moments.borrow_mut();
        if values.len() != self.gradient.len() || values.len() != moments.mean.len() || values.len() != moments.square.len() {
            candle_core::bail!("a parameter of {} elements has {} gradients", values.len(), self.gradient.len());
        }
        let rule = self.rule;
        let state = moments.mean.par_chunks_mut(CHUNK).zip(moments.square.par_chunks_mut(CHUNK));
        let chunks = values.par_chunks_mut(CHUNK).zip(self.gradient.par_chunks(CHUNK)).zip(state);
        chunks.for_each(|((values, gradient), (mean, square))| {
            for ((value, &gradient), (mean, square)) in values.iter_mut().zip(gradient).zip(mean.iter_mut().zip(square)) {
                rule.apply(value, gradient, mean, square);
            }
        });
        Ok(())
    }
}
