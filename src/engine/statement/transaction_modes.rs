//! READ ONLY, READ WRITE and isolation levels: of BEGIN, SET TRANSACTION, SET SESSION CHARACTERISTICS, and of the settings behind them.
//!
//! Every statement reads what was committed when it began, one version of each table, and commits by itself. That is READ COMMITTED, and more than
//! READ UNCOMMITTED. More than that is not given: a transaction that writes is refused it, and one that only reads is told that it does not get it.

use rolloutdb_sql::{JobAction, JobCommand, SetTransaction, Statement, TransactionMode};

use super::{done, settings, table_name, writes};
use crate::engine::session::{Response, Session, TransactionStatus};
use crate::engine::setting_definitions::{
    DEFAULT_TRANSACTION_ISOLATION, DEFAULT_TRANSACTION_READ_ONLY, READ_COMMITTED, TRANSACTION_ISOLATION, TRANSACTION_READ_ONLY,
};
use crate::error::{Error, Result};

/// The levels that are not given.
const STRICTER: [&str; 2] = ["repeatable read", "serializable"];

pub fn execute(session: &Session, set_transaction: &SetTransaction) -> Result<Response> {
    let SetTransaction { modes, for_session } = set_transaction;
    if !for_session && session.transaction_status() == TransactionStatus::Idle {
        outside_of_a_block(session, "SET TRANSACTION");
    } else {
        set(session, modes, *for_session)?;
    }
    Ok(done("SET"))
}

fn outside_of_a_block(session: &Session, what: &str) {
    session.notices().warning_with("25P01", format!("{what} can only be used in transaction blocks"));
}

/// `for_session`: for the transactions that begin later. Of modes that contradict each other the last counts.
pub fn set(session: &Session, modes: &[TransactionMode], for_session: bool) -> Result<()> {
    let (read_only, isolation) = match for_session {
        true => (DEFAULT_TRANSACTION_READ_ONLY, DEFAULT_TRANSACTION_ISOLATION),
        false => (TRANSACTION_READ_ONLY, TRANSACTION_ISOLATION),
    };
    // Whether it writes decides which level it may have.
    for mode in modes {
        match mode {
            TransactionMode::ReadOnly => settings::set_value(session, read_only, "on", false).map(drop)?,
            TransactionMode::ReadWrite => settings::set_value(session, read_only, "off", false).map(drop)?,
            // It allows a wait that is not needed here.
            TransactionMode::Isolation(_) | TransactionMode::Deferrable | TransactionMode::NotDeferrable => {}
        }
    }
    for mode in modes {
        if let TransactionMode::Isolation(level) = mode {
            settings::set_value(session, isolation, &level.words().to_lowercase(), false)?;
        }
    }
    Ok(())
}

/// Sets what a transaction has of its own, in the form in which it is kept.
pub fn set_own(session: &Session, name: &str, value: &str) -> Result<()> {
    let is_now_to_write = name == TRANSACTION_READ_ONLY && value == "off" && session.is_read_only();
    if is_now_to_write && session.transaction_status() != TransactionStatus::Idle && session.has_queried() {
        return Err(Error::ActiveTransaction(
            "READ WRITE must be set before any query of the transaction; COMMIT it, and BEGIN READ WRITE".to_owned(),
        ));
    }
    if !session.settings().set_mode(name, value.to_owned()) {
        outside_of_a_block(session, name);
    }
    Ok(())
}

/// The level that is given where this one is asked for.
///
/// # Errors
/// [`Error::NotSupported`] for a stricter one, where the transaction writes.
pub fn given_level(session: &Session, name: &str, level: String) -> Result<String> {
    if !STRICTER.contains(&level.as_str()) {
        return Ok(level);
    }
    let read_only = if name == DEFAULT_TRANSACTION_ISOLATION { DEFAULT_TRANSACTION_READ_ONLY } else { TRANSACTION_READ_ONLY };
    let words = level.to_uppercase();
    if session.settings().get(read_only) != Some("on") {
        return Err(Error::NotSupported(format!(
            "{words} is not supported for transactions that write: every statement reads the newest committed rows and commits by itself; \
             leave it out, or write READ ONLY with it"
        )));
    }
    session
        .notices()
        .warning(format!("{words} is not given: each statement of the transaction reads the newest committed rows, as in READ COMMITTED"));
    Ok(READ_COMMITTED.to_owned())
}

/// That a transaction that is READ ONLY writes nothing but rows of temporary tables, as in PostgreSQL.
///
/// # Errors
/// [`Error::ReadOnlyTransaction`] (25006).
pub fn check_may_write(session: &Session, statement: &Statement) -> Result<()> {
    let may_run = !is_refused(statement) || !session.is_read_only() || is_of_temporary_rows(session, statement);
    if may_run { Ok(()) } else { Err(Error::ReadOnlyTransaction(name_of(statement))) }
}

fn is_refused(statement: &Statement) -> bool {
    match statement {
        Statement::DiscardTemp => false,
        // All that begins with CREATE, whatever it does.
        Statement::CreateExtension(_) | Statement::JobCommand(JobCommand { action: JobAction::Resume, .. }) => true,
        other => writes(other),
    }
}

/// In error messages, as PostgreSQL has it.
fn name_of(statement: &Statement) -> &'static str {
    match statement {
        Statement::Explain(explain) => name_of(&explain.statement),
        Statement::CopyFrom(_) => "COPY FROM",
        other => other.tag(),
    }
}

/// Only the session sees them. Its names have their schema by now.
fn is_of_temporary_rows(session: &Session, statement: &Statement) -> bool {
    let table = match statement {
        Statement::Explain(explain) => return is_of_temporary_rows(session, &explain.statement),
        Statement::Insert(insert) => &insert.target.table,
        Statement::Update(update) => &update.target.table,
        Statement::Delete(delete) => &delete.target.table,
        Statement::Merge(merge) => &merge.target.table,
        Statement::CopyFrom(copy) => &copy.table,
        _ => return false,
    };
    table_name(table).is_ok_and(|(schema, _)| session.temporary().made() == Some(schema.as_str()))
}
