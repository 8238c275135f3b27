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
    role: RoleAt,
    /// What SET ROLE had said when the transaction block began, which ROLLBACK brings back. `None`: there is no block.
    before: Option<Option<RoleId>>,
}

/// Whose rights a session has now.
#[derive(Debug, Clone, Default)]
pub struct RoleAt {
    /// Set by SET ROLE; `None`: the user's own.
    set: Option<RoleId>,
    /// Set by SET LOCAL ROLE, until the end of the transaction block.
    local: Option<Option<RoleId>>,
}

impl RoleAt {
    fn current(&self) -> Option<&RoleId> {
        self.local.as_ref().unwrap_or(&self.set).as_ref()
    }
}

impl Names {
    fn of(user: RoleId) -> Self {
        Self { user, role: RoleAt::default(), before: None }
    }
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
        Self { roles, names: Arc::new(RwLock::new(Names::of(user))) }
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
        self.read(|names| names.role.current().unwrap_or(&names.user).clone())
    }

    pub(super) fn set_user(&self, user: RoleId) {
        self.write(|names| *names = Names::of(user));
    }

    /// `None`: the user's own again.
    pub(super) fn set_role(&self, role: Option<RoleId>) {
        self.write(|names| names.role = RoleAt { set: role, local: None });
    }

    /// Until the end of the transaction block; false when there is none, and nothing happens.
    pub(super) fn set_local_role(&self, role: Option<RoleId>) -> bool {
        self.write(|names| {
            let is_in_block = names.before.is_some();
            if is_in_block {
                names.role.local = Some(role);
            }
            is_in_block
        })
    }

    /// A transaction block begins.
    pub(super) fn begin(&self) {
        self.write(|names| names.before = Some(names.role.set.clone()));
    }

    /// It ends, and SET LOCAL ROLE with it; SET ROLE too if it is rolled back.
    pub(super) fn end(&self, is_committed: bool) {
        self.write(|names| {
            names.role.local = None;
            if let (Some(before), false) = (names.before.take(), is_committed) {
                names.role.set = before;
            }
        });
    }

    /// For a savepoint.
    pub(super) fn role_at(&self) -> RoleAt {
        self.read(|names| names.role.clone())
    }

    /// As it was at a savepoint.
    pub(super) fn go_back_to(&self, role: RoleAt) {
        self.write(|names| names.role = role);
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

    fn write<T>(&self, write: impl FnOnce(&mut Names) -> T) -> T {
        write(&mut self.names.write().unwrap_or_else(PoisonError::into_inner))
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
        assert!(!user.set_local_role(None), "there is no block");
        assert!(matches!(user.check_user(), Err(Error::RoleGone(_))));
    }

    #[test]
    fn a_role_goes_back_with_its_block() {
        let directory = tempfile::tempdir().expect("a directory");
        let roles = Roles::for_tests(directory.path(), "owner");
        roles.change(|state| state.create("ann", true).map(drop)).expect("a role");
        let user = SessionUser::new(roles.clone());
        let ann = || Some(RoleId::named(&roles, "ann"));
        for (is_committed, expected) in [(false, "owner"), (true, "ann")] {
            user.begin();
            user.set_role(ann());
            user.end(is_committed);
            assert_eq!(user.role(), expected);
        }
        user.begin();
        let savepoint = user.role_at();
        assert!(user.set_local_role(None));
        assert_eq!(user.role(), "owner");
        user.go_back_to(savepoint);
        assert_eq!(user.role(), "ann");
        user.set_local_role(None);
        user.end(true);
        assert_eq!(user.role(), "ann");
    }
}
