//! Statements of a session, from text to rows: what is done before, beside and after each of them, and how one is ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::common::ScalarValue;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use rolloutdb_sql::{Execute, SavepointAction, Statement};

use super::{Description, Response, Session, TransactionStatus};
use crate::engine::copy_streams::CopyOut;
use crate::engine::interruption::{OverWhenDropped, Wanted};
use crate::engine::prepared::PreparedStatement;
use crate::engine::shown_text::{printed, shown_text};
use crate::engine::statement;
use crate::engine::task_history::{CurrentTask, Task};
use crate::error::{Error, Result};

/// A statement whose future is dropped: it was cancelled, and whether it has committed is not known.
struct Unfinished<'a> {
    session: &'a Session,
    /// `None`: it is finished.
    current: Option<OverWhenDropped>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let Some(current) = &self.current else { return };
        // Where it could not be dropped at once, another one runs by now; who interrupted it has seen to the transaction.
        if self.session.inner.current.is(current) {
            self.session.interrupt();
        }
    }
}

impl Session {
    /// Runs SQL text and gives the rows of its last statement; statements before it run to their end first.
    ///
    /// # Errors
    /// Of the first statement that fails; the ones before it stay done (each statement commits by itself).
    pub async fn sql(&self, text: &str) -> Result<SendableRecordBatchStream> {
        let statements = self.parse(text)?;
        if let [statement] = statements.as_slice() {
            self.activity().begin_statement(shown_text(statement, text));
        }
        let mut last = statement::empty_rows();
        for statement in &statements {
            last = match self.execute(statement, vec![]).await? {
                Response::Rows { stream, .. } => stream,
                Response::Done { .. } => statement::empty_rows(),
                Response::CopyIn(_) | Response::CopyOut(_) => {
                    return Err(Error::NotSupported("COPY with STDIN and STDOUT has no rows; call execute, or name a file".to_owned()));
                }
            };
            if !std::ptr::eq(statement, &statements[statements.len() - 1]) {
                statement::drain(std::mem::replace(&mut last, statement::empty_rows())).await?;
            }
        }
        Ok(last)
    }

    /// The statements in a text; none for an empty one.
    pub fn parse(&self, text: &str) -> Result<Vec<Statement>> {
        Ok(rolloutdb_sql::parse(text)?)
    }

    /// Output columns and parameter types, found by planning; nothing runs.
    #[inline(never)]
    pub fn describe<'a>(&'a self, statement: &'a Statement) -> BoxFuture<'a, Result<Description>> {
        statement::describe(self, statement).boxed()
    }

    /// Runs one statement with values for its `$1 ...`.
    // This one and the next are boxed, and in this crate alone: the crates of those who run SQL would lay out the futures of all statements within each
    // other, which is deeper than a release build may by itself.
    #[inline(never)]
    pub fn execute<'a>(&'a self, statement: &'a Statement, parameters: Vec<ScalarValue>) -> BoxFuture<'a, Result<Response>> {
        async move {
            match statement::execute_in(statement) {
                Some(execute) => self.execute_named(statement, execute).await,
                None => self.execute_with(statement, None, statement::execute(self, statement, &parameters)).await,
            }
        }
        .boxed()
    }

    /// A statement that runs often: what its runs have in common is done once.
    ///
    /// # Errors
    /// As [`Self::describe`].
    pub async fn prepare(&self, statement: Statement) -> Result<PreparedStatement> {
        self.prepare_declared(statement, &[]).await
    }

