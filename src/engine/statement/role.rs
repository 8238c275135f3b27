//! CREATE ROLE, ALTER ROLE, DROP ROLE, membership by GRANT and REVOKE, SET ROLE: who may do what to whom.
//!
//! As in PostgreSQL 16: a superuser does all; a role with CREATEROLE makes roles, administers those that it has made, and gives no attribute that it has
//! not itself; every role changes its own password.

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::string_to_datetime;
use rolloutdb_sql::{
    AlterRole, AlterRoleAction, CreateRole, DropRole, GrantRole, MembershipOption, RevokeRole, RoleName, RoleOption, SetRole,
};

use super::done;
use crate::engine::roles::{Membership, State, Verifier, unknown_role};
use crate::engine::session::{Response, Session};
use crate::engine::session_user::{RoleId, dropped_name};
use crate::error::{Error, Result};

/// Words that stand for something else where a role is named.
const RESERVED: &[&str] = &["public", "none"];
/// Roles of the system itself.
const RESERVED_PREFIX: &str = "pg_";

/// As PostgreSQL writes MD5 verifiers.
const MD5_PREFIX: &str = "md5";

pub fn create(session: &Session, create: &CreateRole) -> Result<Response> {
    check_name(&create.name)?;
    let options = prepared(session, &create.options)?;
    let actor = Actor::of(session);
    let had_passwords = session.database().roles().has_passwords();
    session.database().roles().change(|state| {
        actor.require_create_roles(state, "create roles")?;
        state.create(&create.name, false)?;
        if !state.is_superuser(&actor.role) {
            // Who makes a role administers it, and has none of its rights by that.
            let (role, member) = (create.name.clone(), actor.role.clone());
            state.grant(Membership { role, member, grantor: state.superuser().to_owned(), admin: true, inherit: false, set: false })?;
        }
        actor.apply(state, &create.name, &options)
    })?;
    tell_about_passwords(session, had_passwords);
    Ok(done("CREATE ROLE"))
}

pub fn alter(session: &Session, alter: &AlterRole) -> Result<Response> {
    let name = resolved(session, &alter.role);
    let actor = Actor::of(session);
    let had_passwords = session.database().roles().has_passwords();
    match &alter.action {
        AlterRoleAction::Options(options) => {
            let options = prepared(session, options)?;
            session.database().roles().change(|state| {
                let is_own_password = name == actor.role && options.iter().all(|option| matches!(option, Change::Password(_)));
                state.existing(&name)?;
                if !is_own_password {
                    actor.require_administration(state, &name, "alter")?;
                }
                actor.apply(state, &name, &options)
            })?;
        }
        AlterRoleAction::RenameTo(new_name) => {
            check_name(new_name)?;
            if name == session.user() || name == actor.role {
                return Err(Error::NotSupported(format!(
                    "role \"{name}\" cannot be renamed by a session of its own; connect as another role"
                )));
            }
            let rename = |state: &mut State| {
                state.existing(&name)?;
                actor.require_administration(state, &name, "rename")?;
                state.rename(&name, new_name)
            };
            let database = session.database();
            database.shared.privileges.rename_role(&name, new_name, || database.roles().change(rename))?;
            database.shared.activity.user_renamed(&name, new_name);
        }
    }
    tell_about_passwords(session, had_passwords);
    Ok(done("ALTER ROLE"))
}

pub fn drop(session: &Session, drop: &DropRole) -> Result<Response> {
    let actor = Actor::of(session);
    let is_absent = |name: &&String| session.database().roles().get(name).is_none();
    let (absent, present): (Vec<&String>, Vec<&String>) = drop.names.iter().partition(is_absent);
    if let Some(name) = absent.first().filter(|_| !drop.if_exists) {
        return Err(unknown_role(name));
    }
    if let Some(name) = present.iter().find(|name| ***name == session.user() || ***name == actor.role) {
        return Err(Error::InUse(format!("role \"{name}\" is the one that this session runs as, and cannot be dropped by it")));
    }
    let remove = |state: &mut State| -> Result<Vec<u32>> {
        let remove_one = |name: &&String| {
            actor.require_administration(state, name, "drop")?;
            let oid = state.existing(name)?.oid;
            state.remove(name).map(|()| oid)
        };
        present.iter().map(remove_one).collect()
    };
    let database = session.database();
    let dropped = database.shared.privileges.drop_unused(&present, || database.roles().change(remove))?;
    for (name, oid) in present.iter().zip(dropped) {
        database.shared.activity.user_renamed(name, &dropped_name(oid));
    }
    for name in absent {
        session.notices().notice(format!("role \"{name}\" does not exist, skipping"));
    }
    Ok(done("DROP ROLE"))
}

