//! Instants and numbers as texts of a form that is asked for.

use rolloutdb_udfs::template::{Fields, write_exact, write_fields};

use super::{Call, Function, Returns};
use crate::engine::pg_catalog::types::{Kind, PgType};
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result};

pub(super) const FUNCTIONS: &[Function] = &[Function::new("to_char", &[Kind::Any, Kind::Text], Returns::One(Kind::Text), formatted)];

/// `to_char(instant, 'YYYY-MM-DD HH24:MI:SS TZ')`
fn formatted(call: &Call<'_>) -> Result<Value> {
    let pattern = call.text(1);
    let of = call.types.first().and_then(PgType::kind);
    let written = match (of, call.int(0)) {
        (Some(Kind::Timestamp | Kind::Timestamptz), Some(micros)) => match Fields::of_instant(micros, of == Some(Kind::Timestamptz)) {
            Some(fields) => write_fields(&fields, pattern)?,
            None => None,
        },
        (Some(Kind::Int2 | Kind::Int4 | Kind::Int8), Some(number)) => write_exact(&number.to_string(), pattern)?,
        _ => {
            let what = "to_char of something other than an instant or a whole number in a query about the catalog";
            return Err(Error::NotSupported(what.to_owned()));
        }
    };
    Ok(Value::optional_text(written))
}
