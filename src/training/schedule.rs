//! The learning rate of each step: linear warm-up, then cosine, linear or no decay.

use std::f64::consts::PI;

use crate::error::{Error, Result};

/// What the learning rate does after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Half a cosine from the peak to zero.
    #[default]
    Cosine,
    /// A straight line from the peak to zero.
    Linear,
    /// Stays at the peak.
    Constant,
}

impl Schedule {
    /// Reads `cosine`, `linear` or `constant`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for any other text.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "cosine" => Ok(Self::Cosine),
            "linear" => Ok(Self::Linear),
            "constant" => Ok(Self::Constant),
            _ => Err(Error::InvalidParameter {
                name: "schedule".into(),
                found: format!("'{text}'"),
                expected: "'cosine', 'linear' or 'constant'".into(),
            }),
        }
    }
}

/// The learning rate as a function of the step.
///
/// Equal to `get_cosine_schedule_with_warmup` and its siblings of Hugging Face transformers, so that published settings mean
/// the same here, but for a run that would be all warm-up. In particular the first step of a run with a warm-up has the learning rate 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRate {
    peak: f64,
    num_warmup_steps: usize,
    num_steps: usize,
    schedule: Schedule,
}

impl LearningRate {
    /// `warmup_ratio` (0 to 1) of `num_steps`, rounded up, warm up to `peak`; but not all of them, as it would be for a run of one step,
    /// which would then learn nothing.
    pub fn new(peak: f64, warmup_ratio: f64, num_steps: usize, schedule: Schedule) -> Self {
        let num_warmup_steps = ((warmup_ratio * num_steps as f64).ceil() as usize).min(num_steps.saturating_sub(1));
        Self { peak, num_warmup_steps, num_steps, schedule }
    }

    /// Learning rate of the step `step`, counted from 0.
    pub fn at(&self, step: usize) -> f64 {
        if step < self.num_warmup_steps {
            return self.peak * step as f64 / self.num_warmup_steps as f64;
        }
        let num_decay_steps = self.num_steps.saturating_sub(self.num_warmup_steps).max(1);
        let progress = ((step - self.num_warmup_steps) as f64 / num_decay_steps as f64).min(1.0);
        self.peak
            * match self.schedule {
                Schedule::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
                Schedule::Linear => 1.0 - progress,
                Schedule::Constant => 1.0,
            }
    }
}
