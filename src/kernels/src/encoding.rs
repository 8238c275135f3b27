//! How the weights of a GGUF file are stored: most encodings are of blocks, 32 or 256 values that share scales
//! (<https://github.com/ggml-org/ggml>, whose `docs/gguf.md` has the numbers of the types). `decoding.rs` reads them.

/// How the values of a row of weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// Four bits and a scale.
    Q4_0,
    /// Four bits, a scale and a minimum.
    Q4_1,
    /// Five bits and a scale.
    Q5_0,
    /// Five bits, a scale and a minimum.
    Q5_1,
    /// Eight bits and a scale.
    Q8_0,
    /// Four bits; each 32 of 256 values have a scale and a minimum of six bits.
    Q4K,
    /// Five bits, as [`Self::Q4K`].
    Q5K,
    /// Six bits; each 16 of 256 values have a scale of eight bits.
    Q6K,
}

/// Values of a small block.
const BLOCK: usize = 32;
/// Values of a large block, which has eight groups of [`BLOCK`].
const SUPERBLOCK: usize = 256;

impl Encoding {
    pub const ALL: [Self; 10] =
        [Self::F16, Self::Bf16, Self::Q4_0, Self::Q4_1, Self::Q5_0, Self::Q5_1, Self::Q8_0, Self::Q4K, Self::Q5K, Self::Q6K];

    /// As GGUF names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Values of one block; a row is whole blocks.
    pub const fn block_values(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => BLOCK,
            Self::Q4K | Self::Q5K | Self::Q6K => SUPERBLOCK,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of so many values; `None` if they are not whole blocks, or beyond all memory.
    pub fn bytes(self, values: usize) -> Option<usize> {
        let blocks = values.is_multiple_of(self.block_values()).then(|| values / self.block_values())?;
        blocks.checked_mul(self.block_bytes())
    }
}
