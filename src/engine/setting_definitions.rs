//! The settings that a session has beside DataFusion's: what values they take, and what `pg_settings` says of them.

mod planner;

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use planner::PLANNER_SETTINGS;

use super::memory::{STATEMENT_MIN, bytes_text, parse_bytes};
use super::timeouts::{IDLE_IN_TRANSACTION_TIMEOUT, IDLE_TIMEOUT, STATEMENT_TIMEOUT};
use crate::error::{Error, Result};

pub const EF_SEARCH: &str = "hnsw.ef_search";
pub const PROBES: &str = "ivfflat.probes";
pub const CLIENT_MIN_MESSAGES: &str = "client_min_messages";
pub const MAX_CONCURRENT_JOBS: &str = "rollout.max_concurrent_jobs";
pub const MAX_CONNECTIONS: &str = "max_connections";
pub const RESERVED_CONNECTIONS: &str = "superuser_reserved_connections";
pub const STATEMENT_MEMORY: &str = "rollout.statement_memory";
pub const TRANSACTION_READ_ONLY: &str = "transaction_read_only";
pub const DEFAULT_TRANSACTION_READ_ONLY: &str = "default_transaction_read_only";
pub const TRANSACTION_ISOLATION: &str = "transaction_isolation";
pub const DEFAULT_TRANSACTION_ISOLATION: &str = "default_transaction_isolation";

/// What an isolation level can be called; which of them a transaction gets is told in `statement/transaction_modes.rs`.
const ISOLATION_LEVELS: &[&str] = &["serializable", "repeatable read", READ_COMMITTED, "read uncommitted"];
pub const READ_COMMITTED: &str = "read committed";

/// The setting of which a transaction takes its own when it begins; `None`: it is none of a transaction.
pub fn default_of_transaction(name: &str) -> Option<&'static str> {
    match name {
        TRANSACTION_READ_ONLY => Some(DEFAULT_TRANSACTION_READ_ONLY),
        TRANSACTION_ISOLATION => Some(DEFAULT_TRANSACTION_ISOLATION),
        _ => None,
    }
}

/// One setting.
#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    pub default: &'static str,
    pub values: Values,
    pub category: &'static str,
    pub description: &'static str,
}

/// What a setting can be.
#[derive(Debug)]
pub enum Values {
    Text,
    Whole(RangeInclusive<i64>),
    Real(RangeInclusive<f64>),
    Choice(&'static [&'static str]),
    /// Any other value would change what statements do, which it does not yet.
    Only(&'static [&'static str]),
    /// `on` or `off`, and PostgreSQL's other words for them.
    Switch,
    /// A time, kept in milliseconds; 0 is none.
    Time,
    /// Memory, kept in bytes.
    Size,
    /// Memory, kept in units of so many bytes.
    Memory {
        unit: u64,
        range: RangeInclusive<i64>,
    },
    /// The order of day, month and year in text; the form is always ISO.
    DateStyle,
    /// It says how the server is, or was started.
    Fixed,
}

use Values::{Choice, DateStyle, Fixed, Memory, Only, Real, Size, Switch, Text, Time, Whole};

const CLIENTS: &str = "Client Connection Defaults / Statement Behavior";
const CONNECTIONS: &str = "Connections and Authentication / TCP Settings";
const FORMATS: &str = "Client Connection Defaults / Locale and Formatting";
const SEARCH: &str = "Customized Options";
const PRESET: &str = "Preset Options";

const fn setting(
    name: &'static str,
    default: &'static str,
    values: Values,
    category: &'static str,
    description: &'static str,
) -> Definition {
    Definition { name, default, values, category, description }
}

/// How pgvector goes on when a condition leaves too few of the rows that an index has found. Here a condition comes first, and min(k, matching rows)
/// rows come back whatever `iterative_scan`, `max_scan_tuples`, `max_probes` and `scan_mem_multiplier` are: they are known, so that what is written for
/// pgvector runs, and change nothing. pgvector's default for `ivfflat.probes` is 1, which finds few of the nearest; see
/// [`rolloutdb_catalogs::SearchEffort::PROBES`].
const NOT_NEEDED: &str = "Known for pgvector's sake; filters come first here, so it changes nothing.";

