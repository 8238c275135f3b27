//! Whether a role may do something: PostgreSQL's questions about privileges.
//!
//! Objects and roles are given by name or by number. An unknown name is an error, an unknown number NULL; a number that no role has is nobody, who
//! has what everybody has.

use rolloutdb_catalogs::Error as CatalogError;

use super::cast::known_class;
use super::{Call, Function, Returns};
use crate::engine::pg_catalog::snapshot::{Class, DATABASE_OID, SchemaEntry, Snapshot, database_name};
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;
use crate::engine::privileges::{Access, Object, PUBLIC, Question};
use crate::engine::roles::unknown_role;
use crate::error::{Error, Result};

const BOOL: Returns = Returns::One(Kind::Bool);

/// Without the role, with it or of a column, and both.
const TWO: &[Kind] = &[Kind::Any, Kind::Text];
const THREE: &[Kind] = &[Kind::Any, Kind::Any, Kind::Text];
const FOUR: &[Kind] = &[Kind::Any, Kind::Any, Kind::Any, Kind::Text];

type Run = fn(&Call<'_>) -> Result<Value>;

const fn of_two(name: &'static str, run: Run) -> Function {
    Function::new(name, TWO, BOOL, run)
}

const fn of_three(name: &'static str, run: Run) -> Function {
    Function::new(name, THREE, BOOL, run)
}

pub(super) const FUNCTIONS: &[Function] = &[
    of_two("has_table_privilege", has_table),
    of_three("has_table_privilege", has_table),
    of_two("has_any_column_privilege", has_any_column),
    of_three("has_any_column_privilege", has_any_column),
    of_three("has_column_privilege", has_column),
    Function::new("has_column_privilege", FOUR, BOOL, has_column),
    of_two("has_schema_privilege", has_schema),
    of_three("has_schema_privilege", has_schema),
    of_two("has_database_privilege", has_database),
    of_three("has_database_privilege", has_database),
    of_two("has_model_privilege", has_model),
    of_three("has_model_privilege", has_model),
    of_two("has_agent_privilege", has_agent),
    of_three("has_agent_privilege", has_agent),
    of_two("pg_has_role", has_role),
    of_three("pg_has_role", has_role),
    of_two("has_function_privilege", allowed),
    of_three("has_function_privilege", allowed),
    of_two("has_type_privilege", allowed),
    of_three("has_type_privilege", allowed),
    of_two("has_language_privilege", allowed),
    of_three("has_language_privilege", allowed),
    of_two("has_sequence_privilege", allowed),
    of_three("has_sequence_privilege", allowed),
    of_two("has_tablespace_privilege", allowed),
    of_three("has_tablespace_privilege", allowed),
    of_two("has_foreign_data_wrapper_privilege", allowed),
    of_two("has_server_privilege", allowed),
    Function::new("row_security_active", &[Kind::Any], BOOL, |_| Ok(Value::Bool(false))),
];

/// There are no privileges on objects of these kinds: everybody may use them.
fn allowed(_: &Call<'_>) -> Result<Value> {
    Ok(Value::Bool(true))
}

/// Finds what the arguments name; `None`: nothing has that number.
type Find = fn(&Call<'_>, &[Value]) -> Result<Option<Object>>;

/// `[role,] object, privileges`; `names`: how many arguments the object takes.
fn answer(call: &Call<'_>, question: Question, names: usize, find: Find) -> Result<Value> {
    let Some((privileges, named)) = call.values.split_last() else { return Ok(Value::Null) };
    let (role, named) = named.split_at(named.len().saturating_sub(names));
    let asked = question.read(privileges.as_str().unwrap_or_default())?;
    let session = call.context.snapshot.session()?;
    let access = match role.first() {
        Some(role) => Access::of(session.database(), &grantee(call.context.snapshot, role)?),
        None => session.access(),
    };
    let object = find(call, named)?;
    Ok(object.map_or(Value::Null, |object| Value::Bool(asked.iter().any(|asked| asked.is_held(&access, &object)))))
}

fn has_table(call: &Call<'_>) -> Result<Value> {
    answer(call, Question::Table, 1, table)
}

fn has_any_column(call: &Call<'_>) -> Result<Value> {
    answer(call, Question::Column, 1, table)
}

fn has_column(call: &Call<'_>) -> Result<Value> {
    answer(call, Question::Column, 2, table_of_column)
}

fn has_schema(call: &Call<'_>) -> Result<Value> {
    answer(call, Question::Schema, 1, |call, named| {
        let snapshot = call.context.snapshot;
        let schema = match named[0].as_str() {
            Some(name) => {
                let unknown = || CatalogError::UnknownSchema { name: name.to_owned(), known: vec![] };
                Some(snapshot.schemas.iter().find(|schema| schema.name == name).ok_or_else(unknown)?)
            }
            None => named[0].as_oid().and_then(|oid| snapshot.schema(oid)),
        };
        Ok(schema.map(SchemaEntry::object))
    })
}

fn has_database(call: &Call<'_>) -> Result<Value> {
    answer(call, Question::Database, 1, |_, named| match named[0].as_str() {
        Some(name) if name != database_name() => {
            let known = vec![database_name().to_owned()];
            Err(Error::UnknownObject { kind: "database", name: name.to_owned(), known })
        }
        Some(_) => Ok(Some(Object::Database)),
        None => Ok((named[0].as_oid() == Some(DATABASE_OID)).then_some(Object::Database)),
    })
}

/// Models and agents have no numbers.
fn has_model(call: &Call<'_>) -> Result<Value> {
    answer(call, Question::Model, 1, |call, named| {
        let session = call.context.snapshot.session()?;
        let Some(name) = named[0].as_str() else { return Ok(None) };
        Ok(Some(Object::model(&session.database().shared.registry.get(name)?.name)))
    })
}

fn has_agent(call: &Call<'_>) -> Result<Value> {
    answer(call, Question::Agent, 1, |call, named| {
        let session = call.context.snapshot.session()?;
        let Some(name) = named[0].as_str() else { return Ok(None) };
        Ok(Some(Object::agent(&session.database().shared.agents.get(name)?.name)))
    })
}

fn table(call: &Call<'_>, named: &[Value]) -> Result<Option<Object>> {
    Ok(class(call.context.snapshot, &named[0])?.map(|class| class.relation().object()))
}

fn table_of_column(call: &Call<'_>, named: &[Value]) -> Result<Option<Object>> {
    let Some(class) = class(call.context.snapshot, &named[0])? else { return Ok(None) };
    let relation = class.relation();
    let is_known = match named[1].as_str() {
        Some(name) if relation.columns.iter().all(|column| column.name != name) => {
            let known = relation.columns.iter().map(|column| column.name.clone()).collect();
            return Err(Error::UnknownColumn { table: relation.name.clone(), name: name.to_owned(), known });
        }
        Some(_) => true,
        None => named[1].as_int().is_some_and(|number| number >= 1 && number <= relation.columns.len() as i64),
    };
    Ok(is_known.then(|| relation.object()))
}

/// A table, view or index; an index is its table's.
fn class<'a>(snapshot: &'a Snapshot, named: &Value) -> Result<Option<Class<'a>>> {
    let oid = match named.as_str() {
        Some(name) => Some(known_class(name, snapshot)?),
        None => named.as_oid(),
    };
    Ok(oid.and_then(|oid| snapshot.class(oid)))
}

