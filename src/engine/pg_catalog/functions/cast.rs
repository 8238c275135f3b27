//! Casts, of which those between names and numbers of objects look into the catalog.

use rolloutdb_catalogs::Error as CatalogError;
use rolloutdb_udfs::postgres::parse_timestamp;
use rolloutdb_udfs::quoting::identifier;

use crate::engine::pg_catalog::query::Context;
use crate::engine::pg_catalog::snapshot::{PG_CATALOG_OID, Snapshot};
use crate::engine::pg_catalog::types::{Kind, PgType, format_type, type_named};
use crate::engine::pg_catalog::value::{Value, parse, parse_list};
use crate::error::{Error, Result, Unresolved};

/// # Errors
/// 22P02 for a text that is no value of the type; 42P01, 42704, 42883, 3F000 for the name of an object that there is not.
pub fn cast(value: Value, from: &PgType, to: &PgType, context: &Context<'_>) -> Result<Value> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let kind = match to {
        PgType::One(Kind::Int2Vector | Kind::OidVector) | PgType::Many(_) | PgType::Records(_) => {
            return cast_list(value, from, to, context);
        }
        PgType::Record(_) => return Ok(value),
        PgType::One(kind) => *kind,
    };
    if kind.names_object() {
        return match &value {
            Value::Text(name) => number_of_object(kind, name, context.snapshot).map(Value::oid),
            _ => Ok(value),
        };
    }
    if kind.is_text() || matches!(kind, Kind::Json | Kind::Jsonb | Kind::Uuid | Kind::AclItem) {
        let text = match (from.kind(), value.as_oid()) {
            (Some(named), Some(oid)) if named.names_object() => object_name(named, oid, context.snapshot),
            // A cast of a boolean spells it out.
            _ => match &value {
                Value::Bool(value) => value.to_string(),
                _ => value.to_text(from).unwrap_or_default(),
            },
        };
        return parse(&text, &PgType::One(kind));
    }
    Ok(match (&value, kind) {
        (Value::Text(text), Kind::Timestamp | Kind::Timestamptz) => {
            let micros = parse_timestamp(text, kind == Kind::Timestamptz);
            Value::Int(micros.ok_or_else(|| Error::BadText { of: to.sql_name(), text: text.to_string() })?)
        }
        (Value::Text(text), Kind::Date | Kind::Time | Kind::Interval) => {
            return Err(Error::NotSupported(format!("the text '{text}' as {} in a query about the catalog", to.sql_name())));
        }
        (Value::Text(text), _) => parse(text, to)?,
        (Value::Bool(value), kind) if kind.is_integer() => Value::Int(i64::from(*value)),
        (Value::Int(number), Kind::Bool) => Value::Bool(*number != 0),
        (Value::Int(number), Kind::Float4 | Kind::Float8 | Kind::Numeric) => Value::Float(*number as f64),
        (Value::Float(number), kind) if kind.is_integer() => Value::Int(number.round() as i64),
        _ => value,
    })
}

/// A value as it goes out: the names of objects instead of their numbers.
pub fn shown(value: Value, of: &PgType, context: &Context<'_>) -> Result<Value> {
    match (&value, of) {
        (Value::Record(values), PgType::Record(fields)) => {
            let values = values.iter().zip(fields.iter()).map(|(value, (_, of))| shown(value.clone(), of, context));
            return Ok(Value::Record(values.collect::<Result<_>>()?));
        }
        (Value::List(items), PgType::Records(_)) => {
            let items = items.iter().map(|item| shown(item.clone(), &of.item(), context));
            return Ok(Value::List(items.collect::<Result<_>>()?));
        }
        _ => {}
    }
    let kind = of.kind().or_else(|| of.item().kind());
    match (kind.is_some_and(Kind::names_object), of) {
        (true, PgType::Many(_)) => cast(value, of, &PgType::Many(Kind::Text), context),
        (true, _) => cast(value, of, &PgType::One(Kind::Text), context),
        (false, _) => Ok(value),
    }
}

fn cast_list(value: Value, from: &PgType, to: &PgType, context: &Context<'_>) -> Result<Value> {
    match value {
        // Items that name objects are read as texts first.
        Value::Text(text) if to.item().kind().is_some_and(Kind::names_object) => {
            let names = parse_list(&text, &PgType::Many(Kind::Text))?;
            cast_list(names, &PgType::Many(Kind::Text), to, context)
        }
        Value::Text(text) => parse_list(&text, to),
        Value::List(items) => {
            let items = items.iter().map(|item| cast(item.clone(), &from.item(), &to.item(), context));
            Ok(Value::List(items.collect::<Result<_>>()?))
        }
        other => Ok(other),
    }
}

