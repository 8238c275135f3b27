//! Who values nodes.

use std::sync::Arc;

use async_trait::async_trait;

use super::judge::Judge;
use crate::error::Result;

/// Who says what a node is worth; the option `value`.
#[derive(Clone, Default)]
pub enum Valuer {
    /// The policy runs to the end.
    #[default]
    Policy,
    Judge(Judge),
    Prm(Arc<dyn ProcessRewardModel>),
}

/// A trained model that values one step of a trajectory without seeing the golden answers.
#[async_trait]
pub trait ProcessRewardModel: Send + Sync {
    /// The value, in [0, 1], of a step that the policy wrote when it was shown `prompt`; None if the model cannot read the whole step. It
    /// depends on the two texts only.
    async fn value(&self, prompt: &str, step: &str) -> Result<Option<f64>>;
}
