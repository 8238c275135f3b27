//! What a client asks for when it connects: a database, settings, and settings in `options`.

use pgwire::api::{ClientInfo, METADATA_USER};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};

use super::connection::Connection;
use super::response::{fatal, wire_error};
use crate::engine::DATABASE_NAME;
use crate::error::Error;

/// Parameters of the startup message that are no settings.
const NO_SETTINGS: &[&str] = &["user", "database", "options", "replication"];

/// By this name programs ask for a database that is always there, `psql -l` and `createuser` among them. Here it is that of the only one.
pub(super) const MAINTENANCE_NAME: &str = "postgres";

fn is_served(database: &str) -> bool {
    [DATABASE_NAME, MAINTENANCE_NAME].contains(&database)
}

impl Connection {
    /// Gives the session what the client asked for, and shows it to others. To be called when the client is known to be who it says.
    ///
    /// # Errors
    /// FATAL, with the code of what is wrong: an unknown database (3D000) or setting (42704), a value that a setting cannot have (22023).
    pub(super) fn start_session(&self, client: &impl ClientInfo) -> PgWireResult<()> {
        let given = client.metadata();
        if let Some(database) = given.get("database").filter(|database| !is_served(database)) {
            return Err(fatal("3D000", &format!("database \"{database}\" does not exist; this server has one, \"{DATABASE_NAME}\"")));
        }
        let user = given.get(METADATA_USER).map_or("", String::as_str);
        self.session.set_fixed("session_authorization", user);
        for (name, value) in given {
            let name = name.to_lowercase();
            if !NO_SETTINGS.contains(&name.as_str()) && !name.starts_with("_pq_.") {
                self.set_at_startup(&name, value, true)?;
            }
        }
        for (name, value) in options(given.get("options").map_or("", String::as_str))? {
            self.set_at_startup(&name, &value, false)?;
        }
        self.farewell.set_secure(client.is_secure());
        // Without a port it is a client on a Unix socket.
        let address = Some(client.socket_addr()).filter(|address| address.port() != 0);
        self.session.activity().list(user, address, "client backend");
        self.reported.told(&self.session);
        Ok(())
    }

    /// Drivers send their time zone and the like unasked. What is not supported of that is left out, and the server's parameters tell the driver so.
    fn set_at_startup(&self, name: &str, value: &str, is_unasked: bool) -> PgWireResult<()> {
        match self.session.set_at_startup(name, value) {
            Err(Error::NotSupported(_)) if is_unasked => Ok(()),
            set => set.map_err(|error| as_fatal(wire_error(error))),
        }
    }
}

fn as_fatal(error: PgWireError) -> PgWireError {
    let info = ErrorInfo::from(error);
    fatal(&info.code, &info.message)
}

/// `-c name=value --other-name=value`, as in `PGOPTIONS`; a backslash keeps a blank.
fn options(text: &str) -> PgWireResult<Vec<(String, String)>> {
    let mut settings = Vec::new();
    let mut words = words(text).into_iter();
    while let Some(word) = words.next() {
        let setting = match (word.strip_prefix("-c"), word.strip_prefix("--")) {
            (Some(""), _) => words.next(),
            (Some(setting), _) | (None, Some(setting)) => Some(setting.to_owned()),
            (None, None) => None,
        };
        let Some((name, value)) = setting.as_deref().and_then(|setting| setting.split_once('=')) else {
            return Err(fatal("42601", &format!("cannot read the option \"{word}\"; write -c name=value")));
        };
        settings.push((name.replace('-', "_").to_lowercase(), value.to_owned()));
    }
    Ok(settings)
}

fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        match next {
            '\\' => word.extend(chars.next()),
            blank if blank.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => word.push(other),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let read =
            |text: &str| options(text).expect("options").into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        assert_eq!(read("-c statement_timeout=5s --search-path=public"), ["statement_timeout=5s", "search_path=public"]);
        assert_eq!(read(r"-capplication_name=my\ program  -c a.b=c=d"), ["application_name=my program", "a.b=c=d"]);
        assert!(read("  ").is_empty());
        for wrong in ["-c", "-c name", "-x", "name=value"] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }
}
