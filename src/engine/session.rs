//! One client's session: its settings, its notices, and statements from text to rows.

mod run;
mod transaction;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::catalog::CatalogProvider;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::{FunctionRegistry, SendableRecordBatchStream, SessionStateBuilder};
use datafusion::optimizer::Analyzer;
use datafusion::prelude::{SessionConfig, SessionContext};
use rolloutdb_sql::Statement;

use super::activity::SessionActivity;
use super::advisory_locks::{LockHandle, SessionLocks};
use super::apply::extract::ExtractModelCalls;
use super::apply::fewer_calls::FewerModelCalls;
use super::apply::lateral::ResolveLateral;
use super::checked_integers::CheckedIntegers;
use super::copy_streams::{CopyIn, CopyOut};
use super::correlated::DistinctSubqueryColumns;
use super::cursors::Cursors;
use super::database::Database;
use super::equal_floats::EqualFloats;
use super::gate::Gate;
use super::interruption::{CurrentStatement, InterruptibleJoins};
use super::large_values::{InPieces, LargeValues, without_large_constants};
use super::memory;
use super::named_statements::NamedStatements;
use super::nearest_neighbours::{EffortSetting, LateralNearestRows, NearestNeighbours, SortRuntime};
use super::planning::RolloutQueryPlanner;
use super::privileges::{Access, Object};
use super::progress::{NoticeSink, Notices};
use super::roles::Role;
use super::savepoints::Savepoints;
use super::session_memory::SessionMemory;
use super::session_user::{RoleAt, RoleId, SessionUser};
use super::setting_definitions::{MAX_CONCURRENT_JOBS, STATEMENT_MEMORY};
use super::settings::{SessionSettings, Settings};
use super::single_row::SingleRow;
use super::sort_pieces::SortsInPieces;
use super::subquery_order::NeedlessSorts;
use super::task_history::CurrentTask;
use super::temporary::TemporarySchema;
use super::three_valued_in::ThreeValuedIn;
use super::timeouts::Timeouts;
use super::unnesting::Unnesting;
use super::values_of_queries::ValuesOfQueries;
use super::view_names::WithoutViewNames;
use super::with_queries::OfWith;
use super::{exists_as_column, function, statement, subquery_order};
use crate::error::Result;

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
    advisory_locks: SessionLocks,
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
        // The order of a subquery is kept, see [`super::subquery_order`].
        .set_bool("datafusion.sql_parser.enable_subquery_sort_elimination", false)
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
            Arc::new(WithoutViewNames),
            Arc::new(NeedlessSorts),
            Arc::new(ResolveLateral),
            Arc::new(LateralNearestRows { effort: effort.clone(), runtime }),
            Arc::new(ValuesOfQueries),
            Arc::new(SingleRow),
            Arc::new(ThreeValuedIn),
            Arc::new(Unnesting),
            Arc::new(DistinctSubqueryColumns),
        ];
        analyzer_rules.extend(Analyzer::new().rules);
        analyzer_rules.push(Arc::new(EqualFloats));
        analyzer_rules.push(Arc::new(CheckedIntegers));
        analyzer_rules.push(Arc::new(LargeValues { memory: Arc::clone(&memory) }));
        analyzer_rules.push(Arc::new(ExtractModelCalls));
        analyzer_rules.push(Arc::new(OfWith));
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime_env)
            // Before those of the defaults, which take every list for an array, and find no array for a constant in quotes beside a day.
            .with_expr_planners(vec![
                Arc::new(rolloutdb_udfs::QuotedOperandPlanner),
                Arc::new(rolloutdb_udfs::vector::VectorOperatorPlanner),
            ])
            .with_default_features()
            .with_analyzer_rules(analyzer_rules)
            .with_optimizer_rules(without_large_constants(exists_as_column::optimizer_rules()))
            .with_optimizer_rule(Arc::new(FewerModelCalls))
            .with_optimizer_rule(Arc::new(NearestNeighbours { effort: effort.clone() }))
            .with_query_planner(Arc::new(RolloutQueryPlanner))
            .with_physical_optimizer_rules(subquery_order::physical_rules())
            .with_physical_optimizer_rule(Arc::new(InterruptibleJoins(current.clone())))
            .with_physical_optimizer_rule(Arc::new(SortsInPieces { memory: Arc::clone(&memory), current: current.clone() }))
            .with_physical_optimizer_rule(Arc::new(InPieces))
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
        let advisory_locks = database.shared.advisory_locks.session();
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
            advisory_locks,
            write_count: AtomicU64::new(0),
            has_queried: AtomicBool::new(false),
            told: Mutex::default(),
        };
        let session = Self { inner: Arc::new(inner) };
        // Views of the system show what the session's role may see.
        session.context().state_ref().write().config_mut().set_extension(Arc::new(session.downgrade()));
        session.context().state_ref().write().config_mut().set_extension(Arc::clone(&session.inner.task));
        session.context().state_ref().write().config_mut().set_extension(Arc::new(session.inner.current.clone()));
        let functions = function::session_state::functions(&session.downgrade());
        for function in functions.into_iter().chain(function::advisory_functions(&session.downgrade())) {
            session.context().register_udf(function);
        }
        session
    }

    /// For those that know the session and must not hold it.
    pub(super) fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.inner))
    }

    /// Whether the statement fetches from a cursor whose rows come in binary form unless the client says otherwise.
    pub fn fetches_binary(&self, statement: &Statement) -> bool {
        matches!(statement, Statement::Fetch(fetch) if self.cursors().is_binary(&fetch.cursor))
    }

    /// Where progress and notices go while statements run.
    pub fn set_notice_sink(&self, sink: NoticeSink) {
        self.inner.notices.set_sink(sink);
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

    /// The same until the end of the transaction block; false when there is none.
    pub(super) fn set_local_role(&self, role: Option<RoleId>) -> bool {
        let is_set = self.inner.user.set_local_role(role);
        self.settings_changed();
        is_set
    }

    /// The role as it was at a savepoint.
    pub(super) fn go_back_to_role(&self, role: RoleAt) {
        self.inner.user.go_back_to(role);
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

    /// Takes and gives back its advisory locks.
    pub(super) fn advisory_locks(&self) -> LockHandle {
        self.inner.advisory_locks.handle()
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
