//! One client's session: its settings, its notices, and statements from text to rows.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::catalog::CatalogProvider;
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::{FunctionRegistry, SendableRecordBatchStream, SessionStateBuilder};
use datafusion::optimizer::Analyzer;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use rolloutdb_sql::{Execute, SavepointAction, Statement};

use super::activity::SessionActivity;
use super::apply::extract::ExtractModelCalls;
use super::apply::fewer_calls::FewerModelCalls;
use super::apply::lateral::ResolveLateral;
use super::checked_integers::CheckedIntegers;
use super::copy_streams::{CopyIn, CopyOut};
use super::correlated::DistinctSubqueryColumns;
use super::cursors::Cursors;
use super::database::Database;
use super::gate::Gate;
use super::interruption::{CurrentStatement, InterruptibleJoins, OverWhenDropped, Wanted};
use super::large_values::{InPieces, LargeValues, without_large_constants};
use super::memory;
use super::named_statements::NamedStatements;
use super::nearest_neighbours::{EffortSetting, LateralNearestRows, NearestNeighbours, SortRuntime};
use super::planning::RolloutQueryPlanner;
use super::prepared::PreparedStatement;
use super::privileges::{Access, Object};
use super::progress::{NoticeSink, Notices};
use super::roles::Role;
use super::savepoints::{SavedState, Savepoints};
use super::session_memory::SessionMemory;
use super::session_user::{RoleId, SessionUser};
use super::setting_definitions::{MAX_CONCURRENT_JOBS, STATEMENT_MEMORY, TRANSACTION_READ_ONLY};
use super::settings::{SessionSettings, Settings};
use super::shown_text::{printed, shown_text};
use super::single_row::SingleRow;
use super::sort_pieces::SortsInPieces;
use super::task_history::{CurrentTask, Task};
use super::temporary::TemporarySchema;
use super::three_valued_in::ThreeValuedIn;
use super::timeouts::Timeouts;
use super::values_of_queries::ValuesOfQueries;
use super::{exists_as_column, function, statement};
use crate::error::{Error, Result};

/// Of the one database, as clients call it.
pub const CATALOG_NAME: &str = "rolloutdb";
pub(super) const DEFAULT_SCHEMA: &str = "public";

/// A session; clones are the same session.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    context: SessionContext,
    memory: Arc<SessionMemory>,
    activity: Arc<SessionActivity>,
    timeouts: Arc<Timeouts>,
    notices: Notices,
    settings: SessionSettings,
    user: SessionUser,
    temporary: TemporarySchema,
    /// Another number after each change of a setting, and for each session: plans that are kept were made for one of them.
    settings_epoch: AtomicU64,
    /// `hnsw.ef_search` and `ivfflat.probes`, which a planner rule reads.
    effort: EffortSetting,
    current: CurrentStatement,
    task: Arc<CurrentTask>,
    transaction: Mutex<TransactionStatus>,
    cursors: Mutex<Cursors>,
    named_statements: Mutex<NamedStatements>,
    savepoints: Mutex<Savepoints>,
    /// How many statements have written since BEGIN.
    write_count: AtomicU64,
    /// Whether a statement since BEGIN has read or written anything.
    has_queried: AtomicBool,
    /// Notices that a session gets once.
    told: Mutex<BTreeSet<String>>,
}

/// A session that is not held by who knows it, such as a function that its own plans call.
#[derive(Clone)]
pub(super) struct WeakSession(Weak<Inner>);

impl WeakSession {
    pub(super) fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(|inner| Session { inner })
    }
}

impl PartialEq for WeakSession {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl fmt::Debug for WeakSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakSession")
    }
}

/// A number that no session has had.
fn next_epoch() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What `BEGIN` and an error inside a transaction block leave behind; every statement commits by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    Idle,
    InTransaction,
    Failed,
}

/// What a statement takes and gives, without running it.
#[derive(Debug, Clone)]
pub struct Description {
    /// Empty for a command without rows.
    pub columns: SchemaRef,
    /// `None`: the type does not follow from the statement; clients may send text.
    pub parameters: Vec<Option<FieldRef>>,
}

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

