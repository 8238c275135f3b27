//! SET, SET LOCAL, SHOW, RESET, DISCARD ALL and CREATE EXTENSION.
//!
//! Settings are the session's own: `setting_definitions.rs` lists them, and DataFusion's (`datafusion.execution.batch_size`) are known beside them. Any
//! other name is an error.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::prelude::SessionConfig;
use rolloutdb_sql::{CreateExtension, OptionValue, Reset, Set, Show};

use super::{arrow, done, rows, transaction_modes};
use crate::engine::memory::bytes_text;
use crate::engine::search_path::{self, SEARCH_PATH, listed};
use crate::engine::session::{Response, Session, default_config};
use crate::engine::setting_definitions::{
    CLIENT_MIN_MESSAGES, DEFAULT_TRANSACTION_ISOLATION, DEFINITIONS, EF_SEARCH, PROBES, STATEMENT_MEMORY, TRANSACTION_ISOLATION,
    default_of_transaction, definition, is_without_effect, milliseconds, unknown_setting,
};
use crate::engine::temporary;
use crate::engine::timeouts::Timeouts;
use crate::error::{Error, Result};

/// DataFusion's settings, by their first word.
const DATAFUSION: &str = "datafusion.";

/// What DataFusion takes and cannot compute with, or not within the memory that there is.
const RANGES: [(&str, RangeInclusive<u64>); 7] = [
    ("datafusion.execution.batch_size", 1..=1 << 20),
    ("datafusion.execution.target_partitions", 0..=1024),
    ("datafusion.execution.planning_concurrency", 0..=1024),
    ("datafusion.execution.meta_fetch_concurrency", 1..=1024),
    ("datafusion.execution.minimum_parallel_output_files", 1..=1024),
    ("datafusion.execution.soft_max_rows_per_output_file", 1..=1 << 40),
    ("datafusion.execution.max_buffered_batches_per_output_file", 1..=1024),
];

/// Those that would change what names in a statement stand for. Rights and views are found by the names, so nobody changes these.
const FIXED: [&str; 2] = ["datafusion.catalog.", "datafusion.sql_parser."];

pub fn set(session: &Session, set: &Set) -> Result<Response> {
    let is_path = set.variable == SEARCH_PATH;
    let item = |value: &OptionValue| if is_path { listed(&text(value)) } else { text(value) };
    let value = set.values.iter().map(item).collect::<Vec<_>>().join(", ");
    set_value(session, &set.variable, &value, set.local)?;
    Ok(done("SET"))
}

/// Returns the value as it is kept.
pub fn set_value(session: &Session, name: &str, value: &str, local: bool) -> Result<String> {
    let value = accepted(session, name, value)?;
    if is_without_effect(name) {
        session.notices().notice(format!("setting \"{name}\" is known and does nothing: plans are not made by it here"));
    }
    if default_of_transaction(name).is_some() {
        transaction_modes::set_own(session, name, &value)?;
        return Ok(value);
    }
    if !local {
        session.settings().set(name, Some(value.clone()));
    } else if !session.settings().set_local(name, value.clone()) {
        session.notices().warning_with("25P01", "SET LOCAL can only be used in transaction blocks");
        return Ok(value);
    }
    put_in_force(session, name)?;
    Ok(value)
}

/// What the client says when it connects: RESET goes back to it.
pub fn set_at_startup(session: &Session, name: &str, value: &str) -> Result<()> {
    if let Some(default) = default_of_transaction(name) {
        return Err(Error::NotSupported(format!("{name} is of one transaction, and none has begun; {default} is for all of a session")));
    }
    let value = accepted(session, name, value)?;
    session.settings().set_at_startup(name, value);
    put_in_force(session, name)
}

/// The value in the form in which it is kept, if there is such a setting and it can have this value.
fn accepted(session: &Session, name: &str, value: &str) -> Result<String> {
    if FIXED.iter().any(|start| name.starts_with(start)) {
        return Err(Error::InsufficientPrivilege(format!("parameter \"{name}\" cannot be changed: it would change what names stand for")));
    }
    if name.starts_with(DATAFUSION) {
        let mut config = default_config(session.memory().bound());
        let set = config.options_mut().set(name, value);
        set.map_err(|error| unknown_or_invalid(name, value, &error))?;
        let is_outside = |range: &RangeInclusive<u64>| value.trim().parse().is_ok_and(|number| !range.contains(&number));
        return match RANGES.iter().find(|(ranged, range)| *ranged == name && is_outside(range)) {
            Some((_, range)) => Err(Error::InvalidParameter {
                name: name.to_owned(),
                found: value.to_owned(),
                expected: format!("a number from {} to {}", range.start(), range.end()),
            }),
            None => Ok(value.to_owned()),
        };
    }
    let value = definition(name)?.accept(value)?;
    let invalid = |found: &str, expected: String| Err(Error::InvalidParameter { name: name.to_owned(), found: found.to_owned(), expected });
    match name {
        SEARCH_PATH if search_path::names(&value).is_none() => invalid(&value, "names of schemas with commas between them".to_owned()),
        STATEMENT_MEMORY if bytes(&value) > session.database().shared.memory.statement => {
            let most = bytes_text(session.database().shared.memory.statement as u64);
            invalid(&definition(name)?.shown(&value), format!("at most {most}, with which the server was started"))
        }
        TRANSACTION_ISOLATION | DEFAULT_TRANSACTION_ISOLATION => transaction_modes::given_level(session, name, value),
        _ => Ok(value),
    }
}

/// Of a setting that is kept in bytes.
fn bytes(value: &str) -> usize {
    value.parse().unwrap_or(usize::MAX)
}

