//! TRUNCATE.

use rolloutdb_sql::Truncate;

use super::super::{done, table_name};
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
    }
    Ok(done("TRUNCATE TABLE"))
}
