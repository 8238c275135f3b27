//! Statements about roles as text.

use std::fmt;

use super::{AlterRole, AlterRoleAction, CreateRole, DropRole, GrantRole, MembershipOption, RevokeRole, RoleName, RoleOption, SetRole};
use crate::name::{Name, Separated, Text, if_exists};

impl RoleOption {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Superuser(true) => "SUPERUSER",
            Self::Superuser(false) => "NOSUPERUSER",
            Self::Login(true) => "LOGIN",
            Self::Login(false) => "NOLOGIN",
            Self::CreateRole(true) => "CREATEROLE",
            Self::CreateRole(false) => "NOCREATEROLE",
            Self::CreateDatabase(true) => "CREATEDB",
            Self::CreateDatabase(false) => "NOCREATEDB",
            Self::Inherit(true) => "INHERIT",
            Self::Inherit(false) => "NOINHERIT",
            Self::ConnectionLimit(_) => "CONNECTION LIMIT",
            Self::Password(_) => "PASSWORD",
            Self::ValidUntil(_) => "VALID UNTIL",
            Self::InRole(_) => "IN ROLE",
            Self::Members(_) => "ROLE",
            Self::Admins(_) => "ADMIN",
        }
    }
}

impl fmt::Display for RoleOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::ConnectionLimit(limit) => write!(f, " {limit}"),
            Self::Password(Some(password)) => write!(f, " {password}"),
            Self::Password(None) => f.write_str(" NULL"),
            Self::ValidUntil(time) => write!(f, " {}", Text(time)),
            Self::InRole(roles) => write!(f, " {}", Separated(roles.iter().map(|role| PlainName(role)))),
            Self::Members(members) | Self::Admins(members) => write!(f, " {}", Separated(members.iter())),
            Self::Superuser(_) | Self::Login(_) | Self::CreateRole(_) | Self::CreateDatabase(_) | Self::Inherit(_) => Ok(()),
        }
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "{}", PlainName(name)),
            Self::Current => f.write_str("CURRENT_ROLE"),
            Self::Session => f.write_str("SESSION_USER"),
        }
    }
}

/// A name in quotes where it would be read as a word of these statements.
struct PlainName<'a>(&'a str);

impl fmt::Display for PlainName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "current_user" | "current_role" | "session_user" | "user" | "group" | "none" | "default" | "all" | "admin" | "inherit"
            | "set" | "mapping" | "if" => write!(f, "\"{}\"", self.0),
            name => write!(f, "{}", Name(name)),
        }
    }
}

impl fmt::Display for MembershipOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admin => "ADMIN",
            Self::Inherit => "INHERIT",
            Self::Set => "SET",
        })
    }
}

/// Options after a name, or nothing.
struct WithOptions<'a>(&'a [RoleOption]);

impl fmt::Display for WithOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = if self.0.is_empty() { "" } else { " WITH" };
        f.write_str(start)?;
        self.0.iter().try_for_each(|option| write!(f, " {option}"))
    }
}

impl fmt::Display for CreateRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE ROLE {}{}", PlainName(&self.name), WithOptions(&self.options))
    }
}

impl fmt::Display for AlterRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            AlterRoleAction::Options(options) => write!(f, "ALTER ROLE {}{}", self.role, WithOptions(options)),
            AlterRoleAction::RenameTo(name) => write!(f, "ALTER ROLE {} RENAME TO {}", self.role, PlainName(name)),
        }
    }
}

impl fmt::Display for DropRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DROP ROLE {}{}", if_exists(self.if_exists), Separated(self.names.iter().map(|name| PlainName(name))))
    }
}

impl fmt::Display for GrantRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GRANT {} TO {}", Separated(self.roles.iter().map(|role| PlainName(role))), Separated(self.members.iter()))?;
        let options = [(MembershipOption::Admin, self.admin), (MembershipOption::Inherit, self.inherit), (MembershipOption::Set, self.set)];
        let mut start = " WITH";
        for (option, value) in options {
            let Some(value) = value else { continue };
            write!(f, "{start} {option} {}", if value { "TRUE" } else { "FALSE" })?;
            start = ",";
        }
        Ok(())
    }
}

impl fmt::Display for RevokeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (roles, members) = (Separated(self.roles.iter().map(|role| PlainName(role))), Separated(self.members.iter()));
        match self.option {
            Some(option) => write!(f, "REVOKE {option} OPTION FOR {roles} FROM {members}"),
            None => write!(f, "REVOKE {roles} FROM {members}"),
        }
    }
}

impl fmt::Display for SetRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.role {
            Some(role) => write!(f, "SET {}ROLE {}", if self.local { "LOCAL " } else { "" }, PlainName(role)),
            None if self.local => f.write_str("SET LOCAL ROLE NONE"),
            None => f.write_str("RESET ROLE"),
        }
    }
}
