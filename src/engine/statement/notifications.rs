//! LISTEN, NOTIFY, UNLISTEN: there are no notifications, and nothing pretends that there are.

use datafusion::sql::sqlparser::ast::Statement as SqlStatement;

use super::{done, not_supported};
use crate::engine::session::Response;
use crate::error::Result;

/// `None` for all other statements.
pub fn execute(statement: &SqlStatement) -> Option<Result<Response>> {
    const INSTEAD: &str = "ask for what is new with a query, such as one over a column that grows";
    match statement {
        SqlStatement::LISTEN { .. } => Some(Err(not_supported("LISTEN", INSTEAD))),
        SqlStatement::NOTIFY { .. } => Some(Err(not_supported("NOTIFY", INSTEAD))),
        // Nothing can be listened to, so nothing is left to end: pools send it when they reset a connection.
        SqlStatement::UNLISTEN { .. } => Some(Ok(done("UNLISTEN"))),
        _ => None,
    }
}
