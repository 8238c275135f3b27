//! Models in memory: each version is loaded once and stays until the room is needed for others, or UNLOAD MODEL lets it go.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::OnceCell;

use super::config::{DecoderConfig, EncoderConfig};
use super::device::Place;
use super::embedder::LoadedEmbedder;
use super::encoder::Encoder;
use super::limits::ModelLimits;
use super::owner::{LoadedPolicy, Owner};
use super::policy_decoder::PolicyDecoder;
use super::registry::{ModelInfo, Task};
use super::reranker::LoadedReranker;
use super::scorer::LoadedScorer;
use super::weights;
use crate::error::Result;

/// A model in memory.
#[derive(Debug, Clone)]
pub(super) enum Loaded {
    Policy(Arc<LoadedPolicy>),
    Embedder(Arc<LoadedEmbedder>),
    Reranker(Arc<LoadedReranker>),
    Scorer(Arc<LoadedScorer>),
}

/// What `rollout.loaded_models` shows of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedModel {
    pub info: Arc<ModelInfo>,
    pub place: Place,
    /// Of its weights, as far as the number of parameters tells.
    pub bytes: u64,
    /// Of the keys and values that a policy keeps of finished sequences.
    pub kept_bytes: u64,
    /// Sequences of a policy that gave their memory to others before they were done.
    pub preemptions: u64,
    /// How often it was asked for since it was loaded.
    pub uses: u64,
    pub last_use: SystemTime,
}

/// The models of a database that are in memory, the most recently used last.
#[derive(Debug)]
pub(super) struct Pool {
    entries: Mutex<Vec<Entry>>,
    /// Of all weights in the machine's memory together; the model that was asked for last stays, however large.
    bytes_max: u64,
    /// Of those on one GPU; None: a share of what it has, and of a GPU that cannot be asked `bytes_max`.
    gpu_bytes_max: Option<u64>,
}

#[derive(Debug)]
struct Entry {
    model: LoadedModel,
    /// Empty while it is being loaded, and if that failed.
    slot: Slot,
}

type Slot = Arc<OnceCell<Loaded>>;

impl Pool {
    pub fn new(bytes_max: u64, gpu_bytes_max: Option<u64>) -> Self {
        Self { entries: Mutex::default(), bytes_max, gpu_bytes_max }
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
        let (place, bytes) = match self.known_place(info) {
            Some(known) => known,
            None => {
                let info = Arc::clone(info);
                let place_and_bytes = move || {
                    let place = place_of(&info);
                    Ok((place, weight_bytes(&info, place)))
                };
                owner.run(place_and_bytes).await?
            }
        };
        let (slot, has_dropped) = self.slot(info, place, bytes);
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
        self.lock().iter().rev().filter_map(Entry::shown).collect()
    }

    /// Where a model is that was asked for before, and the bytes of its weights.
    fn known_place(&self, info: &ModelInfo) -> Option<(Place, u64)> {
        self.lock().iter().find(|entry| entry.is_of(info)).map(|entry| (entry.model.place, entry.model.bytes))
    }

    /// The slot of a model, and whether others had to go for it.
    fn slot(&self, info: &Arc<ModelInfo>, place: Place, bytes: u64) -> (Slot, bool) {
        let mut entries = self.lock();
        let found = entries.iter().position(|entry| entry.is_of(info)).map(|index| entries.remove(index));
        let mut entry = found.unwrap_or_else(|| Entry::new(info, place, bytes));
        entry.model.uses += 1;
        entry.model.last_use = SystemTime::now();
        let slot = Arc::clone(&entry.slot);
        let (bytes_max, before) = (self.bytes_max(place), entries.len());
        let mut bytes: u64 = entries.iter().chain([&entry]).filter(|entry| entry.model.place == place).map(|entry| entry.model.bytes).sum();
        entries.retain(|entry| {
            let goes = entry.model.place == place && bytes > bytes_max;
            bytes = bytes.saturating_sub(if goes { entry.model.bytes } else { 0 });
            !goes
        });
        let has_dropped = entries.len() < before;
        entries.push(entry);
        (slot, has_dropped)
    }

