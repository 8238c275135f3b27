//! TRUNCATE.

use rolloutdb_catalogs::Table;
use rolloutdb_sql::Truncate;

use super::super::{done, table_name};
use crate::engine::lineage::{Made, Record};
use crate::engine::session::{Response, Session};
use crate::error::Result;

/// All tables are found before the first is emptied.
pub async fn execute(session: &Session, truncate: &Truncate) -> Result<Response> {
    let catalog = &session.database().shared.catalog;
    let mut tables = Vec::with_capacity(truncate.names.len());
    for name in &truncate.names {
        let (schema, table) = table_name(name)?;
        tables.push(catalog.table(&schema, &table).await?);
    }
    for table in tables {
        table.begin_rewrite().await?.truncate(truncate.restart_identity).await?;
        forget_rows(&table).await?;
    }
    Ok(done("TRUNCATE TABLE"))
}

/// What the rows stood on is no longer held for them.
async fn forget_rows(table: &Table) -> Result<()> {
    if table.lineage()?.records.is_empty() {
        return Ok(());
    }
    let version = table.latest().await?.version();
    Ok(table.note_lineage(&Record { version, ..Record::new(Made::Emptied, &"") }.to_json(), Record::may_go)?)
}
