//! `pg_attribute` and `pg_attrdef`.

use rolloutdb_catalogs::Identity;

use super::Spec;
use crate::engine::pg_catalog::snapshot::{Column, Relation, Snapshot};
use crate::engine::pg_catalog::tables::classes::SEQUENCE_COLUMNS;
use crate::engine::pg_catalog::tables::type_rows::{DEFAULT_COLLATION, is_by_value};
use crate::engine::pg_catalog::types::{Kind, NO_MODIFIER, PgType};
use crate::engine::pg_catalog::value::{Row, Value, row};

pub const SPECS: &[Spec] = &[
    Spec {
        name: "pg_attribute",
        oid: 1249,
        columns: "attrelid:oid attname:name atttypid:oid attlen:int2 attnum:int2 attcacheoff:int4 atttypmod:int4 attndims:int2 \
            attbyval:bool attalign:char attstorage:char attcompression:char attnotnull:bool atthasdef:bool atthasmissing:bool \
            attidentity:char attgenerated:char attisdropped:bool attislocal:bool attinhcount:int2 attstattarget:int2 attcollation:oid \
            attacl:aclitem[] attoptions:text[] attfdwoptions:text[] attmissingval:text[]",
        rows: attributes,
    },
    Spec { name: "pg_attrdef", oid: 2604, columns: "oid:oid adrelid:oid adnum:int2 adbin:pg_node_tree", rows: defaults },
    Spec {
        name: "pg_sequence",
        oid: 2224,
        columns: "seqrelid:oid seqtypid:oid seqstart:int8 seqincrement:int8 seqmax:int8 seqmin:int8 seqcache:int8 seqcycle:bool",
        rows: sequences,
    },
];

/// `attlen`, `attalign` and whether the values are passed in a register.
fn layout(pg_type: &PgType) -> (i64, char, bool) {
    let length = match pg_type {
        PgType::One(kind) => i64::from(kind.info().length),
        PgType::Many(_) | PgType::Record(_) | PgType::Records(_) => -1,
    };
    let align = match length {
        1 => 'c',
        2 => 's',
        8 => 'd',
        _ => 'i',
    };
    (length, align, is_by_value(length))
}

/// The number of the collation of a type of text; 0 for the others.
pub fn collation(pg_type: &PgType) -> u32 {
    let (PgType::One(kind) | PgType::Many(kind)) = pg_type else { return 0 };
    if matches!(kind, Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name) { DEFAULT_COLLATION } else { 0 }
}

/// `a` or `d` for a column that the table numbers.
pub fn identity(column: &Column) -> &'static str {
    match column.identity {
        None => "",
        Some(Identity::Always) => "a",
        Some(Identity::ByDefault) => "d",
    }
}

struct AttributeRow<'a> {
    relation: u32,
    number: usize,
    name: &'a str,
    pg_type: &'a PgType,
    modifier: i32,
    not_null: bool,
    has_default: bool,
    identity: &'static str,
    generated: &'static str,
}

fn attribute_row(attribute: &AttributeRow<'_>) -> Row {
    let (length, align, by_value) = layout(attribute.pg_type);
    row![
        attribute.relation,
        attribute.name,
        attribute.pg_type.oid(),
        length,
        attribute.number as i64,
        -1_i64,
        attribute.modifier,
        i64::from(matches!(attribute.pg_type, PgType::Many(_))),
        by_value,
        align,
        if length < 0 { 'x' } else { 'p' },
        "",
        attribute.not_null,
        attribute.has_default,
        false,
        attribute.identity,
        attribute.generated,
        false,
        true,
        0_i64,
        -1_i64,
        collation(attribute.pg_type),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

fn attributes(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &snapshot.relations {
        for (position, column) in relation.columns.iter().enumerate() {
            rows.push(attribute_row(&AttributeRow {
                relation: relation.oid,
                number: position + 1,
                name: &column.name,
                pg_type: &column.pg_type,
                modifier: column.modifier,
                not_null: column.not_null,
                has_default: column.expression.is_some(),
                identity: identity(column),
                generated: if column.is_generated { "s" } else { "" },
            }));
        }
        for index in &relation.indexes {
            rows.extend(index_columns(relation, index.oid, &[index.column]));
        }
        for constraint in &relation.constraints {
            rows.extend(index_columns(relation, constraint.index_oid, &constraint.columns));
        }
        for sequence in relation.columns.iter().filter_map(|column| column.sequence.as_ref()) {
            rows.extend(sequence_columns(sequence.oid));
        }
    }
    rows
}

fn sequence_columns(sequence: u32) -> impl Iterator<Item = Row> {
    SEQUENCE_COLUMNS.into_iter().enumerate().map(move |(position, (name, kind))| {
        attribute_row(&AttributeRow {
            relation: sequence,
            number: position + 1,
            name,
            pg_type: &PgType::One(kind),
            modifier: NO_MODIFIER,
            not_null: true,
            has_default: false,
            identity: "",
            generated: "",
        })
    })
}

/// The columns of an index are columns of a relation too.
fn index_columns(relation: &Relation, index: u32, columns: &[i64]) -> Vec<Row> {
    let known = columns.iter().filter_map(|column| usize::try_from(column - 1).ok().and_then(|position| relation.columns.get(position)));
    known
        .enumerate()
        .map(|(position, column)| {
            attribute_row(&AttributeRow {
                relation: index,
                number: position + 1,
                name: &column.name,
                pg_type: &column.pg_type,
                modifier: NO_MODIFIER,
                not_null: false,
                has_default: false,
                identity: "",
                generated: "",
            })
        })
        .collect()
}

fn defaults(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &snapshot.relations {
        for (position, column) in relation.columns.iter().enumerate() {
            if let Some((oid, text)) = &column.expression {
                rows.push(row![*oid, relation.oid, position as i64 + 1, text.as_str()]);
            }
        }
    }
    rows
}

/// Tables number identity columns from 1 on, by ones, up to what the type holds.
fn sequences(snapshot: &Snapshot) -> Vec<Row> {
    let columns = snapshot.relations.iter().flat_map(|relation| &relation.columns);
    let row_of = |column: &Column| {
        let sequence = column.sequence.as_ref()?;
        Some(row![sequence.oid, column.pg_type.oid(), 1_i64, 1_i64, largest_number(&column.pg_type), 1_i64, 1_i64, false])
    };
    columns.filter_map(row_of).collect()
}

/// The last number that an identity column of a type can have.
pub fn largest_number(pg_type: &PgType) -> i64 {
    match pg_type {
        PgType::One(Kind::Int2) => i64::from(i16::MAX),
        PgType::One(Kind::Int4) => i64::from(i32::MAX),
        _ => i64::MAX,
    }
}
