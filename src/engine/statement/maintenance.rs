//! VACUUM, OPTIMIZE, ANALYZE.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use datafusion::sql::sqlparser::ast::ObjectName;
use rolloutdb_catalogs::{HeldVersions, Table, UnwantedVectors};
use rolloutdb_sql::{Analyze, Optimize, Vacuum};

use super::train::remove_old_checkpoints;
use super::{done, table_name};
use crate::engine::lineage::holds::{Holds, Named, holders};
use crate::engine::progress::size_text;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

pub async fn vacuum(session: &Session, vacuum: &Vacuum) -> Result<Response> {
    let retention = if vacuum.full { Duration::ZERO } else { session.database().shared.version_retention };
    let tables = tables(session, &vacuum.tables).await?;
    let holds = Box::pin(Holds::of(&session.database().shared)).await?;
    for table in tables {
        if vacuum.full {
            table.compact().await?;
        }
        let named = holds.on(&table)?;
        let numbers: HashSet<u64> = named.keys().copied().collect();
        let held = table.held_versions(retention, &numbers).await?;
        let kept = if vacuum.force { HashSet::new() } else { numbers };
        let removed = table.vacuum(retention, &kept).await?;
        tell_held(session, &table, &named, &held, vacuum.force);
        let (schema, name) = (table.schema_name(), table.name());
        if removed.files + removed.versions > 0 {
            let freed = removed.bytes as f64 / f64::from(1 << 20);
            session
                .notices()
                .notice(format!("{schema}.{name}: {} versions and {} files removed, {freed:.1} MiB", removed.versions, removed.files));
        }
    }
    if vacuum.tables.is_empty() {
        remove_unused_downloads(session, retention).await?;
        remove_old_checkpoints(session).await?;
    }
    Ok(done("VACUUM"))
}

/// Says which versions stay for those that name them, or that these have lost them.
fn tell_held(session: &Session, table: &Table, named: &Named, held: &HeldVersions, are_removed: bool) {
    let (schema, name, notices) = (table.schema_name(), table.name(), session.notices());
    if held.versions.is_empty() {
        return;
    }
    if are_removed {
        for version in &held.versions {
            let holders: Vec<&str> = named.get(version).into_iter().flatten().map(String::as_str).collect();
            notices.warning(format!("{schema}.{name}: version {version} is removed, which is named by {}", holders.join(", ")));
        }
        return;
    }
    let (count, holders) = (held.versions.len(), holders(named, &held.versions));
    let (what, them) = if count == 1 { ("old version is", "it") } else { ("old versions are", "them") };
    notices.notice(format!(
        "{schema}.{name}: {count} {what} kept, {} ({} bytes), for {holders}; drop what names {them}, or remove {them} with VACUUM (FULL, FORCE)",
        size_text(held.bytes),
        held.bytes
    ));
}

/// Files that were fetched and that no model has; parts of files among them, which nobody has taken up.
async fn remove_unused_downloads(session: &Session, older_than: Duration) -> Result<()> {
    let hub = Arc::clone(&session.database().shared.hub);
    let removed = tokio::task::spawn_blocking(move || hub.remove_unused(older_than)).await;
    let removed = removed.map_err(|error| Error::Internal(error.to_string()))??;
    if removed.files > 0 {
        let freed = removed.bytes as f64 / f64::from(1 << 20);
        session.notices().notice(format!("models of hubs: {} files that no model has removed, {freed:.1} MiB", removed.files));
    }
    Ok(())
}

pub async fn optimize(session: &Session, optimize: &Optimize) -> Result<Response> {
    for table in tables(session, &optimize.tables).await? {
        if table.is_backfilling() {
            let (schema, name) = (table.schema_name(), table.name());
            session.notices().notice(format!("{schema}.{name}: its files stay as they are while a column is filled"));
        }
        let (before, after) = table.compact().await?;
        if before != after {
            session.notices().notice(format!("{}.{}: {before} files are {after} now", table.schema_name(), table.name()));
        }
    }
    Ok(done("OPTIMIZE"))
}

/// There are no statistics to bring up to date. What is stored and would not be stored today is told.
pub async fn analyze(session: &Session, analyze: &Analyze) -> Result<Response> {
    for table in tables(session, &analyze.tables).await? {
        for UnwantedVectors { column, count, first } in table.unwanted_vectors().await? {
            let name = format!("{}.{}", table.schema_name(), table.name());
            let vectors = if count == 1 { "1 vector has".to_owned() } else { format!("{count} vectors have") };
            session.notices().warning(format!(
                "column \"{column}\" of {name}: {vectors} NaN or infinity, the first at {first}; new ones are refused: UPDATE or DELETE these rows"
            ));
        }
    }
    Ok(done("ANALYZE"))
}

/// The named tables, or all. Views have nothing to keep.
async fn tables(session: &Session, names: &[ObjectName]) -> Result<Vec<Arc<Table>>> {
    let catalog = &session.database().shared.catalog;
    let mut tables = Vec::new();
    for name in names {
        let (schema, table) = table_name(name)?;
        tables.push(catalog.table(&schema, &table).await?);
    }
    if names.is_empty() {
        tables = catalog.all_tables().await?;
    }
    Ok(tables)
}