/// All settings, by name.
pub static DEFINITIONS: LazyLock<Vec<&'static Definition>> = LazyLock::new(|| {
    let mut all: Vec<&Definition> = OWN.iter().chain(PLANNER_SETTINGS).collect();
    all.sort_by_key(|known| known.name);
    all
});

/// Whether a setting is one of PostgreSQL's planner, which change nothing here.
pub fn is_without_effect(name: &str) -> bool {
    PLANNER_SETTINGS.iter().any(|known| known.name == name)
}

/// By name.
static OWN: &[Definition] = &[
    setting(
        "application_name",
        "",
        Text,
        "Reporting and Logging / What to Log",
        "The name of the client's program, shown in pg_stat_activity.",
    ),
    setting("bytea_output", "hex", Only(&["hex"]), CLIENTS, "The form of bytea values in text."),
    setting("client_encoding", "UTF8", Only(&["UTF8", "UTF-8", "UNICODE", "utf_8"]), FORMATS, "The client's encoding of texts."),
    setting(
        CLIENT_MIN_MESSAGES,
        "notice",
        Choice(&["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"]),
        CLIENTS,
        "The least severe messages that the client gets; warning leaves out notices and progress.",
    ),
    setting("datestyle", "ISO, MDY", DateStyle, FORMATS, "The form of dates and times in text."),
    setting("default_table_access_method", "lance", Fixed, PRESET, "How tables are stored."),
    setting("default_tablespace", "", Only(&["", "pg_default"]), CLIENTS, "Known for clients' sake; all tables lie in one place."),
    setting(DEFAULT_TRANSACTION_ISOLATION, READ_COMMITTED, Choice(ISOLATION_LEVELS), CLIENTS, "The isolation level of new transactions."),
    setting(DEFAULT_TRANSACTION_READ_ONLY, "off", Switch, CLIENTS, "Whether new transactions may not write."),
    setting("extra_float_digits", "1", Whole(-15..=3), FORMATS, "Known for clients' sake; floats are always shown in full."),
    setting(EF_SEARCH, "40", Whole(1..=1_000), SEARCH, "How many candidates a search of an hnsw index keeps."),
    setting("hnsw.iterative_scan", "off", Choice(&["off", "relaxed_order", "strict_order"]), SEARCH, NOT_NEEDED),
    setting("hnsw.max_scan_tuples", "20000", Whole(1..=2_147_483_647), SEARCH, NOT_NEEDED),
    setting("hnsw.scan_mem_multiplier", "1", Real(1.0..=1_000.0), SEARCH, NOT_NEEDED),
    setting(
        IDLE_IN_TRANSACTION_TIMEOUT,
        "0",
        Time,
        CLIENTS,
        "How long a client may wait inside a transaction block before its connection is ended; 0 is for ever.",
    ),
    setting(
        IDLE_TIMEOUT,
        "0",
        Time,
        CLIENTS,
        "How long a client may wait outside of transactions before its connection is ended; 0 is for ever.",
    ),
    setting("integer_datetimes", "on", Fixed, PRESET, "Dates and times are whole numbers."),
    setting("intervalstyle", "postgres", Only(&["postgres"]), FORMATS, "The form of intervals in text."),
    setting("is_superuser", "on", Fixed, PRESET, "Whether the session's user may do everything."),
    setting("ivfflat.iterative_scan", "off", Choice(&["off", "relaxed_order"]), SEARCH, NOT_NEEDED),
    setting("ivfflat.max_probes", "32768", Whole(1..=32_768), SEARCH, NOT_NEEDED),
    setting(PROBES, "20", Whole(1..=32_768), SEARCH, "How many partitions a search of an ivf index reads."),
    setting("lock_timeout", "0", Only(&["0"]), CLIENTS, "Statements wait for no locks of rows."),
    setting(MAX_CONNECTIONS, "100", Fixed, CONNECTIONS, "How many clients may be connected at once; an embedded engine takes none."),
    setting("max_identifier_length", "63", Fixed, PRESET, "The length of names that clients count on."),
    setting("max_index_keys", "32", Fixed, PRESET, "The number of columns of an index that clients count on."),
    setting("password_encryption", "scram-sha-256", Only(&["scram-sha-256", "on", "true"]), CLIENTS, "How passwords are kept."),
    setting(MAX_CONCURRENT_JOBS, "1", Fixed, SEARCH, "How many jobs run at once; others are queued."),
    setting(
        STATEMENT_MEMORY,
        "33554432",
        Size,
        SEARCH,
        "What a statement and the open cursors of its session may hold in memory together; sorts and groups go to the disk before.",
    ),
    setting("row_security", "on", Only(&["on", "true"]), CLIENTS, "There are no policies for rows."),
    setting(
        "search_path",
        "\"$user\", public",
        Text,
        CLIENTS,
        "The schemas in which names without one are looked for; the first takes what is made.",
    ),
    setting("server_encoding", "UTF8", Fixed, PRESET, "The encoding of texts that are stored."),
    setting("server_version", crate::SERVER_VERSION, Fixed, PRESET, "The version of PostgreSQL whose protocol is followed, and ours."),
    setting("server_version_num", "160000", Fixed, PRESET, "The same version of PostgreSQL as a number."),
    setting("session_authorization", "", Fixed, PRESET, "The session's user."),
    setting("standard_conforming_strings", "on", Only(&["on", "true"]), CLIENTS, "Backslashes in '...' are themselves."),
    setting(STATEMENT_TIMEOUT, "0", Time, CLIENTS, "How long a statement may take; 0 is for ever."),
    setting(RESERVED_CONNECTIONS, "3", Fixed, CONNECTIONS, "Of max_connections, how many are kept for superusers."),
    setting("tcp_keepalives_count", "0", Fixed, CONNECTIONS, "How many signs of life may stay unanswered before a client is given up."),
    setting("tcp_keepalives_idle", "0", Fixed, CONNECTIONS, "Seconds of silence after which a client is asked for a sign of life."),
    setting("tcp_keepalives_interval", "0", Fixed, CONNECTIONS, "Seconds between one such question and the next."),
    setting("timezone", "UTC", Only(&["UTC", "Etc/UTC", "GMT"]), FORMATS, "The time zone of timestamps in text."),
    setting(TRANSACTION_ISOLATION, READ_COMMITTED, Choice(ISOLATION_LEVELS), CLIENTS, "The isolation level of this transaction."),
    setting(TRANSACTION_READ_ONLY, "off", Switch, CLIENTS, "Whether this transaction may not write."),
];

