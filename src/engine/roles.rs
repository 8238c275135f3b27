//! Roles: who may connect, what each may do by itself, and who is a member of whom.
//!
//! They are kept in one file of the data directory, written whole and renamed into place. Before the first statement about roles there is no file, and
//! one role: the superuser, named as the operating system's user. What may be done to roles is decided in `statement/role.rs`.

mod file;
mod state;
mod verifier;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::error::Result;

pub use verifier::Verifier;

use state::Reach;
pub(super) use state::{State, unknown_role};

/// The superuser's name where the operating system's user has none.
pub(super) const FALLBACK_SUPERUSER: &str = "rolloutdb";

/// One role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    pub name: String,
    /// Its number in `pg_roles`; it stays through a change of the name.
    pub oid: u32,
    pub is_superuser: bool,
    pub can_login: bool,
    pub can_create_roles: bool,
    pub can_create_databases: bool,
    /// Whether it has the rights of the roles that it is a member of without SET ROLE.
    pub inherits: bool,
    /// Connections at once; `None`: as many as the server takes.
    pub connection_limit: Option<u32>,
    /// Until when its password counts, in microseconds since 1970; `None`: for ever.
    pub valid_until: Option<i64>,
    verifier: Option<Verifier>,
}

impl Role {
    /// With PostgreSQL's defaults.
    fn plain(name: &str, oid: u32, can_login: bool) -> Self {
        Self {
            name: name.to_owned(),
            oid,
            is_superuser: false,
            can_login,
            can_create_roles: false,
            can_create_databases: false,
            inherits: true,
            connection_limit: None,
            valid_until: None,
            verifier: None,
        }
    }

    /// Whether it has a password.
    pub fn has_password(&self) -> bool {
        self.verifier.is_some()
    }
}

/// That `member` is a member of `role`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub role: String,
    pub member: String,
    /// Who granted it.
    pub grantor: String,
    /// Whether the member may grant it to others, and change or drop the role if it may make roles.
    pub admin: bool,
    /// Whether the member has the role's rights without SET ROLE, if the member inherits at all.
    pub inherit: bool,
    /// Whether the member may SET ROLE to it.
    pub set: bool,
}

/// The roles of a data directory. Cheap to clone; clones are the same roles.
#[derive(Debug, Clone)]
pub struct Roles {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: file::RoleFile,
    state: RwLock<State>,
}

impl Roles {
    /// `superuser`: its name, as long as no statement has been about roles.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); [`Error::Damaged`](crate::Error::Damaged) for a file that does not hold roles;
    /// [`Error::NotReady`](crate::Error::NotReady) if there are roles already, whose superuser has another name.
    pub(super) fn open(directory: &Path, superuser: Option<&str>) -> Result<Self> {
        let file = file::RoleFile::new(directory);
        let state = match file.read()? {
            Some(state) => state.with_superuser(superuser)?,
            None => State::fresh(superuser.map_or_else(super::operating_system::user_name, str::to_owned))?,
        };
        Ok(Self { inner: Arc::new(Inner { file, state: RwLock::new(state) }) })
    }

    /// `None`: there is no such role.
    pub fn get(&self, name: &str) -> Option<Role> {
        self.read(|state| state.role(name).cloned())
    }

    /// The name that the role of a number has now; `None`: it was dropped.
    pub fn name_of(&self, oid: u32) -> Option<String> {
        self.read(|state| state.roles().find(|role| role.oid == oid).map(|role| role.name.clone()))
    }

    /// By name.
    pub fn list(&self) -> Vec<Role> {
        self.read(|state| state.roles().cloned().collect())
    }

    /// The role itself and every role whose rights it has: those that it is a member of, directly or not, as far as it inherits.
    pub fn memberships(&self, name: &str) -> BTreeSet<String> {
        self.read(|state| state.reachable(name, Reach::Inherit))
    }

    /// Whether `name` is `role` or a member of it, directly or not.
    pub fn is_member(&self, name: &str, role: &str) -> bool {
        self.read(|state| state.reachable(name, Reach::Any).contains(role))
    }

    /// Who is a member of whom, by role and member.
    pub fn members(&self) -> Vec<Membership> {
        self.read(|state| state.memberships().to_vec())
    }

    /// Whether `user` may SET ROLE to `role`: to itself, to one that it is a member of, to any as a superuser.
    pub fn may_become(&self, user: &str, role: &str) -> bool {
        self.read(|state| state.is_superuser(user) || state.reachable(user, Reach::Set).contains(role))
    }

    /// The superuser that is always there.
    pub fn superuser(&self) -> String {
        self.read(|state| state.superuser().to_owned())
    }

    /// Whether any role has a password: until then a database is fresh.
    pub fn has_passwords(&self) -> bool {
        self.read(|state| state.roles().any(Role::has_password))
    }

    /// Whether somebody can connect with a password.
    pub fn has_login_with_password(&self) -> bool {
        self.read(|state| state.roles().any(|role| role.can_login && role.has_password()))
    }

    /// What a client's proof of its password is checked against, and whether it is a real one.
    ///
    /// For a role that does not exist or has no password it is one that no password fits, the same whenever it is asked for: the client cannot tell
    /// which names exist.
    pub fn verifier(&self, name: &str) -> (Verifier, bool) {
        self.read(|state| match state.role(name).and_then(|role| role.verifier.clone()) {
            Some(verifier) => (verifier, true),
            None => (Verifier::mock(state.mock_secret(), name), false),
        })
    }

    /// Changes roles: all that `change` does, or nothing if it fails or the file cannot be written.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.inner.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = state.clone();
        let output = change(&mut changed)?;
        self.inner.file.write(&changed)?;
        *state = changed;
        Ok(output)
    }

    #[cfg(test)]
    pub(crate) fn for_tests(directory: &Path, superuser: &str) -> Self {
        Self::open(directory, Some(superuser)).expect("roles open")
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.inner.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