/// What a statement gave.
pub enum Response {
    /// Rows; `tag` is the first word of the command tag (`SELECT`, `EXPLAIN`, `TRAIN`).
    Rows { stream: SendableRecordBatchStream, tag: String },
    /// A whole command tag: `INSERT 0 3`, `CREATE TABLE`.
    Done { tag: String },
    /// `COPY ... FROM STDIN`: the caller sends bytes, and then the rows are written.
    CopyIn(CopyIn),
    /// `COPY ... TO STDOUT`: bytes for the caller.
    CopyOut(CopyOut),
}

/// `statement_memory`: in bytes.
pub(super) fn default_config(statement_memory: usize) -> SessionConfig {
    let config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG_NAME, DEFAULT_SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false)
        // Then `now()` is an instant, as in PostgreSQL.
        .set_str("datafusion.execution.time_zone", "+00:00")
        // It would take `only_value` below the join of a subquery with the rows that ask for it, and find fault with rows that nobody asks for.
        .set_bool("datafusion.optimizer.enable_leaf_expression_pushdown", false);
    memory::fit(config, statement_memory)
}

impl Session {
    pub(super) fn new(database: Database) -> Self {
        let effort = EffortSetting::default();
        let current = CurrentStatement::default();
        let queries = &database.shared.runtime_env;
        let memory = SessionMemory::new(Arc::clone(&queries.memory_pool), database.shared.memory.statement);
        let (config, runtime_env) = (default_config(memory.bound()), memory.runtime_env(queries));
        let runtime = SortRuntime { config: config.clone(), env: Arc::clone(&runtime_env) };
        let mut analyzer_rules: Vec<Arc<dyn datafusion::optimizer::AnalyzerRule + Send + Sync>> = vec![
            Arc::new(ResolveLateral),
            Arc::new(LateralNearestRows { effort: effort.clone(), runtime }),
            Arc::new(ValuesOfQueries),
            Arc::new(SingleRow),
            Arc::new(ThreeValuedIn),
            Arc::new(DistinctSubqueryColumns),
        ];
        analyzer_rules.extend(Analyzer::new().rules);
        analyzer_rules.push(Arc::new(CheckedIntegers));
        analyzer_rules.push(Arc::new(LargeValues { memory: Arc::clone(&memory) }));
        analyzer_rules.push(Arc::new(ExtractModelCalls));
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime_env)
            .with_default_features()
            .with_analyzer_rules(analyzer_rules)
            .with_optimizer_rules(without_large_constants(exists_as_column::optimizer_rules()))
            .with_optimizer_rule(Arc::new(FewerModelCalls))
            .with_optimizer_rule(Arc::new(NearestNeighbours { effort: effort.clone() }))
            .with_query_planner(Arc::new(RolloutQueryPlanner))
            .with_physical_optimizer_rule(Arc::new(InterruptibleJoins(current.clone())))
            .with_physical_optimizer_rule(Arc::new(SortsInPieces { memory: Arc::clone(&memory), current: current.clone() }))
            .with_physical_optimizer_rule(Arc::new(InPieces(current.clone())))
            .with_type_planner(Arc::new(rolloutdb_udfs::vector::ColumnTypePlanner))
            .build();
        function::register_scalar_functions(&mut state, &database.shared);
        let user = SessionUser::new(database.roles().clone());
        for function in user.functions() {
            state.register_udf(Arc::new(function)).expect("registering a function never fails in a session state");
        }
        let context = SessionContext::new_with_state(state);
        context.register_catalog(CATALOG_NAME, Arc::clone(&database.shared.catalog) as Arc<dyn CatalogProvider>);
        let activity = database.shared.activity.session();
        let settings = SessionSettings::default();
        settings.lock().set_at_startup(MAX_CONCURRENT_JOBS, database.shared.jobs.max_concurrent().to_string());
        settings.lock().set_default(STATEMENT_MEMORY, memory.bound().to_string());
        let temporary = TemporarySchema::new(&database, activity.pid());
        let task = database.shared.task_history.session();
        let inner = Inner {
            database,
            context,
            memory,
            notices: Notices::of_session(&activity),
            activity,
            timeouts: Arc::default(),
            settings,
            user,
            temporary,
            settings_epoch: AtomicU64::new(next_epoch()),
            effort,
            current,
            task,
            transaction: Mutex::new(TransactionStatus::Idle),
            cursors: Mutex::default(),
            named_statements: Mutex::default(),
            savepoints: Mutex::default(),
            write_count: AtomicU64::new(0),
            has_queried: AtomicBool::new(false),
            told: Mutex::default(),
        };
        let session = Self { inner: Arc::new(inner) };
        // Views of the system show what the session's role may see.
        session.context().state_ref().write().config_mut().set_extension(Arc::new(session.downgrade()));
        session.context().state_ref().write().config_mut().set_extension(Arc::clone(&session.inner.task));
        session.context().state_ref().write().config_mut().set_extension(Arc::new(session.inner.current.clone()));
        for function in function::session_state::functions(&session.downgrade()) {
            session.context().register_udf(function);
        }
        session
    }

    /// For those that know the session and must not hold it.
    pub(super) fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.inner))
    }

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
        let description = self.describe(&statement).await?;
        Ok(PreparedStatement::new(statement, description))
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
            match &explained {
                Some(explain) => statement::execute(self, explain, &values).await,
                None => self.run_prepared(&prepared, &values).await,
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
    pub(super) fn task(&self) -> Option<Arc<Task>> {
        self.inner.task.get()
    }

    pub(super) fn current_task(&self) -> &CurrentTask {
        &self.inner.task
    }

    /// What [`Self::execute`] does after other statements.
    pub(super) fn end_copy(&self, is_written: bool) {
        for warning in self.inner.database.take_warnings() {
            self.notices().warning(warning);
        }
        if is_written { self.note_written() } else { self.fail_transaction() }
    }

    pub(super) fn note_written(&self) {
        self.inner.write_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the statement fetches from a cursor whose rows come in binary form unless the client says otherwise.
    pub fn fetches_binary(&self, statement: &Statement) -> bool {
        matches!(statement, Statement::Fetch(fetch) if self.cursors().is_binary(&fetch.cursor))
    }

    /// Where progress and notices go while statements run.
    pub fn set_notice_sink(&self, sink: NoticeSink) {
        self.inner.notices.set_sink(sink);
    }

    pub fn transaction_status(&self) -> TransactionStatus {
        *self.inner.transaction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) {
        self.inner.write_count.store(0, Ordering::Relaxed);
        self.inner.has_queried.store(false, Ordering::Relaxed);
        self.settings().begin();
        self.set_transaction_status(TransactionStatus::InTransaction);
    }

    /// How many statements have written since BEGIN.
    pub(super) fn write_count(&self) -> u64 {
        self.inner.write_count.load(Ordering::Relaxed)
    }

    /// Whether a statement since BEGIN has read or written anything.
    pub(super) fn has_queried(&self) -> bool {
        self.inner.has_queried.load(Ordering::Relaxed)
    }

    /// Whether the transaction may write nothing: the one of the block, or outside of a block that of each statement.
    pub(super) fn is_read_only(&self) -> bool {
        self.settings().get(TRANSACTION_READ_ONLY) == Some("on")
    }

    pub(super) fn savepoints(&self) -> MutexGuard<'_, Savepoints> {
        self.inner.savepoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a savepoint: what ROLLBACK TO brings back.
    pub(super) fn saved_state(&self) -> SavedState {
        SavedState { settings: self.settings().at_savepoint(), cursors: self.cursors().numbers(), write_count: self.write_count() }
    }

    /// Leaves the transaction block, if there is one. The names of the settings that end with it, see [`Settings::end`].
    pub(super) fn end_transaction(&self, is_committed: bool) -> BTreeSet<String> {
        self.set_transaction_status(TransactionStatus::Idle);
        self.savepoints().clear();
        self.cursors().end_transaction(is_committed);
        self.settings().end(is_committed)
    }

    pub(super) fn set_transaction_status(&self, status: TransactionStatus) {
        *self.inner.transaction.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// The DataFusion session behind this one.
    pub fn context(&self) -> &SessionContext {
        &self.inner.context
    }

    /// What its statements may hold in memory.
    pub(super) fn memory(&self) -> &Arc<SessionMemory> {
        &self.inner.memory
    }

    /// The same, for those who hold what these statements gave.
    pub(crate) fn memory_pool(&self) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.inner.memory) as Arc<dyn MemoryPool>
    }

    /// The session as others see it.
    pub fn activity(&self) -> &Arc<SessionActivity> {
        &self.inner.activity
    }

    /// How long statements may take, and the client may wait.
    pub fn timeouts(&self) -> &Arc<Timeouts> {
        &self.inner.timeouts
    }

    /// A setting that the client gives when it connects; RESET goes back to it.
    ///
    /// # Errors
    /// An unknown name (42704), a value that it cannot have (22023), or that would have no effect (0A000).
    pub fn set_at_startup(&self, name: &str, value: &str) -> Result<()> {
        statement::set_at_startup(self, name, value)
    }

    /// What the server knows of the session: `session_authorization`, `is_superuser`.
    pub fn set_fixed(&self, name: &'static str, value: &str) {
        self.settings().set_at_startup(name, value.to_owned());
    }

    pub(super) fn cursors(&self) -> MutexGuard<'_, Cursors> {
        self.inner.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn named_statements(&self) -> MutexGuard<'_, NamedStatements> {
        self.inner.named_statements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn database(&self) -> &Database {
        &self.inner.database
    }

    pub(super) fn notices(&self) -> &Notices {
        &self.inner.notices
    }

    /// A notice about something that lasts, which one client needs to hear once.
    pub(super) fn notice_once(&self, message: &str) {
        if self.inner.told.lock().unwrap_or_else(PoisonError::into_inner).insert(message.to_owned()) {
            self.notices().notice(message);
        }
    }

    /// Who connected; for a session of this process the superuser.
    pub fn user(&self) -> String {
        self.inner.user.user()
    }

    /// Whose rights statements run with: [`Self::user`]'s, or those of the role that SET ROLE named.
    pub fn role(&self) -> String {
        self.inner.user.role()
    }

    /// Makes it the session of a user, with that user's rights.
    pub fn set_user(&self, name: &str) {
        self.set_user_id(RoleId::named(self.database().roles(), name));
    }

    /// As [`Self::set_user`], for servers, once they know who connects: the role that proved who it is, not whoever has its name by now.
    pub fn set_role_of_user(&self, role: &Role) {
        self.set_user_id(RoleId::from(role));
    }

    pub(super) fn set_user_id(&self, user: RoleId) {
        self.inner.user.set_user(user);
        self.settings_changed();
    }

    /// `None`: the user's own rights again.
    pub(super) fn set_role(&self, role: Option<RoleId>) {
        self.inner.user.set_role(role);
        self.settings_changed();
    }

    /// What the session's role may do, as of now.
    pub(super) fn access(&self) -> Access {
        Access::of(&self.inner.database, &self.role())
    }

    /// What was made belongs to the session's role.
    pub(super) fn own(&self, object: Object) -> Result<()> {
        self.inner.database.shared.privileges.own(object, &self.role())
    }

    /// The files that it may reach, as of now.
    pub(super) fn gate(&self) -> Gate {
        Gate::new(Arc::clone(&self.inner.database.shared.places), self.access())
    }

    /// For those that show the names and must not hold the session: its catalogs.
    pub fn session_user(&self) -> SessionUser {
        self.inner.user.clone()
    }

    pub(super) fn temporary(&self) -> &TemporarySchema {
        &self.inner.temporary
    }

    pub(super) fn effort(&self) -> &EffortSetting {
        &self.inner.effort
    }

    /// Another number after each change of a setting.
    pub fn settings_epoch(&self) -> u64 {
        self.inner.settings_epoch.load(Ordering::Acquire)
    }

    /// Called when a setting has changed, or what a table's name stands for in this session.
    pub(super) fn settings_changed(&self) {
        self.inner.settings_epoch.store(next_epoch(), Ordering::Release);
    }

    pub(super) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.inner.settings.lock()
    }

    /// For those that show the settings and must not hold the session: its catalogs.
    pub fn session_settings(&self) -> SessionSettings {
        self.inner.settings.clone()
    }
}
