//! CREATE SECRET, DROP SECRET.

use rolloutdb_sql::{CreateSecret, DropSecret, SecretSource};

use super::done;
use crate::engine::secrets::SecretPlace;
use crate::engine::session::{Response, Session};
use crate::error::{Error, Result};

pub fn create(session: &Session, create: &CreateSecret) -> Result<Response> {
    session.access().require_superuser("secrets of the server")?;
    let secrets = &session.database().shared.secrets;
    if create.if_not_exists && secrets.contains(&create.name) {
        session.notices().notice(format!("secret \"{}\" already exists, skipping", create.name));
        return Ok(done("CREATE SECRET"));
    }
    secrets.create(&create.name, place(session, &create.source)?)?;
    Ok(done("CREATE SECRET"))
}

fn place(session: &Session, source: &SecretSource) -> Result<SecretPlace> {
    match source {
        SecretSource::Environment(variable) => {
            let is_name = variable.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if is_name {
                return Ok(SecretPlace::Env { variable: variable.clone() });
            }
            // It may be the value, in the wrong place.
            Err(Error::InvalidParameter {
                name: "ENV".to_owned(),
                found: "something else".to_owned(),
                expected: "the name of an environment variable of the server, such as 'OPENAI_API_KEY'".to_owned(),
            })
        }
        SecretSource::File(path) => match session.gate().read(path)?.as_slice() {
            [path] => Ok(SecretPlace::File { path: path.clone() }),
            _ => Err(Error::InvalidParameter {
                name: "FILE".to_owned(),
                found: "a pattern of several files".to_owned(),
                expected: "one file".to_owned(),
            }),
        },
    }
}

pub fn drop(session: &Session, drop: &DropSecret) -> Result<Response> {
    session.access().require_superuser("secrets of the server")?;
    let secrets = &session.database().shared.secrets;
    if !secrets.remove(&drop.name)? {
        if !drop.if_exists {
            return Err(secrets.unknown(&drop.name));
        }
        session.notices().notice(format!("secret \"{}\" does not exist, skipping", drop.name));
    }
    Ok(done("DROP SECRET"))
}
