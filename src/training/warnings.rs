//! What a run says while it goes on: nothing of it is an error.

use std::fmt;
use std::sync::Arc;

/// Who hears warnings; nobody by default. It is no part of what a run computes: all are equal.
#[derive(Clone, Default)]
pub struct Warnings(Option<Arc<dyn Fn(String) + Send + Sync>>);

impl Warnings {
    /// `hear` gets one sentence for each thing, on the thread of the run.
    pub fn new(hear: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hear)))
    }

    pub fn say(&self, warning: String) {
        if let Some(hear) = &self.0 {
            hear(warning);
        }
    }
}

impl fmt::Debug for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warnings")
    }
}

impl PartialEq for Warnings {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