    fn bytes_max(&self, place: Place) -> u64 {
        let of_gpu = || place.gpu_memory().map_or(self.bytes_max, |bytes| ModelLimits::gpu_weights(None, bytes));
        match place {
            Place::Cpu => self.bytes_max,
            Place::Gpu(_) => self.gpu_bytes_max.unwrap_or_else(of_gpu),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(info: &Arc<ModelInfo>, place: Place, bytes: u64) -> Self {
        let model =
            LoadedModel { info: Arc::clone(info), place, bytes, kept_bytes: 0, preemptions: 0, uses: 0, last_use: SystemTime::now() };
        Self { model, slot: Slot::default() }
    }

    /// A version that was dropped and made anew has the same name, and another time.
    fn is_of(&self, info: &ModelInfo) -> bool {
        let held = &self.model.info;
        held.name == info.name && held.version == info.version && held.created_at_ms == info.created_at_ms
    }

    /// None while it is being loaded.
    fn shown(&self) -> Option<LoadedModel> {
        let (kept_bytes, preemptions) = match self.slot.get()? {
            Loaded::Policy(policy) => {
                let counters = &policy.kv_counters;
                (counters.kept_bytes.load(Ordering::Relaxed) as u64, counters.preemptions.load(Ordering::Relaxed) as u64)
            }
            Loaded::Embedder(_) | Loaded::Reranker(_) | Loaded::Scorer(_) => (0, 0),
        };
        Some(LoadedModel { kept_bytes, preemptions, ..self.model.clone() })
    }
}

/// Where a model computes.
fn place_of(info: &ModelInfo) -> Place {
    match info.task {
        Task::Generate => PolicyDecoder::place(info),
        // A decoder with a score computes on the CPU. Files that cannot be read are the matter of who loads them.
        Task::Embed | Task::Rerank => {
            EncoderConfig::load(&info.directory).map_or(Place::Cpu, |config| Encoder::place(&config, info.device))
        }
    }
}

/// Wakes the model thread, which lets policies go that nobody holds any more.
fn collect(owner: &Owner) -> Result<()> {
    owner.post(|| {})
}

/// Single precision on the CPU, where a policy keeps matrices of bf16 as they are; half of it on a GPU, where a policy has its output head in single precision
/// beside that; those of a GGUF file as it has them.
fn weight_bytes(info: &ModelInfo, place: Place) -> u64 {
    if let Some(gguf) = &info.gguf {
        return gguf.weight_bytes;
    }
    match (place, info.task) {
        (Place::Cpu, Task::Generate) => {
            // Files that cannot be read are the matter of who loads them.
            let num_halves = weights::num_halves(&info.directory).unwrap_or(0).min(info.parameter_count);
            4 * info.parameter_count - 2 * num_halves
        }
        (Place::Cpu, Task::Embed | Task::Rerank) => 4 * info.parameter_count,
        (Place::Gpu(_), Task::Generate) => 2 * (info.parameter_count + head_parameters(info)),
        (Place::Gpu(_), Task::Embed | Task::Rerank) => 2 * info.parameter_count,
    }
}

/// Of a policy's output head; 0 if its files cannot be read, which is the matter of who loads them.
fn head_parameters(info: &ModelInfo) -> u64 {
    DecoderConfig::load(&info.directory).map_or(0, |config| (config.vocab_size * config.hidden_size) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Device;

    fn slot(pool: &Pool, info: &Arc<ModelInfo>, place: Place) -> (Slot, bool) {
        pool.slot(info, place, weight_bytes(info, place))
    }

    fn info(name: &str, version: u32) -> Arc<ModelInfo> {
        Arc::new(ModelInfo {
            name: name.to_owned(),
            version,
            task: Task::Generate,
            architecture: String::new(),
            directory: Default::default(),
            source: String::new(),
            digest: None,
            parameter_count: 10,
            created_at_ms: 0,
            device: Device::Cpu,
            lineage: serde_json::Value::Null,
            remote: None,
            embedding: None,
            chat_template_kwargs: None,
            gguf: None,
        })
    }

    fn held(pool: &Pool) -> Vec<String> {
        pool.lock().iter().map(|entry| entry.model.info.reference()).collect()
    }

    #[test]
    fn those_unused_longest_go_when_the_room_is_needed() {
        let pool = Pool::new(100, None);
        for (name, version) in [("a", 1), ("b", 1), ("a", 1)] {
            assert!(!slot(&pool, &info(name, version), Place::Cpu).1);
        }
        assert!(slot(&pool, &info("c", 1), Place::Cpu).1, "three times 40 bytes do not fit");
        assert_eq!(held(&pool), ["a@1", "c@1"]);
        let narrow = Pool::new(1, None);
        slot(&narrow, &info("a", 1), Place::Cpu);
        assert_eq!(held(&narrow), ["a@1"], "one always fits");
    }

    /// In half precision on a GPU: ten parameters are 20 bytes there.
    #[test]
    fn each_memory_has_a_sum_of_its_own() {
        let pool = Pool::new(50, Some(50));
        for (name, place) in [("a", Place::Gpu(0)), ("b", Place::Cpu), ("c", Place::Gpu(0)), ("d", Place::Gpu(1))] {
            assert!(!slot(&pool, &info(name, 1), place).1, "{name}");
        }
        assert!(slot(&pool, &info("e", 1), Place::Gpu(0)).1, "three times 20 bytes do not fit");
        assert_eq!(held(&pool), ["b@1", "c@1", "d@1", "e@1"]);
        assert!(slot(&pool, &info("f", 1), Place::Cpu).1, "two times 40 bytes do not fit");
        assert_eq!(held(&pool), ["c@1", "d@1", "e@1", "f@1"]);
        assert_eq!((pool.known_place(&info("d", 1)), pool.known_place(&info("b", 1))), (Some((Place::Gpu(1), 20)), None));
    }

    #[test]
    fn the_head_of_a_policy_on_a_gpu_has_single_precision() {
        let directory = crate::fixtures::fixture("models/qwen2_tied");
        let config = DecoderConfig::load(&directory).unwrap();
        let info = ModelInfo { directory, parameter_count: 1000, ..(*info("a", 1)).clone() };
        let head = (config.vocab_size * config.hidden_size) as u64;
        assert_eq!([Place::Cpu, Place::Gpu(0)].map(|place| weight_bytes(&info, place)), [4000, 2000 + 2 * head]);
        assert_eq!(weight_bytes(&ModelInfo { task: Task::Embed, ..info }, Place::Gpu(0)), 2000);
    }

    #[test]
    fn matrices_of_bf16_count_as_a_policy_keeps_them() {
        let directory = tempfile::tempdir().unwrap();
        let zeros = |shape: &[usize], dtype| candle_core::Tensor::zeros(shape, dtype, &candle_core::Device::Cpu).unwrap();
        let tensors = [
            ("matrix", zeros(&[3, 5], candle_core::DType::BF16)),
            ("norm", zeros(&[5], candle_core::DType::BF16)),
            ("other", zeros(&[2, 5], candle_core::DType::F32)),
        ];
        candle_core::safetensors::save(&std::collections::HashMap::from(tensors), directory.path().join(weights::WEIGHTS_FILE)).unwrap();
        let info = ModelInfo { directory: directory.path().to_owned(), parameter_count: 30, ..(*info("a", 1)).clone() };
        assert_eq!(weight_bytes(&info, Place::Cpu), 2 * 15 + 4 * 15);
        assert_eq!(weight_bytes(&ModelInfo { task: Task::Embed, ..info }, Place::Cpu), 4 * 30);
    }

    #[test]
    fn a_gpu_that_cannot_be_asked_has_as_much_as_the_machine() {
        // There is no such GPU.
        assert_eq!([None, Some(7)].map(|gpu| Pool::new(50, gpu).bytes_max(Place::Gpu(99))), [50, 7]);
    }

    #[test]
    fn weights_of_a_gguf_file_count_as_they_are_stored() {
        let gguf = Some(crate::models::gguf::GgufInfo { weight_bytes: 11, tensor_types: Vec::new() });
        assert_eq!(weight_bytes(&ModelInfo { gguf, ..(*info("a", 1)).clone() }, Place::Cpu), 11);
    }

    #[test]
    fn a_version_or_all_of_a_name_can_be_let_go() {
        let (pool, owner) = (Pool::new(u64::MAX, None), Owner::get().unwrap());
        for version in 1..=3 {
            slot(&pool, &info("a", version), Place::Cpu);
        }
        assert_eq!(pool.unload("a@2", &owner).unwrap(), 1);
        assert_eq!(held(&pool), ["a@1", "a@3"]);
        assert_eq!(pool.unload("a", &owner).unwrap(), 2);
        assert_eq!(pool.unload("a", &owner).unwrap(), 0);
    }

    #[test]
    fn a_version_that_was_made_anew_is_another_one() {
        let pool = Pool::new(u64::MAX, None);
        let (old, _) = slot(&pool, &info("a", 1), Place::Cpu);
        let (new, _) = slot(&pool, &Arc::new(ModelInfo { created_at_ms: 1, ..(*info("a", 1)).clone() }), Place::Cpu);
        assert!(!Arc::ptr_eq(&old, &new) && Arc::ptr_eq(&old, &slot(&pool, &info("a", 1), Place::Cpu).0));
    }
}