/// # Errors
/// [`Error::UnknownObject`] with the nearest name.
pub fn definition(name: &str) -> Result<&'static Definition> {
    DEFINITIONS.iter().find(|known| known.name == name).copied().ok_or_else(|| unknown_setting(name))
}

pub fn unknown_setting(name: &str) -> Error {
    let known: Vec<String> = DEFINITIONS.iter().map(|known| known.name.to_owned()).collect();
    let near = crate::error::nearest(name, &known).map(str::to_owned);
    Error::UnknownObject { kind: "setting", name: name.to_owned(), known: near.into_iter().collect() }
}

/// Whether a job takes it from the session that asked for it: it has no client that waits, and may take its time; what it may hold in memory is said when
/// the server starts; and it is no transaction of its client's.
pub fn is_kept_for_jobs(name: &str) -> bool {
    const OF_THE_SESSION: [&str; 3] = ["application_name", DEFAULT_TRANSACTION_ISOLATION, DEFAULT_TRANSACTION_READ_ONLY];
    let is_changeable =
        DEFINITIONS.iter().find(|known| known.name == name).is_none_or(|known| !matches!(known.values, Fixed | Time | Size));
    is_changeable && !OF_THE_SESSION.contains(&name)
}

impl Definition {
    /// The value in the one form in which it is kept.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`], and [`Error::NotSupported`] for a value that would have no effect.
    pub fn accept(&self, value: &str) -> Result<String> {
        let invalid = |expected: String| Error::InvalidParameter { name: self.name.to_owned(), found: value.to_owned(), expected };
        let accepted = match &self.values {
            Text => Some(value.to_owned()),
            Whole(range) => value.trim().parse::<i64>().ok().filter(|number| range.contains(number)).map(|number| number.to_string()),
            Real(range) => value.trim().parse::<f64>().ok().filter(|number| range.contains(number)).map(|number| number.to_string()),
            Choice(choices) => choices.iter().find(|choice| choice.eq_ignore_ascii_case(value)).map(|choice| (*choice).to_owned()),
            Switch => switch(value).map(str::to_owned),
            Time => milliseconds(value).map(|time| time.to_string()),
            Size => parse_bytes(value).ok().filter(|bytes| *bytes >= STATEMENT_MIN).map(|bytes| bytes.to_string()),
            Memory { unit, range } => memory_units(value, *unit).filter(|units| range.contains(units)).map(|units| units.to_string()),
            DateStyle => return self.date_style(value),
            Only(allowed) => {
                let known = allowed.iter().any(|known| known.eq_ignore_ascii_case(value));
                return match known {
                    true => Ok(allowed[0].to_owned()),
                    false => Err(self.without_effect(value)),
                };
            }
            Fixed => return Err(invalid("no change: it is fixed".to_owned())),
        };
        accepted.ok_or_else(|| invalid(self.expected()))
    }

