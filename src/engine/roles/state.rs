//! The roles and memberships as they are stored, and the changes that keep them whole.

use std::collections::{BTreeMap, BTreeSet};

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::{Membership, Role, Verifier};
use crate::engine::privileges::{READ_FILES, READ_STATS, WRITE_FILES};
use crate::error::{Error, Result};

/// The number of the first superuser, as in PostgreSQL.
const SUPERUSER_OID: u32 = 10;
/// From here on objects are numbered that users make, as in PostgreSQL.
const FIRST_OID: u32 = 16_384;

/// Roles that are always there, with PostgreSQL's names and numbers: their members may read and write files of the server, and see what others do.
const PREDEFINED: [(&str, u32); 3] = [(READ_STATS, 3375), (READ_FILES, 4569), (WRITE_FILES, 4570)];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// The superuser that cannot be dropped.
    superuser: String,
    next_oid: u32,
    /// What the salts of roles that do not exist are made of.
    mock_secret: Secret,
    roles: BTreeMap<String, Role>,
    /// By role and member.
    memberships: Vec<Membership>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// What a membership has to allow so that one gets from the member to the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The member has the role's rights.
    Inherit,
    /// The member may SET ROLE to it.
    Set,
    /// Any membership.
    Any,
}

impl State {
    /// One superuser.
    pub(super) fn fresh(superuser: String) -> Result<Self> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| Error::Internal("the system gives no random numbers".to_owned()))?;
        let role = Role {
            name: superuser.clone(),
            oid: SUPERUSER_OID,
            is_superuser: true,
            can_login: true,
            can_create_roles: true,
            can_create_databases: true,
            inherits: true,
            connection_limit: None,
            valid_until: None,
            verifier: None,
        };
        let state = Self {
            superuser: superuser.clone(),
            next_oid: FIRST_OID,
            mock_secret: Secret(secret),
            roles: BTreeMap::from([(superuser, role)]),
            memberships: Vec::new(),
        };
        Ok(state.with_predefined())
    }

    fn with_predefined(mut self) -> Self {
        for (name, oid) in PREDEFINED {
            self.roles.entry(name.to_owned()).or_insert_with(|| Role::plain(name, oid, false));
        }
        self
    }

    /// That the superuser is the one that was asked for, if one was.
    pub(super) fn with_superuser(self, expected: Option<&str>) -> Result<Self> {
        match expected {
            Some(expected) if expected != self.superuser => Err(Error::NotReady(format!(
                "the superuser of this data directory is \"{}\" already; ALTER ROLE ... RENAME TO changes its name, and --superuser is for a new directory",
                self.superuser
            ))),
            // Those of a later version than the one that wrote the file.
            _ => Ok(self.with_predefined()),
        }
    }

    /// What is wrong with roles that were read from a file.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let is_whole = |membership: &Membership| self.roles.contains_key(&membership.role) && self.roles.contains_key(&membership.member);
        if !self.roles.get(&self.superuser).is_some_and(|role| role.is_superuser) {
            return Err(format!("it has no superuser \"{}\"", self.superuser));
        }
        if let Some((name, role)) = self.roles.iter().find(|(name, role)| **name != role.name) {
            return Err(format!("its role \"{name}\" calls itself \"{}\"", role.name));
        }
        match self.memberships.iter().find(|membership| !is_whole(membership)) {
            Some(membership) => {
                Err(format!("it has a membership of \"{}\" in \"{}\" without the role", membership.member, membership.role))
            }
            None => Ok(()),
        }
    }

    pub fn superuser(&self) -> &str {
        &self.superuser
    }

    pub(super) fn mock_secret(&self) -> &[u8] {
        &self.mock_secret.0
    }

    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(name)
    }

    /// By name.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.values()
    }

    pub fn memberships(&self) -> &[Membership] {
        &self.memberships
    }

    pub fn is_superuser(&self, name: &str) -> bool {
        self.role(name).is_some_and(|role| role.is_superuser)
    }

    /// # Errors
    /// [`Error::UnknownObject`] (42704).
    pub fn existing(&mut self, name: &str) -> Result<&mut Role> {
        self.roles.get_mut(name).ok_or_else(|| unknown_role(name))
    }

    /// A role with PostgreSQL's defaults.
    ///
    /// # Errors
    /// [`Error::DuplicateObject`] (42710).
    pub fn create(&mut self, name: &str, can_login: bool) -> Result<&mut Role> {
        if self.roles.contains_key(name) {
            return Err(Error::DuplicateObject { kind: "role", name: name.to_owned() });
        }
        let oid = self.next_oid;
        self.next_oid += 1;
        let role = Role::plain(name, oid, can_login);
        Ok(self.roles.entry(name.to_owned()).or_insert(role))
    }

    /// # Errors
    /// [`Error::UnknownObject`], [`Error::DuplicateObject`].
    pub fn rename(&mut self, name: &str, new_name: &str) -> Result<()> {
        refuse_predefined(name)?;
        if self.roles.contains_key(new_name) {
            return Err(Error::DuplicateObject { kind: "role", name: new_name.to_owned() });
        }
        let mut role = self.roles.remove(name).ok_or_else(|| unknown_role(name))?;
        new_name.clone_into(&mut role.name);
        self.roles.insert(new_name.to_owned(), role);
        if self.superuser == name {
            new_name.clone_into(&mut self.superuser);
        }
        for membership in &mut self.memberships {
            for part in [&mut membership.role, &mut membership.member, &mut membership.grantor] {
                if *part == name {
                    new_name.clone_into(part);
                }
            }
        }
        self.sort();
        Ok(())
    }

    /// With its memberships, and those that others have in it.
    ///
    /// # Errors
    /// [`Error::UnknownObject`]; [`Error::StillNeeded`] for the superuser that is always there, and for a role that others are what they are by the grace of.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        if !self.roles.contains_key(name) {
            return Err(unknown_role(name));
        }
        refuse_predefined(name)?;
        if name == self.superuser {
            return Err(Error::StillNeeded(format!(
                "role \"{name}\" is the superuser that the database always has, and cannot be dropped"
            )));
        }
        let is_elsewhere = |membership: &&Membership| membership.grantor == name && membership.role != name && membership.member != name;
        if let Some(Membership { role, member, .. }) = self.memberships.iter().find(is_elsewhere) {
            let what = format!("role \"{name}\" cannot be dropped: it granted \"{role}\" to \"{member}\"");
            return Err(Error::StillNeeded(format!("{what}; REVOKE that, or grant it anew as another role")));
        }
        self.roles.remove(name);
        self.memberships.retain(|membership| membership.role != name && membership.member != name);
        Ok(())
    }

    /// Gives or takes a password.
    pub fn set_verifier(&mut self, name: &str, verifier: Option<Verifier>) -> Result<()> {
        self.existing(name)?.verifier = verifier;
        Ok(())
    }

    /// Adds a membership, or puts it in the place of the one that there is.
    ///
    /// # Errors
    /// [`Error::InvalidGrant`] if the role would become a member of itself.
    pub fn grant(&mut self, membership: Membership) -> Result<()> {
        let Membership { role, member, .. } = &membership;
        if self.reachable(role, Reach::Any).contains(member) {
            return Err(Error::InvalidGrant(format!(
                "role \"{role}\" cannot be granted to \"{member}\", which it is or which it is a member of"
            )));
        }
        self.memberships.retain(|known| (&known.role, &known.member) != (role, member));
        self.memberships.push(membership);
        self.sort();
        Ok(())
    }

    pub fn membership(&mut self, role: &str, member: &str) -> Option<&mut Membership> {
        self.memberships.iter_mut().find(|known| known.role == role && known.member == member)
    }

    pub fn revoke(&mut self, role: &str, member: &str) {
        self.memberships.retain(|known| !(known.role == role && known.member == member));
    }

    /// Whether `name` may grant `role` to others.
    pub fn administers(&self, name: &str, role: &str) -> bool {
        let own = self.reachable(name, Reach::Inherit);
        self.is_superuser(name) || self.memberships.iter().any(|known| known.role == role && known.admin && own.contains(&known.member))
    }

    /// The role itself and those that it gets to by memberships.
    pub fn reachable(&self, name: &str, reach: Reach) -> BTreeSet<String> {
        let mut found = BTreeSet::from([name.to_owned()]);
        let mut open = vec![name];
        while let Some(member) = open.pop() {
            let inherits = self.role(member).is_some_and(|role| role.inherits);
            for membership in self.memberships.iter().filter(|membership| membership.member == member) {
                let leads = match reach {
                    Reach::Inherit => inherits && membership.inherit,
                    Reach::Set => membership.set,
                    Reach::Any => true,
                };
                if leads && found.insert(membership.role.clone()) {
                    open.push(&membership.role);
                }
            }
        }
        found
    }

    fn sort(&mut self) {
        self.memberships.sort_by(|left, right| (&left.role, &left.member).cmp(&(&right.role, &right.member)));
    }
}

fn refuse_predefined(name: &str) -> Result<()> {
    if PREDEFINED.iter().any(|(known, _)| *known == name) {
        return Err(Error::StillNeeded(format!("role \"{name}\" is one of the system's own, which stay as they are")));
    }
    Ok(())
}

/// That there is no such role (42704).
pub fn unknown_role(name: &str) -> Error {
    // Who exists is told to those who may look at pg_roles; an error is no place for a list of names.
    Error::UnknownObject { kind: "role", name: name.to_owned(), known: Vec::new() }
}