/// A role, or `public` for everybody.
fn grantee(snapshot: &Snapshot, named: &Value) -> Result<String> {
    match named.as_str() {
        Some("public") => Ok(PUBLIC.to_owned()),
        _ => Ok(role(snapshot, named)?.unwrap_or_else(|| PUBLIC.to_owned())),
    }
}

/// `None`: no role has that number.
fn role(snapshot: &Snapshot, named: &Value) -> Result<Option<String>> {
    match named.as_str() {
        Some(name) if snapshot.role_number(name).is_none() => Err(unknown_role(name)),
        Some(name) => Ok(Some(name.to_owned())),
        None => Ok(named.as_oid().and_then(|oid| snapshot.role(oid)).map(str::to_owned)),
    }
}

/// What a user can have of a role.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Its rights, without SET ROLE.
    Usage,
    Member,
    Set,
    /// To grant it to others.
    Admin,
}

impl Part {
    fn read(text: &str) -> Result<Self> {
        let text = text.trim();
        let upper = text.to_ascii_uppercase();
        let of_admin = [" WITH ADMIN OPTION", " WITH GRANT OPTION"].iter().find_map(|option| upper.strip_suffix(*option));
        match (of_admin.map_or(upper.as_str(), str::trim_end), of_admin.is_some()) {
            ("USAGE" | "MEMBER" | "SET", true) => Ok(Self::Admin),
            ("USAGE", false) => Ok(Self::Usage),
            ("MEMBER", false) => Ok(Self::Member),
            ("SET", false) => Ok(Self::Set),
            _ => {
                let expected = "USAGE, MEMBER or SET".to_owned();
                Err(Error::InvalidParameter { name: "privilege of pg_has_role()".to_owned(), found: format!("'{text}'"), expected })
            }
        }
    }
}

/// `[user,] role, parts`
fn has_role(call: &Call<'_>) -> Result<Value> {
    let snapshot = call.context.snapshot;
    let [users @ .., of, parts] = call.values else { return Ok(Value::Null) };
    let parts = parts.as_str().unwrap_or_default().split(',').map(Part::read).collect::<Result<Vec<_>>>()?;
    let user = users.first().map_or_else(|| Ok(Some(snapshot.user.role())), |user| role(snapshot, user))?;
    let (Some(user), Some(of)) = (user, role(snapshot, of)?) else { return Ok(Value::Null) };
    let roles = &snapshot.role_book;
    let is_superuser = roles.get(&user).is_some_and(|user| user.is_superuser);
    let administers = || snapshot.memberships.iter().any(|known| known.role == of && known.admin && roles.is_member(&user, &known.member));
    let has = |part: &Part| match part {
        Part::Usage => roles.memberships(&user).contains(&of),
        Part::Member => roles.is_member(&user, &of),
        Part::Set => roles.may_become(&user, &of),
        Part::Admin => administers(),
    };
    Ok(Value::Bool(is_superuser || parts.iter().any(has)))
}