    fn expected(&self) -> String {
        match &self.values {
            Whole(range) => format!("a number from {} to {}", range.start(), range.end()),
            Real(range) => format!("a number from {} to {}", range.start(), range.end()),
            Choice(choices) => format!("one of {}", choices.join(", ")),
            Switch => "on or off".to_owned(),
            Size => format!("at least {}, as a number of bytes or with kB, MB or GB, as in '64MB'", bytes_text(STATEMENT_MIN)),
            Time => "milliseconds up to 2147483647, or a time with one of the units us, ms, s, min, h, d, as in '5s'".to_owned(),
            Memory { unit, range } => {
                let size = |units: &i64| bytes_text(units.unsigned_abs() * unit);
                format!("{} to {}, as a number of {} or with kB, MB, GB or TB", size(range.start()), size(range.end()), bytes_text(*unit))
            }
            Text | Only(_) | DateStyle | Fixed => String::new(),
        }
    }

    fn without_effect(&self, value: &str) -> Error {
        Error::NotSupported(format!("{} = {value} is not supported yet: it would have no effect; it is {}", self.name, self.default))
    }

    fn date_style(&self, value: &str) -> Result<String> {
        // Dates are written in ISO's form alone, and of `2/3/2024` the month is read first.
        let is_known = |word: &str| matches!(word, "iso" | "mdy" | "us" | "noneuropean" | "noneuro" | "default" | "");
        match value.split(',').all(|word| is_known(&word.trim().to_ascii_lowercase())) {
            true => Ok(self.default.to_owned()),
            false => Err(self.without_effect(value)),
        }
    }

    /// As SHOW gives it: `5s` for 5000 milliseconds.
    pub fn shown(&self, value: &str) -> String {
        match (&self.values, value.parse()) {
            (Time, Ok(milliseconds)) => time_text(milliseconds),
            (Size, Ok(bytes)) => bytes_text(bytes.unsigned_abs()),
            (Memory { unit, .. }, Ok(units)) => bytes_text(units.unsigned_abs() * unit),
            _ => value.to_owned(),
        }
    }

    /// The column `vartype` of `pg_settings`.
    pub fn type_name(&self) -> &'static str {
        match &self.values {
            Fixed if self.default.parse::<i64>().is_ok() && self.context() == "postmaster" => "integer",
            Whole(_) | Time | Size | Memory { .. } => "integer",
            Real(_) => "real",
            Choice(_) => "enum",
            Switch => "bool",
            Only(allowed) if allowed[0] == "on" || allowed[0] == "off" => "bool",
            Text | Only(_) | DateStyle | Fixed => "string",
        }
    }

    pub fn unit(&self) -> Option<&'static str> {
        match self.values {
            Time => Some("ms"),
            Size => Some("B"),
            Memory { unit: 1024, .. } => Some("kB"),
            Memory { .. } => Some("8kB"),
            _ => None,
        }
    }

    /// Who may change it.
    pub fn context(&self) -> &'static str {
        match self.values {
            Fixed if [MAX_CONCURRENT_JOBS, MAX_CONNECTIONS, RESERVED_CONNECTIONS].contains(&self.name) || self.name.starts_with("tcp_") => {
                "postmaster"
            }
            Fixed => "internal",
            _ => "user",
        }
    }

    pub fn least(&self) -> Option<String> {
        match &self.values {
            Whole(range) | Memory { range, .. } => Some(range.start().to_string()),
            Real(range) => Some(range.start().to_string()),
            Time => Some("0".to_owned()),
            Size => Some(STATEMENT_MIN.to_string()),
            Text | Choice(_) | Only(_) | Switch | DateStyle | Fixed => None,
        }
    }

    pub fn most(&self) -> Option<String> {
        match &self.values {
            Whole(range) | Memory { range, .. } => Some(range.end().to_string()),
            Real(range) => Some(range.end().to_string()),
            Time => Some(TIME_MAX.to_string()),
            Text | Choice(_) | Only(_) | Switch | Size | DateStyle | Fixed => None,
        }
    }

    pub fn choices(&self) -> Option<&'static [&'static str]> {
        match &self.values {
            Choice(choices) => Some(*choices),
            _ => None,
        }
    }
}