    /// As [`Self::execute`].
    #[inline(never)]
    pub fn execute_prepared<'a>(
        &'a self,
        prepared: &'a PreparedStatement,
        parameters: Vec<ScalarValue>,
    ) -> BoxFuture<'a, Result<Response>> {
        async move {
            let statement = &prepared.statement;
            self.activity().begin_statement(Arc::clone(prepared.shown()));
            match statement::execute_in(statement) {
                Some(execute) => self.execute_named(statement, execute).await,
                None => self.execute_with(statement, Some(prepared.shown()), self.run_prepared(prepared, &parameters).boxed()).await,
            }
        }
        .boxed()
    }

    async fn run_prepared(&self, prepared: &PreparedStatement, parameters: &[ScalarValue]) -> Result<Response> {
        let successor = self.revalidated(prepared).await?;
        let prepared = successor.as_deref().unwrap_or(prepared);
        match prepared.run(self, parameters).await? {
            Some(stream) => Ok(Response::Rows { stream, tag: prepared.statement.tag().to_owned() }),
            None => statement::execute(self, &prepared.statement, parameters).await,
        }
    }

    /// EXECUTE, or EXPLAIN of one: the statement that has the name runs in its place, and what follows from its kind holds for this run.
    async fn execute_named(&self, statement: &Statement, execute: &Execute) -> Result<Response> {
        self.check_takes(statement)?;
        let (named, prepared) = statement::found(self, execute).inspect_err(|_| self.fail_transaction())?;
        let explained = match statement {
            Statement::Explain(explain) => Some(statement::explained(explain, &prepared)),
            _ => None,
        };
        let runs = explained.as_ref().unwrap_or(&prepared.statement);
        let run = async {
            let values = statement::arguments(self, &named, execute).await?;
            match statement {
                Statement::Explain(explain) => {
                    let current = self.revalidated(&prepared).await?;
                    let explained = statement::explained(explain, current.as_deref().unwrap_or(&prepared));
                    statement::execute(self, &explained, &values).await
                }
                _ => self.run_prepared(&prepared, &values).await,
            }
        };
        let shown = if explained.is_none() { Some(prepared.printed()) } else { None };
        self.execute_with(runs, shown, run.boxed()).await
    }

    /// `shown`: its text, if that is known.
    async fn execute_with(
        &self,
        statement: &Statement,
        shown: Option<&Arc<str>>,
        run: BoxFuture<'_, Result<Response>>,
    ) -> Result<Response> {
        self.check_takes(statement)?;
        if statement::queries(statement) {
            self.inner.has_queried.store(true, Ordering::Relaxed);
        }
        let task = self.begin_task(statement, shown);
        let current = self.inner.current.begin(statement::writes(statement));
        let mut unfinished = Unfinished { session: self, current: Some(current) };
        self.inner.timeouts.arm();
        let result = self.inner.timeouts.limited(run).await;
        let mut current = unfinished.current.take();
        if let (Statement::Declare(declare), Ok(_)) = (statement, &result)
            && let Some(current) = current.take()
        {
            self.cursors().keep_running(&declare.name, current);
        }
        let result = task.followed(statement, result.map(|response| self.watched(response, current)));
        for warning in self.inner.database.take_warnings() {
            self.notices().warning(warning);
        }
        let may_have_written = match &result {
            // What a client is to send is written later: see [`CopyIn::run`].
            Ok(Response::CopyIn(_)) => false,
            Ok(_) => true,
            // It was dropped, as by a cancel.
            Err(Error::StatementTimeout) => true,
            Err(Error::ReadOnlyTransaction(_)) => false,
            Err(_) => statement::commits_in_parts(statement),
        };
        if statement::writes(statement) && may_have_written {
            self.note_written();
        }
        if result.is_err() {
            self.fail_transaction();
        }
        result
    }

    /// That the session takes the statement now: a transaction that has failed takes only those that end it, or go back to before the error.
    ///
    /// # Errors
    /// [`Error::TransactionAborted`] (25P02); [`Error::RoleGone`] (42704) if the session's role was dropped.
    pub fn check_takes(&self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::SetRole(_) | Statement::Discard => self.inner.user.check_user()?,
            Statement::Rollback | Statement::Commit => {}
            _ => self.inner.user.check_exists()?,
        }
        let is_way_out = match statement {
            Statement::Rollback | Statement::Commit => true,
            Statement::Savepoint(savepoint) => savepoint.action == SavepointAction::RollBackTo,
            _ => false,
        };
        if is_way_out || self.transaction_status() != TransactionStatus::Failed { Ok(()) } else { Err(Error::TransactionAborted) }
    }

    /// After an error the transaction, if there is one, takes no more statements. [`Self::execute`] and its rows see to that themselves; the
    /// server calls it for errors before them, of parsing or describing.
    pub fn fail_transaction(&self) {
        if self.transaction_status() == TransactionStatus::InTransaction {
            self.set_transaction_status(TransactionStatus::Failed);
        }
    }

    /// Ends the statement that runs, whatever it computes at this moment; whether it has committed is not known. For those that cannot drop it at once.
    pub fn interrupt(&self) {
        if let Some(task) = self.task() {
            task.stop();
        }
        if self.inner.current.interrupt() {
            self.note_written();
        }
        self.fail_transaction();
    }

    /// What is left of the rows of the statement that ran last is read later: what passes until then is not its time.
    pub fn suspend_rows(&self) {
        if let Some(task) = self.task() {
            task.read_in_parts();
        }
    }

    /// Whether the rows of the statement that runs are still wanted.
    pub(crate) fn wanted(&self) -> Wanted {
        self.inner.current.wanted()
    }

    /// What is done after this, while rows are read or sent, belongs to the statement too: until then it is not over, and an error fails the transaction.
    fn watched(&self, response: Response, current: Option<OverWhenDropped>) -> Response {
        match response {
            Response::Rows { stream, tag } => {
                let stream = self.inner.timeouts.limited_rows(stream);
                let schema = stream.schema();
                let rows = stream.inspect_err(self.failing(current));
                Response::Rows { stream: Box::pin(RecordBatchStreamAdapter::new(schema, rows)), tag }
            }
            Response::CopyOut(copy) => {
                Response::CopyOut(CopyOut { messages: copy.messages.inspect_err(self.failing(current)).boxed(), ..copy })
            }
            Response::CopyIn(copy) => Response::CopyIn(copy.of_statement(current)),
            Response::Done { .. } => response,
        }
    }

    /// Fails the transaction for the error of a stream, with which the statement is over.
    fn failing<E>(&self, current: Option<OverWhenDropped>) -> impl Fn(&E) + Send + 'static {
        let session = self.clone();
        move |_| {
            let _dropped_with_the_stream = &current;
            session.fail_transaction();
        }
    }

    fn begin_task(&self, statement: &Statement, shown: Option<&Arc<str>>) -> Arc<Task> {
        let text = shown.map_or_else(|| Arc::from(printed(statement)), Arc::clone);
        let task = self.inner.database.shared.task_history.begin(statement, text, self.inner.user.role_id());
        self.inner.task.set(&task);
        task
    }

    /// The statement that runs, for the history.
    pub(in crate::engine) fn task(&self) -> Option<Arc<Task>> {
        self.inner.task.get()
    }

    pub(in crate::engine) fn current_task(&self) -> &CurrentTask {
        &self.inner.task
    }

    /// What [`Self::execute`] does after other statements.
    pub(in crate::engine) fn end_copy(&self, is_written: bool) {
        for warning in self.inner.database.take_warnings() {
            self.notices().warning(warning);
        }
        if is_written { self.note_written() } else { self.fail_transaction() }
    }

    pub(in crate::engine) fn note_written(&self) {
        self.inner.write_count.fetch_add(1, Ordering::Relaxed);
    }
}
