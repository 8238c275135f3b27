//! The owner of one object and the privileges on it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rolloutdb_catalogs::is_temporary_schema;
use rolloutdb_catalogs::system::SYSTEM_SCHEMA;
use rolloutdb_sql::Privilege;
use serde::{Deserialize, Serialize};

use super::relations::CATALOG_SCHEMAS;
use super::{Object, Revoked};
use crate::engine::session::DEFAULT_SCHEMA;
use crate::error::{Error, Result};

/// The grantee that stands for every role; no role has an empty name.
pub const PUBLIC: &str = "";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    /// `None`: the superuser that is always there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// `None`: nothing was granted or revoked; what there is by default holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
}

/// What one role has from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// [`PUBLIC`], or a role.
    pub grantee: String,
    pub grantor: String,
    #[serde(with = "as_text")]
    pub rights: Rights,
}

/// Privileges, and which of them may be granted on. As text a letter each, as PostgreSQL has it: `arw*d`, with a star behind those.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    held: u8,
    grantable: u8,
}

impl Acl {
    /// Those in force, by default or not.
    pub fn grants(&self, object: &Object) -> Vec<Grant> {
        self.grants.clone().unwrap_or_else(|| defaults(object, self.owner.as_deref()))
    }

    /// `superuser`: whose it is if it is nobody's.
    pub fn set_owner(&mut self, role: &str, superuser: &str) {
        let old = self.owner.replace(role.to_owned()).unwrap_or_else(|| superuser.to_owned());
        for grant in self.grants.iter_mut().flatten() {
            // What was there from the start, before there was an owner, nobody has granted.
            if grant.grantor == old || grant.grantor.is_empty() {
                role.clone_into(&mut grant.grantor);
            }
        }
    }

    /// The roles that it names.
    pub(super) fn roles(&self) -> impl Iterator<Item = &str> {
        let granted = self.grants.iter().flatten().flat_map(|grant| [&grant.grantee, &grant.grantor]);
        granted.chain(self.owner.as_ref()).map(String::as_str).filter(|name| *name != PUBLIC)
    }

    /// `new_name`: of a role; `None`: it keeps its name.
    pub(super) fn rename_roles(&mut self, new_name: impl Fn(&str) -> Option<String>) {
        let grants = self.grants.iter_mut().flatten();
        for name in grants.flat_map(|grant| [&mut grant.grantee, &mut grant.grantor]).chain(self.owner.as_mut()) {
            if let Some(new_name) = new_name(name) {
                *name = new_name;
            }
        }
    }

    /// `superuser`: whose the object is if it is nobody's.
    ///
    /// # Errors
    /// [`Error::InvalidGrant`] for the right to grant on, back to one from whom the grantor has it: a REVOKE could not end such a circle.
    pub(super) fn grant(
        &mut self,
        (object, superuser): (&Object, &str),
        grantee: &str,
        grantor: &str,
        privileges: &[Privilege],
        with_option: bool,
    ) -> Result<()> {
        let mut grants = self.grants(object);
        // The owner grants by right, which no circle holds up.
        let is_owner = grantee == self.owner.as_deref().unwrap_or(superuser);
        if with_option && !is_owner && privileges.iter().any(|privilege| has_from(&grants, grantor, grantee, *privilege)) {
            return Err(Error::InvalidGrant(format!(
                "{grantee} gave {grantor} the right to grant on {object}, and cannot get it back from there"
            )));
        }
        let position = grants.iter().position(|grant| grant.grantee == grantee && grant.grantor == grantor);
        let position = position.unwrap_or_else(|| {
            grants.push(Grant { grantee: grantee.to_owned(), grantor: grantor.to_owned(), rights: Rights::default() });
            grants.len() - 1
        });
        for privilege in privileges {
            grants[position].rights.add(*privilege, with_option);
        }
        self.grants = Some(grants);
        Ok(())
    }

    /// # Errors
    /// [`Error::StillNeeded`].
    pub(super) fn revoke(
        &mut self,
        (object, superuser): (&Object, &str),
        grantee: &str,
        grantor: Option<&str>,
        revoked: &Revoked,
    ) -> Result<()> {
        let mut grants = self.grants(object);
        let from = Taken { object, owner: self.owner.as_deref().unwrap_or(superuser), grantor };
        from.take(&mut grants, grantee, revoked)?;
        self.grants = Some(grants);
        Ok(())
    }
}

/// Whether `role` may grant a privilege by way of `source`: itself, or one of those from whom it has that right.
fn has_from(grants: &[Grant], role: &str, source: &str, privilege: Privilege) -> bool {
    let (mut upstream, mut next) = (BTreeSet::from([role]), vec![role]);
    while let Some(role) = next.pop() {
        for grant in grants.iter().filter(|grant| grant.grantee == role && grant.rights.may_grant(privilege)) {
            if upstream.insert(&grant.grantor) {
                next.push(&grant.grantor);
            }
        }
    }
    upstream.contains(source)
}

/// What privileges are taken from.
struct Taken<'a> {
    object: &'a Object,
    owner: &'a str,
    /// Only what this role has granted is taken; `None`: whoever has.
    grantor: Option<&'a str>,
}

