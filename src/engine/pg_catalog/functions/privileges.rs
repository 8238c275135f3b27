//! Whether a role may do something. Rights on objects are not kept apart yet: every role has them.

use super::{Call, Function, Returns};
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result};

const BOOL: Returns = Returns::One(Kind::Bool);

/// With the role, of a column, without the role.
const THREE: &[Kind] = &[Kind::Any, Kind::Any, Kind::Text];
const TWO: &[Kind] = &[Kind::Any, Kind::Text];

const fn of_two(name: &'static str) -> Function {
    Function::new(name, TWO, BOOL, allowed)
}

const fn of_three(name: &'static str) -> Function {
    Function::new(name, THREE, BOOL, allowed)
}

pub(super) const FUNCTIONS: &[Function] = &[
    of_two("has_table_privilege"),
    of_three("has_table_privilege"),
    of_two("has_schema_privilege"),
    of_three("has_schema_privilege"),
    of_two("has_database_privilege"),
    of_three("has_database_privilege"),
    of_two("has_function_privilege"),
    of_three("has_function_privilege"),
    of_two("has_type_privilege"),
    of_three("has_type_privilege"),
    of_two("has_language_privilege"),
    of_three("has_language_privilege"),
    of_two("has_sequence_privilege"),
    of_three("has_sequence_privilege"),
    of_two("has_tablespace_privilege"),
    of_three("has_tablespace_privilege"),
    of_two("has_foreign_data_wrapper_privilege"),
    of_two("has_server_privilege"),
    of_two("has_any_column_privilege"),
    of_three("has_any_column_privilege"),
    of_three("has_column_privilege"),
    Function::new("has_column_privilege", &[Kind::Any, Kind::Any, Kind::Any, Kind::Text], BOOL, allowed),
    Function::new("pg_has_role", TWO, BOOL, |call| has_role(call, None, call.value(0))),
    Function::new("pg_has_role", THREE, BOOL, |call| has_role(call, Some(call.value(0)), call.value(1))),
    Function::new("row_security_active", &[Kind::Any], BOOL, |_| Ok(Value::Bool(false))),
    Function::new("aclexplode", &[Kind::AnyArray], RIGHTS, |_| Ok(Value::list([]))).set(),
    // NULL in a list of rights means those of the owner.
    Function::new("acldefault", &[Kind::Char, Kind::Oid], Returns::Many(Kind::AclItem), |_| Ok(Value::Null)),
];

const RIGHTS: Returns =
    Returns::Record(&[("grantor", Kind::Oid), ("grantee", Kind::Oid), ("privilege_type", Kind::Text), ("is_grantable", Kind::Bool)]);

/// Whether a user, or the one who asks, is a member of a role, and whether that gives it the role's rights.
fn has_role(call: &Call<'_>, user: Option<&Value>, role: &Value) -> Result<Value> {
    let snapshot = call.context.snapshot;
    let named = |value: &Value| -> Result<String> {
        let known = match value.as_str() {
            Some(name) => snapshot.role_number(name).map(|_| name),
            None => value.as_oid().and_then(|oid| snapshot.role(oid)),
        };
        let found = || value.as_str().map_or_else(|| value.as_int().unwrap_or_default().to_string(), str::to_owned);
        known.map(str::to_owned).ok_or_else(|| Error::UnknownObject { kind: "role", name: found(), known: vec![] })
    };
    let user = user.map_or_else(|| Ok(snapshot.user.role()), named)?;
    let role = named(role)?;
    let roles = &snapshot.role_book;
    if roles.get(&user).is_some_and(|user| user.is_superuser) {
        return Ok(Value::Bool(true));
    }
    let kind = call.values.last().and_then(Value::as_str).unwrap_or_default().to_ascii_uppercase();
    let has = match kind.split_whitespace().next() {
        Some("USAGE") => roles.memberships(&user).contains(&role),
        Some("SET") => roles.may_become(&user, &role),
        Some("MEMBER") => roles.is_member(&user, &role),
        _ => {
            let expected = "USAGE, MEMBER or SET".to_owned();
            return Err(Error::InvalidParameter { name: "privilege of pg_has_role()".to_owned(), found: kind, expected });
        }
    };
    Ok(Value::Bool(has))
}

fn allowed(_: &Call<'_>) -> Result<Value> {
    Ok(Value::Bool(true))
}
