//! Jobs: long statements that run in the background (`... ASYNC`), and `CANCEL JOB`, `RESUME JOB`, `WAIT FOR JOB`.

use std::fmt;

use super::{AlterAction, CopyPlace, Statement};
use crate::ast::SetExpr;
use crate::error::{Error, Result};
use crate::parser::Parser;

/// `CANCEL JOB n`, `RESUME JOB n`, `WAIT FOR JOB n`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobCommand {
    pub action: JobAction,
    /// The number that the statement with `ASYNC` gave.
    pub job: u64,
}

/// What is done with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobAction {
    Cancel,
    Resume,
    Wait,
}

impl JobAction {
    /// The words before the job's number.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Cancel => "CANCEL JOB",
            Self::Resume => "RESUME JOB",
            Self::Wait => "WAIT FOR JOB",
        }
    }
}

impl JobCommand {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        let action = match parser.peek_word(0).as_deref() {
            Some("CANCEL") => JobAction::Cancel,
            Some("RESUME") => JobAction::Resume,
            _ => JobAction::Wait,
        };
        parser.expect(action.words())?;
        Ok(Self { action, job: parser.unsigned("the number of a job; SHOW JOBS lists them")? })
    }
}

/// The statement that was read, in the background if `ASYNC` comes next.
pub(super) fn perhaps_async(parser: &mut Parser, statement: Statement) -> Result<Statement> {
    if !parser.is_at("ASYNC") {
        return Ok(statement);
    }
    if !can_be_job(&statement) {
        let tag = statement.tag();
        let instead = "GENERATE ROLLOUTS, TRAIN, CREATE INDEX, REINDEX, OPTIMIZE, COPY, INSERT ... SELECT, CREATE TABLE AS and ALTER TABLE ... ADD COLUMN ... GENERATED can be jobs";
        return Err(Error::not_supported_but(format!("{tag} ... ASYNC"), instead));
    }
    parser.expect("ASYNC")?;
    Ok(Statement::Async(Box::new(statement)))
}

fn can_be_job(statement: &Statement) -> bool {
    match statement {
        Statement::GenerateRollouts(_)
        | Statement::Train(_)
        | Statement::CreateIndex(_)
        | Statement::Reindex(_)
        | Statement::Optimize(_) => true,
        // A client that sends or takes rows waits.
        Statement::CopyFrom(copy) => copy.place != CopyPlace::Client,
        Statement::CopyTo(copy) => copy.place != CopyPlace::Client,
        // Rows that are written out are there at once, and those of RETURNING have no reader.
        Statement::Insert(insert) => {
            insert.returning.is_empty() && insert.source.as_ref().is_some_and(|source| !matches!(*source.body, SetExpr::Values(_)))
        }
        // A temporary table is gone with its session.
        Statement::CreateTable(create) => create.query.is_some() && !create.temporary,
        Statement::AlterTable(alter) => {
            alter.actions.iter().all(|action| matches!(action, AlterAction::AddColumn { column, .. } if column.generated.is_some()))
        }
        _ => false,
    }
}

impl fmt::Display for JobCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.words(), self.job)
    }
}
