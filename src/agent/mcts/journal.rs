//! What lasts of a tree that is interrupted: the answers of its models.

use std::sync::Arc;

use super::value::Valuer;
use crate::agent::client::PolicyClient;

/// Stands between the trees of a search and its models, and knows again what these have answered.
///
/// A tree is a function of its question, the seed and the answers. So a search that gets the answers of one that was interrupted grows the nodes that
/// it had, and goes on there.
pub trait Journal: Send + Sync {
    /// The policy and the valuer as the tree of this question asks them: they answer as those that are given do.
    fn models(&self, question_id: &str, policy: &Arc<dyn PolicyClient>, valuer: &Valuer) -> (Arc<dyn PolicyClient>, Valuer);
}
