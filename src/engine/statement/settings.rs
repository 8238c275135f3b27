//! SET, SET LOCAL, SHOW, RESET, DISCARD ALL and CREATE EXTENSION.
//!
//! Settings are the session's own. pgvector's and DataFusion's (`datafusion.execution.batch_size`) take effect in it; those that clients set on
//! every connection (`client_encoding`, `DateStyle`) are remembered; any other name is an error.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::prelude::SessionConfig;
use rolloutdb_sql::{CreateExtension, OptionValue, Reset, Set, Show};

use super::{arrow, done, rows};
use crate::engine::session::{Response, Session, default_config};
use crate::engine::settings::Settings;
use crate::error::{Error, Result};

/// Settings of PostgreSQL that clients send or ask for, with what they are here.
const CLIENT_SETTINGS: &[(&str, &str)] = &[
    ("application_name", ""),
    ("bytea_output", "hex"),
    ("client_encoding", "UTF8"),
    ("client_min_messages", "notice"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    (EF_SEARCH, "40"),
    ("hnsw.iterative_scan", "off"),
    ("hnsw.max_scan_tuples", "20000"),
    (SCAN_MEM_MULTIPLIER, "1"),
    ("idle_in_transaction_session_timeout", "0"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("ivfflat.iterative_scan", "off"),
    ("ivfflat.max_probes", "32768"),
    (PROBES, "20"),
    ("lock_timeout", "0"),
    ("max_identifier_length", "63"),
    ("password_encryption", "scram-sha-256"),
    ("row_security", "on"),
    ("search_path", "\"$user\", public"),
    ("server_encoding", "UTF8"),
    ("server_version", crate::SERVER_VERSION),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("timezone", "UTC"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
];

/// Of pgvector, with its ranges. Its default for `ivfflat.probes` is 1, which finds few of the nearest; see [`rolloutdb_catalogs::SearchEffort::PROBES`].
const EF_SEARCH: &str = "hnsw.ef_search";
const PROBES: &str = "ivfflat.probes";
const RANGES: &[(&str, RangeInclusive<usize>)] =
    &[(EF_SEARCH, 1..=1_000), ("hnsw.max_scan_tuples", 1..=2_147_483_647), ("ivfflat.max_probes", 1..=32_768), (PROBES, 1..=32_768)];

/// The one of pgvector's that need not be a whole number.
const SCAN_MEM_MULTIPLIER: &str = "hnsw.scan_mem_multiplier";
const MULTIPLIERS: RangeInclusive<f64> = 1.0..=1_000.0;

/// How pgvector goes on when a condition leaves too few of the rows that an index has found. Here a condition comes first, and min(k, matching rows)
/// rows come back whatever these settings are: they are known, so that what is written for pgvector runs, and change nothing.
const CHOICES: &[(&str, &[&str])] =
    &[("hnsw.iterative_scan", &["off", "relaxed_order", "strict_order"]), ("ivfflat.iterative_scan", &["off", "relaxed_order"])];

/// DataFusion's settings, by their first word.
const DATAFUSION: &str = "datafusion.";

/// Settings that would change what statements do, which they do not yet, with the values that change nothing.
const WITHOUT_EFFECT: &[(&str, &[&str])] = &[
    ("default_transaction_isolation", &["read committed"]),
    ("default_transaction_read_only", &["off", "false"]),
    ("idle_in_transaction_session_timeout", &["0"]),
    ("lock_timeout", &["0"]),
    ("password_encryption", &["scram-sha-256", "on", "true"]),
    ("row_security", &["on", "true"]),
    ("search_path", &["public", "\"$user\", public", "$user, public"]),
    ("statement_timeout", &["0"]),
    ("timezone", &["UTC", "utc", "Etc/UTC", "GMT"]),
    ("transaction_isolation", &["read committed"]),
    ("transaction_read_only", &["off", "false"]),
];

const READ_ONLY: &[&str] = &["integer_datetimes", "max_identifier_length", "server_encoding", "server_version"];

pub fn set(session: &Session, set: &Set) -> Result<Response> {
    let name = set.variable.as_str();
    let value = as_chosen(name, set.values.iter().map(text).collect::<Vec<_>>().join(", "));
    check(session, name, &value)?;
    if !set.local {
        session.settings().set(name, Some(value));
    } else if !session.settings().set_local(name, value) {
        session.notices().warning_with("25P01", "SET LOCAL can only be used in transaction blocks");
        return Ok(done("SET"));
    }
    put_in_force(session, name)?;
    Ok(done("SET"))
}

/// One of a few words is the same in upper and lower case.
fn as_chosen(name: &str, value: String) -> String {
    if CHOICES.iter().any(|(known, _)| *known == name) { value.to_lowercase() } else { value }
}

/// That there is such a setting and it can have this value.
fn check(session: &Session, name: &str, value: &str) -> Result<()> {
    if name.starts_with(DATAFUSION) {
        let mut config = default_config(session.database());
        return config.options_mut().set(name, value).map_err(|error| unknown_or_invalid(name, value, &error));
    }
    default_of(name)?;
    let invalid = |expected: String| Error::InvalidParameter { name: name.to_owned(), found: value.to_owned(), expected };
    if READ_ONLY.contains(&name) {
        return Err(invalid("no change: it is fixed".to_owned()));
    }
    if let Some((_, allowed)) = WITHOUT_EFFECT.iter().find(|(known, allowed)| *known == name && !allowed.contains(&value)) {
        return Err(Error::NotSupported(format!("{name} = {value} is not supported yet: it would have no effect; it is {}", allowed[0])));
    }
    if let Some((_, choices)) = CHOICES.iter().find(|(known, choices)| *known == name && !choices.contains(&value)) {
        return Err(invalid(format!("one of {}", choices.join(", "))));
    }
    if name == SCAN_MEM_MULTIPLIER && !value.parse::<f64>().is_ok_and(|value| MULTIPLIERS.contains(&value)) {
        return Err(invalid(format!("a number from {} to {}", MULTIPLIERS.start(), MULTIPLIERS.end())));
    }
    match RANGES.iter().find(|(known, _)| *known == name) {
        Some((_, range)) if !value.parse().is_ok_and(|value| range.contains(&value)) => {
            Err(invalid(format!("a number from {} to {}", range.start(), range.end())))
        }
        _ => Ok(()),
    }
}

/// Makes what a setting is now, after SET, RESET or the end of a transaction, the way in which statements run.
fn put_in_force(session: &Session, name: &str) -> Result<()> {
    let value = session.settings().get(name).map(str::to_owned);
    match name {
        EF_SEARCH => session.effort().set_ef_search(value.and_then(|value| value.parse().ok())),
        PROBES => session.effort().set_probes(value.and_then(|value| value.parse().ok())),
        _ if name.starts_with(DATAFUSION) => {
            let mut options = default_config(session.database()).options().as_ref().clone();
            for (name, value) in session.settings().in_force(DATAFUSION) {
                options.set(&name, &value).map_err(|error| unknown_or_invalid(&name, &value, &error))?;
            }
            *session.context().state_ref().write().config_mut().options_mut() = options;
        }
        _ => {}
    }
    session.settings_changed();
    Ok(())
}

/// A setting of DataFusion's as a text; `None`: there is none of this name.
fn entry(config: &SessionConfig, name: &str) -> Option<String> {
    let entries = config.options().entries();
    entries.into_iter().find(|entry| entry.key == name).map(|entry| entry.value.unwrap_or_default())
}

/// The settings that end with a transaction.
pub fn end_of_transaction(session: &Session, is_committed: bool) -> Result<()> {
    session.end_transaction(is_committed).iter().try_for_each(|name| put_in_force(session, name))
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

fn default_of(name: &str) -> Result<&'static str> {
    let setting = CLIENT_SETTINGS.iter().find(|(known, _)| *known == name);
    setting.map(|(_, value)| *value).ok_or_else(|| unknown_setting(name))
}

fn unknown_setting(name: &str) -> Error {
    let known: Vec<String> = CLIENT_SETTINGS.iter().map(|(known, _)| (*known).to_owned()).collect();
    let near = crate::error::nearest(name, &known).map(str::to_owned);
    Error::UnknownObject { kind: "setting", name: name.to_owned(), known: near.into_iter().collect() }
}

pub fn reset(session: &Session, reset: &Reset) -> Result<Response> {
    let name = reset.variable.as_str();
    if name == "all" {
        reset_all(session)?;
        return Ok(done("RESET"));
    }
    match name.starts_with(DATAFUSION) {
        true => entry(&default_config(session.database()), name).ok_or_else(|| unknown_setting(name)).map(drop)?,
        false => default_of(name).map(drop)?,
    }
    session.settings().set(name, None);
    put_in_force(session, name)?;
    Ok(done("RESET"))
}

fn reset_all(session: &Session) -> Result<()> {
    let were_set = session.settings().reset_all();
    were_set.iter().try_for_each(|name| put_in_force(session, name))
}

pub fn discard(session: &Session) -> Result<Response> {
    reset_all(session)?;
    session.set_role(None);
    Ok(done("DISCARD ALL"))
}

pub fn show_schema(show: &Show) -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(if show.variable == "all" { vec![text("name"), text("setting")] } else { vec![text(&show.variable)] }))
}

/// Name, value and default of every setting but DataFusion's, by name.
pub fn list(settings: &Settings) -> Vec<(&'static str, String, &'static str)> {
    let value = |name: &str, default: &str| settings.get(name).unwrap_or(default).to_owned();
    CLIENT_SETTINGS.iter().map(|(name, default)| (*name, value(name, default), *default)).collect()
}

pub fn show(session: &Session, show: &Show) -> Result<Response> {
    let value = |name: &str, default: &str| session.settings().get(name).unwrap_or(default).to_owned();
    let columns: Vec<ArrayRef> = if show.variable == "all" {
        let settings = list(&session.settings());
        vec![
            Arc::new(StringArray::from_iter_values(settings.iter().map(|(name, _, _)| *name))),
            Arc::new(StringArray::from_iter_values(settings.iter().map(|(_, value, _)| value))),
        ]
    } else if show.variable.starts_with(DATAFUSION) {
        let value = entry(session.context().state().config(), &show.variable).ok_or_else(|| unknown_setting(&show.variable))?;
        vec![Arc::new(StringArray::from(vec![value]))]
    } else {
        vec![Arc::new(StringArray::from(vec![value(&show.variable, default_of(&show.variable)?)]))]
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
