//! How one completion is sampled, and where its seed comes from.

/// Settings of one policy call.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f64,
    /// Nucleus: in (0, 1]; 1 keeps every token.
    pub top_p: f64,
    /// The most probable tokens to keep; 0 keeps all.
    pub top_k: usize,
    /// In [0, 1]: keeps tokens at least this times as probable as the most probable one.
    pub min_p: f64,
    /// Above 0; 1 does nothing.
    pub repetition_penalty: f64,
    /// At least 1.
    pub max_tokens: usize,
    /// Below 2^63, so that it fits an `int8` column and a stored step can be sampled again.
    pub seed: u64,
    /// The completion ends with the first of these that it writes.
    pub stop: Vec<String>,
}

impl Default for Sampling {
    /// Greedy, one token.
    fn default() -> Self {
        Self { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, repetition_penalty: 1.0, max_tokens: 1, seed: 0, stop: Vec::new() }
    }
}

/// A place in a tree of random choices: the run, the question, then an index per level.
///
/// Seeds are hashes of the place and not draws from a shared generator: a step gets the same seed whatever else is in
/// flight, so one question's result depends neither on the scheduling nor on the other questions of the run. The hash is
/// FNV-1a over the question key, mixed level by level with the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedPath(u64);

/// Keeps the indexes of rollouts apart from those of sampled children at the same node.
const ROLLOUT: u64 = 1 << 32;

impl SeedPath {
    /// The place of a question: equal for equal `(run_seed, question_key)`.
    pub fn question(run_seed: u64, question_key: &str) -> Self {
        Self(mix(run_seed) ^ fnv1a(question_key.as_bytes())).child(0)
    }

    /// The place of the `index`-th choice below this one.
    pub fn child(self, index: u64) -> Self {
        Self(mix(self.0 ^ mix(index)))
    }

    /// The place of the `index`-th simulated completion that starts here.
    pub fn rollout(self, index: u64) -> Self {
        self.child(ROLLOUT + index)
    }

    /// The seed of the policy call at this place, below 2^63.
    pub fn seed(self) -> u64 {
        self.0 >> 1
    }
}

/// SplitMix64: adds the golden gamma and scrambles; a bijection of `u64`.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Stored seeds must stay replayable: a change of the hash is a change of every run.
    #[test]
    fn published_vectors() {
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF, "first output of SplitMix64 seeded with 0");
        assert_eq!(fnv1a(b"a"), 0xAF63_DC4C_8601_EC8C, "FNV-1a test vector");
    }

    #[test]
    fn places_have_seeds_of_their_own() {
        let mut seeds = HashSet::new();
        let mut places = 0;
        for run_seed in 0..4 {
            for question in ["", "q1", "q2", "1q"] {
                let root = SeedPath::question(run_seed, question);
                for child in (0..8).map(|index| root.child(index)) {
                    places += 2;
                    seeds.extend([child.seed(), child.rollout(0).seed()]);
                    for grandchild in (0..8).map(|index| child.child(index)) {
                        places += 1;
                        seeds.insert(grandchild.seed());
                    }
                }
            }
        }
        assert_eq!(seeds.len(), places);
        assert!(seeds.iter().all(|seed| i64::try_from(*seed).is_ok()));
    }
}