pub fn grant(session: &Session, grant: &GrantRole) -> Result<Response> {
    let actor = Actor::of(session);
    let members: Vec<String> = grant.members.iter().map(|member| resolved(session, member)).collect();
    session.database().roles().change(|state| {
        for role in &grant.roles {
            state.existing(role)?;
            actor.require_grant(state, role)?;
            for member in &members {
                state.existing(member)?;
                let known = state.membership(role, member).cloned();
                let of_known = |read: fn(&Membership) -> bool| known.as_ref().map(read);
                let membership = Membership {
                    role: role.clone(),
                    member: member.clone(),
                    grantor: actor.grantor(state),
                    admin: grant.admin.or_else(|| of_known(|known| known.admin)).unwrap_or(false),
                    // A membership that only administers becomes a whole one.
                    inherit: grant.inherit.unwrap_or(true),
                    set: grant.set.unwrap_or(true),
                };
                state.grant(membership)?;
            }
        }
        Ok(())
    })?;
    Ok(done("GRANT ROLE"))
}

pub fn revoke(session: &Session, revoke: &RevokeRole) -> Result<Response> {
    let actor = Actor::of(session);
    let members: Vec<String> = revoke.members.iter().map(|member| resolved(session, member)).collect();
    let mut missing = Vec::new();
    session.database().roles().change(|state| {
        for role in &revoke.roles {
            state.existing(role)?;
            for member in &members {
                state.existing(member)?;
                // One may always leave.
                if *member != actor.role || revoke.option.is_some() {
                    actor.require_grant(state, role)?;
                }
                match (state.membership(role, member), revoke.option) {
                    (None, _) => missing.push(format!("role \"{member}\" is not a member of role \"{role}\"")),
                    (Some(_), None) => state.revoke(role, member),
                    (Some(membership), Some(MembershipOption::Admin)) => membership.admin = false,
                    (Some(membership), Some(MembershipOption::Inherit)) => membership.inherit = false,
                    (Some(membership), Some(MembershipOption::Set)) => membership.set = false,
                }
            }
        }
        Ok(())
    })?;
    for warning in missing {
        session.notices().warning(warning);
    }
    Ok(done("REVOKE ROLE"))
}

pub fn set(session: &Session, set: &SetRole) -> Result<Response> {
    let Some(role) = &set.role else {
        become_role(session, None, set.local);
        return Ok(done(if set.local { "SET" } else { "RESET" }));
    };
    let roles = session.database().roles();
    let Some(found) = roles.get(role) else { return Err(unknown_role(role)) };
    if !roles.may_become(&session.user(), role) {
        return Err(Error::InsufficientPrivilege(format!(
            "permission denied to set role \"{role}\"; {} is no member of it",
            session.user()
        )));
    }
    become_role(session, Some(RoleId::from(&found)), set.local);
    Ok(done("SET"))
}

fn become_role(session: &Session, role: Option<RoleId>, local: bool) {
    if !local {
        session.set_role(role);
    } else if !session.set_local_role(role) {
        session.notices().warning_with("25P01", "SET LOCAL can only be used in transaction blocks");
    }
}

/// The role with whose rights a statement runs.
struct Actor {
    role: String,
}

impl Actor {
    fn of(session: &Session) -> Self {
        Self { role: session.role() }
    }

    fn denied<T>(&self, what: &str, needed: &str) -> Result<T> {
        Err(Error::InsufficientPrivilege(format!("permission denied to {what}; role \"{}\" needs {needed}", self.role)))
    }

    fn require_create_roles(&self, state: &State, what: &str) -> Result<()> {
        match state.role(&self.role) {
            Some(role) if role.is_superuser || role.can_create_roles => Ok(()),
            _ => self.denied(what, "SUPERUSER or CREATEROLE"),
        }
    }