/// `64MB`, `'1 GB'`, or a number of units: how many units of so many bytes; `None` for any other text.
fn memory_units(text: &str, unit: u64) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-'))).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let factor = match text[end..].trim() {
        "" => unit as f64,
        "B" => 1.0,
        "kB" => 1024.0,
        "MB" => 1024.0 * 1024.0,
        "GB" => 1024.0 * 1024.0 * 1024.0,
        "TB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((number * factor / unit as f64).round() as i64)
}

const TIME_MAX: i64 = 2_147_483_647;

/// `None`: it is none of PostgreSQL's words for on and off.
fn switch(text: &str) -> Option<&'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "t" | "yes" | "y" | "1" => Some("on"),
        "off" | "false" | "f" | "no" | "n" | "0" => Some("off"),
        _ => None,
    }
}

/// `'500ms'`, `'2s'`, `250`, `'1.5 min'`: PostgreSQL's units; without one, milliseconds.
pub fn milliseconds(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = match text[end..].trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let time = (number * unit).round();
    // A time that is not 0 must not become the 0 that means for ever.
    let time = if number > 0.0 { time.max(1.0) } else { time };
    (time <= TIME_MAX as f64).then_some(time as i64)
}

fn time_text(milliseconds: i64) -> String {
    if milliseconds == 0 {
        return "0".to_owned();
    }
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    match units.into_iter().find(|(_, size)| milliseconds % size == 0) {
        Some((unit, size)) => format!("{}{unit}", milliseconds / size),
        None => format!("{milliseconds}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, expected) in [
            ("250", Some(250)),
            ("500ms", Some(500)),
            (" 2 s ", Some(2_000)),
            ("1.5min", Some(90_000)),
            ("10us", Some(1)),
            ("0", Some(0)),
            ("1d", Some(86_400_000)),
            ("25d", None),
            ("-1", None),
            ("fast", None),
            ("5 parsecs", None),
            ("", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
        for (time, text) in [(0, "0"), (250, "250ms"), (5_000, "5s"), (90_000, "90s"), (120_000, "2min"), (86_400_000, "1d")] {
            assert_eq!(time_text(time), text);
        }
    }

    #[test]
    fn switches_and_sizes_are_kept_in_one_form() {
        let kept = |name: &str, value: &str| definition(name).expect(name).accept(value).ok();
        for (value, expected) in [("TRUE", Some("on")), ("0", Some("off")), ("no", Some("off")), ("maybe", None), ("", None)] {
            assert_eq!(kept(TRANSACTION_READ_ONLY, value).as_deref(), expected, "{value}");
        }
        for (value, expected) in [("64MB", Some("67108864")), ("1048576", Some("1048576")), ("1kB", None), ("much", None)] {
            assert_eq!(kept(STATEMENT_MEMORY, value).as_deref(), expected, "{value}");
        }
        assert_eq!(definition(STATEMENT_MEMORY).expect("a setting").shown("67108864"), "64MB");
    }

    #[test]
    fn every_default_is_a_value() {
        for known in DEFINITIONS.iter().filter(|known| !matches!(known.values, Fixed)) {
            assert_eq!(known.accept(known.default).expect(known.name), known.default);
        }
        assert!(DEFINITIONS.is_sorted_by_key(|known| known.name));
    }
}
