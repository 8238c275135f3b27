//! Whether a role may do something. As long as there is one role, which owns everything, it may.

use super::{Call, Function, Returns};
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;
use crate::error::Result;

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
    of_two("pg_has_role"),
    of_three("pg_has_role"),
    Function::new("row_security_active", &[Kind::Any], BOOL, |_| Ok(Value::Bool(false))),
    Function::new("aclexplode", &[Kind::AnyArray], RIGHTS, |_| Ok(Value::list([]))).set(),
    // NULL in a list of rights means those of the owner.
    Function::new("acldefault", &[Kind::Char, Kind::Oid], Returns::Many(Kind::AclItem), |_| Ok(Value::Null)),
];

const RIGHTS: Returns =
    Returns::Record(&[("grantor", Kind::Oid), ("grantee", Kind::Oid), ("privilege_type", Kind::Text), ("is_grantable", Kind::Bool)]);

fn allowed(_: &Call<'_>) -> Result<Value> {
    Ok(Value::Bool(true))
}
