//! What one role may do, as of one moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use rolloutdb_sql::Privilege;

use super::{Object, PUBLIC, READ_STATS, denied};
use crate::agent::AgentOptions;
use crate::engine::apply::arguments::Names;
use crate::engine::apply::planner::split_table_name;
use crate::engine::database::{Database, Shared};
use crate::error::{Error, Result};

/// The rights of a role. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    database: Database,
    role: Arc<Role>,
}

/// What decides the answers: a plan that is kept serves as long as this is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    role: Arc<Role>,
    epoch: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Role {
    name: String,
    is_superuser: bool,
    /// Those whose rights it has, itself among them.
    roles: BTreeSet<String>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("role", &self.role).finish_non_exhaustive()
    }
}

impl Access {
    /// A role that does not exist (any more) has what everybody has.
    pub fn of(database: &Database, role: &str) -> Self {
        let roles = database.roles();
        let is_superuser = roles.get(role).is_some_and(|role| role.is_superuser);
        let role = Role { name: role.to_owned(), is_superuser, roles: roles.memberships(role) };
        Self { database: database.clone(), role: Arc::new(role) }
    }

    /// What the rights are on.
    pub fn shared(&self) -> &Shared {
        &self.database.shared
    }

    pub fn role(&self) -> &str {
        &self.role.name
    }

    pub fn is_superuser(&self) -> bool {
        self.role.is_superuser
    }

    pub fn fingerprint(&self) -> Fingerprint {
        // Nothing that is granted or taken changes what a superuser may do.
        let epoch = if self.is_superuser() { 0 } else { self.database.shared.privileges.epoch() };
        Fingerprint { role: Arc::clone(&self.role), epoch }
    }

    /// Whether it has the rights of another role.
    pub fn is_member(&self, role: &str) -> bool {
        self.role.is_superuser || self.role.roles.contains(role)
    }

    /// Whether it sees what a role does: the statements of its sessions and jobs.
    pub fn sees_statements_of(&self, role: &str) -> bool {
        self.is_member(role) || self.is_member(READ_STATS)
    }

    pub fn owns(&self, object: &Object) -> bool {
        let owner = self.database.shared.privileges.acl(object).owner;
        self.is_member(&owner.unwrap_or_else(|| self.database.roles().superuser()))
    }

    pub fn has(&self, object: &Object, privilege: Privilege) -> bool {
        let grants = || self.database.shared.privileges.acl(object).grants(object);
        self.owns(object) || grants().iter().any(|grant| self.is_meant(&grant.grantee) && grant.rights.has(privilege))
    }

    /// By whose right it grants: the owner's, or its own or that of a role it is a member of; `None`: it may not.
    pub fn grantor(&self, object: &Object, privilege: Privilege) -> Option<String> {
        let acl = self.database.shared.privileges.acl(object);
        if self.owns(object) {
            return Some(acl.owner.unwrap_or_else(|| self.database.roles().superuser()));
        }
        let grants = acl.grants(object);
        let own = grants.iter().find(|grant| self.is_meant(&grant.grantee) && grant.rights.may_grant(privilege));
        own.map(|grant| grant.grantee.clone())
    }

    fn is_meant(&self, grantee: &str) -> bool {
        grantee == PUBLIC || self.role.roles.contains(grantee)
    }

    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501), with the GRANT that would help.
    pub fn require(&self, object: &Object, privilege: Privilege) -> Result<()> {
        if self.role.is_superuser || self.has(object, privilege) {
            return Ok(());
        }
        Err(denied(object, format!("its owner or a superuser can GRANT {privilege} ON {} TO {}", object.in_grant(), self.role())))
    }

    /// Privileges on a table, for which its schema has to be usable too.
    ///
    /// # Errors
    /// As [`Self::require`].
    pub fn require_table(&self, schema: &str, name: &str, privileges: &[Privilege]) -> Result<()> {
        self.require(&Object::schema(schema), Privilege::Usage)?;
        let table = Object::table(schema, name);
        privileges.iter().try_for_each(|privilege| self.require(&table, *privilege))
    }

    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501).
    pub fn require_owner(&self, object: &Object) -> Result<()> {
        if self.owns(object) {
            return Ok(());
        }
        let owner = self.database.shared.privileges.acl(object).owner.unwrap_or_else(|| self.database.roles().superuser());
        Err(Error::InsufficientPrivilege(format!("must be owner of {object}, which is {owner}")))
    }

    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501).
    pub fn require_superuser(&self, what: &str) -> Result<()> {
        if self.is_superuser() { Ok(()) } else { Err(denied(what, "only a superuser may do it")) }
    }

    /// The right to what another role has begun: a session, a job.
    ///
    /// # Errors
    /// [`Error::InsufficientPrivilege`] (42501).
    pub fn require_rights_of(&self, role: &str, what: &str) -> Result<()> {
        let is_a_superusers = self.database.roles().get(role).is_some_and(|role| role.is_superuser);
        if self.is_superuser() || !is_a_superusers && self.is_member(role) {
            return Ok(());
        }
        Err(denied(what, format!("it is {role}'s, and for members of that role and superusers")))
    }

    /// The right to run a model, of any version.
    ///
    /// # Errors
    /// As [`Self::require`].
    pub fn require_model(&self, reference: &str) -> Result<()> {
        let model = Object::model(reference);
        // What does not exist is told by who looks for it, with the names there are.
        if self.is_superuser() || !self.database.shared.knows(&model) { Ok(()) } else { self.require(&model, Privilege::Usage) }
    }

    /// What the argument of a function or statement names.
    ///
    /// # Errors
    /// As [`Self::require`].
    pub fn require_named(&self, names: Names, value: &ScalarValue) -> Result<()> {
        let Some(name) = value.try_as_str().flatten().filter(|_| !self.is_superuser()) else { return Ok(()) };
        match names {
            Names::Nothing | Names::File | Names::Version => Ok(()),
            Names::Model => self.require_model(name),
            Names::Agent if !self.database.shared.knows(&Object::agent(name)) => Ok(()),
            Names::Agent => self.require(&Object::agent(name), Privilege::Usage),
            Names::Table => {
                let (schema, table) = split_table_name(name);
                self.require_table(&schema, &table, &[Privilege::Select])
            }
        }
    }

    /// The policy and the corpus of an agent that is made.
    ///
    /// # Errors
    /// As [`Self::require`].
    pub fn require_parts(&self, options: &AgentOptions) -> Result<()> {
        self.require_model(&options.policy)?;
        let (schema, table) = split_table_name(&options.corpus);
        self.require_table(&schema, &table, &[Privilege::Select])
    }

    /// The right to run an agent. It works with its owner's rights; `options` are those that it was made with, and what a call puts in the place of
    /// one was asked about as its argument.
    ///
    /// # Errors
    /// As [`Self::require`].
    pub fn require_agent(&self, name: &str, options: &AgentOptions) -> Result<()> {
        let agent = Object::agent(name);
        self.require(&agent, Privilege::Usage)?;
        if self.is_superuser() { Ok(()) } else { self.owner_of(&agent).require_parts(options) }
    }

    /// The rights of the role that an object belongs to.
    pub fn owner_of(&self, object: &Object) -> Self {
        let owner = self.database.shared.privileges.acl(object).owner;
        Self::of(&self.database, &owner.unwrap_or_else(|| self.database.roles().superuser()))
    }
}
