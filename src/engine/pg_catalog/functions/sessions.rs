//! The server, its databases and settings.

use rolloutdb_catalogs::is_temporary_schema;

use super::{Function, Returns};
use crate::engine::pg_catalog::snapshot::database_name;
use crate::engine::pg_catalog::tables;
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;

const BOOL: Returns = Returns::One(Kind::Bool);
const TEXT: Returns = Returns::One(Kind::Text);
const NAME: Returns = Returns::One(Kind::Name);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("version", &[], TEXT, |_| Ok(Value::text(tables::version()))),
    Function::new("current_database", &[], NAME, |_| Ok(Value::text(database_name()))),
    Function::new("current_catalog", &[], NAME, |_| Ok(Value::text(database_name()))),
    Function::new("current_schema", &[], NAME, |call| {
        let mut path = call.context.snapshot.search_path().iter();
        Ok(Value::optional_text(path.find(|schema| *schema != tables::PG_CATALOG && !is_temporary_schema(schema))))
    }),
    Function::new("current_schemas", &[Kind::Bool], Returns::Many(Kind::Name), |call| {
        let path = call.context.snapshot.search_path();
        let with_implicit = call.value(0).is_true();
        let is_implicit = |schema: &str| schema == tables::PG_CATALOG || is_temporary_schema(schema);
        Ok(Value::list(path.iter().filter(|schema| with_implicit || !is_implicit(schema)).map(Value::text)))
    }),
    Function::new("pg_is_in_recovery", &[], BOOL, |_| Ok(Value::Bool(false))),
    Function::new("pg_is_wal_replay_paused", &[], BOOL, |_| Ok(Value::Bool(false))),
    Function::new("pg_postmaster_start_time", &[], Returns::One(Kind::Timestamptz), |call| {
        Ok(Value::Int(call.context.snapshot.opened_micros))
    }),
    Function::new("pg_conf_load_time", &[], Returns::One(Kind::Timestamptz), |call| Ok(Value::Int(call.context.snapshot.opened_micros))),
    Function::new("now", &[], Returns::One(Kind::Timestamptz), |call| Ok(Value::Int(call.context.snapshot.now_micros))),
    Function::new("current_timestamp", &[], Returns::One(Kind::Timestamptz), |call| Ok(Value::Int(call.context.snapshot.now_micros))),
    Function::new("inet_server_addr", &[], TEXT, |_| Ok(Value::Null)),
    Function::new("inet_server_port", &[], Returns::One(Kind::Int4), |_| Ok(Value::Null)),
    Function::new("inet_client_addr", &[], TEXT, |_| Ok(Value::Null)),
    Function::new("inet_client_port", &[], Returns::One(Kind::Int4), |_| Ok(Value::Null)),
    // Every statement commits by itself, and has no number.
    Function::new("txid_current", &[], Returns::One(Kind::Int8), |_| Ok(Value::Int(0))),
    Function::new("pg_current_xact_id", &[], Returns::One(Kind::Int8), |_| Ok(Value::Int(0))),
    Function::new("pg_my_temp_schema", &[], Returns::One(Kind::Oid), |call| {
        Ok(Value::Int(call.context.snapshot.temporary_schema().map_or(0, |schema| i64::from(schema.oid))))
    }),
    // Those of others are not shown.
    Function::new("pg_is_other_temp_schema", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(false))),
    Function::new("pg_relation_is_publishable", &[Kind::RegClass], BOOL, |_| Ok(Value::Bool(false))),
    Function::new("pg_relation_is_updatable", &[Kind::RegClass, Kind::Bool], Returns::One(Kind::Int4), |call| {
        let class = call.oid(0).and_then(|oid| call.context.snapshot.class(oid));
        // INSERT, UPDATE and DELETE as bits of their commands.
        let is_table = class.is_some_and(|class| {
            let relation = class.relation();
            !relation.is_of_system() && relation.kind == crate::engine::pg_catalog::snapshot::RelationKind::Table
        });
        Ok(Value::Int(if is_table { 28 } else { 0 }))
    }),
    Function::new("pg_get_partition_ancestors", &[Kind::RegClass], Returns::One(Kind::RegClass), |_| Ok(Value::list([]))).set(),
    Function::new("pg_partition_ancestors", &[Kind::RegClass], Returns::One(Kind::RegClass), |_| Ok(Value::list([]))).set(),
    Function::new(
        "pg_show_all_settings",
        &[],
        // The columns of pg_settings.
        Returns::Record(&[
            ("name", Kind::Text),
            ("setting", Kind::Text),
            ("unit", Kind::Text),
            ("category", Kind::Text),
            ("short_desc", Kind::Text),
            ("extra_desc", Kind::Text),
            ("context", Kind::Text),
            ("vartype", Kind::Text),
            ("source", Kind::Text),
            ("min_val", Kind::Text),
            ("max_val", Kind::Text),
            ("enumvals", Kind::Text),
            ("boot_val", Kind::Text),
            ("reset_val", Kind::Text),
            ("sourcefile", Kind::Text),
            ("sourceline", Kind::Int4),
            ("pending_restart", Kind::Bool),
        ]),
        |call| Ok(Value::list(call.context.snapshot.settings.iter().map(|row| Value::Record(row.as_slice().into())))),
    )
    .set(),
    Function::new(
        "pg_available_extensions",
        &[],
        Returns::Record(&[("name", Kind::Name), ("default_version", Kind::Text), ("comment", Kind::Text)]),
        |_| {
            let vector = ["vector", tables::VECTOR_VERSION, tables::VECTOR_COMMENT].map(Value::text);
            Ok(Value::list([Value::Record(vector.into())]))
        },
    )
    .set(),
    Function::new(
        "pg_available_extension_versions",
        &[],
        Returns::Record(&[("name", Kind::Name), ("version", Kind::Text), ("comment", Kind::Text)]),
        |_| {
            let vector = ["vector", tables::VECTOR_VERSION, tables::VECTOR_COMMENT].map(Value::text);
            Ok(Value::list([Value::Record(vector.into())]))
        },
    )
    .set(),
    // Sessions do wait for each other, as for the name of a table that is made and for a training's checkpoints; who waits for whom is not kept.
    Function::new("pg_blocking_pids", &[Kind::Int4], Returns::Many(Kind::Int4), |_| Ok(Value::list([]))),
    Function::new("pg_safe_snapshot_blocking_pids", &[Kind::Int4], Returns::Many(Kind::Int4), |_| Ok(Value::list([]))),
    Function::new("pg_advisory_unlock_all", &[], Returns::One(Kind::Void), |call| {
        call.context.snapshot.session()?.advisory_locks().unlock_all();
        Ok(Value::text(""))
    }),
    Function::new("pg_listening_channels", &[], TEXT, |_| Ok(Value::list([]))).set(),
    Function::new("pg_stat_get_numscans", &[Kind::Oid], Returns::One(Kind::Int8), |_| Ok(Value::Null)),
    Function::new("pg_relation_filenode", &[Kind::RegClass], Returns::One(Kind::Oid), |call| Ok(call.value(0).clone())),
    Function::new("pg_tablespace_location", &[Kind::Oid], TEXT, |_| Ok(Value::text(""))),
    Function::new("pg_notification_queue_usage", &[], Returns::One(Kind::Float8), |_| Ok(Value::Float(0.0))),
];
