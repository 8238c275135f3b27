//! Log-probabilities of a reference that a query gives: those of the base, for which rollouts of its own may speak, or of whatever model it names.

use crate::training::{DpoExample, ReferenceLogps};

/// What a row says of the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenReference {
    pub logps: ReferenceLogps,
    /// The row says that they are the base's: where they cannot be taken they are computed. Otherwise nobody knows whose they are.
    pub is_of_base: bool,
    /// The tokens of chosen and rejected that they are of; `None`: those that are learned.
    pub ids: Option<[Vec<u32>; 2]>,
}

impl GivenReference {
    /// What they say of the pair that is learned; `None` if they are of other tokens. `is_whole`: its prompt was not cut.
    pub fn of(&self, pair: &DpoExample, is_whole: bool) -> Option<ReferenceLogps> {
        let is_same = self.ids.as_ref().is_none_or(|[chosen, rejected]| *chosen == pair.chosen && *rejected == pair.rejected);
        (is_same && is_whole).then_some(self.logps)
    }
}

impl From<ReferenceLogps> for GivenReference {
    fn from(logps: ReferenceLogps) -> Self {
        Self { logps, is_of_base: false, ids: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_of_their_own_tokens() {
        let pair = DpoExample { prompt: vec![1], chosen: vec![2, 3], rejected: vec![4] };
        let logps = ReferenceLogps { chosen: -1.0, rejected: -2.0 };
        let given = |chosen: &[u32], rejected: &[u32]| GivenReference { ids: Some([chosen.into(), rejected.into()]), ..logps.into() };
        assert_eq!(given(&[2, 3], &[4]).of(&pair, true), Some(logps));
        assert_eq!(GivenReference::from(logps).of(&pair, true), Some(logps));
        for other in [given(&[2], &[4]), given(&[2, 3], &[4, 0])] {
            assert_eq!(other.of(&pair, true), None);
        }
        assert_eq!(given(&[2, 3], &[4]).of(&pair, false), None, "it read the whole prompt");
    }
}
