//! Who owns what, and what has been granted to whom: kept in one file of the data directory, written whole with every change.
//!
//! [`Access`] answers for one role. It is asked in two places: [`authorize`] before a statement begins, one arm for each kind of statement; and
//! [`relations`] while a query is planned, for what it reads: tables by privilege, views with the rights of their owner. The arguments of table
//! functions that name models, agents and tables are asked about where they are bound (`apply/planner.rs`). A superuser may do everything.

mod access;
mod acl;
mod authorize;
mod object;
mod question;
pub mod relations;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rolloutdb_sql::Privilege;
use serde::{Deserialize, Serialize};

use super::durable_file;
use super::roles::{Roles, unknown_role};
use crate::error::{Error, Result};

pub use access::{Access, Fingerprint};
pub use acl::{Acl, Grant, PUBLIC, Rights, role_name};
pub use authorize::authorize;
pub use object::Object;
pub use question::Question;
pub use view::{rows, schema};

const FILE: &str = "privileges.json";

/// Members may read files of the server: COPY FROM, `read_csv` and its like, CREATE MODEL from a directory.
pub const READ_FILES: &str = "pg_read_server_files";
/// Members may write files of the server: COPY TO.
pub const WRITE_FILES: &str = "pg_write_server_files";
/// Members see the statements of others' sessions and jobs.
pub const READ_STATS: &str = "pg_read_all_stats";

/// The privileges of a data directory. Cheap to clone; clones are the same privileges.
#[derive(Debug, Clone)]
pub struct Privileges {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Whose names stand in the privileges. Its lock is taken while that of the privileges is held, never the other way round.
    roles: Roles,
    acls: RwLock<Acls>,
    /// Another number after each change: plans that are kept were made for one of them.
    epoch: AtomicU64,
}

type Acls = BTreeMap<Object, Acl>;

/// An object in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    object: Object,
    #[serde(flatten)]
    acl: Acl,
    /// The numbers of the roles that it names: a name that another role has by now, or none, is known by them.
    #[serde(default)]
    roles: BTreeMap<String, u32>,
}

impl Entry {
    fn new(object: &Object, acl: &Acl, roles: &Roles) -> Self {
        let numbered = |name: &str| roles.get(name).map(|role| (role.name, role.oid));
        Self { object: object.clone(), acl: acl.clone(), roles: acl.roles().filter_map(numbered).collect() }
    }

    /// With the names that its roles have now: the process may have ended between the change of a name and that of this file.
    fn with_names_of(self, roles: &Roles) -> (Object, Acl) {
        let Self { object, mut acl, roles: numbers } = self;
        acl.rename_roles(|name| roles.name_of(*numbers.get(name)?));
        (object, acl)
    }
}

