//! Owners and privileges as the tables of the catalog show them.

use super::snapshot::{OWNER_OID, Relation, SchemaEntry, Snapshot};
use super::value::Value;
use crate::engine::privileges::{Grant, Object, PUBLIC, Rights};

/// What everybody may do with the database without a GRANT, by PostgreSQL's letters: make temporary tables, connect.
const OF_ALL: &str = "Tc";

/// The owner of an object, and who has which privileges on it.
#[derive(Debug)]
pub struct Held {
    pub owner: String,
    pub owner_oid: u32,
    /// The owner's own first.
    pub grants: Vec<Grant>,
    /// Whether nothing was ever granted, and nobody but the owner has anything.
    is_plain: bool,
    is_database: bool,
}

impl Relation {
    pub fn object(&self) -> Object {
        Object::table(&self.schema, &self.name)
    }
}

impl SchemaEntry {
    pub fn object(&self) -> Object {
        Object::schema(&self.name)
    }
}

impl Snapshot {
    pub fn held(&self, object: &Object) -> Held {
        let acl = self.privileges.acl(object);
        let owner = acl.owner.clone().unwrap_or_else(|| self.owner().to_owned());
        let others = acl.grants(object);
        let is_plain = acl.grants.is_none() && others.is_empty();
        let is_database = *object == Object::Database;
        let mut grants = vec![Grant { grantee: owner.clone(), grantor: owner.clone(), rights: Rights::all(object) }];
        if is_database && others.iter().all(|grant| grant.grantee != PUBLIC) {
            grants.push(Grant { grantee: PUBLIC.to_owned(), grantor: owner.clone(), rights: Rights::default() });
        }
        // What owners grant themselves they have anyway.
        grants.extend(others.into_iter().filter(|grant| grant.grantee != owner || grant.grantor != owner));
        grants.iter_mut().filter(|grant| grant.grantor.is_empty()).for_each(|grant| grant.grantor.clone_from(&owner));
        let owner_oid = self.role_number(&owner).unwrap_or(OWNER_OID);
        Held { owner, owner_oid, grants, is_plain, is_database }
    }
}

impl Held {
    /// As `aclitem[]`: `{alice=arwdD/alice,bob=r*/alice,=r/alice}`; NULL where all is as it was made, as in PostgreSQL.
    pub fn list(&self) -> Value {
        if self.is_plain {
            return Value::Null;
        }
        let item = |grant: &Grant| {
            let has_all = self.is_database && (grant.grantee == self.owner || grant.grantee == PUBLIC);
            acl_item(&grant.grantee, &format!("{}{}", grant.rights, if has_all { OF_ALL } else { "" }), &grant.grantor)
        };
        Value::list(self.grants.iter().map(item))
    }
}

/// `grantee=letters/grantor`; without a grantee it is what everybody has.
pub fn acl_item(grantee: &str, letters: &str, grantor: &str) -> Value {
    Value::text(format!("{}={letters}/{}", quoted(grantee), quoted(grantor)))
}

/// Names are in quotes here where they are more than letters, digits and `_`.
fn quoted(name: &str) -> String {
    let is_bare = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_bare { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
