//! Whose session it is, and which role's rights it has now.

use std::sync::{Arc, PoisonError, RwLock};

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

/// The names; who has them does not hold the session.
#[derive(Debug, Clone)]
pub struct SessionUser(Arc<RwLock<Names>>);

#[derive(Debug)]
struct Names {
    user: String,
    /// Set by SET ROLE.
    role: Option<String>,
}

impl SessionUser {
    pub(super) fn new(user: String) -> Self {
        Self(Arc::new(RwLock::new(Names { user, role: None })))
    }

    /// Who connected.
    pub fn user(&self) -> String {
        self.read(|names| names.user.clone())
    }

    /// Whose rights count: the user's, or those of the role that SET ROLE named.
    pub fn role(&self) -> String {
        self.read(|names| names.role.as_ref().unwrap_or(&names.user).clone())
    }

    pub(super) fn set_user(&self, user: &str) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Names { user: user.to_owned(), role: None };
    }

    /// `None`: the user's own again.
    pub(super) fn set_role(&self, role: Option<String>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).role = role;
    }

    fn read<T>(&self, read: impl FnOnce(&Names) -> T) -> T {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
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
