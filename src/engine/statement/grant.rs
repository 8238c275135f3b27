//! GRANT ... ON, REVOKE ... ON.

use rolloutdb_catalogs::Error as CatalogError;
use rolloutdb_sql::{Grant, GrantObjects, Grantee, Privilege, Revoke};

use super::{done, name, table_name};
use crate::engine::database::Shared;
use crate::engine::name_locks::NameLock;
use crate::engine::privileges::{Access, Object, PUBLIC, Revoked, denied};
use crate::engine::roles::unknown_role;
use crate::engine::session::{CATALOG_NAME, Response, Session};
use crate::error::{Error, Result, nearest};

pub async fn grant(session: &Session, grant: &Grant) -> Result<Response> {
    let access = session.access();
    let (objects, grantees) = (objects(session, &grant.objects)?, grantees(session, &grant.to)?);
    if grant.with_grant_option && grantees.iter().any(|grantee| grantee == PUBLIC) {
        return Err(Error::InvalidGrant("the right to grant is for roles, not for PUBLIC".to_owned()));
    }
    let privileges = &session.database().shared.privileges;
    // All are asked about before the first is changed.
    for object in &objects {
        by_grantor(&access, object, &wanted(object, &grant.privileges)?)?;
    }
    for object in objects {
        let _name = taken(session, &object).await?;
        for (grantor, rights) in by_grantor(&access, &object, &wanted(&object, &grant.privileges)?)? {
            privileges.grant(std::slice::from_ref(&object), &grantees, &grantor, &rights, grant.with_grant_option)?;
        }
    }
    Ok(done("GRANT"))
}

pub async fn revoke(session: &Session, revoke: &Revoke) -> Result<Response> {
    let access = session.access();
    let (objects, grantees) = (objects(session, &revoke.objects)?, grantees(session, &revoke.from)?);
    for object in &objects {
        by_grantor(&access, object, &wanted(object, &revoke.privileges)?)?;
    }
    for object in objects {
        let _name = taken(session, &object).await?;
        let by = by_grantor(&access, &object, &wanted(&object, &revoke.privileges)?)?;
        // The owner takes what anybody has granted, others what they have granted themselves.
        let takes_all = access.owns(&object);
        for (grantor, privileges) in by {
            let taken = Revoked { privileges, option_only: revoke.grant_option_only, cascade: revoke.cascade };
            let grantor = (!takes_all).then_some(grantor.as_str());
            session.database().shared.privileges.revoke(std::slice::from_ref(&object), &grantees, grantor, &taken)?;
        }
    }
    Ok(done("REVOKE"))
}

/// The name of an object, which may be gone by then: what is granted on nothing would hold for the next of its name.
async fn taken(session: &Session, object: &Object) -> Result<NameLock> {
    let shared = &session.database().shared;
    let lock = name::to_make(session, object).await;
    match object {
        object if shared.knows(object) => Ok(lock),
        Object::Table { schema, name } => Err(unknown_table(shared, schema, name)),
        other => Err(Error::UnknownObject { kind: other.kind(), name: other.name().to_owned(), known: Vec::new() }),
    }
}

/// The privileges by the role with whose right they are granted.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501) for the first that the role may not grant.
fn by_grantor(access: &Access, object: &Object, privileges: &[Privilege]) -> Result<Vec<(String, Vec<Privilege>)>> {
    let mut by: Vec<(String, Vec<Privilege>)> = Vec::new();
    for privilege in privileges {
        let advice =
            || format!("its owner or a superuser can GRANT {privilege} ON {} TO {} WITH GRANT OPTION", object.in_grant(), access.role());
        let grantor = access.grantor(object, *privilege).ok_or_else(|| denied(object, advice()))?;
        match by.iter_mut().find(|(known, _)| *known == grantor) {
            Some((_, privileges)) => privileges.push(*privilege),
            None => by.push((grantor, vec![*privilege])),
        }
    }
    Ok(by)
}

/// Those named, or all that there are on the object.
///
/// # Errors
/// [`Error::InvalidGrant`] (0LP01) for one that objects of the kind do not have.
fn wanted(object: &Object, named: &[Privilege]) -> Result<Vec<Privilege>> {
    if named.is_empty() {
        return Ok(object.privileges().to_vec());
    }
    match named.iter().find(|privilege| !object.privileges().contains(privilege)) {
        None => Ok(named.to_vec()),
        Some(privilege) => {
            let known: Vec<&str> = object.privileges().iter().map(|privilege| privilege.keyword()).collect();
            Err(Error::InvalidGrant(format!("there is no privilege {privilege} on a {}; there are: {}", object.kind(), known.join(", "))))
        }
    }
}

/// The objects, each of which exists.
fn objects(session: &Session, named: &GrantObjects) -> Result<Vec<Object>> {
    let shared = &session.database().shared;
    let mut objects = Vec::new();
    match named {
        GrantObjects::Tables(names) => {
            for name in names {
                let (schema, table) = table_name(name)?;
                let object = Object::table(&schema, &table);
                if !shared.knows(&object) {
                    return Err(unknown_table(shared, &schema, &table));
                }
                objects.push(object);
            }
        }
        GrantObjects::TablesInSchemas(schemas) => {
            for schema in schemas {
                objects.extend(shared.catalog.tables(schema)?.iter().map(|table| Object::table(schema, table)));
            }
        }
        GrantObjects::Schemas(names) => {
            for name in names {
                shared.catalog.rollout_schema(name)?;
                objects.push(Object::schema(name));
            }
        }
        GrantObjects::Models(names) => {
            for name in names {
                shared.registry.get(name)?;
                objects.push(Object::model(name));
            }
        }
        GrantObjects::Agents(names) => {
            for name in names {
                shared.agents.get(name)?;
                objects.push(Object::agent(name));
            }
        }
        GrantObjects::Databases(names) => match names.iter().find(|name| *name != CATALOG_NAME) {
            Some(name) => {
                let known = vec![CATALOG_NAME.to_owned()];
                return Err(Error::UnknownObject { kind: "database", name: name.clone(), known });
            }
            None => objects.push(Object::Database),
        },
    }
    Ok(objects)
}

fn grantees(session: &Session, named: &[Grantee]) -> Result<Vec<String>> {
    let roles = session.database().roles();
    let name = |grantee: &Grantee| match grantee {
        Grantee::Public => Ok(PUBLIC.to_owned()),
        Grantee::CurrentRole => Ok(session.role()),
        Grantee::Role(name) => roles.get(name).map(|role| role.name).ok_or_else(|| unknown_role(name)),
    };
    named.iter().map(name).collect()
}

/// Of a name in a schema that may not be there either.
pub fn unknown_table(shared: &Shared, schema: &str, name: &str) -> Error {
    match shared.catalog.tables(schema) {
        Err(error) => error.into(),
        Ok(tables) => {
            let known = nearest(name, &tables).map(str::to_owned).into_iter().collect();
            CatalogError::UnknownTable { name: name.to_owned(), known }.into()
        }
    }
}
