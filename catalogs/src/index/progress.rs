//! What the build of an index tells while it runs.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use lance_index::progress::IndexBuildProgress;

/// Is told where a build is: often, and from any thread, so that it has to be quick.
pub trait BuildProgress: Debug + Send + Sync {
    /// A phase begins. `total`: its units of work, if they are known.
    fn phase(&self, name: &str, total: Option<u64>, unit: &str);

    /// Units of the phase that are done so far.
    fn done(&self, done: u64);
}

/// For a caller that does not ask.
#[derive(Debug)]
pub(crate) struct Unwatched;

impl BuildProgress for Unwatched {
    fn phase(&self, _: &str, _: Option<u64>, _: &str) {}
    fn done(&self, _: u64) {}
}

/// Lance's stages as phases: `train_ivf` is `train ivf`.
#[derive(Debug)]
pub(super) struct Stages(pub(super) Arc<dyn BuildProgress>);

#[async_trait]
impl IndexBuildProgress for Stages {
    async fn stage_start(&self, stage: &str, total: Option<u64>, unit: &str) -> lance_core::Result<()> {
        self.0.phase(&stage.replace('_', " "), total, unit);
        Ok(())
    }

    async fn stage_progress(&self, _: &str, completed: u64) -> lance_core::Result<()> {
        self.0.done(completed);
        Ok(())
    }

    async fn stage_complete(&self, _: &str) -> lance_core::Result<()> {
        Ok(())
    }
}
