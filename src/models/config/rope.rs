//! Rotary positions: the base of their frequencies, and how these are scaled for long texts.

use std::f64::consts::TAU;

use serde_json::{Map, Value, json};

use super::damaged;
use super::fields::Fields;
use crate::error::{Error, Result};
use crate::models::shown::shown;

/// Frequencies of a model's rotary positions (arXiv:2104.09864).
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f64,
    pub scaling: RopeScaling,
}

/// How frequencies are changed so that a model reads longer texts than it was first trained on.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// All divided by `factor` (position interpolation, arXiv:2306.15595).
    Linear {
        factor: f64,
    },
    /// Of Llama 3.1: waves longer than `original_positions / low_freq_factor` are divided by `factor`, those shorter than
    /// `original_positions / high_freq_factor` stay, and those between are blended.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_positions: f64,
    },
}

impl RopeConfig {
    /// Plain rotary positions.
    pub fn plain(theta: f64) -> Self {
        Self { theta, scaling: RopeScaling::None }
    }

    /// `rope_parameters` as transformers 5 writes them, or `rope_theta` and `rope_scaling` as transformers 4 did.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self> {
        let nested = ["rope_parameters", "rope_scaling"].iter().find_map(|name| fields.value.get(*name)?.as_object());
        let theta = match nested.and_then(|rope| rope.get("rope_theta")).and_then(Value::as_f64) {
            Some(theta) => theta,
            None => fields.number_or("rope_theta", 10_000.0)?,
        };
        let scaling = nested.map_or(Ok(RopeScaling::None), |rope| read_scaling(rope, fields))?;
        Ok(Self { theta, scaling })
    }

    /// As transformers 4 wrote it, which transformers 5 reads too.
    pub(super) fn write(&self, config: &mut Map<String, Value>) {
        config.insert("rope_theta".to_owned(), json!(self.theta));
        let scaling = match self.scaling {
            RopeScaling::None => return,
            RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions } => json!({
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "original_max_position_embeddings": original_positions as u64,
            }),
        };
        config.insert("rope_scaling".to_owned(), scaling);
    }

    /// Why it cannot be computed, if it cannot.
    pub(super) fn problem(&self) -> Option<&'static str> {
        let is_positive = |number: f64| number.is_finite() && number > 0.0;
        match self.scaling {
            _ if !is_positive(self.theta) => Some("rope_theta is not a positive number"),
            RopeScaling::Linear { factor } if !is_positive(factor) => Some("the factor of the rope scaling is not a positive number"),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions }
                if ![factor, low_freq_factor, original_positions, high_freq_factor - low_freq_factor].into_iter().all(is_positive) =>
            {
                Some("the factors of the rope scaling are not positive, or not in order")
            }
            _ => None,
        }
    }

    /// Radians per position of each pair of a head of width `head_dim`, fastest first.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f64> {
        (0..head_dim / 2).map(|pair| self.scale(self.theta.powf(-(2.0 * pair as f64) / head_dim as f64))).collect()
    }

    fn scale(&self, frequency: f64) -> f64 {
        match self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions } => {
                // How many waves fit in the length that the model was first trained on.
                let waves = original_positions * frequency / TAU;
                let kept = ((waves - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / factor)
            }
        }
    }
}

fn read_scaling(rope: &Map<String, Value>, fields: &Fields<'_>) -> Result<RopeScaling> {
    let number = |name: &str| {
        let found = rope.get(name).and_then(Value::as_f64);
        found.ok_or_else(|| damaged(fields.path, format!("the rope scaling has no number \"{name}\"")))
    };
    match rope.get("rope_type").or_else(|| rope.get("type")).and_then(Value::as_str) {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: number("factor")? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: number("factor")?,
            low_freq_factor: number("low_freq_factor")?,
            high_freq_factor: number("high_freq_factor")?,
            original_positions: number("original_max_position_embeddings")?,
        }),
        Some(kind) => {
            let found = shown(kind);
            Err(Error::NotSupported(format!("rope scaling of type \"{found}\" is not supported; supported: default, linear, llama3")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA_3_1: RopeScaling =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_positions: 8192.0 };

    #[test]
    fn fast_waves_stay_and_slow_ones_are_stretched() {
        let plain = RopeConfig::plain(500_000.0).frequencies(128);
        let scaled = RopeConfig { theta: 500_000.0, scaling: LLAMA_3_1 }.frequencies(128);
        let ratios: Vec<f64> = scaled.iter().zip(&plain).map(|(scaled, plain)| scaled / plain).collect();
        assert_eq!((ratios[0], ratios[63]), (1.0, 0.125));
        assert!(ratios.is_sorted_by(|a, b| a >= b) && ratios.iter().any(|ratio| *ratio > 0.2 && *ratio < 0.9), "{ratios:?}");
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        let scaled = RopeConfig { theta: 100.0, scaling: RopeScaling::Linear { factor: 4.0 } }.frequencies(4);
        assert_eq!(scaled, [0.25, 0.025]);
    }
}
