//! CREATE MODEL from a hub: who is asked with whose token, whether there is room, how far it is.

use std::io::{Error as IoError, ErrorKind};
use std::path::Path;

use crate::engine::operating_system::bytes_free;
use crate::engine::progress::{BYTES, Progress, Work, size_text};
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::models::CreateModel;
use crate::models::embedder_settings::EmbeddingOptions;
use crate::models::hub::{DEFAULT_ENDPOINT, HubOptions, Snapshot, endpoint};
use crate::models::remote::Credential;

/// The variables of the server's environment that the hub's other clients read too.
const ENDPOINT_VARIABLE: &str = "HF_ENDPOINT";
const TOKEN_VARIABLE: &str = "HF_TOKEN";

/// Brings the files of a new model into the data directory, those that are not there. Dropping the future stops it, and what came is kept.
///
/// # Errors
/// Of the options, of the rights to a secret and to hosts, and those of [`crate::models::hub::Hub::find`] and [`Snapshot::fetch`].
pub async fn fetch(session: &Session, create: &CreateModel) -> Result<Snapshot> {
    let shared = &session.database().shared;
    let mut options = create.options.clone();
    // They say how the model is used, wherever it comes from.
    EmbeddingOptions::take(&mut options)?;
    let options = HubOptions::read(&create.source, &options)?;
    shared.registry.check_new(&create.name)?;
    let (endpoint, is_servers) = endpoint_of(&options)?;
    let credential = credential(session, &options, is_servers)?;
    let snapshot = shared.hub.find(&options, &endpoint, credential).await?;
    let left = snapshot.bytes_left();
    if left == Some(0) {
        // For files of no length, which nothing is asked for.
        snapshot.fetch(&|_| {}).await?;
        return Ok(snapshot);
    }
    snapshot.check_room()?;
    if let (Some(total), Some(here @ 1..)) = (snapshot.bytes_total(), snapshot.bytes_here()) {
        session.notices().notice(format!("{}: {} of {} are here already", snapshot.source(), size_text(here), size_text(total)));
    }
    let work = Work::Download { model: create.name.clone(), source: snapshot.source() };
    let progress = Progress::of(session.notices(), work, format!("CREATE MODEL {}", create.name), BYTES, left);
    snapshot.fetch(&|come| progress.update(come, "")).await?;
    Ok(snapshot)
}

/// Who is asked, and whether the one who started the server says so.
fn endpoint_of(options: &HubOptions) -> Result<(String, bool)> {
    let of_server = match std::env::var(ENDPOINT_VARIABLE) {
        Ok(text) if !text.trim().is_empty() => endpoint(ENDPOINT_VARIABLE, &text)?,
        _ => DEFAULT_ENDPOINT.to_owned(),
    };
    Ok(match &options.endpoint {
        Some(given) => (given.clone(), *given == of_server),
        None => (of_server, true),
    })
}

/// The secret that the statement names, or the server's own token: both are for superusers, since what they open is not everybody's. The server's token is
/// for its own endpoint.
fn credential(session: &Session, options: &HubOptions, is_servers: bool) -> Result<Option<Credential>> {
    let access = session.access();
    if let Some(secret) = &options.secret {
        access.require_superuser("a model with a secret of the server")?;
        return Ok(Some(Credential::new(session.database().shared.secrets.value(secret)?.reveal())));
    }
    let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.trim().is_empty());
    Ok(token.filter(|_| is_servers && access.is_superuser()).map(|token| Credential::new(token.trim())))
}

/// Whether the disk of a path has room for bytes that are still to come: a disk that is full harms all tables.
///
/// # Errors
/// [`Error::Io`] of a full disk.
pub fn check_room(path: &Path, to_come: u64) -> Result<()> {
    let Some(free) = bytes_free(path).filter(|free| to_come > *free) else { return Ok(()) };
    let reason = format!("{} are still to come, {} are free", size_text(to_come), size_text(free));
    Err(Error::Io { path: path.to_owned(), source: IoError::new(ErrorKind::StorageFull, reason) })
}
