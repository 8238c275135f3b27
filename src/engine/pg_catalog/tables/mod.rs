//! The tables of `pg_catalog` and `information_schema`: their columns, and the functions that make their rows of a [`Snapshot`].
//!
//! Columns are those of PostgreSQL 16, in its order, so that clients that read by position find theirs; of a few tables that nobody reads so, some columns.
//!
//! A table that another part of the engine keeps (`pg_stat_activity`, `pg_stat_progress_copy`) is a virtual table of the schema `rollout` whose name begins with `pg_`:
//! it is shown in `pg_catalog` too, and goes before one of its name here.

mod classes;
mod columns;
mod constraints;
mod depends;
mod empty;
mod information_schema;
mod objects;
mod procedure_rows;
mod role_rows;
mod type_rows;
mod view_rows;

use super::catalog_table::{CatalogTable, columns};
use super::snapshot::{Column, INFORMATION_SCHEMA_OID, OWNER_OID, PG_CATALOG_OID, Relation, RelationKind, Snapshot};
use super::types::{NO_MODIFIER, PgType};
use super::value::Row;

pub const PG_CATALOG: &str = "pg_catalog";
pub const INFORMATION_SCHEMA: &str = "information_schema";

/// A table of the catalog.
struct Spec {
    name: &'static str,
    oid: u32,
    /// `name:type` with blanks between them.
    columns: &'static str,
    rows: fn(&Snapshot) -> Vec<Row>,
}

/// The superuser that is always there: it owns what belongs to nobody else.
const OWNER: u32 = OWNER_OID;

pub use classes::comments;
pub use objects::{VECTOR_COMMENT, VECTOR_VERSION, version};
pub use role_rows::HIDDEN;
pub use type_rows::{access_method, operator_class_name};

fn specs(schema: &str) -> Vec<&'static Spec> {
    let groups: &[&'static [Spec]] = match schema {
        PG_CATALOG => &[
            classes::SPECS,
            columns::SPECS,
            constraints::SPECS,
            depends::SPECS,
            type_rows::SPECS,
            procedure_rows::SPECS,
            objects::SPECS,
            role_rows::SPECS,
            view_rows::SPECS,
            empty::SPECS,
        ],
        _ => &[information_schema::SPECS],
    };
    groups.iter().flat_map(|group| group.iter()).collect()
}

/// The schema in which a name is one of a catalog table; without a schema only those of `pg_catalog` are found.
pub fn schema_of(schema: Option<&str>, name: &str, snapshot: &Snapshot) -> Option<&'static str> {
    let schema = match schema {
        None | Some(PG_CATALOG) => PG_CATALOG,
        Some(INFORMATION_SCHEMA) => INFORMATION_SCHEMA,
        Some(_) => return None,
    };
    is_table(schema, name).then_some(schema).or_else(|| (schema == PG_CATALOG && snapshot.has_system_table(name)).then_some(schema))
}

/// Whether a table is made here.
pub fn is_table(schema: &str, name: &str) -> bool {
    specs(schema).iter().any(|spec| spec.name == name)
}

pub fn make(schema: &str, name: &str, snapshot: &Snapshot) -> Option<CatalogTable> {
    let spec = specs(schema).into_iter().find(|spec| spec.name == name)?;
    Some(CatalogTable::new(columns(spec.columns), (spec.rows)(snapshot)))
}

/// The tables of the catalog as relations, which the catalog lists too.
pub fn relations() -> Vec<Relation> {
    let schemas = [(PG_CATALOG, PG_CATALOG_OID), (INFORMATION_SCHEMA, INFORMATION_SCHEMA_OID)];
    schemas
        .into_iter()
        .flat_map(|(schema, schema_oid)| specs(schema).into_iter().map(move |spec| relation(spec, schema, schema_oid)))
        .collect()
}

fn relation(spec: &Spec, schema: &str, schema_oid: u32) -> Relation {
    Relation {
        oid: spec.oid,
        schema: schema.to_owned(),
        schema_oid,
        name: spec.name.to_owned(),
        kind: if schema == PG_CATALOG && spec.oid < FIRST_VIEW { RelationKind::Table } else { RelationKind::System },
        columns: columns(spec.columns).into_iter().map(column).collect(),
        constraints: vec![],
        indexes: vec![],
        num_rows: -1.0,
        bytes: 0,
        comment: None,
    }
}

/// A table that another part keeps, as a relation.
pub fn system_relation(name: &str, oid: u32, table: &CatalogTable) -> Relation {
    Relation {
        oid,
        schema: PG_CATALOG.to_owned(),
        schema_oid: PG_CATALOG_OID,
        name: name.to_owned(),
        kind: RelationKind::System,
        columns: table.columns.iter().cloned().map(column).collect(),
        constraints: vec![],
        indexes: vec![],
        num_rows: -1.0,
        bytes: 0,
        comment: None,
    }
}

fn column((name, pg_type): (String, PgType)) -> Column {
    Column {
        name,
        pg_type,
        modifier: NO_MODIFIER,
        not_null: false,
        expression: None,
        is_generated: false,
        identity: None,
        sequence: None,
        comment: None,
    }
}

/// Views of the catalog have no fixed numbers in PostgreSQL; here they have those from this one on, and `information_schema` those from 13001 on.
const FIRST_VIEW: u32 = 12_000;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_table_has_a_number_of_its_own_and_columns_of_known_types() {
        let mut seen = HashSet::new();
        for relation in relations() {
            assert!(seen.insert(relation.oid), "{} has the number of another table", relation.name);
            let mut names = HashSet::new();
            assert!(relation.columns.iter().all(|column| names.insert(&column.name)), "{}", relation.name);
        }
        assert!(seen.len() > 80, "{} tables", seen.len());
    }
}
