//! Rotary positions: the base of their frequencies, and how these are scaled for long texts.

use std::f64::consts::TAU;

use serde_json::{Map, Value, json};

use super::damaged;
use super::fields::Fields;
use crate::error::{Error, Result};
use crate::models::shown::shown;

/// A scaling to more positions is damage, not a model.
const POSITIONS_MAX: f64 = (1_u64 << 24) as f64;

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
    Yarn(Yarn),
}

/// YaRN (arXiv:2309.00071): pairs that turn more than `beta_fast` times within `original_positions` keep their frequency, those that turn less than
/// `beta_slow` times are divided by `factor`, those between are blended, by their number; all cosines and sines are multiplied by `magnitude`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    pub factor: f64,
    pub beta_fast: f64,
    pub beta_slow: f64,
    pub original_positions: f64,
    /// `attention_factor` of the file, or `0.1 ln(factor) + 1`.
    pub magnitude: f64,
    /// Whether the first and the last pair of the blend are whole numbers.
    pub truncates: bool,
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
        let part = nested.and_then(|rope| rope.get("partial_rotary_factor")).or_else(|| fields.get("partial_rotary_factor"));
        if part.is_some_and(|part| !part.is_null() && part.as_f64() != Some(1.0)) {
            return Err(Error::NotSupported(format!("{}: partial_rotary_factor is not supported, unless it is 1", fields.path.display())));
        }
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
            RopeScaling::Yarn(yarn) => json!({
                "rope_type": "yarn",
                "factor": yarn.factor,
                "beta_fast": yarn.beta_fast,
                "beta_slow": yarn.beta_slow,
                "original_max_position_embeddings": yarn.original_positions as u64,
                "attention_factor": yarn.magnitude,
                "truncate": yarn.truncates,
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
            RopeScaling::Yarn(yarn) => yarn.problem(self.theta),
            _ => None,
        }
    }

    /// Radians per position of each pair of a head of width `head_dim`, fastest first.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f64> {
        let plain = (0..head_dim / 2).map(|pair| self.theta.powf(-(2.0 * pair as f64) / head_dim as f64));
        match self.scaling {
            RopeScaling::None => plain.collect(),
            RopeScaling::Linear { factor } => plain.map(|frequency| frequency / factor).collect(),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions } => {
                let scale = |frequency: f64| {
                    // How many waves fit in the length that the model was first trained on.
                    let waves = original_positions * frequency / TAU;
                    let kept = ((waves - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                    frequency * (kept + (1.0 - kept) / factor)
                };
                plain.map(scale).collect()
            }
            RopeScaling::Yarn(yarn) => {
                let (first, last) = yarn.blended_pairs(head_dim as f64, self.theta);
                let kept = |pair: usize| 1.0 - ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
                plain.enumerate().map(|(pair, frequency)| frequency * (kept(pair) + (1.0 - kept(pair)) / yarn.factor)).collect()
            }
        }
    }

    /// What cosines and sines are multiplied by: queries and keys are this many times as long.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn(yarn) => yarn.magnitude,
            RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Llama3 { .. } => 1.0,
        }
    }

    /// The longest text, in tokens, that the scaling is for, where that is more than `max_position_embeddings` of the file: published configurations
    /// with YaRN leave that at the length before scaling.
    pub(super) fn positions(&self, max_position_embeddings: usize) -> usize {
        match self.scaling {
            RopeScaling::Yarn(yarn) => max_position_embeddings.max((yarn.original_positions * yarn.factor) as usize),
            RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Llama3 { .. } => max_position_embeddings,
        }
    }
}

