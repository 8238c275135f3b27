//! `pg_class` and what belongs to a table as a whole: `pg_index`, `pg_description`.

use rolloutdb_catalogs::is_temporary_schema;

use super::Spec;
use crate::engine::pg_catalog::snapshot::{Index, Relation, RelationKind, Sequence, Snapshot};
use crate::engine::pg_catalog::tables::type_rows::{access_method, operator_class};
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::{Row, Value, row};

/// Bytes of a page, in which PostgreSQL counts the size of tables.
const PAGE: u64 = 8192;
/// The access method of tables.
pub const TABLE_METHOD: u32 = 2;

pub const PG_CLASS: u32 = 1259;

/// The columns that PostgreSQL has for every sequence.
pub const SEQUENCE_COLUMNS: [(&str, Kind); 3] = [("last_value", Kind::Int8), ("log_cnt", Kind::Int8), ("is_called", Kind::Bool)];

pub const SPECS: &[Spec] = &[
    Spec {
        name: "pg_class",
        oid: PG_CLASS,
        columns: "oid:oid relname:name relnamespace:oid reltype:oid reloftype:oid relowner:oid relam:oid relfilenode:oid reltablespace:oid \
            relpages:int4 reltuples:float4 relallvisible:int4 reltoastrelid:oid relhasindex:bool relisshared:bool relpersistence:char \
            relkind:char relnatts:int2 relchecks:int2 relhasrules:bool relhastriggers:bool relhassubclass:bool relrowsecurity:bool \
            relforcerowsecurity:bool relispopulated:bool relreplident:char relispartition:bool relrewrite:oid relfrozenxid:xid \
            relminmxid:xid relacl:aclitem[] reloptions:text[] relpartbound:pg_node_tree",
        rows: classes,
    },
    Spec {
        name: "pg_index",
        oid: 2610,
        columns: "indexrelid:oid indrelid:oid indnatts:int2 indnkeyatts:int2 indisunique:bool indnullsnotdistinct:bool indisprimary:bool \
            indisexclusion:bool indimmediate:bool indisclustered:bool indisvalid:bool indcheckxmin:bool indisready:bool indislive:bool \
            indisreplident:bool indkey:int2vector indcollation:oidvector indclass:oidvector indoption:int2vector indexprs:pg_node_tree \
            indpred:pg_node_tree",
        rows: indexes,
    },
    Spec { name: "pg_description", oid: 2609, columns: "objoid:oid classoid:oid objsubid:int4 description:text", rows: descriptions },
];

/// What differs between the rows of tables, views, indexes and sequences.
struct ClassRow<'a> {
    oid: u32,
    name: &'a str,
    schema_oid: u32,
    is_temporary: bool,
    owner: u32,
    method: u32,
    bytes: u64,
    num_rows: f64,
    has_index: bool,
    kind: char,
    num_columns: usize,
    privileges: Value,
    options: Value,
}

fn class_row(class: &ClassRow<'_>) -> Row {
    let is_stored = class.kind == 'r' || class.kind == 'i';
    row![
        class.oid,
        class.name,
        class.schema_oid,
        0_u32,
        0_u32,
        class.owner,
        class.method,
        if is_stored { class.oid } else { 0 },
        0_u32,
        i64::try_from(class.bytes.div_ceil(PAGE)).unwrap_or(i64::from(i32::MAX)).min(i64::from(i32::MAX)),
        class.num_rows,
        0_i64,
        0_u32,
        class.has_index,
        false,
        if class.is_temporary { 't' } else { 'p' },
        class.kind,
        class.num_columns as i64,
        0_i64,
        class.kind == 'v',
        false,
        false,
        false,
        false,
        true,
        if class.kind == 'r' { 'd' } else { 'n' },
        false,
        0_u32,
        0_i64,
        0_i64,
        class.privileges.clone(),
        class.options.clone(),
        Value::Null,
    ]
}

fn classes(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &snapshot.relations {
        let kind = if relation.kind == RelationKind::Table { 'r' } else { 'v' };
        let held = snapshot.held(&relation.object());
        let is_temporary = is_temporary_schema(&relation.schema);
        rows.push(class_row(&ClassRow {
            oid: relation.oid,
            name: &relation.name,
            schema_oid: relation.schema_oid,
            is_temporary,
            owner: held.owner_oid,
            method: if kind == 'r' { TABLE_METHOD } else { 0 },
            bytes: relation.bytes,
            num_rows: relation.num_rows,
            has_index: !relation.indexes.is_empty() || !relation.constraints.is_empty(),
            kind,
            num_columns: relation.columns.len(),
            privileges: held.list(),
            options: Value::Null,
        }));
        let index_row = |oid, name: &str, method, bytes, num_columns, options| {
            class_row(&ClassRow {
                oid,
                name,
                schema_oid: relation.schema_oid,
                is_temporary,
                owner: held.owner_oid,
                method,
                bytes,
                num_rows: relation.num_rows,
                has_index: false,
                kind: 'i',
                num_columns,
                privileges: Value::Null,
                options,
            })
        };
        for Index { oid, definition, bytes, .. } in &relation.indexes {
            let options = definition.options.iter().map(|(name, value)| Value::text(format!("{name}={value}")));
            let options = if definition.options.is_empty() { Value::Null } else { Value::list(options) };
            rows.push(index_row(*oid, &definition.name, access_method(definition.kind), *bytes, 1, options));
        }
        for constraint in &relation.constraints {
            let method = access_method(rolloutdb_catalogs::IndexKind::BTree);
            rows.push(index_row(constraint.index_oid, &constraint.name, method, 0, constraint.columns.len(), Value::Null));
        }
        for sequence in relation.columns.iter().filter_map(|column| column.sequence.as_ref()) {
            rows.push(sequence_row(relation, sequence, held.owner_oid));
        }
    }
    rows
}

