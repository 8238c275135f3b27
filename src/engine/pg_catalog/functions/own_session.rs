//! The session that asks, and signals to others. DataFusion has functions of the same names, which every session registers: both do the same.

use super::{Call, Function, Returns};
use crate::engine::function::session_state::{set_setting, setting, signal};
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;
use crate::error::Result;

const TEXT: Returns = Returns::One(Kind::Text);
const NAME: Returns = Returns::One(Kind::Name);
const BOOL: Returns = Returns::One(Kind::Bool);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("current_user", &[], NAME, role),
    Function::new("current_role", &[], NAME, role),
    Function::new("user", &[], NAME, role),
    Function::new("session_user", &[], NAME, |call| Ok(Value::text(call.context.snapshot.user.user()))),
    Function::new("current_setting", &[Kind::Text, Kind::Bool], TEXT, |call| {
        let session = call.context.snapshot.session()?;
        Ok(Value::optional_text(setting(&session, call.text(0), call.value(1).is_true())?))
    })
    .required(1),
    Function::new("set_config", &[Kind::Text, Kind::Text, Kind::Bool], TEXT, |call| {
        let session = call.context.snapshot.session()?;
        set_setting(&session, call.value(0).as_str(), call.value(1).as_str(), call.value(2).is_true()).map(Value::text)
    })
    .with_null(),
    Function::new("pg_backend_pid", &[], Returns::One(Kind::Int4), |call| {
        Ok(Value::Int(i64::from(call.context.snapshot.session()?.activity().pid())))
    }),
    Function::new("pg_cancel_backend", &[Kind::Int8], BOOL, |call| {
        let session = call.context.snapshot.session()?;
        call.int(0).map_or(Ok(Value::Null), |pid| signal(&session, pid, false).map(Value::Bool))
    }),
    Function::new("pg_terminate_backend", &[Kind::Int8, Kind::Int8], BOOL, |call| {
        let session = call.context.snapshot.session()?;
        call.int(0).map_or(Ok(Value::Null), |pid| signal(&session, pid, true).map(Value::Bool))
    })
    .required(1),
];

fn role(call: &Call<'_>) -> Result<Value> {
    Ok(Value::text(call.context.snapshot.user.role()))
}
