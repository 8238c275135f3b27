//! SET, SHOW, RESET, DISCARD ALL and CREATE EXTENSION.
//!
//! Settings are the session's own. DataFusion's (`datafusion.execution.batch_size`) take effect in it; those that clients set on every
//! connection (`client_encoding`, `DateStyle`) are remembered; any other name is an error.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rolloutdb_sql::{CreateExtension, OptionValue, Reset, Set, Show};

use super::{arrow, done, rows};
use crate::engine::nearest_neighbours::{EF_SEARCH, EF_SEARCH_MAX};
use crate::engine::session::{Response, Session};
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
    (EF_SEARCH_SETTING, "40"),
    ("idle_in_transaction_session_timeout", "0"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("lock_timeout", "0"),
    ("max_identifier_length", "63"),
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

/// Of pgvector.
const EF_SEARCH_SETTING: &str = "hnsw.ef_search";

/// Settings that would change what statements do, which they do not yet, with the values that change nothing.
const WITHOUT_EFFECT: &[(&str, &[&str])] = &[
    ("default_transaction_isolation", &["read committed"]),
    ("default_transaction_read_only", &["off", "false"]),
    ("idle_in_transaction_session_timeout", &["0"]),
    ("lock_timeout", &["0"]),
    ("row_security", &["on", "true"]),
    ("search_path", &["public", "\"$user\", public", "$user, public"]),
    ("statement_timeout", &["0"]),
    ("timezone", &["UTC", "utc", "Etc/UTC", "GMT"]),
    ("transaction_isolation", &["read committed"]),
    ("transaction_read_only", &["off", "false"]),
];

const READ_ONLY: &[&str] = &["integer_datetimes", "max_identifier_length", "server_encoding", "server_version"];

pub fn set(session: &Session, set: &Set) -> Result<Response> {
    session.settings_changed();
    let value = set.values.iter().map(text).collect::<Vec<_>>().join(", ");
    let name = set.variable.as_str();
    if name.starts_with("datafusion.") {
        let state = session.context().state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        options.set(name, &value).map_err(|error| unknown_or_invalid(name, &value, &error))?;
        return Ok(done("SET"));
    }
    default_of(name)?;
    if READ_ONLY.contains(&name) {
        return Err(Error::InvalidParameter { name: name.to_owned(), found: value, expected: "no change: it is fixed".to_owned() });
    }
    if let Some((_, allowed)) = WITHOUT_EFFECT.iter().find(|(known, allowed)| *known == name && !allowed.contains(&value.as_str())) {
        return Err(Error::NotSupported(format!("{name} = {value} is not supported yet: it would have no effect; it is {}", allowed[0])));
    }
    if name == EF_SEARCH_SETTING {
        session.set_ef_search(ef_search(&value)?);
    }
    session.set_setting(name, Some(value));
    Ok(done("SET"))
}

fn ef_search(value: &str) -> Result<usize> {
    let parsed = value.parse().ok().filter(|value| (1..=EF_SEARCH_MAX).contains(value));
    parsed.ok_or_else(|| Error::InvalidParameter {
        name: EF_SEARCH_SETTING.to_owned(),
        found: value.to_owned(),
        expected: format!("a number from 1 to {EF_SEARCH_MAX}"),
    })
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
    session.settings_changed();
    if reset.variable == "all" {
        session.clear_settings();
    } else {
        default_of(&reset.variable)?;
        if reset.variable == EF_SEARCH_SETTING {
            session.set_ef_search(EF_SEARCH);
        }
        session.set_setting(&reset.variable, None);
    }
    Ok(done("RESET"))
}

pub fn discard(session: &Session) -> Result<Response> {
    session.settings_changed();
    session.clear_settings();
    Ok(done("DISCARD ALL"))
}

pub fn show_schema(show: &Show) -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(if show.variable == "all" { vec![text("name"), text("setting")] } else { vec![text(&show.variable)] }))
}

pub fn show(session: &Session, show: &Show) -> Result<Response> {
    let value = |name: &str, default: &str| session.setting(name).unwrap_or_else(|| default.to_owned());
    let columns: Vec<ArrayRef> = if show.variable == "all" {
        vec![
            Arc::new(StringArray::from_iter_values(CLIENT_SETTINGS.iter().map(|(name, _)| *name))),
            Arc::new(StringArray::from_iter_values(CLIENT_SETTINGS.iter().map(|(name, default)| value(name, default)))),
        ]
    } else if show.variable.starts_with("datafusion.") {
        let state = session.context().state();
        let entries = state.config_options().entries();
        let entry = entries.into_iter().find(|entry| entry.key == show.variable).ok_or_else(|| unknown_setting(&show.variable))?;
        vec![Arc::new(StringArray::from(vec![entry.value.unwrap_or_default()]))]
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
