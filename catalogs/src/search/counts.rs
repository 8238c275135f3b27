//! How searches were answered, for EXPLAIN ANALYZE.

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};

/// Queries by the way they went; clones count together.
#[derive(Debug, Clone)]
pub(crate) struct SearchCounts {
    set: ExecutionPlanMetricsSet,
    /// Through a graph in memory.
    pub(crate) by_graph: Count,
    /// Through an index on disk.
    pub(crate) by_index: Count,
    /// By measuring every vector, or every one that matches: there is no index, few match, or the index found too few.
    pub(crate) by_every_vector: Count,
}

impl Default for SearchCounts {
    fn default() -> Self {
        let set = ExecutionPlanMetricsSet::new();
        let count = |name: &'static str| MetricBuilder::new(&set).global_counter(name);
        let (by_graph, by_index, by_every_vector) = (count("by_graph"), count("by_index"), count("by_every_vector"));
        Self { set, by_graph, by_index, by_every_vector }
    }
}

impl SearchCounts {
    pub(crate) fn metrics(&self) -> MetricsSet {
        self.set.clone_inner()
    }
}
