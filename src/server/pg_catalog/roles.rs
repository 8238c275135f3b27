//! `pg_roles`, `pg_authid`, `pg_user` and `pg_auth_members`: the roles as they are when a query is planned.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::error::Result;

use crate::engine::{Membership, Role, Roles, SessionUser};

pub(super) const NAMES: &[&str] = &["pg_auth_members", "pg_authid", "pg_roles", "pg_user"];

/// What stands in the place of a password's verifier.
const HIDDEN: &str = "********";

/// PostgreSQL's "no limit".
const NO_LIMIT: i32 = -1;

/// What the tables are made of.
#[derive(Debug, Clone)]
pub struct RoleTables {
    pub roles: Roles,
    /// Who asks.
    pub user: SessionUser,
}

impl RoleTables {
    /// `None`: the name is none of [`NAMES`].
    pub(super) fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let columns = match name {
            "pg_roles" => role_columns(&self.roles.list(), |role| role.has_password().then(|| HIDDEN.to_owned())),
            "pg_authid" => role_columns(&self.roles.list(), |role| self.verifier(role)),
            "pg_user" => user_columns(&self.roles.list()),
            "pg_auth_members" => membership_columns(&self.roles),
            _ => return Ok(None),
        };
        let fields: Vec<Field> = columns.iter().map(|(name, values)| Field::new(*name, values.data_type().clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.into_iter().map(|(_, values)| values).collect())?;
        Ok(Some(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?)))
    }

    /// As it is stored for superusers, hidden from others.
    fn verifier(&self, role: &Role) -> Option<String> {
        let is_superuser = self.roles.get(&self.user.role()).is_some_and(|role| role.is_superuser);
        match self.roles.verifier(&role.name) {
            (verifier, true) if is_superuser => Some(verifier.into()),
            (_, true) => Some(HIDDEN.to_owned()),
            (_, false) => None,
        }
    }
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn role_columns(roles: &[Role], password: impl Fn(&Role) -> Option<String>) -> Columns {
    let flags = |read: fn(&Role) -> bool| -> ArrayRef { Arc::new(roles.iter().map(|role| Some(read(role))).collect::<BooleanArray>()) };
    let limit = |role: &Role| role.connection_limit.map_or(NO_LIMIT, |limit| i32::try_from(limit).unwrap_or(i32::MAX));
    vec![
        ("oid", oids(roles.iter())),
        ("rolname", names(roles.iter())),
        ("rolsuper", flags(|role| role.is_superuser)),
        ("rolinherit", flags(|role| role.inherits)),
        ("rolcreaterole", flags(|role| role.can_create_roles)),
        ("rolcreatedb", flags(|role| role.can_create_databases)),
        ("rolcanlogin", flags(|role| role.can_login)),
        ("rolreplication", flags(|_| false)),
        ("rolconnlimit", Arc::new(Int32Array::from_iter_values(roles.iter().map(limit)))),
        ("rolpassword", Arc::new(roles.iter().map(password).collect::<StringArray>())),
        ("rolvaliduntil", valid_until(roles.iter())),
        ("rolbypassrls", flags(|_| false)),
        ("rolconfig", no_settings(roles.len())),
    ]
}

/// The roles that can log in.
fn user_columns(roles: &[Role]) -> Columns {
    let users: Vec<&Role> = roles.iter().filter(|role| role.can_login).collect();
    let flags = |read: fn(&Role) -> bool| -> ArrayRef { Arc::new(users.iter().map(|role| Some(read(role))).collect::<BooleanArray>()) };
    vec![
        ("usename", names(users.iter().copied())),
        ("usesysid", oids(users.iter().copied())),
        ("usecreatedb", flags(|role| role.can_create_databases)),
        ("usesuper", flags(|role| role.is_superuser)),
        ("userepl", flags(|_| false)),
        ("usebypassrls", flags(|_| false)),
        ("passwd", Arc::new(StringArray::from_iter_values(users.iter().map(|_| HIDDEN)))),
        ("valuntil", valid_until(users.iter().copied())),
        ("useconfig", no_settings(users.len())),
    ]
}

fn membership_columns(roles: &Roles) -> Columns {
    let oids: HashMap<String, u32> = roles.list().into_iter().map(|role| (role.name, role.oid)).collect();
    let members = roles.members();
    let oid = |read: fn(&Membership) -> &String| -> ArrayRef {
        Arc::new(members.iter().map(|membership| oids.get(read(membership)).map(|oid| *oid as i32)).collect::<Int32Array>())
    };
    let flags = |read: fn(&Membership) -> bool| -> ArrayRef {
        Arc::new(members.iter().map(|membership| Some(read(membership))).collect::<BooleanArray>())
    };
    vec![
        ("roleid", oid(|membership| &membership.role)),
        ("member", oid(|membership| &membership.member)),
        ("grantor", oid(|membership| &membership.grantor)),
        ("admin_option", flags(|membership| membership.admin)),
        ("inherit_option", flags(|membership| membership.inherit)),
        ("set_option", flags(|membership| membership.set)),
    ]
}

fn names<'a>(roles: impl Iterator<Item = &'a Role>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(roles.map(|role| &role.name)))
}

/// Numbers of roles are given out one by one from 16384: the cast is exact.
fn oids<'a>(roles: impl Iterator<Item = &'a Role>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(roles.map(|role| role.oid as i32)))
}

fn valid_until<'a>(roles: impl Iterator<Item = &'a Role>) -> ArrayRef {
    Arc::new(roles.map(|role| role.valid_until).collect::<TimestampMicrosecondArray>().with_timezone("+00:00"))
}

/// Roles have no settings of their own.
fn no_settings(length: usize) -> ArrayRef {
    new_null_array(&DataType::new_list(DataType::Utf8, true), length)
}
