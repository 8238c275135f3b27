//! Counter-based random numbers: the n-th number of a stream is a pure function of (seed, n).
//!
//! candle cannot seed its CPU generator. A counter also makes a sampled token depend on its request and position alone, never
//! on what else is in the batch.

/// A stream of random numbers keyed by a seed.
#[derive(Debug, Clone, Copy)]
pub struct CounterRng {
    key: u64,
}

impl CounterRng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { key: mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15)) }
    }

    /// An independent stream, for one part of a larger whole.
    pub fn stream(self, index: u64) -> Self {
        Self { key: mix(self.key ^ mix(index.wrapping_mul(0xD1B5_4A32_D192_ED03).wrapping_add(1))) }
    }

    /// 64 random bits at `counter`.
    pub fn bits(self, counter: u64) -> u64 {
        mix(self.key.wrapping_add(counter.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// A number in `[0, 1)` at `counter`.
    pub fn uniform(self, counter: u64) -> f64 {
        (self.bits(counter) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A standard normal number at `counter` (Box and Muller 1958).
    pub fn normal(self, counter: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform(2 * counter)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * counter + 1)).cos()
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit flips each output bit with probability one half.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
