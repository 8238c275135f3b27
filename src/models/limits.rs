//! How much memory models take, and how it is divided.

/// Without a limit of its own a runtime takes this much.
const DEFAULT_MEMORY: u64 = 8 << 30;

/// Parts of the memory: of sequences in flight, and of what policies keep of finished ones. What is left is for weights.
const RUNNING_PART: u64 = 4;
const KEPT_PART: u64 = 8;
/// What is kept never takes more than this part.
const KEPT_PART_MAX: u64 = 2;

/// Memory in bytes. What a model's thread works on while it computes comes on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Of the machine: weights, beyond which the models unused longest are let go, and the keys and values of policies.
    pub memory: u64,
    /// Of it, for the keys and values that policies keep of finished sequences; None: an eighth. With 0 nothing is shared, not even between
    /// sequences in flight.
    pub prefixes: Option<u64>,
    /// Of each GPU, for weights; None: 80 % of what it has.
    pub gpu_memory: Option<u64>,
}

impl ModelLimits {
    /// For weights in the machine's memory.
    pub(super) fn weights(&self) -> u64 {
        self.memory.saturating_sub(self.memory / RUNNING_PART).saturating_sub(self.kept_bytes())
    }

    /// For the keys and values of sequences in flight.
    pub(super) fn running(&self) -> usize {
        size(self.memory / RUNNING_PART)
    }

    /// For those of finished sequences.
    pub(super) fn kept(&self) -> usize {
        size(self.kept_bytes())
    }

    fn kept_bytes(&self) -> u64 {
        self.prefixes.map_or(self.memory / KEPT_PART, |bytes| bytes.min(self.memory / KEPT_PART_MAX))
    }
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self { memory: DEFAULT_MEMORY, prefixes: None, gpu_memory: None }
    }
}

/// More than there are addresses is as much as there can be.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_memory() {
        let parts = |limits: ModelLimits| (limits.weights(), limits.running() as u64, limits.kept() as u64);
        let limits = ModelLimits { memory: 800, ..ModelLimits::default() };
        assert_eq!(parts(limits), (500, 200, 100));
        assert_eq!(parts(ModelLimits { prefixes: Some(0), ..limits }), (600, 200, 0));
        assert_eq!(parts(ModelLimits { prefixes: Some(u64::MAX), ..limits }), (200, 200, 400));
    }
}
