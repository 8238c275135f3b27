//! What can go wrong between a request and its answer.

use std::io::{Error as IoError, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;

/// One attempt that gave no answer.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::models) struct Fault {
    pub kind: FaultKind,
    /// In the server's words or the system's, without secrets.
    pub detail: String,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::models) enum FaultKind {
    /// No connection.
    Connect,
    /// No whole answer in time.
    Timeout,
    /// The connection ended in the middle.
    Cut,
    /// The server said so.
    Status(u16),
    /// The account has nothing left, which waiting does not change.
    Quota,
    /// The prompt, or what may follow it, is longer than the model's context.
    ContextFull,
    /// A whole answer that is not what was asked for.
    Malformed,
    /// An error in the place of an answer, with a status of success.
    Complaint,
    /// More than was asked for can have.
    TooLong,
    /// The rules for other hosts refuse its address.
    Denied,
}

impl Fault {
    pub fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), retry_after: None }
    }

    /// Whether the same request may find an answer a little later.
    pub fn is_passing(&self) -> bool {
        match self.kind {
            FaultKind::Connect | FaultKind::Timeout | FaultKind::Cut | FaultKind::Malformed | FaultKind::Complaint => true,
            FaultKind::Status(status) => matches!(status, 408 | 409 | 425 | 429 | 500..=599),
            FaultKind::Quota | FaultKind::ContextFull | FaultKind::TooLong | FaultKind::Denied => false,
        }
    }
}

/// A request that was given up. Several callers may share it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Failure {
    /// The server could not be reached, or did not finish.
    Unreachable(String),
    /// The server answered, with no completion.
    Refused(String),
    Denied(String),
    /// The model cannot read so long a prompt.
    ContextFull(String),
    /// There is no key to send.
    NotReady(String),
    /// The answer came and could not be kept.
    Disk {
        path: PathBuf,
        kind: ErrorKind,
        reason: String,
    },
}

impl Failure {
    pub fn disk(path: PathBuf, error: &IoError) -> Self {
        Self::Disk { path, kind: error.kind(), reason: error.to_string() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(message) => Self::RemoteUnreachable(message),
            Failure::Refused(message) => Self::RemoteRefused(message),
            Failure::Denied(message) => Self::InsufficientPrivilege(message),
            Failure::ContextFull(message) => Self::ContextFull(message),
            Failure::NotReady(message) => Self::NotReady(message),
            Failure::Disk { path, kind, reason } => Self::Io { path, source: IoError::new(kind, reason) },
        }
    }
}
