//! `pg_constraint`: primary keys and UNIQUE constraints; there are no others yet.

use super::Spec;
use crate::engine::pg_catalog::snapshot::Snapshot;
use crate::engine::pg_catalog::value::{Row, Value, row};

pub const SPECS: &[Spec] = &[Spec {
    name: "pg_constraint",
    oid: 2606,
    columns: "oid:oid conname:name connamespace:oid contype:char condeferrable:bool condeferred:bool convalidated:bool conrelid:oid \
        contypid:oid conindid:oid conparentid:oid confrelid:oid confupdtype:char confdeltype:char confmatchtype:char conislocal:bool \
        coninhcount:int2 connoinherit:bool conkey:int2[] confkey:int2[] conpfeqop:oid[] conppeqop:oid[] conffeqop:oid[] \
        confdelsetcols:int2[] conexclop:oid[] conbin:pg_node_tree",
    rows: constraints,
}];

fn constraints(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &snapshot.relations {
        for constraint in &relation.constraints {
            rows.push(row![
                constraint.oid,
                constraint.name.as_str(),
                relation.schema_oid,
                if constraint.is_primary { 'p' } else { 'u' },
                false,
                false,
                true,
                relation.oid,
                0_u32,
                constraint.index_oid,
                0_u32,
                0_u32,
                ' ',
                ' ',
                ' ',
                true,
                0_i64,
                true,
                Value::list(constraint.columns.iter().map(|column| Value::Int(*column))),
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
                Value::Null,
            ]);
        }
    }
    rows
}
