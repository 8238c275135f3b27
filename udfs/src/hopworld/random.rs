//! Random numbers that are the same on every machine: SplitMix64 and draws made of integer or exactly rounded arithmetic.

/// SplitMix64 (Steele, Lea, Flood 2014): a counter and a mixing function, period 2^64.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The stream called `label` of `seed`: streams of one seed are independent, so that asking for more films, say, does not
    /// change the questions' wording.
    pub(super) fn stream(seed: u64, label: &str) -> Self {
        Self { state: mix(seed ^ stable_hash(label)) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Uniform in `0..bound`; `bound` must be positive. The bias of the multiply-shift is below `bound / 2^64`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0, "an empty range has no element");
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Uniform in `low..=high`.
    pub(super) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True with the given probability. The 53-bit fraction is exact in f64.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// Uniform in `[0, 1)`, a multiple of 2^-53.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One item; `items` must not be empty.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// The index of one weight, drawn in proportion to the weights; their sum must be positive.
    pub(super) fn weighted(&mut self, weights: impl Iterator<Item = f64> + Clone) -> usize {
        let mut target = self.fraction() * weights.clone().sum::<f64>();
        let mut last_positive = 0;
        for (index, weight) in weights.enumerate() {
            if weight > 0.0 {
                last_positive = index;
                if target < weight {
                    break;
                }
            }
            target -= weight;
        }
        last_positive
    }

    /// Fisher-Yates.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// FNV-1a over the bytes, then SplitMix64's finaliser so that the low bit depends on all of them. Fixed for ever: the partition of
/// the names into splits rests on it.
pub(super) fn stable_hash(text: &str) -> u64 {
    let fnv = text.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
    mix(fnv)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
