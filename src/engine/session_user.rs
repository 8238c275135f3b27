//! Whose session it is, and which role's rights it has now.

use std::sync::{Arc, PoisonError, RwLock};

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

use super::roles::{Role, Roles};
use crate::error::{Error, Result};

/// The roles; who has them does not hold the session.
#[derive(Debug, Clone)]
pub struct SessionUser {
    roles: Roles,
    names: Arc<RwLock<Names>>,
}

#[derive(Debug)]
struct Names {
    user: RoleId,
    /// Set by SET ROLE.
    role: Option<RoleId>,
}

/// A role through all changes of its name. Another role that gets its name after it was dropped is not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleId {
    /// What it was called when it was looked up.
    name: String,
    /// `None`: there was no such role.
    oid: Option<u32>,
}

impl RoleId {
    /// As of now.
    pub fn named(roles: &Roles, name: &str) -> Self {
        Self { name: name.to_owned(), oid: roles.get(name).map(|role| role.oid) }
    }

    /// `oid`: of the role that was meant when this was kept; `None`: whoever has the name now.
    pub fn kept(roles: &Roles, name: &str, oid: Option<u32>) -> Self {
        match oid {
            Some(_) => Self { name: name.to_owned(), oid },
            None => Self::named(roles, name),
        }
    }

    pub fn oid(&self) -> Option<u32> {
        self.oid
    }

    /// Its name now. Of one that was dropped, a name that no role can have, and that has no rights.
    pub fn current_name(&self, roles: &Roles) -> String {
        match self.oid {
            Some(oid) => roles.name_of(oid).unwrap_or_else(|| dropped_name(oid)),
            None => self.name.clone(),
        }
    }

    /// # Errors
    /// [`Error::RoleGone`] (42704).
    fn check(&self, roles: &Roles) -> Result<()> {
        match self.oid.and_then(|oid| roles.name_of(oid)) {
            Some(_) => Ok(()),
            None => Err(Error::RoleGone(self.name.clone())),
        }
    }
}

/// What stands for the name of a role that was dropped: no role can have it.
pub fn dropped_name(oid: u32) -> String {
    format!("pg_dropped_role_{oid}")
}

impl From<&Role> for RoleId {
    fn from(role: &Role) -> Self {
        Self { name: role.name.clone(), oid: Some(role.oid) }
    }
}

impl SessionUser {
    pub(super) fn new(roles: Roles) -> Self {
        let user = RoleId::named(&roles, &roles.superuser());
        Self { roles, names: Arc::new(RwLock::new(Names { user, role: None })) }
    }

    /// Who connected.
    pub fn user(&self) -> String {
        self.read(|names| names.user.clone()).current_name(&self.roles)
    }

    /// Whose rights count: the user's, or those of the role that SET ROLE named.
    pub fn role(&self) -> String {
        self.role_id().current_name(&self.roles)
    }

    /// As [`Self::role`].
    pub fn role_id(&self) -> RoleId {
        self.read(|names| names.role.as_ref().unwrap_or(&names.user).clone())
    }

    pub(super) fn set_user(&self, user: RoleId) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = Names { user, role: None };
    }

    /// `None`: the user's own again.
    pub(super) fn set_role(&self, role: Option<RoleId>) {
        self.names.write().unwrap_or_else(PoisonError::into_inner).role = role;
    }

    /// That the user is there, and the role that SET ROLE named.
    ///
    /// # Errors
    /// [`Error::RoleGone`] (42704).
    pub(super) fn check_exists(&self) -> Result<()> {
        self.check_user()?;
        self.role_id().check(&self.roles)
    }

    /// That who connected is there.
    ///
    /// # Errors
    /// [`Error::RoleGone`] (42704).
    pub(super) fn check_user(&self) -> Result<()> {
        self.read(|names| names.user.clone()).check(&self.roles)
    }

    fn read<T>(&self, read: impl FnOnce(&Names) -> T) -> T {
        read(&self.names.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// `current_user`, `current_role`, `user` and `session_user`, which take no parentheses.
    pub(super) fn functions(&self) -> Vec<ScalarUDF> {
        type Read = fn(&SessionUser) -> String;
        let functions: [(&str, Read); 4] =
            [("current_user", Self::role), ("current_role", Self::role), ("user", Self::role), ("session_user", Self::user)];
        let function = |(name, read): (&str, Read)| {
            let names = self.clone();
            let value = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(read(&names)))));
            create_udf(name, vec![], DataType::Utf8, Volatility::Stable, Arc::new(value))
        };
        functions.map(function).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_not_its_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let roles = Roles::for_tests(directory.path(), "owner");
        roles.change(|state| state.create("ann", true).map(drop)).expect("a role");
        let user = SessionUser::new(roles.clone());
        user.set_user(RoleId::named(&roles, "ann"));
        roles.change(|state| state.rename("ann", "bea")).expect("another name");
        assert_eq!((user.user(), user.role()), ("bea".to_owned(), "bea".to_owned()));
        user.check_exists().expect("it is there");
        roles.change(|state| state.create("ann", true).map(|role| role.is_superuser = true)).expect("another ann");
        assert_eq!(user.role(), "bea");
        roles.change(|state| state.remove("bea")).expect("it is dropped");
        assert!(matches!(user.check_exists(), Err(Error::RoleGone(name)) if name == "ann"));
        assert!(roles.get(&user.role()).is_none(), "{}", user.role());
        user.set_user(RoleId::named(&roles, "nobody"));
        assert!(matches!(user.check_user(), Err(Error::RoleGone(_))));
    }
}
