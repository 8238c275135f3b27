//! Functions about the session that calls them and about other sessions: `pg_backend_pid`, `pg_cancel_backend`, `pg_terminate_backend`,
//! `current_setting`, `set_config`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};

use crate::engine::session::{Session, WeakSession};
use crate::engine::statement::{reset_value, set_value, shown_value};
use crate::error::{Error, Result};

/// All of them, for one session.
pub fn functions(session: &WeakSession) -> Vec<ScalarUDF> {
    use DataType::{Boolean, Int64, Utf8};
    let function = |what: What, arguments: Vec<Vec<DataType>>, volatility: Volatility| {
        let signatures = arguments.into_iter().map(|types| match types.is_empty() {
            true => TypeSignature::Nullary,
            false => TypeSignature::Exact(types),
        });
        let signature = Signature::one_of(signatures.collect(), volatility);
        ScalarUDF::new_from_impl(SessionFunction { what, signature, session: session.clone() })
    };
    vec![
        function(What::BackendPid, vec![vec![]], Volatility::Stable),
        function(What::CancelBackend, vec![vec![Int64]], Volatility::Volatile),
        function(What::TerminateBackend, vec![vec![Int64], vec![Int64, Int64]], Volatility::Volatile),
        function(What::CurrentSetting, vec![vec![Utf8], vec![Utf8, Boolean]], Volatility::Volatile),
        function(What::SetConfig, vec![vec![Utf8, Utf8, Boolean]], Volatility::Volatile),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    BackendPid,
    CancelBackend,
    TerminateBackend,
    CurrentSetting,
    SetConfig,
}

#[derive(Debug)]
struct SessionFunction {
    what: What,
    signature: Signature,
    session: WeakSession,
}

impl PartialEq for SessionFunction {
    fn eq(&self, other: &Self) -> bool {
        self.what == other.what && self.session == other.session
    }
}

impl Eq for SessionFunction {}

impl Hash for SessionFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.what.hash(state);
    }
}

impl ScalarUDFImpl for SessionFunction {
    fn name(&self) -> &str {
        match self.what {
            What::BackendPid => "pg_backend_pid",
            What::CancelBackend => "pg_cancel_backend",
            What::TerminateBackend => "pg_terminate_backend",
            What::CurrentSetting => "current_setting",
            What::SetConfig => "set_config",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.what {
            What::BackendPid => DataType::Int32,
            What::CancelBackend | What::TerminateBackend => DataType::Boolean,
            What::CurrentSetting | What::SetConfig => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let session = self.session.upgrade().ok_or_else(|| Error::Internal("the session is gone".to_owned()))?;
        if self.what == What::BackendPid {
            return Ok(ColumnarValue::Scalar(ScalarValue::Int32(Some(session.activity().pid()))));
        }
        let arguments = ColumnarValue::values_to_arrays(&arguments.args)?;
        Ok(ColumnarValue::Array(match self.what {
            What::CurrentSetting => current_setting(&session, &arguments)?,
            What::SetConfig => set_config(&session, &arguments)?,
            _ => self.signal(&session, &arguments[0])?,
        }))
    }
}

impl SessionFunction {
    fn signal(&self, session: &Session, pids: &ArrayRef) -> Result<ArrayRef> {
        let is_end = self.what == What::TerminateBackend;
        let sent = pids.as_primitive::<Int64Type>().iter().map(|pid| pid.map(|pid| signal(session, pid, is_end)).transpose());
        Ok(Arc::new(sent.collect::<Result<BooleanArray>>()?))
    }
}

/// Stops the statement of a session, or ends it; false if there is no such session. As in PostgreSQL: of one's own role and of those that it is a
/// member of; a superuser's is for superusers.
///
/// # Errors
/// [`Error::InsufficientPrivilege`] (42501).
pub fn signal(session: &Session, pid: i64, terminate: bool) -> Result<bool> {
    let (access, activity) = (session.access(), session.activity().registry());
    // No session has the number 0.
    let number = i32::try_from(pid).unwrap_or(0);
    if let Some(other) = activity.sessions().iter().find(|other| other.pid() == number) {
        access.require_rights_of(&other.user(), &format!("the session with PID {pid}"))?;
    }
    let found = if terminate { activity.terminate(number) } else { activity.cancel(number) };
    if !found {
        session.notices().warning(format!("PID {pid} is not a session of this server"));
    }
    Ok(found)
}

/// `current_setting(name [, missing_ok])`
fn current_setting(session: &Session, arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let names = arguments[0].as_string::<i32>();
    let value = |row: usize| {
        let missing_ok = arguments.get(1).is_some_and(|allowed| allowed.is_valid(row) && allowed.as_boolean().value(row));
        if names.is_null(row) {
            return Ok(None);
        }
        setting(session, names.value(row), missing_ok)
    };
    Ok(Arc::new((0..names.len()).map(value).collect::<Result<StringArray>>()?))
}

/// The value of a setting; `None`: there is no such setting, and that is no error.
pub fn setting(session: &Session, name: &str, missing_ok: bool) -> Result<Option<String>> {
    match shown_value(session, &name.to_lowercase()) {
        Err(Error::UnknownObject { .. }) if missing_ok => Ok(None),
        shown => shown.map(Some),
    }
}

/// `set_config(name, value, is_local)`; a NULL for the value is the default, as in PostgreSQL.
fn set_config(session: &Session, arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (names, values, locals) = (arguments[0].as_string::<i32>(), arguments[1].as_string::<i32>(), arguments[2].as_boolean());
    let set = |row: usize| {
        let name = names.is_valid(row).then(|| names.value(row));
        let value = values.is_valid(row).then(|| values.value(row));
        set_setting(session, name, value, locals.is_valid(row) && locals.value(row)).map(Some)
    };
    Ok(Arc::new((0..names.len()).map(set).collect::<Result<StringArray>>()?))
}

/// Gives a setting a value, and returns it as it is shown; `None` for the value: the default.
///
/// # Errors
/// As SET; 22023 without a name.
pub fn set_setting(session: &Session, name: Option<&str>, value: Option<&str>, local: bool) -> Result<String> {
    let Some(name) = name else {
        let expected = "the name of a setting".to_owned();
        return Err(Error::InvalidParameter { name: "name of set_config()".to_owned(), found: "NULL".to_owned(), expected });
    };
    let name = name.to_lowercase();
    match value {
        Some(value) => drop(set_value(session, &name, value, local)?),
        None => reset_value(session, &name)?,
    }
    shown_value(session, &name)
}
