//! Log-probabilities of a reference that a query gives: those of the base, for which rollouts of its own may speak, or of whatever model it names.

use crate::training::{DpoExample, ReferenceLogps};

/// What a row says of the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenReference {
    pub logps: ReferenceLogps,
    /// The row says that they are the base's: where they cannot be taken they are computed. Otherwise nobody knows whose they are.
    pub is_of_base: bool,
    /// The tokens of chosen and rejected that they are of; `None`: nobody tells.
    pub ids: Option<[Vec<u32>; 2]>,
}

/// What a query gives of the reference of a pair that is learned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Given {
    pub logps: ReferenceLogps,
    /// As in [`GivenReference`].
    pub is_of_base: bool,
    /// The tokens that they are of are those that are learned. Otherwise that is to be found out.
    pub is_of_learned: bool,
}

impl GivenReference {
    /// What they say of the pair that is learned; `None` if they are the base's, and of other tokens. `is_whole`: its prompt was not cut.
    pub fn of(&self, pair: &DpoExample, is_whole: bool) -> Option<Given> {
        let is_same = self.ids.as_ref().map(|[chosen, rejected]| *chosen == pair.chosen && *rejected == pair.rejected);
        let (logps, is_of_base, is_of_learned) = (self.logps, self.is_of_base, is_same == Some(true));
        let is_other = is_of_base && is_same == Some(false);
        (is_whole && !is_other).then_some(Given { logps, is_of_base, is_of_learned })
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
        let given = |is_of_base: bool, chosen: &[u32], rejected: &[u32]| {
            let given = GivenReference { is_of_base, ids: Some([chosen.into(), rejected.into()]), ..logps.into() };
            given.of(&pair, true).map(|given| given.is_of_learned)
        };
        for is_of_base in [true, false] {
            assert_eq!(given(is_of_base, &[2, 3], &[4]), Some(true));
        }
        for (chosen, rejected) in [(&[2][..], &[4][..]), (&[2, 3], &[4, 0])] {
            assert_eq!(given(true, chosen, rejected), None, "it can be computed");
            assert_eq!(given(false, chosen, rejected), Some(false), "it is asked whose they are");
        }
        let unsaid = GivenReference::from(logps);
        assert_eq!(unsaid.of(&pair, true), Some(Given { logps, is_of_base: false, is_of_learned: false }));
        assert_eq!(unsaid.of(&pair, false), None, "it read the whole prompt");
    }
}
