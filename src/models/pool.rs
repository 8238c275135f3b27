//! Models in memory: each version is loaded once and stays until the room is needed for others, or UNLOAD MODEL lets it go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::OnceCell;

use super::device::Device;
use super::embedder::LoadedEmbedder;
use super::owner::{LoadedPolicy, Owner};
use super::registry::ModelInfo;
use super::reranker::LoadedReranker;
use crate::error::Result;

/// A model in memory.
#[derive(Debug, Clone)]
pub(super) enum Loaded {
    Policy(Arc<LoadedPolicy>),
    Embedder(Arc<LoadedEmbedder>),
    Reranker(Arc<LoadedReranker>),
}

/// What `rollout.loaded_models` shows of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedModel {
    pub info: Arc<ModelInfo>,
    /// Of its weights, as far as the number of parameters tells.
    pub bytes: u64,
    /// How often it was asked for since it was loaded.
    pub uses: u64,
    pub last_use: SystemTime,
}

/// The models of a database that are in memory, the most recently used last.
#[derive(Debug)]
pub(super) struct Pool {
    entries: Mutex<Vec<Entry>>,
    /// Of all weights together; the model that was asked for last stays, however large.
    bytes_max: u64,
}

#[derive(Debug)]
struct Entry {
    model: LoadedModel,
    /// Empty while it is being loaded, and if that failed.
    slot: Slot,
}

type Slot = Arc<OnceCell<Loaded>>;

impl Pool {
    pub fn new(bytes_max: u64) -> Self {
        Self { entries: Mutex::default(), bytes_max }
    }

    /// The model in memory; loaded on the model thread if it is not there, once even if several ask at the same time.
    ///
    /// # Errors
    /// Those of `load`.
    pub async fn get(
        &self,
        info: &Arc<ModelInfo>,
        owner: &Owner,
        load: impl FnOnce(&ModelInfo) -> Result<Loaded> + Send + 'static,
    ) -> Result<Loaded> {
        let (slot, has_dropped) = self.slot(info);
        if has_dropped {
            collect(owner)?;
        }
        let info = Arc::clone(info);
        let load = || owner.run(move || load(&info));
        slot.get_or_try_init(load).await.cloned()
    }

    /// Lets versions of a model go, all of `name` or `name@version` alone; how many there were. What uses one keeps it until it is done.
    ///
    /// # Errors
    /// [`crate::Error::Internal`] if the model thread has ended.
    pub fn unload(&self, reference: &str, owner: &Owner) -> Result<usize> {
        let mut entries = self.lock();
        let before = entries.len();
        entries.retain(|entry| entry.model.info.name != reference && entry.model.info.reference() != reference);
        let unloaded = before - entries.len();
        drop(entries);
        collect(owner)?;
        Ok(unloaded)
    }

    /// What is in memory, the most recently used first.
    pub fn models(&self) -> Vec<LoadedModel> {
        self.lock().iter().rev().filter(|entry| entry.slot.initialized()).map(|entry| entry.model.clone()).collect()
    }

    /// The place of a model, and whether others had to go for it.
    fn slot(&self, info: &Arc<ModelInfo>) -> (Slot, bool) {
        let mut entries = self.lock();
        // A version that was dropped and made anew has the same name, and another time.
        let is_same = |entry: &Entry| {
            let held = &entry.model.info;
            held.name == info.name && held.version == info.version && held.created_at_ms == info.created_at_ms
        };
        let found = entries.iter().position(is_same).map(|index| entries.remove(index));
        let mut entry = found.unwrap_or_else(|| Entry {
            model: LoadedModel { info: Arc::clone(info), bytes: weight_bytes(info), uses: 0, last_use: SystemTime::now() },
            slot: Slot::default(),
        });
        entry.model.uses += 1;
        entry.model.last_use = SystemTime::now();
        let slot = Arc::clone(&entry.slot);
        entries.push(entry);
        let mut bytes: u64 = entries.iter().map(|entry| entry.model.bytes).sum();
        let excess = entries.iter().take(entries.len() - 1).take_while(|entry| {
            let is_excess = bytes > self.bytes_max;
            bytes = bytes.saturating_sub(entry.model.bytes);
            is_excess
        });
        let excess = excess.count();
        entries.drain(..excess);
        (slot, excess > 0)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the model thread, which lets policies go that nobody holds any more.
fn collect(owner: &Owner) -> Result<()> {
    owner.post(|| {})
}

/// Single precision on the CPU, half of it on a GPU; those of a GGUF file as it has them.
fn weight_bytes(info: &ModelInfo) -> u64 {
    if let Some(gguf) = &info.gguf {
        return gguf.weight_bytes;
    }
    info.parameter_count * if matches!(info.device, Device::Cuda(_)) { 2 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Task;

    fn info(name: &str, version: u32) -> Arc<ModelInfo> {
        Arc::new(ModelInfo {
            name: name.to_owned(),
            version,
            task: Task::Generate,
            architecture: String::new(),
            directory: Default::default(),
            source: String::new(),
            parameter_count: 10,
            created_at_ms: 0,
            device: Device::Cpu,
            lineage: serde_json::Value::Null,
            remote: None,
            embedding: None,
            gguf: None,
        })
    }

    fn held(pool: &Pool) -> Vec<String> {
        pool.lock().iter().map(|entry| entry.model.info.reference()).collect()
    }

    #[test]
    fn those_unused_longest_go_when_the_room_is_needed() {
        let pool = Pool::new(100);
        for (name, version) in [("a", 1), ("b", 1), ("a", 1)] {
            assert!(!pool.slot(&info(name, version)).1);
        }
        assert!(pool.slot(&info("c", 1)).1, "three times 40 bytes do not fit");
        assert_eq!(held(&pool), ["a@1", "c@1"]);
        let narrow = Pool::new(1);
        narrow.slot(&info("a", 1));
        assert_eq!(held(&narrow), ["a@1"], "one always fits");
    }

    #[test]
    fn weights_of_a_gguf_file_count_as_they_are_stored() {
        let gguf = Some(crate::models::gguf::GgufInfo { weight_bytes: 11, tensor_types: Vec::new() });
        assert_eq!(weight_bytes(&ModelInfo { gguf, ..(*info("a", 1)).clone() }), 11);
    }

    #[test]
    fn a_version_or_all_of_a_name_can_be_let_go() {
        let (pool, owner) = (Pool::new(u64::MAX), Owner::get().unwrap());
        for version in 1..=3 {
            pool.slot(&info("a", version));
        }
        assert_eq!(pool.unload("a@2", &owner).unwrap(), 1);
        assert_eq!(held(&pool), ["a@1", "a@3"]);
        assert_eq!(pool.unload("a", &owner).unwrap(), 2);
        assert_eq!(pool.unload("a", &owner).unwrap(), 0);
    }

    #[test]
    fn a_version_that_was_made_anew_is_another_one() {
        let pool = Pool::new(u64::MAX);
        let (old, _) = pool.slot(&info("a", 1));
        let (new, _) = pool.slot(&Arc::new(ModelInfo { created_at_ms: 1, ..(*info("a", 1)).clone() }));
        assert!(!Arc::ptr_eq(&old, &new) && Arc::ptr_eq(&old, &pool.slot(&info("a", 1)).0));
    }
}