impl Taken<'_> {
    /// Takes privileges from a grantee, and from those who have them from it.
    fn take(&self, grants: &mut Vec<Grant>, grantee: &str, revoked: &Revoked) -> Result<()> {
        let is_meant = |grant: &Grant| grant.grantee == grantee && self.grantor.is_none_or(|grantor| grant.grantor == grantor);
        for grant in grants.iter_mut().filter(|grant| is_meant(grant)) {
            for privilege in &revoked.privileges {
                grant.rights.remove(*privilege, revoked.option_only);
            }
        }
        grants.retain(|grant| !grant.rights.is_empty());
        for privilege in &revoked.privileges {
            let may_still_grant = grants.iter().any(|grant| grant.grantee == grantee && grant.rights.may_grant(*privilege));
            // The owner grants by right.
            if may_still_grant || self.owner == grantee {
                continue;
            }
            let has_it_from = |grant: &&Grant| grant.grantor == grantee && grant.rights.has(*privilege);
            let dependents: Vec<String> = grants.iter().filter(has_it_from).map(|grant| grant.grantee.clone()).collect();
            if dependents.is_empty() {
                continue;
            }
            if !revoked.cascade {
                let names: Vec<&str> = dependents.iter().map(|name| role_name(name)).collect();
                return Err(Error::StillNeeded(format!(
                    "{} got {privilege} on {} from {}; REVOKE ... CASCADE takes it from there too",
                    names.join(", "),
                    self.object,
                    role_name(grantee)
                )));
            }
            let whole = Revoked { privileges: vec![*privilege], option_only: false, cascade: true };
            let from = Taken { object: self.object, owner: self.owner, grantor: Some(grantee) };
            for dependent in dependents {
                from.take(grants, &dependent, &whole)?;
            }
        }
        Ok(())
    }
}

/// What everybody has from the start: the schema `public`, the system tables and the catalogs may be used, as in PostgreSQL 15. The schema of a session is
/// reached by that session alone, whatever its role.
fn defaults(object: &Object, owner: Option<&str>) -> Vec<Grant> {
    let is_catalog = |schema: &str| CATALOG_SCHEMAS.contains(&schema);
    let privileges: &[Privilege] = match object {
        Object::Schema { name } if is_temporary_schema(name) => &[Privilege::Usage, Privilege::Create],
        Object::Schema { name } if name == DEFAULT_SCHEMA || name == SYSTEM_SCHEMA || is_catalog(name) => &[Privilege::Usage],
        Object::Table { schema, .. } if is_catalog(schema) => &[Privilege::Select],
        // A table that a user has made there has an owner.
        Object::Table { schema, .. } if schema == SYSTEM_SCHEMA && owner.is_none() => &[Privilege::Select],
        _ => return Vec::new(),
    };
    let mut rights = Rights::default();
    privileges.iter().for_each(|privilege| rights.add(*privilege, false));
    vec![Grant { grantee: PUBLIC.to_owned(), grantor: owner.unwrap_or_default().to_owned(), rights }]
}

/// A role's name for messages.
pub fn role_name(role: &str) -> &str {
    if role == PUBLIC { "PUBLIC" } else { role }
}

/// The letters of PostgreSQL.
const LETTERS: [(Privilege, char); 7] = [
    (Privilege::Insert, 'a'),
    (Privilege::Select, 'r'),
    (Privilege::Update, 'w'),
    (Privilege::Delete, 'd'),
    (Privilege::Truncate, 'D'),
    (Privilege::Usage, 'U'),
    (Privilege::Create, 'C'),
];

impl Rights {
    /// All that there is on an object: the owner's.
    pub fn all(object: &Object) -> Self {
        let mut rights = Self::default();
        object.privileges().iter().for_each(|privilege| rights.add(*privilege, false));
        rights
    }

    pub fn has(self, privilege: Privilege) -> bool {
        self.held & bit(privilege) != 0
    }

    pub fn may_grant(self, privilege: Privilege) -> bool {
        self.grantable & bit(privilege) != 0
    }

    pub fn is_empty(self) -> bool {
        self.held == 0
    }

    fn add(&mut self, privilege: Privilege, with_option: bool) {
        self.held |= bit(privilege);
        if with_option {
            self.grantable |= bit(privilege);
        }
    }

    fn remove(&mut self, privilege: Privilege, option_only: bool) {
        self.grantable &= !bit(privilege);
        if !option_only {
            self.held &= !bit(privilege);
        }
    }
}

fn bit(privilege: Privilege) -> u8 {
    1 << Privilege::ALL.iter().position(|known| *known == privilege).expect("ALL has every privilege")
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (privilege, letter) in LETTERS.into_iter().filter(|(privilege, _)| self.has(*privilege)) {
            write!(f, "{letter}{}", if self.may_grant(privilege) { "*" } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for Rights {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut rights = Self::default();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let Some((privilege, _)) = LETTERS.iter().find(|(_, known)| *known == letter) else {
                return Err(format!("no privilege has the letter '{letter}'"));
            };
            rights.add(*privilege, letters.next_if_eq(&'*').is_some());
        }
        Ok(rights)
    }
}

/// In files the letters stand.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::Rights;

    pub fn serialize<S: Serializer>(rights: &Rights, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(rights)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rights, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
