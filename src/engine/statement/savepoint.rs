//! SAVEPOINT, RELEASE SAVEPOINT, ROLLBACK TO SAVEPOINT.
//!
//! Clients put them round statements that may fail, to go on after an error. What was written since the savepoint is not undone: such a ROLLBACK TO is
//! refused, never pretended.

use rolloutdb_sql::{Savepoint, SavepointAction};

use super::{done, settings};
use crate::engine::session::{Response, Session, TransactionStatus};
use crate::error::{Error, Result};

pub fn execute(session: &Session, savepoint: &Savepoint) -> Result<Response> {
    let Savepoint { action, name } = savepoint;
    if session.transaction_status() == TransactionStatus::Idle {
        return Err(Error::NoTransaction(format!("{} can only be used in transaction blocks; BEGIN begins one", action.words())));
    }
    match action {
        SavepointAction::Define => {
            let state = session.saved_state();
            session.savepoints().define(name, state);
            Ok(done("SAVEPOINT"))
        }
        SavepointAction::Release => {
            session.savepoints().release(name)?;
            Ok(done("RELEASE"))
        }
        SavepointAction::RollBackTo => {
            roll_back_to(session, name)?;
            Ok(done("ROLLBACK"))
        }
    }
}

/// An error leaves all as it was.
fn roll_back_to(session: &Session, name: &str) -> Result<()> {
    let state = session.savepoints().state(name)?;
    if session.write_count() > state.write_count {
        return Err(Error::NotSupported(format!(
            "ROLLBACK TO cannot undo what was written since savepoint \"{name}\": every statement commits by itself"
        )));
    }
    session.savepoints().go_back_to(name)?;
    session.cursors().keep_only(&state.cursors);
    session.go_back_to_role(state.role);
    let changed = session.settings().go_back_to(state.settings);
    session.set_transaction_status(TransactionStatus::InTransaction);
    settings::changed_again(session, &changed)
}
