//! One open data directory.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use datafusion::execution::runtime_env::RuntimeEnv;
use futures::FutureExt;
use futures::future::BoxFuture;
use rolloutdb_catalogs::{Catalog, MemoryLimits, Table};
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::advisory_locks::AdvisoryLocks;
use super::apply::planner::{TableFunction, split_table_name};
use super::gate::Places;
use super::index_builds::IndexBuilds;
use super::jobs::{Jobs, MAX_CONCURRENT};
use super::memory::{MemoryBudget, default_model_memory};
use super::model_jobs::{JOBS_MAX, ModelJobs};
use super::name_locks::NameLocks;
use super::outbound::Outbound;
use super::privileges::{Object, Privileges};
use super::remote_models::Outside;
use super::retention::VERSION_RETENTION;
use super::retrieval_cache::RetrievalCache;
use super::roles::Roles;
use super::secrets::Secrets;
use super::session::Session;
use super::statement::{RolloutTargets, Trainings, check_room};
use super::task_history::TaskHistory;
use super::{AgentRegistry, function, system};
use crate::error::{Error, Result};
use crate::models::hub::Hub;
use crate::models::remote::{Connections, Remotes};
use crate::models::{ModelLimits, Registry, Runtime};

/// How long a data directory is waited for that this process itself has open.
const OWN_LOCK_WAIT: Duration = Duration::from_secs(2);

/// How a database uses the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// In bytes, at least 64 MiB: for queries (65 %), tables held in memory for search (25 %) and caches. `None`: 70 % of the machine's memory, or of
    /// what the process's control group may have. Models come on top.
    pub memory_limit: Option<u64>,
    /// Of this, in bytes, at least 1 MiB: for what a statement and the open cursors of its session hold together; more is refused (53200), or goes to the
    /// disk where it can. `None`: half of the limit.
    pub statement_memory: Option<u64>,
    /// In bytes, for models in the machine's memory: a quarter for the keys and values of sequences in flight, `prefix_cache`, and the rest for weights,
    /// beyond which the models unused longest are let go. `None`: 30 % of the machine's memory.
    pub model_memory: Option<u64>,
    /// In bytes, at most half of `model_memory`, for the keys and values that policies keep of finished sequences, which others that begin like them take
    /// over; 0 shares nothing. `None`: an eighth of it.
    pub prefix_cache: Option<u64>,
    /// In bytes, for weights on each GPU. `None`: 80 % of its memory.
    pub gpu_memory: Option<u64>,
    /// How long a version of a table can be read after the next one was written, for VACUUM and for writes, which remove older versions now and then.
    /// Versions with a tag, those that agents search and those that statements read stay. `None`: 7 days; [`Duration::MAX`]: for ever.
    pub version_retention: Option<Duration>,
    /// Jobs (statements with ASYNC) that run at once; others are queued. `None`: 1.
    pub max_concurrent_jobs: Option<usize>,
    /// The name of the superuser that a new data directory has. `None`: the operating system's user. In one that knows roles already it must be the
    /// name of its superuser.
    pub superuser: Option<String>,
    /// Folders that hold every file that statements may name. `None`: superusers may name any file that this process may read or write, other roles those
    /// below its working directory.
    pub file_roots: Option<Vec<PathBuf>>,
    /// Hosts that statements may make this process ask: `example.org`, `*.example.org`, `http://10.0.0.7:8000`. Empty: none.
    pub allowed_hosts: Vec<String>,
    /// Trainings and generations of rollouts at once; more are refused (53400). `None`: 4.
    pub model_jobs: Option<usize>,
}

/// A data directory, open in this process alone. Cheap to clone; sessions keep it open.
///
/// Layout: `tables/<schema>/<table>.lance`, `models/<name>/<version>/`, `agents/<name>.json`, `jobs/<number>.json`, `task_history.jsonl`, `roles.json`,
/// `privileges.json`, `secrets.json`, `remote/` (answers of servers), `hub/` (files of hubs), `training/` (checkpoints), `spill/` (of running queries)
/// and `tables/.temporary/` (tables of sessions), both of which are emptied when opened.
#[derive(Clone)]
pub struct Database {
    pub(super) shared: Arc<Shared>,
}

