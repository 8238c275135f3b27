//! `pg_depend` and `pg_rewrite`: what belongs to what. By these clients tell an index from the index of a constraint, find the sequence of an identity
//! column, and take a relation for a view.

use super::Spec;
use crate::engine::pg_catalog::mentions::Mentions;
use crate::engine::pg_catalog::snapshot::{Relation, RelationKind, Snapshot};
use crate::engine::pg_catalog::tables::classes::PG_CLASS;
use crate::engine::pg_catalog::tables::objects::EXTENSION_OID;
use crate::engine::pg_catalog::types::TYPES;
use crate::engine::pg_catalog::value::{Row, Value, row};
use rolloutdb_sql::Statement;

const PG_TYPE: u32 = 1247;
const PG_ATTRDEF: u32 = 2604;
const PG_CONSTRAINT: u32 = 2606;
const PG_NAMESPACE: u32 = 2615;
const PG_REWRITE: u32 = 2618;
const PG_EXTENSION: u32 = 3079;

/// How an object depends on another: `n` it needs it, `a` it goes with it, `i` it is a part of it, `e` it came with the extension.
const NORMAL: char = 'n';
const AUTO: char = 'a';
const INTERNAL: char = 'i';
const OF_EXTENSION: char = 'e';

pub const SPECS: &[Spec] = &[
    Spec {
        name: "pg_depend",
        oid: 2608,
        columns: "classid:oid objid:oid objsubid:int4 refclassid:oid refobjid:oid refobjsubid:int4 deptype:char",
        rows: dependencies,
    },
    Spec {
        name: "pg_rewrite",
        oid: PG_REWRITE,
        columns: "oid:oid rulename:name ev_class:oid ev_type:char ev_enabled:char is_instead:bool ev_qual:pg_node_tree ev_action:pg_node_tree",
        rows: rules,
    },
];

/// The catalog table that lists an object, its number, and the number of a column or 0.
type Object = (u32, u32, i64);

fn dependency((class, object, column): Object, (of_class, of_object, of_column): Object, kind: char) -> Row {
    row![class, object, column, of_class, of_object, of_column, kind]
}

fn dependencies(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = of_types();
    for relation in snapshot.relations.iter().filter(|relation| !relation.is_of_system()) {
        of_relation(relation, &mut rows);
        if let RelationKind::View(query) = &relation.kind {
            of_view(snapshot, relation, query, &mut rows);
        }
    }
    rows
}

fn of_types() -> Vec<Row> {
    let of_extension = TYPES.iter().filter(|info| info.kind.is_of_extension());
    let pair = of_extension.flat_map(|info| {
        [
            dependency((PG_TYPE, info.oid, 0), (PG_EXTENSION, EXTENSION_OID, 0), OF_EXTENSION),
            dependency((PG_TYPE, info.array_oid, 0), (PG_TYPE, info.oid, 0), INTERNAL),
        ]
    });
    pair.collect()
}

fn of_relation(relation: &Relation, rows: &mut Vec<Row>) {
    let column = |number: i64| (PG_CLASS, relation.oid, number);
    rows.push(dependency((PG_CLASS, relation.oid, 0), (PG_NAMESPACE, relation.schema_oid, 0), NORMAL));
    for (position, described) in relation.columns.iter().enumerate() {
        let own = column(position as i64 + 1);
        if let Some((default, _)) = &described.expression {
            rows.push(dependency((PG_ATTRDEF, *default, 0), own, if described.is_generated { INTERNAL } else { AUTO }));
        }
        if let Some(sequence) = &described.sequence {
            rows.push(dependency((PG_CLASS, sequence.oid, 0), (PG_NAMESPACE, relation.schema_oid, 0), NORMAL));
            rows.push(dependency((PG_CLASS, sequence.oid, 0), own, INTERNAL));
        }
    }
    for index in &relation.indexes {
        rows.push(dependency((PG_CLASS, index.oid, 0), column(index.column), AUTO));
    }
    for constraint in &relation.constraints {
        let own = (PG_CONSTRAINT, constraint.oid, 0);
        rows.push(dependency((PG_CLASS, constraint.index_oid, 0), own, INTERNAL));
        rows.extend(constraint.columns.iter().map(|number| dependency(own, column(*number), AUTO)));
    }
}

/// On the tables that its query reads; PostgreSQL says on which of their columns, too.
fn of_view(snapshot: &Snapshot, view: &Relation, query: &str, rows: &mut Vec<Row>) {
    let rule = (PG_REWRITE, view.oid, 0);
    rows.push(dependency(rule, (PG_CLASS, view.oid, 0), INTERNAL));
    let Ok(statements) = rolloutdb_sql::parse(query) else { return };
    let Some(Statement::Query(query)) = statements.first() else { return };
    let mentions = Mentions::of(query);
    let named = |parts: &[String]| match parts {
        [.., schema, name] => snapshot.class_named(Some(schema), name),
        [name] => snapshot.class_named(Some(&view.schema), name).or_else(|| snapshot.class_named(None, name)),
        [] => None,
    };
    let mut read: Vec<u32> = mentions.tables().filter_map(named).collect();
    read.sort_unstable();
    read.dedup();
    rows.extend(read.into_iter().map(|table| dependency(rule, (PG_CLASS, table, 0), NORMAL)));
}

/// Every view has the rule that makes it one. It has the number of its view: the numbers of rules are their own.
fn rules(snapshot: &Snapshot) -> Vec<Row> {
    let views = snapshot.relations.iter().filter(|relation| relation.kind != RelationKind::Table);
    views.map(|view| row![view.oid, "_RETURN", view.oid, '1', 'O', true, Value::Null, Value::Null]).collect()
}
