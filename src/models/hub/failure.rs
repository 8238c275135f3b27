//! What can go wrong between a request to a hub and its answer, and what the user reads of it.

use super::options::HubOptions;
use crate::error::Error;
use crate::models::remote::failure::{Fault, FaultKind};
use crate::models::shown::shown;

/// One attempt that did not give what was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setback {
    pub fault: Fault,
    /// Who was asked last; it may not be the hub.
    pub host: String,
    /// The hub's word for it: `RepoNotFound`, `RevisionNotFound`, `EntryNotFound`, `GatedRepo`.
    pub code: Option<String>,
}

impl Setback {
    pub fn new(kind: FaultKind, detail: impl Into<String>, host: &str) -> Self {
        Self { fault: Fault::new(kind, detail), host: host.to_owned(), code: None }
    }

    /// The error after the last attempt: who failed how at what, and what can be done. `what`: the file, or the list of files.
    pub fn into_error(self, options: &HubOptions, what: &str, attempts: usize) -> Error {
        let times = if attempts > 1 { format!(", tried {attempts} times") } else { String::new() };
        let detail = if self.fault.detail.is_empty() { String::new() } else { format!(": {}", self.fault.detail) };
        let (source, host, what) = (options.source(), &self.host, shown(what));
        let message = |what_happened: &str, advice: &str| format!("{source}: {host} {what_happened}{times}{detail}; {advice}");
        let again = "run the statement again: what came is kept";
        let token = match &options.secret {
            Some(secret) => format!("see what the secret \"{secret}\" holds"),
            None => "a private or gated repository takes a token: secret = 'name' (CREATE SECRET), or HF_TOKEN of the server, which \
                statements of superusers send"
                .to_owned(),
        };
        let refused = Error::RemoteRefused;
        match (self.fault.kind, self.code.as_deref()) {
            (FaultKind::Denied, _) => Error::InsufficientPrivilege(format!("{source}: {}", self.fault.detail)),
            (FaultKind::Connect, _) => {
                Error::RemoteUnreachable(message("cannot be reached", "see that the network and the endpoint are right"))
            }
            (FaultKind::Timeout, _) => Error::RemoteUnreachable(message(&format!("did not go on with {what}"), again)),
            (FaultKind::Cut, _) => Error::RemoteUnreachable(message(&format!("broke off {what}"), again)),
            (FaultKind::Malformed | FaultKind::Complaint, _) => refused(message(
                &format!("answered with something else than {what}"),
                "see that the endpoint is a hub that speaks this API",
            )),
            (FaultKind::TooLong, _) => refused(message(&format!("gave too much for {what}"), "see that the repository is whole")),
            (FaultKind::Status(status), Some("GatedRepo")) => {
                let what = format!("refused {what} ({status}): the repository is gated");
                refused(message(&what, &format!("ask for access on its page, and {token}")))
            }
            (FaultKind::Status(status @ (401 | 403)), _) => {
                let advice = format!("see that {}/{} is its name; {token}", options.organisation, options.name);
                refused(message(&format!("refused {what} ({status})"), &advice))
            }
            (FaultKind::Status(404), Some("RevisionNotFound")) => {
                let what = format!("knows no revision \"{}\" of {}/{} (404)", options.revision, options.organisation, options.name);
                refused(message(&what, "a branch, a tag or a commit stands after the @"))
            }
            (FaultKind::Status(404), Some("EntryNotFound")) => {
                refused(message(&format!("does not have {what} (404)"), "see that the repository is whole"))
            }
            (FaultKind::Status(404), _) => {
                let what = format!(
                    "knows no repository {}/{}, or no revision \"{}\" of it (404)",
                    options.organisation, options.name, options.revision
                );
                refused(message(&what, &format!("see that the names are right; {token}")))
            }
            (FaultKind::Status(429), _) => {
                refused(message("asks for fewer requests (429)", "run the statement again later; with a token more are allowed"))
            }
            (FaultKind::Status(status @ 300..=399), _) => {
                refused(message(&format!("leads nowhere with {what} ({status})"), "see that the endpoint is right"))
            }
            (FaultKind::Status(status @ 500..=599), _) => refused(message(&format!("failed with {what} ({status})"), again)),
            (FaultKind::Status(status), _) => refused(message(&format!("refused {what} ({status})"), "see the endpoint's words")),
            (FaultKind::Quota | FaultKind::ContextFull, _) => refused(message(&format!("refused {what}"), "see the endpoint's words")),
        }
    }
}

/// For a hub that was asked for a commit and answers another. Asking again is no help: it does not mistake one for the other in passing.
pub(super) fn other_commit(options: &HubOptions, host: &str, found: &str) -> Error {
    let source = options.source();
    Error::RemoteRefused(format!(
        "{source}: {host} answered with another commit, {found}; nothing was fetched; see that the endpoint is a hub to trust, or name the \
        commit that is meant"
    ))
}