/// What all sessions of a database share.
pub(super) struct Shared {
    pub opened: SystemTime,
    pub catalog: Arc<Catalog>,
    pub registry: Arc<Registry>,
    pub models: Arc<Runtime>,
    pub remotes: Arc<Remotes>,
    pub hub: Arc<Hub>,
    pub agents: AgentRegistry,
    pub retrievals: Arc<RetrievalCache>,
    pub roles: Roles,
    pub privileges: Privileges,
    /// Of whom it is to make, rename and drop what.
    pub names: NameLocks,
    pub advisory_locks: Arc<AdvisoryLocks>,
    pub secrets: Secrets,
    pub places: Arc<Places>,
    pub model_jobs: ModelJobs,
    pub functions: Arc<HashMap<&'static str, Arc<dyn TableFunction>>>,
    pub runtime_env: Arc<RuntimeEnv>,
    pub memory: MemoryBudget,
    pub version_retention: Duration,
    /// Tables that a GENERATE ROLLOUTS writes to now.
    pub rollout_targets: RolloutTargets,
    /// Where the checkpoints of trainings are.
    pub trainings: Arc<Trainings>,
    pub index_builds: Arc<IndexBuilds>,
    pub activity: Arc<Activity>,
    pub jobs: Arc<Jobs>,
    pub task_history: Arc<TaskHistory>,
    /// Commits that go on after their statement was cancelled.
    pub tasks: TaskTracker,
}

impl Shared {
    /// Whether there is such an object.
    pub fn knows(&self, object: &Object) -> bool {
        match object {
            Object::Table { schema, name } => self.catalog.tables(schema).is_ok_and(|tables| tables.contains(name)),
            Object::Schema { name } => self.catalog.rollout_schema(name).is_ok(),
            // One that is damaged is there.
            Object::Model { name } => !matches!(self.registry.get(name), Err(Error::UnknownObject { .. })),
            Object::Agent { name } => self.agents.get(name).is_ok(),
            Object::Database => true,
        }
    }
}

fn model_limits(options: &DatabaseOptions) -> ModelLimits {
    ModelLimits {
        memory: options.model_memory.unwrap_or_else(default_model_memory),
        prefixes: options.prefix_cache,
        gpu_memory: options.gpu_memory,
    }
}