/// Of an identity column: clients find its numbers by it, and the table gives them.
fn sequence_row(relation: &Relation, sequence: &Sequence, owner: u32) -> Row {
    class_row(&ClassRow {
        oid: sequence.oid,
        name: &sequence.name,
        schema_oid: relation.schema_oid,
        is_temporary: is_temporary_schema(&relation.schema),
        owner,
        method: 0,
        bytes: 0,
        // PostgreSQL keeps a sequence in one row.
        num_rows: 1.0,
        has_index: false,
        kind: 'S',
        num_columns: SEQUENCE_COLUMNS.len(),
        privileges: Value::Null,
        options: Value::Null,
    })
}

/// What differs between an index that was made and the one that a client sees for a constraint.
struct IndexRow {
    oid: u32,
    relation: u32,
    columns: Vec<i64>,
    is_unique: bool,
    is_primary: bool,
    classes: Vec<u32>,
}

fn index_row(index: &IndexRow) -> Row {
    let count = index.columns.len() as i64;
    let zeros = || Value::list(index.columns.iter().map(|_| Value::Int(0)));
    row![
        index.oid,
        index.relation,
        count,
        count,
        index.is_unique,
        false,
        index.is_primary,
        false,
        true,
        false,
        true,
        false,
        true,
        true,
        false,
        Value::list(index.columns.iter().map(|column| Value::Int(*column))),
        zeros(),
        Value::list(index.classes.iter().map(|class| Value::oid(*class))),
        zeros(),
        Value::Null,
        Value::Null,
    ]
}

fn indexes(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &snapshot.relations {
        let type_of = |column: i64| usize::try_from(column - 1).ok().and_then(|position| relation.columns.get(position)?.pg_type.kind());
        rows.extend(relation.indexes.iter().map(|index| {
            index_row(&IndexRow {
                oid: index.oid,
                relation: relation.oid,
                columns: vec![index.column],
                is_unique: false,
                is_primary: false,
                classes: vec![operator_class(index.definition.kind, index.definition.metric, type_of(index.column))],
            })
        }));
        rows.extend(relation.constraints.iter().map(|constraint| {
            let class = |column: &i64| operator_class(rolloutdb_catalogs::IndexKind::BTree, None, type_of(*column));
            index_row(&IndexRow {
                oid: constraint.index_oid,
                relation: relation.oid,
                columns: constraint.columns.clone(),
                is_unique: true,
                is_primary: constraint.is_primary,
                classes: constraint.columns.iter().map(class).collect(),
            })
        }));
    }
    rows
}

/// Comments, by the number of the object, of the catalog table that lists it, and of the column.
pub fn comments(snapshot: &Snapshot) -> Vec<(u32, u32, i64, &str)> {
    const PG_NAMESPACE: u32 = 2615;
    const PG_PROC: u32 = 1255;
    let mut comments = Vec::new();
    for schema in &snapshot.schemas {
        comments.extend(schema.comment.as_deref().map(|text| (schema.oid, PG_NAMESPACE, 0, text)));
    }
    for relation in &snapshot.relations {
        comments.extend(of_relation(relation));
    }
    let procedures = snapshot.procedures.iter();
    comments.extend(procedures.filter_map(|procedure| Some((procedure.oid, PG_PROC, 0, procedure.description.as_deref()?))));
    comments
}

fn of_relation(relation: &Relation) -> Vec<(u32, u32, i64, &str)> {
    let own = relation.comment.as_deref().map(|text| (relation.oid, PG_CLASS, 0, text));
    let columns = relation.columns.iter().enumerate();
    let columns = columns.filter_map(|(position, column)| Some((relation.oid, PG_CLASS, position as i64 + 1, column.comment.as_deref()?)));
    let indexes = relation.indexes.iter().filter_map(|index| Some((index.oid, PG_CLASS, 0, index.comment.as_deref()?)));
    own.into_iter().chain(columns).chain(indexes).collect()
}

fn descriptions(snapshot: &Snapshot) -> Vec<Row> {
    comments(snapshot).into_iter().map(|(object, class, column, text)| row![object, class, column, text]).collect()
}