/// Makes what a setting is now, after SET, RESET or the end of a transaction, the way in which statements run.
fn put_in_force(session: &Session, name: &str) -> Result<()> {
    let value = session.settings().get(name).map(str::to_owned);
    match name {
        EF_SEARCH => session.effort().set_ef_search(value.and_then(|value| value.parse().ok())),
        PROBES => session.effort().set_probes(value.and_then(|value| value.parse().ok())),
        CLIENT_MIN_MESSAGES => session.notices().set_least(value.as_deref().unwrap_or_default()),
        "application_name" => session.activity().set_application_name(value.as_deref().unwrap_or_default()),
        _ if Timeouts::is_one(name) => {
            let time = value.as_deref().and_then(milliseconds).unwrap_or(0);
            session.timeouts().set(name, time.unsigned_abs());
        }
        STATEMENT_MEMORY => {
            session.memory().set_bound(value.as_deref().map_or(session.database().shared.memory.statement, bytes));
            put_options_in_force(session)?;
        }
        _ if name.starts_with(DATAFUSION) => put_options_in_force(session)?,
        _ => {}
    }
    session.settings_changed();
    Ok(())
}

/// DataFusion's settings, from what fits the memory to what was said.
fn put_options_in_force(session: &Session) -> Result<()> {
    let mut options = default_config(session.memory().bound()).options().as_ref().clone();
    for (name, value) in session.settings().in_force(DATAFUSION) {
        options.set(&name, &value).map_err(|error| unknown_or_invalid(&name, &value, &error))?;
    }
    *session.context().state_ref().write().config_mut().options_mut() = options;
    Ok(())
}

/// The value in force, as SHOW gives it.
pub fn shown_value(session: &Session, name: &str) -> Result<String> {
    if name.starts_with(DATAFUSION) {
        return entry(session.context().state().config(), name).ok_or_else(|| unknown_setting(name));
    }
    let known = definition(name)?;
    Ok(known.shown(session.settings().get(name).unwrap_or(known.default)))
}

/// A setting of DataFusion's as a text; `None`: there is none of this name.
fn entry(config: &SessionConfig, name: &str) -> Option<String> {
    let entries = config.options().entries();
    entries.into_iter().find(|entry| entry.key == name).map(|entry| entry.value.unwrap_or_default())
}

/// The settings that end with a transaction.
pub fn end_of_transaction(session: &Session, is_committed: bool) -> Result<()> {
    changed_again(session, &session.end_transaction(is_committed))
}

/// Settings that have their values of before again.
pub fn changed_again(session: &Session, names: &BTreeSet<String>) -> Result<()> {
    names.iter().try_for_each(|name| put_in_force(session, name))
}

fn unknown_or_invalid(name: &str, value: &str, error: &datafusion::error::DataFusionError) -> Error {
    let reason = error.strip_backtrace();
    if reason.contains("not found") {
        unknown_setting(name)
    } else {
        Error::InvalidParameter { name: name.to_owned(), found: value.to_owned(), expected: reason }
    }
}

fn text(value: &OptionValue) -> String {
    match value {
        OptionValue::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

pub fn reset(session: &Session, reset: &Reset) -> Result<Response> {
    let name = reset.variable.as_str();
    if name == "all" {
        reset_all(session)?;
        return Ok(done("RESET"));
    }
    reset_value(session, name)?;
    Ok(done("RESET"))
}

pub fn reset_value(session: &Session, name: &str) -> Result<()> {
    if default_of_transaction(name).is_some() {
        return Err(Error::NotSupported(format!("\"{name}\" cannot be reset: a transaction has it from its beginning; SET it")));
    }
    match name.starts_with(DATAFUSION) {
        true => entry(&default_config(session.memory().bound()), name).ok_or_else(|| unknown_setting(name)).map(drop)?,
        false => definition(name).map(drop)?,
    }
    session.settings().set(name, None);
    put_in_force(session, name)
}

fn reset_all(session: &Session) -> Result<()> {
    let were_set = session.settings().reset_all();
    were_set.iter().try_for_each(|name| put_in_force(session, name))
}

pub async fn discard(session: &Session) -> Result<Response> {
    temporary::drop_all(session).await?;
    reset_all(session)?;
    session.set_role(None);
    session.cursors().close_all();
    session.named_statements().release_all();
    session.advisory_locks().unlock_all();
    Ok(done("DISCARD ALL"))
}

pub fn show_schema(show: &Show) -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(if show.variable == "all" { vec![text("name"), text("setting")] } else { vec![text(&show.variable)] }))
}

pub fn show(session: &Session, show: &Show) -> Result<Response> {
    let columns: Vec<ArrayRef> = if show.variable == "all" {
        let values = DEFINITIONS.iter().map(|known| shown_value(session, known.name)).collect::<Result<Vec<_>>>()?;
        vec![
            Arc::new(StringArray::from_iter_values(DEFINITIONS.iter().map(|known| known.name))),
            Arc::new(StringArray::from_iter_values(values)),
        ]
    } else {
        vec![Arc::new(StringArray::from(vec![shown_value(session, &show.variable)?]))]
    };
    Ok(rows("SHOW", RecordBatch::try_new(show_schema(show), columns).map_err(arrow)?))
}

/// What an extension of PostgreSQL would add is built in, so migrations that create `vector` go through.
pub fn create_extension(session: &Session, create: &CreateExtension) -> Result<Response> {
    if create.name != "vector" {
        return Err(Error::NotSupported(format!("extension \"{}\" does not exist here; the type vector is built in", create.name)));
    }
    session.notices().notice("the type vector is built in; nothing to create");
    Ok(done("CREATE EXTENSION"))
}
