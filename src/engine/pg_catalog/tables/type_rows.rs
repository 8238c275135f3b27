//! `pg_type` and what types and indexes are made of: access methods, operator classes, collations.

use rolloutdb_catalogs::{IndexKind, Metric};

use super::{OWNER, Spec};
use crate::engine::pg_catalog::procedures::{InOut, in_out};
use crate::engine::pg_catalog::snapshot::{PG_CATALOG_OID, PUBLIC_OID, Snapshot};
use crate::engine::pg_catalog::tables::classes::TABLE_METHOD;
use crate::engine::pg_catalog::tables::columns::collation;
use crate::engine::pg_catalog::types::{Kind, PgType, TYPES, TypeInfo};
use crate::engine::pg_catalog::value::{Row, Value, row};

/// Texts compare by their bytes; `default` is the number of that collation, as in PostgreSQL.
pub const DEFAULT_COLLATION: u32 = 100;

pub const SPECS: &[Spec] = &[
    Spec {
        name: "pg_type",
        oid: 1247,
        columns: "oid:oid typname:name typnamespace:oid typowner:oid typlen:int2 typbyval:bool typtype:char typcategory:char \
            typispreferred:bool typisdefined:bool typdelim:char typrelid:oid typsubscript:regproc typelem:oid typarray:oid \
            typinput:regproc typoutput:regproc typreceive:regproc typsend:regproc typmodin:regproc typmodout:regproc typanalyze:regproc \
            typalign:char typstorage:char typnotnull:bool typbasetype:oid typtypmod:int4 typndims:int4 typcollation:oid \
            typdefaultbin:pg_node_tree typdefault:text typacl:aclitem[]",
        rows: types,
    },
    Spec { name: "pg_am", oid: 2601, columns: "oid:oid amname:name amhandler:regproc amtype:char", rows: access_methods },
    Spec {
        name: "pg_opclass",
        oid: 2616,
        columns: "oid:oid opcmethod:oid opcname:name opcnamespace:oid opcowner:oid opcfamily:oid opcintype:oid opcdefault:bool opckeytype:oid",
        rows: operator_classes,
    },
    Spec {
        name: "pg_opfamily",
        oid: 2753,
        columns: "oid:oid opfmethod:oid opfname:name opfnamespace:oid opfowner:oid",
        rows: operator_families,
    },
    Spec {
        name: "pg_collation",
        oid: 3456,
        columns: "oid:oid collname:name collnamespace:oid collowner:oid collprovider:char collisdeterministic:bool collencoding:int4 \
            collcollate:text collctype:text colliculocale:text collicurules:text collversion:text",
        rows: collations,
    },
];

/// Whether values of this length are passed in a register.
pub fn is_by_value(length: i64) -> bool {
    matches!(length, 1 | 2 | 4 | 8)
}

fn schema_of(info: &TypeInfo) -> u32 {
    if info.kind.is_of_extension() { PUBLIC_OID } else { PG_CATALOG_OID }
}

fn is_preferred(kind: Kind) -> bool {
    matches!(kind, Kind::Bool | Kind::Text | Kind::Oid | Kind::Float8 | Kind::Timestamptz | Kind::Interval)
}

struct TypeRow {
    oid: u32,
    name: String,
    schema: u32,
    length: i64,
    kind: char,
    category: char,
    is_preferred: bool,
    element: u32,
    array: u32,
    in_out: InOut,
    collation: u32,
}

fn type_row(of: &TypeRow) -> Row {
    let align = match of.length {
        1 => 'c',
        2 => 's',
        8 => 'd',
        _ => 'i',
    };
    row![
        of.oid,
        of.name.as_str(),
        of.schema,
        OWNER,
        of.length,
        is_by_value(of.length),
        of.kind,
        of.category,
        of.is_preferred,
        true,
        ',',
        0_u32,
        0_u32,
        of.element,
        of.array,
        of.in_out.input,
        of.in_out.output,
        of.in_out.receive,
        of.in_out.send,
        0_u32,
        0_u32,
        0_u32,
        align,
        if of.length < 0 { 'x' } else { 'p' },
        false,
        0_u32,
        -1_i64,
        0_i64,
        of.collation,
        Value::Null,
        Value::Null,
        Value::Null,
    ]
}

