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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rolloutdb_sql::Privilege;
use serde::{Deserialize, Serialize};

use super::durable_file;
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

/// The privileges of a data directory. Cheap to clone; clones are the same privileges.
#[derive(Debug, Clone)]
pub struct Privileges {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
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
}

impl Privileges {
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] for a file that does not hold privileges.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let entries: Vec<Entry> = durable_file::read(&path)?.unwrap_or_default();
        let acls = entries.into_iter().map(|entry| (entry.object, entry.acl)).collect();
        Ok(Self { inner: Arc::new(Inner { path, acls: RwLock::new(acls), epoch: AtomicU64::new(0) }) })
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

    /// As [`Self::own`], unless it belongs to somebody.
    pub fn own_if_new(&self, object: Object, role: &str) -> Result<()> {
        if self.acl(&object).owner.is_some() { Ok(()) } else { self.own(object, role) }
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
    pub fn set_owner(&self, object: Object, role: &str) -> Result<()> {
        self.change(|acls| {
            acls.entry(object).or_default().set_owner(role);
            Ok(())
        })
    }

    /// # Errors
    /// [`Error::InvalidGrant`] for the right to grant on, back to one from whom the grantor has it.
    pub fn grant(&self, objects: &[Object], grantees: &[String], grantor: &str, privileges: &[Privilege], with_option: bool) -> Result<()> {
        self.change(|acls| {
            for object in objects {
                let acl = acls.entry(object.clone()).or_default();
                for grantee in grantees {
                    acl.grant(object, grantee, grantor, privileges, with_option)?;
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
        self.change(|acls| {
            for object in objects {
                let acl = acls.entry(object.clone()).or_default();
                for grantee in grantees {
                    acl.revoke(object, grantee, grantor, revoked)?;
                }
            }
            Ok(())
        })
    }

    /// That a role owns nothing and has no part in a grant, before it goes: another role of its name must not inherit them.
    ///
    /// # Errors
    /// [`Error::StillNeeded`] (2BP01), naming them.
    pub fn check_unused(&self, role: &str) -> Result<()> {
        let mut found = Vec::new();
        for (object, acl) in self.list() {
            let has_part = acl.grants.iter().flatten().any(|grant| grant.grantee == role || grant.grantor == role);
            if acl.owner.as_deref() == Some(role) {
                found.push(format!("it owns {object}"));
            } else if has_part {
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

    pub fn role_renamed(&self, role: &str, new_name: &str) -> Result<()> {
        self.change(|acls| {
            acls.values_mut().for_each(|acl| acl.role_renamed(role, new_name));
            Ok(())
        })
    }

    /// All that `change` does, or nothing if it fails or the file cannot be written.
    fn change(&self, change: impl FnOnce(&mut Acls) -> Result<()>) -> Result<()> {
        let mut acls = self.inner.acls.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = acls.clone();
        change(&mut changed)?;
        if changed == *acls {
            return Ok(());
        }
        let entries: Vec<Entry> = changed.iter().map(|(object, acl)| Entry { object: object.clone(), acl: acl.clone() }).collect();
        durable_file::write(&self.inner.path, &entries)?;
        *acls = changed;
        self.inner.epoch.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
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
