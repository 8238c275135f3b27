//! A table of the catalog: named columns and rows in memory.

use std::sync::Arc;

use super::types::PgType;
use super::value::Row;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct CatalogTable {
    pub columns: Vec<(String, PgType)>,
    pub rows: Arc<Vec<Row>>,
}

impl CatalogTable {
    pub fn new(columns: Vec<(String, PgType)>, rows: Vec<Row>) -> Self {
        Self { columns, rows: Arc::new(rows) }
    }
}

/// Columns as they are written down: `oid:oid relname:name indkey:int2vector conkey:int2[]`.
pub fn columns(text: &str) -> Vec<(String, PgType)> {
    text.split_whitespace()
        .map(|column| {
            let (name, pg_type) = column.split_once(':').expect("a column is written name:type");
            (name.to_owned(), PgType::named(pg_type).expect("the type of a column of the catalog is known"))
        })
        .collect()
}