fn types(_: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for info in TYPES {
        let element = PgType::One(info.kind).item();
        rows.push(type_row(&TypeRow {
            oid: info.oid,
            name: info.name.to_owned(),
            schema: schema_of(info),
            length: i64::from(info.length),
            kind: if info.category == 'P' { 'p' } else { 'b' },
            category: info.category,
            is_preferred: is_preferred(info.kind),
            element: if element.is_unknown() { 0 } else { element.oid() },
            array: info.array_oid,
            in_out: in_out(Some(info.kind)),
            collation: collation(&PgType::One(info.kind)),
        }));
        if info.array_oid != 0 {
            rows.push(type_row(&TypeRow {
                oid: info.array_oid,
                name: format!("_{}", info.name),
                schema: schema_of(info),
                length: -1,
                kind: if info.category == 'P' { 'p' } else { 'b' },
                category: 'A',
                is_preferred: false,
                element: info.oid,
                array: 0,
                in_out: in_out(None),
                collation: collation(&PgType::One(info.kind)),
            }));
        }
    }
    rows
}

/// The number of the access method after USING.
pub fn access_method(kind: IndexKind) -> u32 {
    match kind {
        // PostgreSQL's.
        IndexKind::BTree => 403,
        other => 8_100 + IndexKind::ALL.iter().position(|known| *known == other).map_or(0, |position| position as u32),
    }
}

fn access_methods(_: &Snapshot) -> Vec<Row> {
    let tables = row![TABLE_METHOD, "lance", 0_u32, 't'];
    let indexes = IndexKind::ALL.map(|kind| row![access_method(kind), kind.name(), 0_u32, 'i']);
    std::iter::once(tables).chain(indexes).collect()
}

/// pgvector's operator classes: their distances, in the order of their numbers.
const DISTANCES: [(Metric, &str); 3] = [(Metric::Cosine, "cosine"), (Metric::L2, "l2"), (Metric::Dot, "ip")];

/// The name of the operator class that an index over vectors was made with: `vector_cosine_ops`.
pub fn operator_class_name(metric: Metric, column: Option<Kind>) -> String {
    let of = if column == Some(Kind::Halfvec) { "halfvec" } else { "vector" };
    let distance = DISTANCES.iter().find(|(known, _)| *known == metric).map_or("cosine", |(_, name)| name);
    format!("{of}_{distance}_ops")
}

/// The number of the operator class of an index on a column of a type.
pub fn operator_class(method: IndexKind, metric: Option<Metric>, column: Option<Kind>) -> u32 {
    let method_number = IndexKind::ALL.iter().position(|known| *known == method).map_or(0, |position| position as u32);
    let number = if method.is_vector() {
        let metric = metric.unwrap_or(Metric::Cosine);
        let distance = DISTANCES.iter().position(|(known, _)| *known == metric).map_or(0, |position| position as u32);
        distance * 2 + u32::from(column == Some(Kind::Halfvec))
    } else {
        column.and_then(|kind| TYPES.iter().position(|info| info.kind == kind)).map_or(0, |position| position as u32 + 10)
    };
    8_200 + method_number * 100 + number
}

fn operator_classes(_: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for method in IndexKind::ALL {
        let mut add = |oid: u32, name: String, of: Kind, is_default: bool| {
            rows.push(row![oid, access_method(method), name, schema_of(of.info()), OWNER, oid, of.info().oid, is_default, 0_u32]);
        };
        if method.is_vector() {
            for (metric, _) in DISTANCES {
                for of in [Kind::Vector, Kind::Halfvec] {
                    let oid = operator_class(method, Some(metric), Some(of));
                    add(oid, operator_class_name(metric, Some(of)), of, metric == Metric::Cosine);
                }
            }
            continue;
        }
        for info in TYPES.iter().filter(|info| info.category != 'P' && info.kind != Kind::Bit && !info.kind.is_of_extension()) {
            add(operator_class(method, None, Some(info.kind)), format!("{}_ops", info.name), info.kind, true);
        }
    }
    rows
}

/// Each class is a family of its own, and has its number.
fn operator_families(snapshot: &Snapshot) -> Vec<Row> {
    let family = |class: Row| -> Row {
        // `oid`, `opcmethod`, `opcname`, `opcnamespace` and `opcowner` of the class.
        class.into_iter().take(5).collect()
    };
    operator_classes(snapshot).into_iter().map(family).collect()
}

fn collations(_: &Snapshot) -> Vec<Row> {
    let collation = |oid: u32, name: &str| {
        row![
            oid,
            name,
            PG_CATALOG_OID,
            OWNER,
            if oid == DEFAULT_COLLATION { 'd' } else { 'c' },
            true,
            -1_i64,
            "C",
            "C",
            Value::Null,
            Value::Null,
            Value::Null
        ]
    };
    vec![collation(DEFAULT_COLLATION, "default"), collation(950, "C"), collation(951, "POSIX")]
}