    /// To change or drop a role.
    fn require_administration(&self, state: &State, name: &str, verb: &str) -> Result<()> {
        let what = format!("{verb} role \"{name}\"");
        if state.is_superuser(&self.role) {
            return Ok(());
        }
        if state.is_superuser(name) {
            return self.denied(&what, "SUPERUSER");
        }
        self.require_create_roles(state, &what)?;
        if state.administers(&self.role, name) { Ok(()) } else { self.denied(&what, &format!("ADMIN OPTION on role \"{name}\"")) }
    }

    /// To grant a role to others, or take it from them.
    fn require_grant(&self, state: &State, role: &str) -> Result<()> {
        let what = format!("grant or revoke role \"{role}\"");
        if state.is_superuser(role) && !state.is_superuser(&self.role) {
            return self.denied(&what, "SUPERUSER");
        }
        if state.administers(&self.role, role) { Ok(()) } else { self.denied(&what, &format!("ADMIN OPTION on role \"{role}\"")) }
    }

    /// What a superuser grants is granted by the one that cannot be dropped.
    fn grantor(&self, state: &State) -> String {
        if state.is_superuser(&self.role) { state.superuser().to_owned() } else { self.role.clone() }
    }

    fn apply(&self, state: &mut State, name: &str, changes: &[Change]) -> Result<()> {
        changes.iter().try_for_each(|change| self.apply_one(state, name, change))
    }

    fn apply_one(&self, state: &mut State, name: &str, change: &Change) -> Result<()> {
        let own = state.role(&self.role).cloned();
        let may_give = |read: fn(&crate::engine::roles::Role) -> bool| own.as_ref().is_some_and(|own| own.is_superuser || read(own));
        match change {
            Change::Superuser(value) => {
                if !may_give(|_| false) {
                    return self.denied("change the SUPERUSER attribute", "SUPERUSER");
                }
                if !value && name == state.superuser() {
                    return Err(Error::StillNeeded(format!("role \"{name}\" is the superuser that the database always has")));
                }
                state.existing(name)?.is_superuser = *value;
            }
            Change::CreateRole(value) => {
                if !may_give(|own| own.can_create_roles) {
                    return self.denied("change the CREATEROLE attribute", "CREATEROLE");
                }
                state.existing(name)?.can_create_roles = *value;
            }
            Change::CreateDatabase(value) => {
                if !may_give(|own| own.can_create_databases) {
                    return self.denied("change the CREATEDB attribute", "CREATEDB");
                }
                state.existing(name)?.can_create_databases = *value;
            }
            Change::Login(value) => state.existing(name)?.can_login = *value,
            Change::Inherit(value) => state.existing(name)?.inherits = *value,
            Change::ConnectionLimit(limit) => state.existing(name)?.connection_limit = *limit,
            Change::ValidUntil(time) => state.existing(name)?.valid_until = *time,
            Change::Password(verifier) => state.set_verifier(name, verifier.clone())?,
            Change::InRole(roles) => {
                for role in roles {
                    self.add_member(state, role, name, false)?;
                }
            }
            Change::Members { members, admin } => {
                for member in members {
                    self.add_member(state, name, member, *admin)?;
                }
            }
        }
        Ok(())
    }

    fn add_member(&self, state: &mut State, role: &str, member: &str, admin: bool) -> Result<()> {
        state.existing(role)?;
        state.existing(member)?;
        self.require_grant(state, role)?;
        let grantor = self.grantor(state);
        state.grant(Membership { role: role.to_owned(), member: member.to_owned(), grantor, admin, inherit: true, set: true })
    }
}

/// A [`RoleOption`] with what takes time done: verifiers are made before the roles are locked.
enum Change {
    Superuser(bool),
    Login(bool),
    CreateRole(bool),
    CreateDatabase(bool),
    Inherit(bool),
    ConnectionLimit(Option<u32>),
    Password(Option<Verifier>),
    ValidUntil(Option<i64>),
    InRole(Vec<String>),
    Members { members: Vec<String>, admin: bool },
}

