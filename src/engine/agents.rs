//! Agents by name: one JSON file each, written whole and renamed into place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::agent::AgentOptions;
use crate::error::{Error, Result};

/// What `CREATE AGENT` stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentDefinition {
    pub name: String,
    pub options: AgentOptions,
    /// What its corpus goes by over new names, where it names one version of that by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corpus_id: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: i64,
}

/// The agents of a data directory. Cheap to clone; clones are the same registry.
#[derive(Debug, Clone)]
pub struct AgentRegistry {
    directory: PathBuf,
    agents: Arc<RwLock<BTreeMap<String, AgentDefinition>>>,
}

impl AgentRegistry {
    /// # Errors
    /// [`Error::Io`], and [`Error::Damaged`] for a file that is not an agent.
    pub fn open(directory: &Path) -> Result<Self> {
        let io_error = |source| Error::Io { path: directory.to_owned(), source };
        std::fs::create_dir_all(directory).map_err(io_error)?;
        if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::File::open(parent).and_then(|folder| folder.sync_all()).map_err(io_error)?;
        }
        let mut agents = BTreeMap::new();
        for entry in std::fs::read_dir(directory).map_err(io_error)? {
            let path = entry.map_err(io_error)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let agent = read(&path)?;
                agents.insert(agent.name.clone(), agent);
            }
        }
        Ok(Self { directory: directory.to_owned(), agents: Arc::new(RwLock::new(agents)) })
    }

    /// # Errors
    /// [`Error::DuplicateObject`] if the name is taken.
    pub fn create(&self, name: &str, options: AgentOptions, corpus_id: Option<String>) -> Result<()> {
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        if agents.contains_key(name) {
            return Err(Error::DuplicateObject { kind: "agent", name: name.to_owned() });
        }
        let created_at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let agent = AgentDefinition { name: name.to_owned(), options, corpus_id, created_at_ms };
        self.write(&agent)?;
        agents.insert(name.to_owned(), agent);
        Ok(())
    }

    /// Agents that search a table follow it to its new name; their names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn corpus_renamed(&self, is_meant: impl Fn(&str) -> bool, new_name: &str) -> Result<Vec<String>> {
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        let mut followed = Vec::new();
        for agent in agents.values_mut().filter(|agent| is_meant(&agent.options.corpus)) {
            let mut renamed = agent.clone();
            new_name.clone_into(&mut renamed.options.corpus);
            self.write(&renamed)?;
            *agent = renamed;
            followed.push(agent.name.clone());
        }
        Ok(followed)
    }

    /// Whether the agent was there.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        if !agents.contains_key(name) {
            return Ok(false);
        }
        let path = self.path(name);
        std::fs::remove_file(&path).and_then(|()| self.sync()).map_err(|source| Error::Io { path, source })?;
        agents.remove(name);
        Ok(true)
    }

    /// # Errors
    /// [`Error::UnknownObject`] naming the agents there are.
    pub fn get(&self, name: &str) -> Result<AgentDefinition> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.get(name).cloned().ok_or_else(|| Error::UnknownObject {
            kind: "agent",
            name: name.to_owned(),
            known: agents.keys().cloned().collect(),
        })
    }

    /// By name.
    pub fn list(&self) -> Vec<AgentDefinition> {
        self.agents.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn write(&self, agent: &AgentDefinition) -> Result<()> {
        let path = self.path(&agent.name);
        let io_error = |source| Error::Io { path: path.clone(), source };
        let mut file = tempfile::NamedTempFile::new_in(&self.directory).map_err(io_error)?;
        serde_json::to_writer_pretty(&mut file, agent).map_err(|error| io_error(error.into()))?;
        file.as_file().sync_all().map_err(io_error)?;
        file.persist(&path).map_err(|error| io_error(error.error))?;
        self.sync().map_err(io_error)
    }

    fn sync(&self) -> std::io::Result<()> {
        std::fs::File::open(&self.directory)?.sync_all()
    }

    /// The name, with every byte outside `a-z 0-9 _ -` as `%xx`: any quoted name gives a file of its own inside the directory.
    fn path(&self, name: &str) -> PathBuf {
        let mut file = String::with_capacity(name.len() + 5);
        for byte in name.bytes() {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => file.push(byte as char),
                other => file += &format!("%{other:02x}"),
            }
        }
        self.directory.join(file + ".json")
    }
}

fn read(path: &Path) -> Result<AgentDefinition> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|error| Error::Damaged { path: path.to_owned(), reason: error.to_string() })
}