impl Yarn {
    /// As transformers reads it: `attention_factor`, or what `mscale` and `mscale_all_dim` (DeepSeek) or `factor` say that it is.
    fn read(rope: &Map<String, Value>, fields: &Fields<'_>, factor: f64) -> Result<Self> {
        // Zero is as good as nothing, as there.
        let number = |name: &str| rope.get(name).and_then(Value::as_f64).filter(|number| *number != 0.0);
        let growth = |scale: f64| if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 };
        let magnitude =
            rope.get("attention_factor").and_then(Value::as_f64).unwrap_or_else(|| match (number("mscale"), number("mscale_all_dim")) {
                (Some(scale), Some(all)) => growth(scale) / growth(all),
                _ => growth(1.0),
            });
        let original_positions = match number("original_max_position_embeddings") {
            Some(positions) => positions,
            None => fields.size("max_position_embeddings")? as f64,
        };
        Ok(Self {
            factor,
            beta_fast: number("beta_fast").unwrap_or(32.0),
            beta_slow: number("beta_slow").unwrap_or(1.0),
            original_positions,
            magnitude,
            truncates: rope.get("truncate").and_then(Value::as_bool).unwrap_or(true),
        })
    }

    fn problem(&self, theta: f64) -> Option<&'static str> {
        let Self { factor, beta_fast, beta_slow, original_positions, magnitude, truncates: _ } = *self;
        let numbers = [factor, beta_slow, beta_fast - beta_slow, original_positions, magnitude, theta - 1.0];
        let are_right =
            numbers.into_iter().all(|number| number.is_finite() && number > 0.0) && original_positions * factor <= POSITIONS_MAX;
        (!are_right).then_some("the numbers of the rope scaling are not positive, not in order, or too large")
    }

    /// The pairs between which frequencies are blended; the second is the larger.
    fn blended_pairs(&self, head_dim: f64, theta: f64) -> (f64, f64) {
        // The pair that turns `turns` times within the original positions.
        let pair = |turns: f64| head_dim * (self.original_positions / (turns * TAU)).ln() / (2.0 * theta.ln());
        let (mut first, mut last) = (pair(self.beta_fast), pair(self.beta_slow));
        if self.truncates {
            (first, last) = (first.floor(), last.ceil());
        }
        let (first, last) = (first.max(0.0), last.min(head_dim - 1.0));
        if last > first { (first, last) } else { (first, first + 0.001) }
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
        Some("yarn") => Ok(RopeScaling::Yarn(Yarn::read(rope, fields, number("factor")?)?)),
        Some(kind) => {
            let found = shown(kind);
            Err(Error::NotSupported(format!("rope scaling of type \"{found}\" is not supported; supported: default, linear, llama3, yarn")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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

    fn yarn_of(rope: Value) -> Result<RopeConfig> {
        let value = json!({ "max_position_embeddings": 32_768, "rope_theta": 1e6, "rope_scaling": rope });
        RopeConfig::read(&Fields { value: &value, path: Path::new("config.json") })
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
        // What Qwen2.5's description says to add to the configuration.
        let rope = yarn_of(json!({ "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768 })).unwrap();
        let plain = RopeConfig::plain(1e6).frequencies(128);
        let ratios: Vec<f64> = rope.frequencies(128).iter().zip(&plain).map(|(scaled, plain)| scaled / plain).collect();
        // Of 64 pairs number 23 turns 32 times within the original positions, number 40 once.
        assert!(ratios[..=23].iter().all(|ratio| *ratio == 1.0) && ratios[40..].iter().all(|ratio| *ratio == 0.25), "{ratios:?}");
        assert!(ratios[23..=40].is_sorted_by(|a, b| a > b), "{ratios:?}");
        assert_eq!(rope.magnitude(), 0.1 * 4_f64.ln() + 1.0);
        assert_eq!(rope.positions(32_768), 131_072);
    }

    #[test]
    fn the_magnitude_of_yarn_is_what_the_file_says() {
        let said = |name: &str, number: f64| {
            let mut rope = json!({ "rope_type": "yarn", "factor": 4.0, "mscale": 2.0 });
            rope[name] = json!(number);
            yarn_of(rope).unwrap().magnitude()
        };
        assert_eq!(said("attention_factor", 1.5), 1.5);
        assert_eq!(said("mscale_all_dim", 1.0), (0.2 * 4_f64.ln() + 1.0) / (0.1 * 4_f64.ln() + 1.0));
    }

    #[test]
    fn what_is_no_yarn_is_a_problem_or_an_error() {
        let with = |name: &str, number: f64| {
            let mut rope = json!({ "rope_type": "yarn", "factor": 4.0 });
            rope[name] = json!(number);
            yarn_of(rope).map(|rope| rope.problem())
        };
        for (name, number) in
            [("factor", -1.0), ("factor", 1e9), ("beta_slow", 64.0), ("attention_factor", 0.0), ("original_max_position_embeddings", 1e18)]
        {
            assert!(matches!(with(name, number), Ok(Some(_))), "{name} = {number}");
        }
        assert!(matches!(with("beta_fast", 16.0), Ok(None)));
        assert!(matches!(with("partial_rotary_factor", 0.5), Err(Error::NotSupported(_))));
        assert!(yarn_of(json!({ "rope_type": "yarn" })).is_err());
        assert!(yarn_of(json!({ "rope_type": "yarn", "factor": 4.0, "partial_rotary_factor": null, "attention_factor": null })).is_ok());
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        let scaled = RopeConfig { theta: 100.0, scaling: RopeScaling::Linear { factor: 4.0 } }.frequencies(4);
        assert_eq!(scaled, [0.25, 0.025]);
    }
}