impl Database {
    /// Opens the data directory, and makes it if it does not exist. One that this process has open itself is waited for, two seconds at most.
    ///
    /// # Errors
    /// If another process has it open (55006), or a file cannot be read or written (58030).
    pub async fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(directory, DatabaseOptions::default()).await
    }

    /// As [`Self::open`], with options.
    ///
    /// # Errors
    /// As [`Self::open`]; an option out of its range (22023).
    pub async fn open_with(directory: impl AsRef<Path>, options: DatabaseOptions) -> Result<Self> {
        Self::open_at(directory.as_ref(), options).await
    }

    // Boxed, and in this crate alone: the crates of those who open a database would lay out all that it is made of.
    #[inline(never)]
    fn open_at(directory: &Path, options: DatabaseOptions) -> BoxFuture<'_, Result<Self>> {
        Self::opened(directory, options).boxed()
    }

    async fn opened(directory: &Path, options: DatabaseOptions) -> Result<Self> {
        let memory = MemoryBudget::new(options.memory_limit, options.statement_memory)?;
        let catalog = open_catalog(directory, memory.catalog).await?;
        // The catalog holds the lock: nobody else spills here.
        let runtime_env = memory.runtime_env(&directory.join("spill"))?;
        let registry = Arc::new(Registry::open(&directory.join("models"))?);
        let agents = AgentRegistry::open(&directory.join("agents"))?;
        let roles = Roles::open(directory, options.superuser.as_deref())?;
        let (privileges, secrets) = (Privileges::open(directory, &roles)?, Secrets::open(directory)?);
        let outbound = Outbound::new(&options.allowed_hosts)?;
        let outside: Arc<dyn Connections> = Arc::new(Outside { outbound: outbound.clone(), secrets: secrets.clone() });
        let remotes = Arc::new(Remotes::new(&directory.join("remote"), Arc::clone(&outside)));
        let hub = Arc::new(Hub::new(&directory.join("hub"), outside, check_room));
        let places = Arc::new(Places::new(directory, options.file_roots.as_deref(), outbound)?);
        let model_jobs = ModelJobs::new(options.model_jobs.unwrap_or(JOBS_MAX));
        let models = Runtime::with_remotes(Arc::clone(&registry), Some(Arc::clone(&remotes)), model_limits(&options));
        let retrievals = RetrievalCache::new(memory.retrievals);
        let functions = Arc::new(function::table_functions(&catalog, &registry, &models, &agents, &retrievals));
        let (rollout_targets, tasks) = (RolloutTargets::default(), TaskTracker::new());
        let (index_builds, activity) = (Arc::default(), Arc::default());
        let jobs = Jobs::open(&directory.join("jobs"), options.max_concurrent_jobs.unwrap_or(MAX_CONCURRENT), roles.clone())?;
        let task_history = Arc::new(TaskHistory::open(&directory.join("task_history.jsonl"), roles.clone())?);
        let version_retention = options.version_retention.unwrap_or(VERSION_RETENTION);
        let shared = Shared {
            opened: SystemTime::now(),
            catalog,
            registry,
            models,
            remotes,
            hub,
            agents,
            retrievals,
            roles,
            privileges,
            names: NameLocks::default(),
            advisory_locks: Arc::default(),
            secrets,
            places,
            model_jobs,
            functions,
            runtime_env,
            memory,
            version_retention,
            rollout_targets,
            trainings: Arc::new(Trainings::new(&directory.join("training"))),
            index_builds,
            activity,
            jobs: Arc::new(jobs),
            task_history,
            tasks,
        };
        system::install(&shared).await?;
        shared.privileges.keep_only(|object| shared.knows(object))?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A table as it is now, by `name` or `schema.name`, for searches without SQL ([`Table::vector_search_with`], [`Table::text_search`]). What is
    /// written later is in the table that the next call gives.
    ///
    /// # Errors
    /// If there is no such table (42P01).
    pub async fn table(&self, name: &str) -> Result<Arc<Table>> {
        let (schema, table) = split_table_name(name);
        Ok(self.shared.catalog.table(&schema, &table).await?)
    }

    /// Stops the jobs that run, which read `interrupted` then, and waits for what cancelled statements still have to commit: to be called before the
    /// process ends.
    pub async fn settle(&self) {
        self.announce_end();
        self.shared.jobs.interrupt().await;
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.tasks.reopen();
        let history = Arc::clone(&self.shared.task_history);
        // A panic in it would be of no interest to a process that ends.
        let _ = tokio::task::spawn_blocking(move || history.flush()).await;
    }

    /// The process is about to end: statements that are stopped from now on read `interrupted` in `rollout.task_history`.
    pub fn announce_end(&self) {
        self.shared.task_history.announce_end();
    }

    /// For programs that make connections of their own: what CREATE SECRET has named.
    pub fn secrets(&self) -> &Secrets {
        &self.shared.secrets
    }

    /// Who may connect, and what each may do by itself.
    pub fn roles(&self) -> &Roles {
        &self.shared.roles
    }

    /// The functions that stand in FROM, by name, with the names of their arguments in positional order.
    pub fn table_functions(&self) -> BTreeMap<&'static str, Vec<&'static str>> {
        let names = |function: &Arc<dyn TableFunction>| function.parameters().iter().map(|parameter| parameter.name).collect();
        self.shared.functions.iter().map(|(name, function)| (*name, names(function))).collect()
    }

    /// What was found damaged, and what was done about it, since the last call. A session tells what its statements met by itself.
    pub fn take_warnings(&self) -> Vec<String> {
        self.shared.catalog.take_warnings()
    }

    /// A session with its own settings; sessions of one database see the same tables, models and agents.
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }
}

/// A [`Database`] that this process has just let go of may hold the lock a moment longer: parts of statements that were
/// stopped end on other threads. So the lock of this process is waited for.
async fn open_catalog(directory: &Path, memory: MemoryLimits) -> Result<Arc<Catalog>> {
    let (tables, until) = (directory.join("tables"), Instant::now() + OWN_LOCK_WAIT);
    loop {
        match Catalog::open_with(&tables, memory).await {
            Err(rolloutdb_catalogs::Error::Locked { process: Some(process), .. })
                if process == std::process::id() && Instant::now() < until =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return opened.map_err(|error| locked(error, directory)),
        }
    }
}

/// The lock is on a folder of the data directory; it is the latter that the user knows.
fn locked(error: rolloutdb_catalogs::Error, data: &Path) -> Error {
    match error {
        rolloutdb_catalogs::Error::Locked { process, .. } => {
            rolloutdb_catalogs::Error::Locked { directory: data.to_owned(), process }.into()
        }
        other => other.into(),
    }
}
