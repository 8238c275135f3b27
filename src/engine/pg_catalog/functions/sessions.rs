//! The session, the server and their settings.

use super::{Call, Function, Returns};
use crate::engine::pg_catalog::query::SettingChange;
use crate::engine::pg_catalog::snapshot::database_name;
use crate::engine::pg_catalog::tables;
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result};

const BOOL: Returns = Returns::One(Kind::Bool);
const TEXT: Returns = Returns::One(Kind::Text);
const NAME: Returns = Returns::One(Kind::Name);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("version", &[], TEXT, |_| Ok(Value::text(tables::version()))),
    Function::new("current_database", &[], NAME, |_| Ok(Value::text(database_name()))),
    Function::new("current_catalog", &[], NAME, |_| Ok(Value::text(database_name()))),
    Function::new("current_schema", &[], NAME, |_| Ok(Value::text("public"))),
    Function::new("current_schemas", &[Kind::Bool], Returns::Many(Kind::Name), |call| {
        let path = call.context.snapshot.search_path();
        let with_implicit = call.value(0).is_true();
        Ok(Value::list(path.into_iter().filter(|schema| with_implicit || *schema != tables::PG_CATALOG).map(Value::text)))
    }),
    Function::new("current_user", &[], NAME, user),
    Function::new("session_user", &[], NAME, user),
    Function::new("current_role", &[], NAME, user),
    Function::new("user", &[], NAME, user),
    Function::new("current_setting", &[Kind::Text, Kind::Bool], TEXT, current_setting).required(1),
    Function::new("set_config", &[Kind::Text, Kind::Text, Kind::Bool], TEXT, set_config).with_null(),
    Function::new("pg_is_in_recovery", &[], BOOL, |_| Ok(Value::Bool(false))),
    Function::new("pg_is_wal_replay_paused", &[], BOOL, |_| Ok(Value::Bool(false))),
    Function::new("pg_postmaster_start_time", &[], Returns::One(Kind::Timestamptz), |_| Ok(Value::Int(started_micros()))),
    Function::new("pg_conf_load_time", &[], Returns::One(Kind::Timestamptz), |_| Ok(Value::Int(started_micros()))),
    Function::new("now", &[], Returns::One(Kind::Timestamptz), |call| Ok(Value::Int(call.context.snapshot.now_micros))),
    Function::new("current_timestamp", &[], Returns::One(Kind::Timestamptz), |call| Ok(Value::Int(call.context.snapshot.now_micros))),
    Function::new("inet_server_addr", &[], TEXT, |_| Ok(Value::Null)),
    Function::new("inet_server_port", &[], Returns::One(Kind::Int4), |_| Ok(Value::Null)),
    Function::new("inet_client_addr", &[], TEXT, |_| Ok(Value::Null)),
    Function::new("inet_client_port", &[], Returns::One(Kind::Int4), |_| Ok(Value::Null)),
    // Every statement commits by itself, and has no number.
    Function::new("txid_current", &[], Returns::One(Kind::Int8), |_| Ok(Value::Int(0))),
    Function::new("pg_current_xact_id", &[], Returns::One(Kind::Int8), |_| Ok(Value::Int(0))),
    Function::new("pg_my_temp_schema", &[], Returns::One(Kind::Oid), |_| Ok(Value::Int(0))),
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
        Returns::Record(&[("name", Kind::Text), ("setting", Kind::Text), ("reset_val", Kind::Text)]),
        |call| {
            let rows = call.context.snapshot.settings.iter();
            Ok(Value::list(rows.map(|(name, value, default)| Value::Record([name, value, default].into_iter().map(Value::text).collect()))))
        },
    )
    .set(),
    Function::new("pg_listening_channels", &[], TEXT, |_| Ok(Value::list([]))).set(),
    Function::new("pg_stat_get_numscans", &[Kind::Oid], Returns::One(Kind::Int8), |_| Ok(Value::Null)),
    Function::new("pg_relation_filenode", &[Kind::RegClass], Returns::One(Kind::Oid), |call| Ok(call.value(0).clone())),
    Function::new("pg_tablespace_location", &[Kind::Oid], TEXT, |_| Ok(Value::text(""))),
    Function::new("pg_notification_queue_usage", &[], Returns::One(Kind::Float8), |_| Ok(Value::Float(0.0))),
];

fn user(call: &Call<'_>) -> Result<Value> {
    Ok(Value::text(&call.context.snapshot.user))
}

fn current_setting(call: &Call<'_>) -> Result<Value> {
    let name = call.text(0);
    match call.context.snapshot.setting(name) {
        Some(value) => Ok(Value::text(value)),
        None if call.value(1).is_true() => Ok(Value::Null),
        None => Err(Error::UnknownObject { kind: "setting", name: name.to_owned(), known: vec![] }),
    }
}

/// The setting is changed when the query has run.
fn set_config(call: &Call<'_>) -> Result<Value> {
    let (Some(name), Some(value)) = (call.value(0).as_str(), call.value(1).as_str()) else { return Ok(Value::Null) };
    let change = SettingChange { name: name.to_ascii_lowercase(), value: value.to_owned(), is_local: call.value(2).is_true() };
    call.context.changes.borrow_mut().push(change);
    Ok(Value::text(value))
}

/// When this was first asked: the first client connects soon after the start.
fn started_micros() -> i64 {
    static STARTED: std::sync::LazyLock<i64> = std::sync::LazyLock::new(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
    });
    *STARTED
}
