//! How much memory models take, and how it is divided.

/// Without a limit of its own a runtime takes this much.
const DEFAULT_MEMORY: u64 = 8 << 30;

/// Parts of the memory: of sequences in flight, and of what policies keep of finished ones. What is left is for weights.
const RUNNING_PART: u64 = 4;
const KEPT_PART: u64 = 8;
/// What is kept never takes more than this part.
const KEPT_PART_MAX: u64 = 2;

/// Without a limit of their own, the weights on a GPU take this share of its memory: keys, values and what a forward works on need room too.
const GPU_WEIGHTS_SHARE: f64 = 0.8;
/// Parts of what a GPU has beside the weights, at least a tenth of it all: for keys and values, and of these for those that are kept.
const GPU_REST_PART_MIN: u64 = 10;
const GPU_KEYS_PART: u64 = 2;
const GPU_KEPT_PART: u64 = 3;

/// Memory in bytes. What a model's thread works on while it computes comes on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Of the machine: weights, beyond which the models unused longest are let go, and the keys and values of policies.
    pub memory: u64,
    /// Of it, for the keys and values that policies keep of finished sequences; None: an eighth. With 0 nothing is shared, not even between
    /// sequences in flight. On each GPU with policies the same, at most half of what there is for keys and values; None: a third of that.
    pub prefixes: Option<u64>,
    /// Of each GPU, for weights; None: 80 % of what it has. Half of what that leaves is for the keys and values of policies.
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

    /// For weights on a GPU that has so many bytes.
    pub(super) fn gpu_weights(gpu_memory: Option<u64>, total: u64) -> u64 {
        gpu_memory.unwrap_or((total as f64 * GPU_WEIGHTS_SHARE) as u64)
    }

    /// For the keys and values on a GPU that has so many bytes: of sequences in flight, and of finished ones.
    pub(super) fn on_gpu(&self, total: u64) -> (usize, usize) {
        let rest = total.saturating_sub(Self::gpu_weights(self.gpu_memory, total)).max(total / GPU_REST_PART_MIN);
        let keys = rest / GPU_KEYS_PART;
        let kept = self.prefixes.map_or(keys / GPU_KEPT_PART, |bytes| bytes.min(keys / KEPT_PART_MAX));
        (size(keys - kept), size(kept))
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

    #[test]
    fn keys_and_values_have_half_of_what_weights_leave_of_a_gpu() {
        let limits = ModelLimits::default();
        assert_eq!((ModelLimits::gpu_weights(None, 6000), limits.on_gpu(6000)), (4800, (400, 200)));
        assert_eq!(ModelLimits { gpu_memory: Some(3000), ..limits }.on_gpu(6000), (1000, 500));
        assert_eq!(ModelLimits { gpu_memory: Some(u64::MAX), ..limits }.on_gpu(6000), (200, 100), "a tenth is there anyway");
        assert_eq!(ModelLimits { prefixes: Some(0), ..limits }.on_gpu(6000), (600, 0));
        assert_eq!(ModelLimits { prefixes: Some(u64::MAX), ..limits }.on_gpu(6000), (300, 300));
    }
}
