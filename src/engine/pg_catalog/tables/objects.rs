//! What is not about one table: schemas, databases, extensions, settings.

use super::{OWNER, Spec};
use crate::SERVER_VERSION;
use crate::engine::cursors::CursorInfo;
use crate::engine::named_statements::NamedStatementInfo;
use crate::engine::pg_catalog::snapshot::{DATABASE_OID, PUBLIC_OID, SchemaEntry, Snapshot, database_name, micros};
use crate::engine::pg_catalog::types::{format_type, type_named};
use crate::engine::pg_catalog::value::{Row, Value, row};
use crate::engine::privileges::Object;

/// The number of the only extension: pgvector, whose types and operators are built in.
pub const EXTENSION_OID: u32 = 8_001;
/// The version of pgvector that they are of.
pub const VECTOR_VERSION: &str = "0.8.0";
/// What pgvector says of itself.
pub const VECTOR_COMMENT: &str = "vector data type and ivfflat and hnsw access methods";

const EXTENSIONS: &str =
    "oid:oid extname:name extowner:oid extnamespace:oid extrelocatable:bool extversion:text extconfig:oid[] extcondition:text[]";

pub const SPECS: &[Spec] = &[
    Spec { name: "pg_namespace", oid: 2615, columns: "oid:oid nspname:name nspowner:oid nspacl:aclitem[]", rows: namespaces },
    Spec {
        name: "pg_database",
        oid: 1262,
        columns: "oid:oid datname:name datdba:oid encoding:int4 datlocprovider:char datistemplate:bool datallowconn:bool \
            datconnlimit:int4 datfrozenxid:xid datminmxid:xid dattablespace:oid datcollate:text datctype:text daticulocale:text \
            daticurules:text datcollversion:text datacl:aclitem[]",
        rows: databases,
    },
    Spec {
        name: "pg_tablespace",
        oid: 1213,
        columns: "oid:oid spcname:name spcowner:oid spcacl:aclitem[] spcoptions:text[]",
        rows: |_| vec![row![1663_u32, "pg_default", OWNER, Value::Null, Value::Null]],
    },
    Spec { name: "pg_extension", oid: 3079, columns: EXTENSIONS, rows: extensions },
    Spec {
        name: "pg_available_extensions",
        oid: 12_003,
        columns: "name:name default_version:text installed_version:text comment:text",
        rows: |_| vec![row!["vector", VECTOR_VERSION, VECTOR_VERSION, VECTOR_COMMENT]],
    },
    Spec {
        name: "pg_available_extension_versions",
        oid: 12_008,
        columns: "name:name version:text installed:bool superuser:bool trusted:bool relocatable:bool schema:name requires:name[] comment:text",
        rows: |_| {
            let (no_schema, no_requirements) = (Value::Null, Value::Null);
            vec![row!["vector", VECTOR_VERSION, true, true, false, true, no_schema, no_requirements, VECTOR_COMMENT]]
        },
    },
    Spec {
        name: "pg_stat_gssapi",
        oid: 12_009,
        columns: "pid:int4 gss_authenticated:bool principal:text encrypted:bool credentials_delegated:bool",
        rows: gssapi,
    },
    Spec {
        name: "pg_settings",
        oid: 12_004,
        columns: "name:text setting:text unit:text category:text short_desc:text extra_desc:text context:text vartype:text source:text \
            min_val:text max_val:text enumvals:text[] boot_val:text reset_val:text sourcefile:text sourceline:int4 pending_restart:bool",
        rows: |snapshot| snapshot.settings.clone(),
    },
    Spec {
        name: "pg_cursors",
        oid: 12_208,
        columns: "name:text statement:text is_holdable:bool is_binary:bool is_scrollable:bool creation_time:timestamptz",
        rows: cursors,
    },
    Spec {
        name: "pg_prepared_statements",
        oid: 12_209,
        columns: "name:text statement:text prepare_time:timestamptz parameter_types:text[] from_sql:bool",
        rows: prepared_statements,
    },
    Spec { name: "pg_shdescription", oid: 2396, columns: "objoid:oid classoid:oid description:text", rows: |_| vec![] },
    Spec {
        name: "pg_timezone_names",
        oid: 12_005,
        columns: "name:text abbrev:text utc_offset:interval is_dst:bool",
        rows: |_| vec![row!["UTC", "UTC", "00:00:00", false]],
    },
    Spec {
        name: "pg_timezone_abbrevs",
        oid: 12_007,
        columns: "abbrev:text utc_offset:interval is_dst:bool",
        rows: |_| vec![row!["UTC", "00:00:00", false]],
    },
];

fn namespaces(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |schema: &SchemaEntry| {
        let held = snapshot.held(&schema.object());
        row![schema.oid, schema.name.as_str(), held.owner_oid, held.list()]
    };
    snapshot.schemas.iter().map(row_of).collect()
}

fn databases(snapshot: &Snapshot) -> Vec<Row> {
    let held = snapshot.held(&Object::Database);
    vec![row![
        DATABASE_OID,
        database_name(),
        held.owner_oid,
        6_i64,
        'c',
        false,
        true,
        -1_i64,
        0_i64,
        0_i64,
        1663_u32,
        "C",
        "C",
        Value::Null,
        Value::Null,
        Value::Null,
        held.list(),
    ]]
}

/// Those of the session that asks; they go forward only.
fn cursors(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |cursor: &CursorInfo| {
        row![cursor.name.as_str(), cursor.statement.as_str(), cursor.is_held, cursor.is_binary, false, micros(cursor.created)]
    };
    snapshot.cursors.iter().map(row_of).collect()
}

/// Those of the session that asks.
fn prepared_statements(snapshot: &Snapshot) -> Vec<Row> {
    // As PostgreSQL writes the types in the catalog: without a length or a width.
    let type_name = |name: &String| type_named(name).and_then(|found| format_type(found.oid(), None)).unwrap_or_else(|| name.clone());
    let row_of = |statement: &NamedStatementInfo| {
        let types = Value::list(statement.parameter_types.iter().map(|name| Value::text(type_name(name))));
        row![statement.name.as_str(), statement.text.as_str(), micros(statement.created), types, statement.is_from_sql]
    };
    snapshot.prepared_statements.iter().map(row_of).collect()
}

/// Of the session that asks; nobody logs in by GSSAPI.
fn gssapi(snapshot: &Snapshot) -> Vec<Row> {
    let session = snapshot.session().ok();
    session.map(|session| row![i64::from(session.activity().pid()), false, Value::Null, false, false]).into_iter().collect()
}

fn extensions(_: &Snapshot) -> Vec<Row> {
    vec![row![EXTENSION_OID, "vector", OWNER, PUBLIC_OID, true, VECTOR_VERSION, Value::Null, Value::Null]]
}

/// What `version()` gives: drivers look for the word PostgreSQL and a number behind it.
pub fn version() -> String {
    format!("PostgreSQL {SERVER_VERSION}")
}
