//! A score in the place of the vocabulary head: one number for each row, outside of the autograd graph.
//!
//! `score_r = hidden_r · weight`, and with `g_r = ∂loss/∂score_r`: `d_hidden_r = g_r · weight`, `d_weight = Σ_r g_r · hidden_r`. That is little beside
//! the blocks, so it is plain loops; sums are in f64, in the order of the rows.

use candle_core::Tensor;

use super::head::{DecoderHead, HeadGradients};
use crate::error::{Error, Result};
use crate::models::Decoder;

/// The weight of a score, detached.
#[derive(Debug)]
pub(crate) struct ScoreHead {
    /// `[H]`
    weight: Vec<f32>,
}

impl DecoderHead for ScoreHead {
    fn of(decoder: &Decoder) -> Result<Self> {
        Self::new(decoder.head_weight())
    }
}

impl ScoreHead {
    /// `weight`: `[1, H]`.
    ///
    /// # Errors
    /// [`Error::Internal`] for a weight of another shape.
    pub fn new(weight: &Tensor) -> Result<Self> {
        match weight.dims2()? {
            (1, _) => Ok(Self { weight: weight.detach().flatten_all()?.to_vec1()? }),
            (num_outputs, _) => Err(Error::Internal(format!("a head with {num_outputs} outputs is no score"))),
        }
    }

    /// The score of each row. `hidden`: `[R, H]`, detached.
    ///
    /// # Errors
    /// [`Error::Tensor`] for rows of another width.
    pub fn scores(&self, hidden: &Tensor) -> Result<Vec<f64>> {
        Ok(self.rows(hidden)?.iter().map(|row| self.score(row)).collect())
    }

    /// As [`ScoreHead::scores`], and the derivatives for `d_scores[r] = ∂loss/∂score_r`.
    ///
    /// # Errors
    /// As [`ScoreHead::scores`]; [`Error::Internal`] for another number of derivatives.
    pub fn gradients(&self, hidden: &Tensor, d_scores: &[f64]) -> Result<HeadGradients> {
        let rows = self.rows(hidden)?;
        if rows.len() != d_scores.len() {
            return Err(Error::Internal(format!("{} rows have {} derivatives of their scores", rows.len(), d_scores.len())));
        }
        let width = self.weight.len();
        let mut d_hidden = Vec::with_capacity(rows.len() * width);
        let mut d_weight = vec![0.0_f64; width];
        for (row, d_score) in rows.iter().zip(d_scores) {
            d_hidden.extend(self.weight.iter().map(|weight| (d_score * f64::from(*weight)) as f32));
            d_weight.iter_mut().zip(row).for_each(|(sum, value)| *sum += d_score * f64::from(*value));
        }
        let d_weight: Vec<f32> = d_weight.into_iter().map(|sum| sum as f32).collect();
        Ok(HeadGradients {
            entropies: Vec::new(),
            outputs: rows.iter().map(|row| self.score(row)).collect(),
            d_hidden: Tensor::from_vec(d_hidden, (rows.len(), width), hidden.device())?,
            d_weight: Some(Tensor::from_vec(d_weight, (1, width), hidden.device())?),
        })
    }

    fn rows(&self, hidden: &Tensor) -> Result<Vec<Vec<f32>>> {
        match hidden.dims2()? {
            (_, width) if width == self.weight.len() => Ok(hidden.to_vec2()?),
            (_, width) => {
                let message = format!("rows of {width} values: expected {}, as the weight of the score", self.weight.len());
                Err(candle_core::Error::Msg(message).into())
            }
        }
    }

    fn score(&self, row: &[f32]) -> f64 {
        row.iter().zip(&self.weight).map(|(value, weight)| f64::from(*value) * f64::from(*weight)).sum()
    }
}