fn prepared(session: &Session, options: &[RoleOption]) -> Result<Vec<Change>> {
    let names = |members: &[RoleName]| -> Vec<String> { members.iter().map(|member| resolved(session, member)).collect() };
    let change = |option: &RoleOption| -> Result<Change> {
        Ok(match option {
            RoleOption::Superuser(value) => Change::Superuser(*value),
            RoleOption::Login(value) => Change::Login(*value),
            RoleOption::CreateRole(value) => Change::CreateRole(*value),
            RoleOption::CreateDatabase(value) => Change::CreateDatabase(*value),
            RoleOption::Inherit(value) => Change::Inherit(*value),
            RoleOption::ConnectionLimit(limit) => Change::ConnectionLimit(u32::try_from(*limit).ok()),
            RoleOption::Password(None) => Change::Password(None),
            RoleOption::Password(Some(password)) => Change::Password(verifier(session, password.reveal())?),
            RoleOption::ValidUntil(time) => Change::ValidUntil(instant(time)?),
            RoleOption::InRole(roles) => Change::InRole(roles.clone()),
            RoleOption::Members(members) => Change::Members { members: names(members), admin: false },
            RoleOption::Admins(members) => Change::Members { members: names(members), admin: true },
        })
    };
    options.iter().map(change).collect()
}

/// Of a password; a verifier is taken as it is, for that is what psql's `\password` sends. `None`: an empty one is none.
fn verifier(session: &Session, password: &str) -> Result<Option<Verifier>> {
    const MD5_LENGTH: usize = 35;
    let verifier = password.parse::<Verifier>().ok();
    if password.is_empty() || verifier.as_ref().is_some_and(Verifier::is_of_nothing) {
        session.notices().notice("empty string is not a valid password, clearing password");
        return Ok(None);
    }
    if verifier.is_some() {
        return Ok(verifier);
    }
    let digits = password.strip_prefix(MD5_PREFIX).filter(|_| password.len() == MD5_LENGTH);
    if digits.is_some_and(|digits| digits.chars().all(|digit| digit.is_ascii_hexdigit())) {
        return Err(Error::NotSupported(
            "MD5 passwords are not supported; give the password itself, or a SCRAM-SHA-256 verifier".to_owned(),
        ));
    }
    Verifier::new(password).map(Some)
}

/// Microseconds since 1970; `None`: for ever. A time without a zone is in UTC.
fn instant(text: &str) -> Result<Option<i64>> {
    if text.trim().eq_ignore_ascii_case("infinity") {
        return Ok(None);
    }
    let invalid = || Error::InvalidParameter {
        name: "VALID UNTIL".to_owned(),
        found: format!("'{text}'"),
        expected: "a time, such as '2030-01-01 12:00:00+00', or 'infinity'".to_owned(),
    };
    let utc: Tz = "+00:00".parse().map_err(|_| invalid())?;
    Ok(Some(string_to_datetime(&utc, text.trim()).map_err(|_| invalid())?.timestamp_micros()))
}

fn check_name(name: &str) -> Result<()> {
    if RESERVED.contains(&name) || name.starts_with(RESERVED_PREFIX) {
        return Err(Error::ReservedName(format!(
            "role name \"{name}\" is reserved; names that start with \"{RESERVED_PREFIX}\" are the system's"
        )));
    }
    if name.contains('\0') {
        return Err(Error::ReservedName("a role name cannot contain a null character".to_owned()));
    }
    Ok(())
}

fn resolved(session: &Session, role: &RoleName) -> String {
    match role {
        RoleName::Named(name) => name.clone(),
        RoleName::Current => session.role(),
        RoleName::Session => session.user(),
    }
}

/// The first password changes who may connect over TCP, which may be a surprise.
fn tell_about_passwords(session: &Session, had_passwords: bool) {
    let roles = session.database().roles();
    if had_passwords || !roles.has_passwords() {
        return;
    }
    let superuser = roles.superuser();
    let has_password = roles.get(&superuser).is_some_and(|role| role.has_password());
    let advice = if has_password {
        String::new()
    } else {
        format!("; role \"{superuser}\" has none, so that it connects over the Unix socket only: ALTER ROLE \"{superuser}\" PASSWORD '...'")
    };
    session.notices().notice(format!("there is a password now, so connections over TCP need one from here on{advice}"));
}
