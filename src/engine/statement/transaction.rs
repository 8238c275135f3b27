//! BEGIN, COMMIT, ROLLBACK: for clients that put them round single statements.
//!
//! Every statement commits by itself. A ROLLBACK after a write would have to undo it; it is refused, never pretended.

use rolloutdb_sql::Statement;

use super::done;
use crate::engine::session::{Response, Session, TransactionStatus};
use crate::error::{Error, Result};

pub fn execute(session: &Session, statement: &Statement) -> Result<Response> {
    let status = session.transaction_status();
    match statement {
        Statement::Begin(_) => {
            if status == TransactionStatus::InTransaction {
                session.notices().warning("there is already a transaction in progress");
            } else {
                session.begin();
            }
            Ok(done("BEGIN"))
        }
        Statement::Commit => {
            session.set_transaction_status(TransactionStatus::Idle);
            if status == TransactionStatus::Failed {
                return rolled_back(session);
            }
            Ok(done("COMMIT"))
        }
        _ => {
            if status == TransactionStatus::Idle {
                session.notices().warning("there is no transaction in progress");
            }
            session.set_transaction_status(TransactionStatus::Idle);
            if status == TransactionStatus::Idle { Ok(done("ROLLBACK")) } else { rolled_back(session) }
        }
    }
}

fn rolled_back(session: &Session) -> Result<Response> {
    if session.has_written() {
        let message = "ROLLBACK cannot undo what this transaction wrote: every statement commits by itself";
        return Err(Error::NotSupported(message.to_owned()));
    }
    Ok(done("ROLLBACK"))
}
