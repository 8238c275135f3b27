//! COMMENT ON.

use datafusion::sql::sqlparser::ast::ObjectName;
use rolloutdb_catalogs::{Commented, Error as CatalogError};
use rolloutdb_sql::{Comment, CommentedObject};

use super::{done, table_name};
use crate::engine::session::{Response, Session};
use crate::error::Result;

pub async fn execute(session: &Session, comment: &Comment) -> Result<Response> {
    let catalog = &session.database().shared.catalog;
    let text = comment.text.as_deref();
    match &comment.on {
        CommentedObject::Schema(name) => catalog.set_schema_comment(name, text)?,
        CommentedObject::View(name) => {
            let (schema, view) = table_name(name)?;
            catalog.set_view_comment(&schema, &view, None, text)?;
        }
        CommentedObject::Index(name) => {
            let (schema, index) = table_name(name)?;
            catalog.find_index(&schema, &index).await?.set_comment(Commented::Index(&index), text).await?;
        }
        CommentedObject::Table(name) => on_table(session, name, Commented::Table, text).await?,
        CommentedObject::Column { relation, column } => {
            let (schema, name) = table_name(relation)?;
            match catalog.set_view_comment(&schema, &name, Some(column.as_str()), text) {
                // A table of its own, or nothing, which the catalog says with the nearest names.
                Err(CatalogError::NotAView { .. } | CatalogError::UnknownTable { .. }) => {
                    on_table(session, relation, Commented::Column(column), text).await?;
                }
                ended => ended?,
            }
        }
    }
    Ok(done("COMMENT"))
}

async fn on_table(session: &Session, name: &ObjectName, on: Commented<'_>, text: Option<&str>) -> Result<()> {
    let (schema, table) = table_name(name)?;
    let table = session.database().shared.catalog.table(&schema, &table).await?;
    Ok(table.set_comment(on, text).await?)
}
