//! What a statement that has written rows does for their table: it happens by itself, and its failure is no failure of the statement.

use std::collections::HashSet;

use rolloutdb_catalogs::Table;

use crate::engine::apply::planner::split_table_name;
use crate::engine::session::Session;

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
    let retention = session.database().shared.version_retention;
    let kept = versions_of_agents(session, table);
    // Boxed: what it is made of is more than the compiler lays out.
    if let Err(error) = Box::pin(table.remove_old_versions(retention, &kept)).await {
        session.notices().warning(format!("the rows are written, but old versions of {} are still there: {error}", table.name()));
    }
}

/// Versions of the table that agents search by their numbers. One that they name by a tag has that.
fn versions_of_agents(session: &Session, table: &Table) -> HashSet<u64> {
    let agents = session.database().shared.agents.list();
    let is_of_table = |corpus: &str| split_table_name(corpus) == (table.schema_name().to_owned(), table.name().to_owned());
    let of_table = agents.iter().filter(|agent| is_of_table(&agent.options.corpus));
    of_table.filter_map(|agent| agent.options.corpus_version.as_ref()?.parse().ok()).collect()
}
