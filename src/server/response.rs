//! Errors and notices as Postgres messages.

use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::ErrorResponse;

use super::broken_rule::name_rule;
use super::sqlstate::{message, sqlstate};
use crate::engine::{Notice, Severity};
use crate::error::Error;

/// The error as `ErrorResponse`: severity ERROR, SQLSTATE, message, and the rule of a table that was broken.
pub(super) fn wire_error(error: Error) -> PgWireError {
    let mut info = info("ERROR", sqlstate(&error), message(&error));
    name_rule(&mut info, &error);
    if matches!(error, Error::ResultTypeChanged) {
        // By this pgjdbc knows that it is to prepare the statement anew.
        info.routine = Some("RevalidateCachedQuery".to_string());
    }
    PgWireError::UserError(Box::new(info))
}

/// The same for an error in the text of a statement, with the place for psql's caret when there is one.
pub(super) fn parse_error(error: Error, text: &str) -> PgWireError {
    let mut info = info("ERROR", sqlstate(&error), message(&error));
    if let Error::Sql(error) = &error {
        info.position = error.position(text).map(|position| position.to_string());
    }
    PgWireError::UserError(Box::new(info))
}

/// An error that ends the connection.
pub(super) fn fatal(code: &str, message: &str) -> PgWireError {
    user_error("FATAL", code, message.to_string())
}

/// An error as the message that tells it.
pub(super) fn error_message(error: PgWireError) -> ErrorResponse {
    ErrorInfo::from(error).into()
}

/// An error of the client's own making: a message that does not fit the statement, a value that cannot be read.
pub(super) fn client_error(code: &str, message: String) -> PgWireError {
    user_error("ERROR", code, message)
}

pub(super) fn notice_message(notice: Notice) -> PgWireBackendMessage {
    let severity = match notice.severity {
        Severity::Notice => "NOTICE",
        Severity::Warning => "WARNING",
        Severity::Info => "INFO",
    };
    PgWireBackendMessage::NoticeResponse(info(severity, notice.code, notice.message).into())
}

fn user_error(severity: &str, code: &str, message: String) -> PgWireError {
    PgWireError::UserError(Box::new(info(severity, code, message)))
}

fn info(severity: &str, code: &str, message: String) -> ErrorInfo {
    let mut info = ErrorInfo::new(severity.to_string(), code.to_string(), message);
    info.severity_nonlocalized = Some(severity.to_string());
    info
}
