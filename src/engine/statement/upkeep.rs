//! What a statement that has written rows does for their table: it happens by itself, and its failure is no failure of the statement.

use rolloutdb_catalogs::Table;

use crate::engine::lineage::holds::Holds;
use crate::engine::session::Session;
use crate::error::Result;

/// Brings new rows into the indexes, compacts the table when many small commits have gathered, and removes its old versions when there are many. Until the first is
/// done BM25 scores of the rows are off by some percent. The rows are committed already, so that a failure is a warning; an error would make clients
/// write them again.
pub async fn after_write(session: &Session, table: &Table) {
    let refreshed = async {
        let latest = table.latest().await?;
        match latest.needs_compaction() {
            true => latest.compact().await.map(|_| ()),
            false => latest.optimize_indexes().await,
        }
    };
    if let Err(error) = refreshed.await {
        let message = format!("the rows are written, but the indexes of {} do not have them yet: {error}", table.name());
        session.notices().warning(message);
    }
    // Boxed: what it is made of is more than the compiler lays out.
    if let Err(error) = Box::pin(remove_old_versions(session, table)).await {
        session.notices().warning(format!("the rows are written, but old versions of {} are still there: {error}", table.name()));
    }
}

/// Those that nobody needs and nothing names, once in many commits.
async fn remove_old_versions(session: &Session, table: &Table) -> Result<()> {
    let shared = &session.database().shared;
    if !table.removal_is_due().await? {
        return Ok(());
    }
    let named = Holds::of(shared).await?.on(table)?;
    table.remove_old_versions(shared.version_retention, &named.into_keys().collect()).await?;
    Ok(())
}
