//! VACUUM, OPTIMIZE, ANALYZE.

use std::sync::Arc;
use std::time::Duration;

use datafusion::sql::sqlparser::ast::ObjectName;
use rolloutdb_catalogs::{Table, UnwantedVectors};
use rolloutdb_sql::{Analyze, Optimize, Vacuum};

use super::train::remove_old_checkpoints;
use super::{done, table_name};
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

pub async fn vacuum(session: &Session, vacuum: &Vacuum) -> Result<Response> {
    let retention = if vacuum.full { Duration::ZERO } else { session.database().shared.version_retention };
    for table in tables(session, &vacuum.tables).await? {
        if vacuum.full {
            table.compact().await?;
        }
        let removed = table.vacuum(retention).await?;
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
