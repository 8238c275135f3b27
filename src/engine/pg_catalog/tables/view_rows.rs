//! The views of `pg_catalog` over its tables, in names instead of numbers.

use super::Spec;
use crate::engine::pg_catalog::functions::definitions::{index_definition, unique_index_definition};
use crate::engine::pg_catalog::snapshot::{Column, DATABASE_OID, Relation, RelationKind, Snapshot, database_name};
use crate::engine::pg_catalog::tables::columns::largest_number;
use crate::engine::pg_catalog::value::{Row, Value, row};

const STATISTICS: &str = "relid:oid schemaname:name relname:name seq_scan:int8 last_seq_scan:timestamptz seq_tup_read:int8 idx_scan:int8 \
    last_idx_scan:timestamptz idx_tup_fetch:int8 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8 n_tup_newpage_upd:int8 \
    n_live_tup:int8 n_dead_tup:int8 n_mod_since_analyze:int8 n_ins_since_vacuum:int8 last_vacuum:timestamptz last_autovacuum:timestamptz \
    last_analyze:timestamptz last_autoanalyze:timestamptz vacuum_count:int8 autovacuum_count:int8 analyze_count:int8 autoanalyze_count:int8";
/// Columns of [`STATISTICS`] that nobody counts here: NULL.
const NOT_COUNTED_BEFORE: usize = 11;
const NOT_COUNTED_AFTER: usize = 11;

const INDEX_STATISTICS: &str = "relid:oid indexrelid:oid schemaname:name relname:name indexrelname:name idx_scan:int8 \
    last_idx_scan:timestamptz idx_tup_read:int8 idx_tup_fetch:int8";
/// Nobody counts blocks: the columns are there, and NULL.
const BLOCKS: &str = "relid:oid schemaname:name relname:name heap_blks_read:int8 heap_blks_hit:int8 idx_blks_read:int8 idx_blks_hit:int8 \
    toast_blks_read:int8 toast_blks_hit:int8 tidx_blks_read:int8 tidx_blks_hit:int8";
const INDEX_BLOCKS: &str = "relid:oid indexrelid:oid schemaname:name relname:name indexrelname:name idx_blks_read:int8 idx_blks_hit:int8";

pub const SPECS: &[Spec] = &[
    Spec {
        name: "pg_tables",
        oid: 12_101,
        columns: "schemaname:name tablename:name tableowner:name tablespace:name hasindexes:bool hasrules:bool hastriggers:bool rowsecurity:bool",
        rows: tables,
    },
    Spec { name: "pg_views", oid: 12_102, columns: "schemaname:name viewname:name viewowner:name definition:text", rows: views },
    Spec {
        name: "pg_matviews",
        oid: 12_103,
        columns: "schemaname:name matviewname:name matviewowner:name tablespace:name hasindexes:bool ispopulated:bool definition:text",
        rows: |_| vec![],
    },
    Spec {
        name: "pg_indexes",
        oid: 12_104,
        columns: "schemaname:name tablename:name indexname:name tablespace:name indexdef:text",
        rows: indexes,
    },
    Spec {
        name: "pg_sequences",
        oid: 12_105,
        columns: "schemaname:name sequencename:name sequenceowner:name data_type:regtype start_value:int8 min_value:int8 max_value:int8 \
            increment_by:int8 cycle:bool cache_size:int8 last_value:int8",
        rows: sequences,
    },
    Spec { name: "pg_stat_user_tables", oid: 12_106, columns: STATISTICS, rows: |snapshot| statistics(snapshot, false) },
    Spec { name: "pg_stat_all_tables", oid: 12_107, columns: STATISTICS, rows: |snapshot| statistics(snapshot, true) },
    Spec { name: "pg_stat_user_indexes", oid: 12_108, columns: INDEX_STATISTICS, rows: |snapshot| index_statistics(snapshot, 4) },
    // The catalog has no indexes of its own.
    Spec { name: "pg_stat_all_indexes", oid: 12_110, columns: INDEX_STATISTICS, rows: |snapshot| index_statistics(snapshot, 4) },
    Spec { name: "pg_statio_user_tables", oid: 12_111, columns: BLOCKS, rows: |snapshot| blocks(snapshot, false) },
    Spec { name: "pg_statio_all_tables", oid: 12_112, columns: BLOCKS, rows: |snapshot| blocks(snapshot, true) },
    Spec { name: "pg_statio_user_indexes", oid: 12_113, columns: INDEX_BLOCKS, rows: |snapshot| index_statistics(snapshot, 2) },
    Spec { name: "pg_statio_all_indexes", oid: 12_114, columns: INDEX_BLOCKS, rows: |snapshot| index_statistics(snapshot, 2) },
    Spec {
        name: "pg_stat_database",
        oid: 12_109,
        columns: "datid:oid datname:name numbackends:int4 xact_commit:int8 xact_rollback:int8 blks_read:int8 blks_hit:int8 tup_returned:int8 \
            tup_fetched:int8 tup_inserted:int8 tup_updated:int8 tup_deleted:int8 conflicts:int8 temp_files:int8 temp_bytes:int8 \
            deadlocks:int8 checksum_failures:int8 checksum_last_failure:timestamptz blk_read_time:float8 blk_write_time:float8 \
            session_time:float8 active_time:float8 idle_in_transaction_time:float8 sessions:int8 sessions_abandoned:int8 \
            sessions_fatal:int8 sessions_killed:int8 stats_reset:timestamptz",
        rows: database_statistics,
    },
];

