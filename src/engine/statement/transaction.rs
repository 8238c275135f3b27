//! BEGIN, COMMIT, ROLLBACK: for clients that put them round single statements. Savepoints are in `savepoint.rs`, READ ONLY and its like in
//! `transaction_modes.rs`.
//!
//! Every statement commits by itself. A ROLLBACK after a write would have to undo it; it is refused, never pretended.

use rolloutdb_sql::Statement;

use super::{done, settings, transaction_modes};
use crate::engine::session::{Response, Session, TransactionStatus};
use crate::error::{Error, Result};

pub fn execute(session: &Session, statement: &Statement) -> Result<Response> {
    let status = session.transaction_status();
    match statement {
        Statement::Begin(begin) => {
            if status == TransactionStatus::InTransaction {
                session.notices().warning_with("25001", "there is already a transaction in progress");
                transaction_modes::set(session, &begin.modes, false)?;
                return Ok(done("BEGIN"));
            }
            session.begin();
            if let Err(refused) = transaction_modes::set(session, &begin.modes, false) {
                settings::end_of_transaction(session, false)?;
                return Err(refused);
            }
            Ok(done("BEGIN"))
        }
        Statement::Commit => {
            settings::end_of_transaction(session, status == TransactionStatus::InTransaction)?;
            if status == TransactionStatus::Failed {
                return rolled_back(session);
            }
            Ok(done("COMMIT"))
        }
        _ => {
            if status == TransactionStatus::Idle {
                session.notices().warning_with("25P01", "there is no transaction in progress");
            }
            settings::end_of_transaction(session, false)?;
            if status == TransactionStatus::Idle { Ok(done("ROLLBACK")) } else { rolled_back(session) }
        }
    }
}

fn rolled_back(session: &Session) -> Result<Response> {
    if session.write_count() > 0 {
        let message = "ROLLBACK cannot undo what this transaction wrote: every statement commits by itself";
        return Err(Error::NotSupported(message.to_owned()));
    }
    Ok(done("ROLLBACK"))
}