/// The parts of `schema."Name"`, folded.
pub fn name_parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut in_quotes = false;
    let mut chars = text.trim().chars().peekable();
    while let Some(next) = chars.next() {
        let part = parts.last_mut().expect("there is one from the start");
        match next {
            '"' if in_quotes && chars.peek() == Some(&'"') => {
                part.push('"');
                chars.next();
            }
            '"' => in_quotes = !in_quotes,
            '.' if !in_quotes => parts.push(String::new()),
            other if in_quotes => part.push(other),
            // ADBC writes `"s" . "t"`.
            blank if blank.is_whitespace() => {}
            other => part.push(other.to_ascii_lowercase()),
        }
    }
    parts
}

/// The number of the object that a text names; a text of digits is the number itself, and `-` is 0.
pub fn number_of_object(kind: Kind, text: &str, snapshot: &Snapshot) -> Result<u32> {
    if let Ok(number) = text.trim().parse() {
        return Ok(number);
    }
    if text.trim() == "-" {
        return Ok(0);
    }
    let unknown = |kind: &'static str| Error::UnknownObject { kind, name: text.to_owned(), known: vec![] };
    let parts = name_parts(text);
    match kind {
        Kind::RegClass => known_class(text, snapshot),
        Kind::RegType => type_named(text).map(|named| named.oid()).ok_or_else(|| unknown("type")),
        Kind::RegNamespace => {
            let schema = snapshot.schemas.iter().find(|schema| Some(&schema.name) == parts.last());
            schema.map(|schema| schema.oid).ok_or_else(|| CatalogError::UnknownSchema { name: text.to_owned(), known: vec![] }.into())
        }
        Kind::RegRole => {
            let name = parts.last().map_or("", String::as_str);
            snapshot.role_number(name).ok_or_else(|| unknown("role"))
        }
        _ => {
            let name = parts.last().map(|name| name.split('(').next().unwrap_or_default().trim().to_owned()).unwrap_or_default();
            let schema = parts.len().checked_sub(2).map(|before| parts[before].as_str());
            let is_there = |oid: u32| schema.is_none_or(|wanted| snapshot.schema(oid).is_some_and(|schema| schema.name == wanted));
            let named = snapshot.procedures.iter().filter(|procedure| procedure.name == name && is_there(procedure.schema_oid));
            // Those of the catalog go before all others of their name.
            let found = named.min_by_key(|procedure| procedure.schema_oid != PG_CATALOG_OID);
            let message = || format!("function \"{text}\" does not exist");
            found.map(|procedure| procedure.oid).ok_or_else(|| Error::Unresolved { kind: Unresolved::Function, message: message() })
        }
    }
}

/// The number of the table, view or index that a text names.
///
/// # Errors
/// 42P01: there is none of that name.
pub fn known_class(text: &str, snapshot: &Snapshot) -> Result<u32> {
    let unknown = || Error::from(CatalogError::UnknownTable { name: text.to_owned(), known: near(text, snapshot) });
    class_number(&name_parts(text), snapshot).ok_or_else(unknown)
}

/// The number of a table, view or index.
pub fn class_number(parts: &[String], snapshot: &Snapshot) -> Option<u32> {
    match parts {
        [name] => snapshot.class_named(None, name),
        [.., schema, name] => snapshot.class_named(Some(schema), name),
        [] => None,
    }
}

fn near(text: &str, snapshot: &Snapshot) -> Vec<String> {
    let known: Vec<String> = snapshot.relations.iter().map(|relation| relation.name.clone()).collect();
    crate::error::nearest(text, &known).map(str::to_owned).into_iter().collect()
}

/// The name of an object, with its schema where it is not found without it; the number if there is no such object.
pub fn object_name(kind: Kind, oid: u32, snapshot: &Snapshot) -> String {
    let name = match kind {
        _ if oid == 0 => Some("-".to_owned()),
        Kind::RegClass => snapshot.class(oid).map(|class| match snapshot.is_visible(class) {
            true => identifier(class.name()),
            false => format!("{}.{}", identifier(class.schema()), identifier(class.name())),
        }),
        Kind::RegType => format_type(oid, None),
        Kind::RegNamespace => snapshot.schema(oid).map(|schema| identifier(&schema.name)),
        Kind::RegRole => snapshot.role(oid).map(identifier),
        _ => snapshot.procedures.iter().find(|procedure| procedure.oid == oid).map(|procedure| procedure.name.clone()),
    };
    name.unwrap_or_else(|| oid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folded_unless_they_are_quoted() {
        assert_eq!(name_parts("Public.Wiki"), ["public", "wiki"]);
        assert_eq!(name_parts(" \"a b\" . \"Wiki\" "), ["a b", "Wiki"]);
        assert_eq!(name_parts("s.\"My \"\"Table\"\".x\""), ["s", "My \"Table\".x"]);
    }
}
