//! One open data directory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use rolloutdb_catalogs::Catalog;
use tokio_util::task::TaskTracker;

use super::apply::planner::TableFunction;
use super::session::Session;
use super::{AgentRegistry, function, system};
use crate::error::{Error, Result};
use crate::models::{Registry, Runtime};

/// Queries may hold this share of the machine's memory before they spill to disk or fail with 53200.
const MEMORY_SHARE: f64 = 0.6;

/// A data directory, open in this process alone. Cheap to clone; sessions keep it open.
///
/// Layout: `tables/<schema>/<table>.lance`, `models/<name>/<version>/`, `agents/<name>.json`.
#[derive(Clone)]
pub struct Database {
    pub(super) shared: Arc<Shared>,
}

/// What all sessions of a database share.
pub(super) struct Shared {
    pub catalog: Arc<Catalog>,
    pub registry: Arc<Registry>,
    pub models: Arc<Runtime>,
    pub agents: AgentRegistry,
    pub functions: Arc<HashMap<&'static str, Arc<dyn TableFunction>>>,
    pub runtime_env: Arc<RuntimeEnv>,
    /// Tables that a GENERATE ROLLOUTS writes to now.
    pub rollout_targets: Mutex<HashSet<String>>,
    /// Commits that go on after their statement was cancelled.
    pub tasks: TaskTracker,
}

impl Database {
    /// Opens the data directory, and makes it if it does not exist.
    ///
    /// # Errors
    /// If another process has it open (55006), or a file cannot be read or written (58030).
    pub async fn open(directory: impl AsRef<Path>) -> Result<Self> {
        let directory = directory.as_ref();
        let catalog = Catalog::open(&directory.join("tables")).await?;
        let registry = Arc::new(Registry::open(&directory.join("models"))?);
        let agents = AgentRegistry::open(&directory.join("agents"))?;
        let models = Runtime::new(Arc::clone(&registry));
        let runtime_env =
            RuntimeEnvBuilder::new().with_memory_pool(Arc::new(FairSpillPool::new(memory_budget()))).build_arc().map_err(Error::from)?;
        let functions = Arc::new(function::table_functions(&catalog, &registry, &models, &agents));
        let (rollout_targets, tasks) = (Mutex::default(), TaskTracker::new());
        let shared = Shared { catalog, registry, models, agents, functions, runtime_env, rollout_targets, tasks };
        system::install(&shared).await?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Waits for what cancelled statements still have to commit: to be called before the process ends.
    pub async fn settle(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.tasks.reopen();
    }

    /// The functions that stand in FROM, by name, with the names of their arguments in positional order.
    pub fn table_functions(&self) -> BTreeMap<&'static str, Vec<&'static str>> {
        let names = |function: &Arc<dyn TableFunction>| function.parameters().iter().map(|parameter| parameter.name).collect();
        self.shared.functions.iter().map(|(name, function)| (*name, names(function))).collect()
    }

    /// A session with its own settings; sessions of one database see the same tables, models and agents.
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }
}

/// In bytes. Reads Linux's own account of the machine's memory; elsewhere 4 GiB.
fn memory_budget() -> usize {
    let total_kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    });
    total_kib.map_or(4 << 30, |kib| (kib * 1024.0 * MEMORY_SHARE) as usize)
}
