//! Which tree a call is made for, so that what it has read is kept until the tree is done.

use std::sync::{Arc, Weak};

tokio::task_local! {
    static IN_WORK: Arc<()>;
}

/// Runs what grows one tree.
pub async fn growing<T>(work: impl Future<Output = T>) -> T {
    IN_WORK.scope(Arc::default(), work).await
}

/// What lives as long as the tree grows that this is called for; nothing outside of one.
pub fn in_work() -> Weak<()> {
    IN_WORK.try_with(Arc::downgrade).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_tree_has_its_own_until_it_is_done() {
        let (first, second) = (growing(async { in_work() }).await, growing(async { (in_work(), in_work().strong_count()) }).await);
        assert_eq!((first.strong_count(), second.0.strong_count(), second.1), (0, 0, 1));
        assert!(!first.ptr_eq(&second.0));
        assert_eq!(in_work().strong_count(), 0);
    }
}
