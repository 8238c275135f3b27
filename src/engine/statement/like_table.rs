//! `CREATE TABLE copy (LIKE t INCLUDING ALL)`: columns as another table has them, with what INCLUDING asks for. No row is copied.

use std::sync::Arc;

use arrow::datatypes::Field;
use rolloutdb_catalogs::{Commented, Table, TableDefinition};
use rolloutdb_sql::{CreateTable, LikeProperty, LikeTable};

use super::table_name;
use crate::engine::session::Session;
use crate::error::Result;

/// The tables that a statement names after LIKE, in order.
///
/// # Errors
/// Of a name that no table has, or that is a view's.
pub async fn open(session: &Session, create: &CreateTable) -> Result<Vec<Arc<Table>>> {
    let mut tables = Vec::with_capacity(create.likes.len());
    for like in &create.likes {
        let (schema, name) = table_name(&like.table)?;
        tables.push(session.database().shared.catalog.table(&schema, &name).await?);
    }
    Ok(tables)
}

/// Puts the columns of the tables between those that the statement has of its own.
pub fn insert_columns(create: &CreateTable, tables: &[Arc<Table>], fields: &mut Vec<Field>) {
    for (like, table) in create.likes.iter().zip(tables).rev() {
        let columns = table.definition().schema.fields().iter().map(|field| field.as_ref().clone());
        fields.splice(like.position..like.position, columns);
    }
}

/// The definition with what the columns bring along. `name`: of the new table, after which constraints are called.
///
/// # Errors
/// Two primary keys.
pub fn with_properties(mut definition: TableDefinition, name: &str, like: &LikeTable, table: &Table) -> Result<TableDefinition> {
    let other = table.definition();
    if like.includes(LikeProperty::Defaults) {
        for (column, expression) in &other.defaults {
            definition = definition.with_default(column, expression)?;
        }
    }
    if like.includes(LikeProperty::Generated) {
        for (column, expression) in &other.generated {
            definition = definition.with_generated(column, expression)?;
        }
    }
    if like.includes(LikeProperty::Identity) {
        for (column, identity) in &other.identity {
            definition = definition.with_identity(column, *identity)?;
        }
    }
    if like.includes(LikeProperty::Compression) {
        for (column, method) in &other.compression {
            definition = definition.with_compression(column, method)?;
        }
    }
    if like.includes(LikeProperty::Indexes) {
        for (columns, is_primary) in other.unique_constraints() {
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            definition = definition.with_constraint(name, None, is_primary, &columns)?;
        }
    }
    Ok(definition)
}

/// Says what is not copied though it was asked for.
pub async fn note_what_stays(session: &Session, create: &CreateTable, tables: &[Arc<Table>]) -> Result<()> {
    for (like, table) in create.likes.iter().zip(tables) {
        let is_commented = |field: &Arc<Field>| table.comment(Commented::Column(field.name())).is_some();
        if like.includes(LikeProperty::Comments) && table.definition().schema.fields().iter().any(is_commented) {
            session.notices().notice(format!("comments on columns of \"{}\" are not copied; COMMENT ON COLUMN writes them", table.name()));
        }
        let indexes = if like.includes(LikeProperty::Indexes) { table.indexes().await? } else { Vec::new() };
        for index in indexes {
            session.notices().notice(format!("index \"{}\" of \"{}\" is not copied; CREATE INDEX makes one", index.name, table.name()));
        }
    }
    Ok(())
}
