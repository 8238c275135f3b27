//! Tables that other parts of the engine keep (`pg_stat_activity`, `pg_stat_progress_copy`), with the numbers by which they join with those here.
//!
//! Their rows name databases, users, tables and indexes; the columns of the numbers are empty there, since only the catalog knows them.

use super::catalog_table::CatalogTable;
use super::snapshot::{DATABASE_OID, Relation, RoleEntry};
use super::types::{Kind, PgType};
use super::value::{Row, Value};

/// What has numbers.
pub struct Numbers<'a> {
    pub relations: &'a [Relation],
    pub roles: &'a [RoleEntry],
}

/// PostgreSQL's types of columns whose Arrow type stands for another one.
const TYPES: &[(&str, Kind)] = &[
    ("datid", Kind::Oid),
    ("datname", Kind::Name),
    ("usesysid", Kind::Oid),
    ("usename", Kind::Name),
    ("relid", Kind::Oid),
    ("index_relid", Kind::Oid),
    ("backend_xid", Kind::Xid),
    ("backend_xmin", Kind::Xid),
];

impl Numbers<'_> {
    /// The table with its numbers filled in.
    pub fn filled(&self, table: CatalogTable) -> CatalogTable {
        let CatalogTable { mut columns, rows } = table;
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        for (name, pg_type) in &mut columns {
            if let Some((_, kind)) = TYPES.iter().find(|(known, _)| *known == name.as_str()) {
                *pg_type = PgType::One(*kind);
            }
        }
        let filled_row = |row: &Row| {
            let text = |wanted: &str| names.iter().position(|name| name == wanted).and_then(|position| row[position].as_str());
            let value = |(name, value): (&String, &Value)| match value {
                Value::Null => self.number(name, &text).map_or(Value::Null, Value::oid),
                known => known.clone(),
            };
            names.iter().zip(row).map(value).collect::<Row>()
        };
        let rows = rows.iter().map(filled_row).collect();
        CatalogTable::new(columns, rows)
    }

    /// `text`: the values of the row by the names of their columns.
    fn number<'r>(&self, column: &str, text: &dyn Fn(&str) -> Option<&'r str>) -> Option<u32> {
        match column {
            "datid" => text("datname").map(|_| DATABASE_OID),
            "usesysid" => {
                let user = text("usename")?;
                self.roles.iter().find(|entry| entry.role.name == user).map(|entry| entry.role.oid)
            }
            "relid" => self.relation(text("schema_name")?, text("table_name")?).map(|relation| relation.oid),
            "index_relid" => {
                let relation = self.relation(text("schema_name")?, text("table_name")?)?;
                let name = text("index_name")?;
                relation.indexes.iter().find(|index| index.definition.name == name).map(|index| index.oid)
            }
            _ => None,
        }
    }

    fn relation(&self, schema: &str, name: &str) -> Option<&Relation> {
        self.relations.iter().find(|relation| relation.schema == schema && relation.name == name)
    }
}