impl Privileges {
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] for a file that does not hold privileges.
    pub fn open(directory: &Path, roles: &Roles) -> Result<Self> {
        let path = directory.join(FILE);
        let entries: Vec<Entry> = durable_file::read(&path)?.unwrap_or_default();
        let acls = entries.into_iter().map(|entry| entry.with_names_of(roles)).collect();
        Ok(Self { inner: Arc::new(Inner { path, roles: roles.clone(), acls: RwLock::new(acls), epoch: AtomicU64::new(0) }) })
    }

    pub fn epoch(&self) -> u64 {
        self.inner.epoch.load(Ordering::Acquire)
    }

    /// The owner and the privileges of an object; those that it has from the start, if nothing was said about it.
    pub fn acl(&self, object: &Object) -> Acl {
        let acls = self.inner.acls.read().unwrap_or_else(PoisonError::into_inner);
        acls.get(object).cloned().unwrap_or_default()
    }

    /// Every object that something was said about.
    pub fn list(&self) -> Vec<(Object, Acl)> {
        let acls = self.inner.acls.read().unwrap_or_else(PoisonError::into_inner);
        acls.iter().map(|(object, acl)| (object.clone(), acl.clone())).collect()
    }

    /// What was made belongs to `role`, and nobody else has anything on it.
    pub fn own(&self, object: Object, role: &str) -> Result<()> {
        self.change(|acls| {
            acls.insert(object, Acl { owner: Some(role.to_owned()), grants: None });
            Ok(())
        })
    }

    /// What was dropped is forgotten, so that another object of its name begins anew.
    pub fn forget(&self, object: &Object) -> Result<()> {
        if !self.inner.acls.read().unwrap_or_else(PoisonError::into_inner).contains_key(object) {
            return Ok(());
        }
        self.change(|acls| {
            acls.remove(object);
            Ok(())
        })
    }

    /// The schema of a session is gone, with what was in it.
    pub fn forget_schema(&self, name: &str) -> Result<()> {
        self.change(|acls| {
            acls.retain(|object, _| !matches!(object, Object::Table { schema, .. } | Object::Schema { name: schema } if schema == name));
            Ok(())
        })
    }

    /// Forgets all objects but those that `exists` knows: a crash may have come between the end of an object and [`Self::forget`].
    pub fn keep_only(&self, exists: impl Fn(&Object) -> bool) -> Result<()> {
        let lost: Vec<Object> = self.list().into_iter().map(|(object, _)| object).filter(|object| !exists(object)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        self.change(|acls| {
            lost.iter().for_each(|object| drop(acls.remove(object)));
            Ok(())
        })
    }

    pub fn renamed(&self, from: &Object, to: Object) -> Result<()> {
        if !self.inner.acls.read().unwrap_or_else(PoisonError::into_inner).contains_key(from) {
            return Ok(());
        }
        self.change(|acls| {
            if let Some(acl) = acls.remove(from) {
                acls.insert(to, acl);
            }
            Ok(())
        })
    }

    /// What the old owner granted is now granted by the new one.
    ///
    /// # Errors
    /// [`Error::UnknownObject`] (42704) if there is no such role.
    pub fn set_owner(&self, object: Object, role: &str) -> Result<()> {
        let superuser = self.inner.roles.superuser();
        self.change(|acls| {
            acls.entry(object).or_default().set_owner(role, &superuser);
            Ok(())
        })
    }

    /// # Errors
    /// [`Error::InvalidGrant`] for the right to grant on, back to one from whom the grantor has it; [`Error::UnknownObject`] (42704) for a role that is
    /// not there (any more).
    pub fn grant(&self, objects: &[Object], grantees: &[String], grantor: &str, privileges: &[Privilege], with_option: bool) -> Result<()> {
        let superuser = self.inner.roles.superuser();
        self.change(|acls| {
            for object in objects {
                let acl = acls.entry(object.clone()).or_default();
                for grantee in grantees {
                    acl.grant((object, superuser.as_str()), grantee, grantor, privileges, with_option)?;
                }
            }
            Ok(())
        })
    }

    /// `grantor`: take only what this role has granted; `None`: whoever has.
    ///
    /// # Errors
    /// [`Error::StillNeeded`] if somebody has it from one of the grantees, and not `cascade`.
    pub fn revoke(&self, objects: &[Object], grantees: &[String], grantor: Option<&str>, revoked: &Revoked) -> Result<()> {
        let superuser = self.inner.roles.superuser();
        self.change(|acls| {
            for object in objects {
                let acl = acls.entry(object.clone()).or_default();
                for grantee in grantees {
                    acl.revoke((object, superuser.as_str()), grantee, grantor, revoked)?;
                }
            }
            Ok(())
        })
    }

    /// Drops roles by `drop_them`, once it is known that they own nothing and have no part in a grant: another role of that name must not inherit them.
    /// Nothing is granted in between.
    ///
    /// # Errors
    /// [`Error::StillNeeded`] (2BP01), naming what they have; those of `drop_them`.
    pub fn drop_unused<T>(&self, roles: &[&String], drop_them: impl FnOnce() -> Result<T>) -> Result<T> {
        let acls = self.inner.acls.read().unwrap_or_else(PoisonError::into_inner);
        roles.iter().try_for_each(|role| check_unused(&acls, role))?;
        drop_them()
    }

    /// Renames a role by `rename_it`, and in all privileges with it. Nothing is granted in between.
    ///
    /// # Errors
    /// [`Error::Io`], and those of `rename_it`: nothing has changed then.
    pub fn rename_role(&self, role: &str, new_name: &str, rename_it: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut acls = self.inner.acls.write().unwrap_or_else(PoisonError::into_inner);
        // With the numbers of the roles, which a file from before there were any has not.
        self.write(&acls)?;
        rename_it()?;
        for acl in acls.values_mut() {
            acl.rename_roles(|name| (name == role).then(|| new_name.to_owned()));
        }
        self.inner.epoch.fetch_add(1, Ordering::AcqRel);
        // The role has its name, whatever becomes of this file: opening it finds the role by its number, and the next change writes it anew.
        let _ = self.write(&acls);
        Ok(())
    }

    /// All that `change` does, or nothing if it fails or the file cannot be written.
    fn change(&self, change: impl FnOnce(&mut Acls) -> Result<()>) -> Result<()> {
        let mut acls = self.inner.acls.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = acls.clone();
        change(&mut changed)?;
        if changed == *acls {
            return Ok(());
        }
        // Asked for here, under the lock that a DROP ROLE takes: a role that goes leaves no grant behind.
        self.check_new_roles(&acls, &changed)?;
        let is_stored = |(object, _): &(&Object, &Acl)| !object.is_temporary();
        if !changed.iter().filter(is_stored).eq(acls.iter().filter(is_stored)) {
            self.write(&changed)?;
        }
        *acls = changed;
        self.inner.epoch.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn check_new_roles(&self, before: &Acls, after: &Acls) -> Result<()> {
        let (before, after) = (roles_in(before), roles_in(after));
        match after.difference(&before).find(|name| self.inner.roles.get(name).is_none()) {
            Some(name) => Err(unknown_role(name)),
            None => Ok(()),
        }
    }

    fn write(&self, acls: &Acls) -> Result<()> {
        let stored = acls.iter().filter(|(object, _)| !object.is_temporary());
        let entries: Vec<Entry> = stored.map(|(object, acl)| Entry::new(object, acl, &self.inner.roles)).collect();
        durable_file::write(&self.inner.path, &entries)
    }
}

fn roles_in(acls: &Acls) -> BTreeSet<&str> {
    acls.values().flat_map(Acl::roles).collect()
}

fn check_unused(acls: &Acls, role: &str) -> Result<()> {
    let mut found = Vec::new();
    for (object, acl) in acls {
        if acl.owner.as_deref() == Some(role) {
            found.push(format!("it owns {object}"));
        } else if acl.roles().any(|name| name == role) {
            found.push(format!("it has or gave privileges on {object}"));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(Error::StillNeeded(format!(
        "role \"{role}\" cannot be dropped: {}; ALTER ... OWNER TO another role and REVOKE first",
        found.join(", ")
    )))
}

/// What a REVOKE takes.
#[derive(Debug, Clone)]
pub struct Revoked {
    pub privileges: Vec<Privilege>,
    /// Only the right to grant them.
    pub option_only: bool,
    /// From those too whom the grantee has granted them.
    pub cascade: bool,
}

/// The error of a role that may not do something, with what would let it.
pub fn denied(what: impl std::fmt::Display, advice: impl std::fmt::Display) -> Error {
    Error::InsufficientPrivilege(format!("permission denied for {what}; {advice}"))
}

#[cfg(test)]
mod tests;
