//! `pg_advisory_lock(key)` and the functions about it: see [`crate::engine::advisory_locks`]. Those that wait are asynchronous, so that a cancel, a timeout or the end
//! of the client ends them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use arrow::error::ArrowError;
use async_trait::async_trait;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};

use crate::engine::advisory_locks::{LockHandle, LockKey, LockMode, LockSpan};
use crate::engine::session::{Session, TransactionStatus, WeakSession};
use crate::error::{Error, Result};

use LockMode::{Exclusive, Shared};

/// Those that wait, and those that do not.
const WAITING: [(&str, LockMode, LockSpan); 4] = [
    ("pg_advisory_lock", Exclusive, LockSpan::Session),
    ("pg_advisory_lock_shared", Shared, LockSpan::Session),
    ("pg_advisory_xact_lock", Exclusive, LockSpan::Transaction),
    ("pg_advisory_xact_lock_shared", Shared, LockSpan::Transaction),
];
const TRYING: [(&str, LockMode, LockSpan); 4] = [
    ("pg_try_advisory_lock", Exclusive, LockSpan::Session),
    ("pg_try_advisory_lock_shared", Shared, LockSpan::Session),
    ("pg_try_advisory_xact_lock", Exclusive, LockSpan::Transaction),
    ("pg_try_advisory_xact_lock_shared", Shared, LockSpan::Transaction),
];
const UNLOCKING: [(&str, LockMode); 2] = [("pg_advisory_unlock", Exclusive), ("pg_advisory_unlock_shared", Shared)];

/// All of them, for one session.
pub fn functions(session: &WeakSession) -> Vec<ScalarUDF> {
    let function = |name: &'static str, what: What, mode: LockMode| {
        let keys = [vec![DataType::Int64], vec![DataType::Int64, DataType::Int64]].map(TypeSignature::Exact);
        AdvisoryFunction { name, what, mode, signature: Signature::one_of(keys.into(), Volatility::Volatile), session: session.clone() }
    };
    let waiting = WAITING.map(|(name, mode, span)| AsyncScalarUDF::new(Arc::new(function(name, What::Wait(span), mode))).into_scalar_udf());
    let trying = TRYING.map(|(name, mode, span)| ScalarUDF::new_from_impl(function(name, What::Try(span), mode)));
    let unlocking = UNLOCKING.map(|(name, mode)| ScalarUDF::new_from_impl(function(name, What::Unlock, mode)));
    waiting.into_iter().chain(trying).chain(unlocking).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Wait(LockSpan),
    Try(LockSpan),
    Unlock,
}

#[derive(Debug)]
struct AdvisoryFunction {
    name: &'static str,
    what: What,
    mode: LockMode,
    signature: Signature,
    session: WeakSession,
}

impl PartialEq for AdvisoryFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.session == other.session
    }
}

impl Eq for AdvisoryFunction {}

impl Hash for AdvisoryFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for AdvisoryFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        // Of PostgreSQL's type `void` clients see an empty text.
        Ok(if matches!(self.what, What::Wait(_)) { DataType::Utf8 } else { DataType::Boolean })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let session = self.session()?;
        let locks = session.advisory_locks();
        let done = |key: LockKey| match self.what {
            What::Wait(_) => internal_err!("{} is asynchronous", self.name),
            What::Try(span) => {
                end_with_transaction(&session, span);
                Ok(locks.try_lock(key, self.mode, span)?)
            }
            What::Unlock => {
                let is_released = locks.unlock(key, self.mode);
                if !is_released {
                    session.notices().warning(format!("you don't own a lock of type {}", lock_type(self.mode)));
                }
                Ok(is_released)
            }
        };
        let results = keys(&arguments)?.into_iter().map(|key| key.map(done).transpose());
        Ok(ColumnarValue::Array(Arc::new(results.collect::<DataFusionResult<BooleanArray>>()?)))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for AdvisoryFunction {
    async fn invoke_async_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let What::Wait(span) = self.what else { return internal_err!("{} is not asynchronous", self.name) };
        let (locks, wanted) = {
            let session = self.session()?;
            end_with_transaction(&session, span);
            (session.advisory_locks(), session.wanted())
        };
        let mut results = Vec::with_capacity(arguments.number_rows);
        for key in keys(&arguments)? {
            results.push(match key {
                Some(key) => {
                    locks.lock(key, self.mode, span, &wanted).await?;
                    Some("")
                }
                None => None,
            });
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(results)) as ArrayRef))
    }
}

impl AdvisoryFunction {
    fn session(&self) -> Result<Session> {
        self.session.upgrade().ok_or_else(|| Error::Internal("the session is gone".to_owned()))
    }
}

/// Outside of a block the transaction is the statement.
fn end_with_transaction(session: &Session, span: LockSpan) {
    if span == LockSpan::Transaction && session.transaction_status() == TransactionStatus::Idle {
        let locks: LockHandle = session.advisory_locks();
        session.wanted().when_over(move || locks.end_transaction());
    }
}

fn lock_type(mode: LockMode) -> &'static str {
    match mode {
        Exclusive => "ExclusiveLock",
        Shared => "ShareLock",
    }
}

/// One for each row; `None`: of NULL there is no lock.
fn keys(arguments: &ScalarFunctionArgs) -> DataFusionResult<Vec<Option<LockKey>>> {
    let columns = arguments.args.iter().map(|value| value.to_array(arguments.number_rows)).collect::<DataFusionResult<Vec<_>>>()?;
    let part = |column: &ArrayRef, row: usize| column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row));
    let key = |row: usize| match columns.as_slice() {
        [only] => Ok(part(only, row).map(LockKey::One)),
        [first, second] => {
            part(first, row).zip(part(second, row)).map(|(first, second)| Ok(LockKey::Two(half(first)?, half(second)?))).transpose()
        }
        _ => internal_err!("a lock has one key or two"),
    };
    (0..arguments.number_rows).map(key).collect()
}

fn half(number: i64) -> DataFusionResult<i32> {
    i32::try_from(number).map_err(|_| DataFusionError::from(ArrowError::ArithmeticOverflow("integer out of range".to_owned())))
}
