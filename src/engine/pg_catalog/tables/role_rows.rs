//! Roles and memberships: `pg_roles`, `pg_authid` and their like.

use super::Spec;
use crate::engine::pg_catalog::snapshot::{RoleEntry, Snapshot};
use crate::engine::pg_catalog::value::{Row, Value, row};
use crate::engine::{Membership, Role};

/// What stands in the place of a password.
pub const HIDDEN: &str = "********";

/// PostgreSQL's "no limit".
const NO_LIMIT: i64 = -1;

const USER: &str = "usename:name usesysid:oid usecreatedb:bool usesuper:bool userepl:bool usebypassrls:bool passwd:text \
    valuntil:timestamptz useconfig:text[]";

pub const SPECS: &[Spec] = &[
    Spec {
        name: "pg_authid",
        oid: 1260,
        columns: "oid:oid rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool rolcreatedb:bool rolcanlogin:bool \
            rolreplication:bool rolbypassrls:bool rolconnlimit:int4 rolpassword:text rolvaliduntil:timestamptz",
        rows: |snapshot| snapshot.roles.iter().map(authid).collect(),
    },
    Spec {
        name: "pg_auth_members",
        oid: 1261,
        columns: "oid:oid roleid:oid member:oid grantor:oid admin_option:bool inherit_option:bool set_option:bool",
        rows: memberships,
    },
    Spec {
        name: "pg_roles",
        oid: 12_001,
        columns: "rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool rolcreatedb:bool rolcanlogin:bool rolreplication:bool \
            rolconnlimit:int4 rolpassword:text rolvaliduntil:timestamptz rolbypassrls:bool rolconfig:text[] oid:oid",
        rows: |snapshot| snapshot.roles.iter().map(role).collect(),
    },
    Spec { name: "pg_user", oid: 12_002, columns: USER, rows: |snapshot| users(snapshot, |_| Value::text(HIDDEN)) },
    Spec {
        name: "pg_shadow",
        oid: 12_006,
        columns: USER,
        rows: |snapshot| users(snapshot, |entry| Value::optional_text(entry.password.as_deref())),
    },
    Spec { name: "pg_group", oid: 12_205, columns: "groname:name grosysid:oid grolist:oid[]", rows: groups },
];

fn connection_limit(role: &Role) -> i64 {
    role.connection_limit.map_or(NO_LIMIT, |limit| i64::from(limit).min(i64::from(i32::MAX)))
}

fn authid(entry: &RoleEntry) -> Row {
    let role = &entry.role;
    row![
        role.oid,
        role.name.as_str(),
        role.is_superuser,
        role.inherits,
        role.can_create_roles,
        role.can_create_databases,
        role.can_login,
        false,
        false,
        connection_limit(role),
        entry.password.as_deref(),
        role.valid_until,
    ]
}

fn role(entry: &RoleEntry) -> Row {
    let role = &entry.role;
    row![
        role.name.as_str(),
        role.is_superuser,
        role.inherits,
        role.can_create_roles,
        role.can_create_databases,
        role.can_login,
        false,
        connection_limit(role),
        role.has_password().then_some(HIDDEN),
        role.valid_until,
        false,
        // Roles have no settings of their own.
        Value::Null,
        role.oid,
    ]
}

/// The roles that can log in.
fn users(snapshot: &Snapshot, password: fn(&RoleEntry) -> Value) -> Vec<Row> {
    let user = |entry: &RoleEntry| {
        let role = &entry.role;
        row![
            role.name.as_str(),
            role.oid,
            role.can_create_databases,
            role.is_superuser,
            false,
            false,
            password(entry),
            role.valid_until,
            Value::Null,
        ]
    };
    snapshot.roles.iter().filter(|entry| entry.role.can_login).map(user).collect()
}

fn memberships(snapshot: &Snapshot) -> Vec<Row> {
    let number = |name: &String| snapshot.role_number(name);
    let membership = |(position, membership): (usize, &Membership)| {
        row![
            position as i64 + 1,
            number(&membership.role),
            number(&membership.member),
            number(&membership.grantor),
            membership.admin,
            membership.inherit,
            membership.set,
        ]
    };
    snapshot.memberships.iter().enumerate().map(membership).collect()
}

/// The roles that cannot log in, with their members.
fn groups(snapshot: &Snapshot) -> Vec<Row> {
    let group = |entry: &RoleEntry| {
        let members = snapshot.memberships.iter().filter(|membership| membership.role == entry.role.name);
        let numbers = members.filter_map(|membership| snapshot.role_number(&membership.member)).map(Value::oid);
        row![entry.role.name.as_str(), entry.role.oid, Value::list(numbers)]
    };
    snapshot.roles.iter().filter(|entry| !entry.role.can_login).map(group).collect()
}