fn is_stored(relation: &Relation) -> bool {
    relation.kind == RelationKind::Table
}

fn tables(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |relation: &Relation| {
        let has_indexes = !relation.indexes.is_empty() || !relation.constraints.is_empty();
        let owner = snapshot.held(&relation.object()).owner;
        row![relation.schema.as_str(), relation.name.as_str(), owner, Value::Null, has_indexes, false, false, false]
    };
    snapshot.relations.iter().filter(|relation| is_stored(relation)).map(row_of).collect()
}

fn views(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |relation: &Relation| {
        let definition = match &relation.kind {
            RelationKind::View(query) => Some(format!("{query};")),
            _ => None,
        };
        row![relation.schema.as_str(), relation.name.as_str(), snapshot.held(&relation.object()).owner, definition]
    };
    snapshot.relations.iter().filter(|relation| !is_stored(relation)).map(row_of).collect()
}

fn indexes(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &snapshot.relations {
        let of = |name: &str, definition: String| row![relation.schema.as_str(), relation.name.as_str(), name, Value::Null, definition];
        rows.extend(relation.indexes.iter().map(|index| of(&index.definition.name, index_definition(relation, index))));
        rows.extend(relation.constraints.iter().map(|constraint| of(&constraint.name, unique_index_definition(relation, constraint))));
    }
    rows
}

/// Those of identity columns. Which number was the last its table knows, and nobody asks it here.
fn sequences(snapshot: &Snapshot) -> Vec<Row> {
    let of_relation = |relation: &Relation| -> Vec<Row> {
        let row_of = |column: &Column| {
            let sequence = column.sequence.as_ref()?;
            let owner = snapshot.held(&relation.object()).owner;
            let mut row = row![relation.schema.as_str(), sequence.name.as_str(), owner, column.pg_type.oid()];
            row.extend(row![1_i64, 1_i64, largest_number(&column.pg_type), 1_i64, false, 1_i64, Value::Null]);
            Some(row)
        };
        relation.columns.iter().filter_map(row_of).collect()
    };
    snapshot.relations.iter().flat_map(of_relation).collect()
}

fn tables_of(snapshot: &Snapshot, with_system: bool) -> impl Iterator<Item = &Relation> {
    snapshot.relations.iter().filter(move |relation| is_stored(relation) && (with_system || !relation.is_of_system()))
}

fn blocks(snapshot: &Snapshot, with_system: bool) -> Vec<Row> {
    const NOT_COUNTED: usize = 8;
    let row_of = |relation: &Relation| {
        let mut row = row![relation.oid, relation.schema.as_str(), relation.name.as_str()];
        row.extend(std::iter::repeat_n(Value::Null, NOT_COUNTED));
        row
    };
    tables_of(snapshot, with_system).map(row_of).collect()
}

fn statistics(snapshot: &Snapshot, with_system: bool) -> Vec<Row> {
    let row_of = |relation: &Relation| {
        let num_rows = if relation.num_rows < 0.0 { Value::Null } else { Value::Int(relation.num_rows as i64) };
        let mut row = row![relation.oid, relation.schema.as_str(), relation.name.as_str()];
        row.extend(std::iter::repeat_n(Value::Null, NOT_COUNTED_BEFORE));
        row.push(num_rows);
        row.extend(std::iter::repeat_n(Value::Null, NOT_COUNTED_AFTER));
        row
    };
    tables_of(snapshot, with_system).map(row_of).collect()
}

/// `not_counted`: how many columns of numbers follow.
fn index_statistics(snapshot: &Snapshot, not_counted: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in snapshot.relations.iter().filter(|relation| !relation.is_of_system()) {
        let own = relation.indexes.iter().map(|index| (index.oid, index.definition.name.as_str()));
        let of_constraints = relation.constraints.iter().map(|constraint| (constraint.index_oid, constraint.name.as_str()));
        for (oid, name) in own.chain(of_constraints) {
            let mut row = row![relation.oid, oid, relation.schema.as_str(), relation.name.as_str(), name];
            row.extend(std::iter::repeat_n(Value::Null, not_counted));
            rows.push(row);
        }
    }
    rows
}

/// Statements wait for no locks, and no standby stops any; nobody counts the rest.
fn database_statistics(_: &Snapshot) -> Vec<Row> {
    const NOT_COUNTED_TILL_CONFLICTS: usize = 10;
    const NOT_COUNTED_TILL_DEADLOCKS: usize = 2;
    const NOT_COUNTED_TO_THE_END: usize = 12;
    let mut row = row![DATABASE_OID, database_name()];
    row.extend(std::iter::repeat_n(Value::Null, NOT_COUNTED_TILL_CONFLICTS));
    row.push(Value::Int(0));
    row.extend(std::iter::repeat_n(Value::Null, NOT_COUNTED_TILL_DEADLOCKS));
    row.push(Value::Int(0));
    row.extend(std::iter::repeat_n(Value::Null, NOT_COUNTED_TO_THE_END));
    vec![row]
}
