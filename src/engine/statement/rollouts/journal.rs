//! Answers of models for trees that are not committed: after a cancel or a kill the same search asks the same, finds them here, and so goes on at the
//! nodes that it had.
//!
//! A tree is a function of its seed and of what models answer, so that these answers are all that has to last. Each question has a file beside the
//! rows of the table ([`rolloutdb_catalogs::UnfinishedWork`]), of records as answers of servers have them (`src/models/remote/record.rs`). A record
//! is written when its answer comes, and not synced: a kill takes nothing of it, a power failure perhaps the last ones, which are asked for again.
//! The file goes when the tree is committed, the folder when all are.
//!
//! An answer is kept under all that it depends on: the options of the run with its prompts and the versions of its models, the model, the prompt,
//! and how it is sampled. So what was made with anything else is not found. Models that keep their answers themselves are left alone. What a corpus
//! gives is not kept: it is searched again, as it is then.
//!
//! Nothing here fails a run. What cannot be kept or read is searched again.

mod models;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io::Result as IoResult;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::digest::{Context, SHA256};
use rolloutdb_catalogs::{Table, UnfinishedWork};
use serde::Serialize;
use serde_json::Value as Json;

use crate::agent::{Journal, PolicyClient, Question, Valuer};
use crate::engine::progress::{Notices, size_text};
use crate::error::{Error, Result};
use crate::sha256::hex;
use models::{JournaledPolicy, JournaledPrm, Memory};
use tree::TreeJournal;

/// SHA-256 of what an answer depends on.
pub type Key = [u8; 32];

/// Of all trees of a run that are not committed; an answer of fifty tokens takes about a kilobyte.
const BYTES_MAX: u64 = 1 << 30;

/// The answers of one run. Clones are the same.
#[derive(Clone)]
pub struct RunJournal(Arc<Run>);

struct Run {
    work: UnfinishedWork,
    /// Of the options: stands before all that a key is made of.
    options: Key,
    /// By question.
    trees: Mutex<HashMap<String, Arc<TreeJournal>>>,
    bytes: AtomicU64,
    bytes_max: u64,
    notices: Notices,
    has_warned: AtomicBool,
}

impl RunJournal {
    /// Takes up what an earlier run with these options left of the questions; what else is left goes. `None` with a warning if that cannot be.
    ///
    /// `options`: all that shapes the trees of the run.
    pub async fn open(table: &Table, options: &Json, questions: &[Question], notices: &Notices) -> Option<Self> {
        let opened = Self::open_with(table, options, questions, notices, BYTES_MAX).await;
        opened.inspect_err(|error| notices.warning(refusal(error))).ok()
    }

    async fn open_with(table: &Table, options: &Json, questions: &[Question], notices: &Notices, bytes_max: u64) -> Result<Self> {
        let work = table.unfinished_work().await?;
        // Another version of the program may compute with other rounding.
        let options = key_of(&[env!("CARGO_PKG_VERSION"), &options.to_string()], None);
        let ids: Vec<String> = questions.iter().map(|question| question.id.clone()).collect();
        let folder = work.folder().to_owned();
        let found = tokio::task::spawn_blocking(move || take_up(&folder, &options, ids)).await;
        let found = found.map_err(|error| Error::Internal(error.to_string()))?;
        let trees = found.map_err(|source| Error::Io { path: work.folder().to_owned(), source })?;
        tell(trees.values(), notices);
        let bytes = AtomicU64::new(trees.values().map(|tree| tree.bytes()).sum());
        let (notices, has_warned) = (notices.clone(), AtomicBool::new(false));
        Ok(Self(Arc::new(Run { work, options, trees: Mutex::new(trees), bytes, bytes_max, notices, has_warned })))
    }

    /// The trees of these questions are committed.
    pub fn forget(&self, question_ids: &[String]) {
        for id in question_ids {
            let tree = self.trees().remove(id);
            let bytes = tree.map_or(0, |tree| tree.remove());
            self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Every tree is committed.
    pub fn finish(&self) {
        if let Err(error) = self.0.work.finish() {
            self.0.notices.warning(format!("all trees are there, but answers of models that were kept for them stay on the disk: {error}"));
        }
    }

    fn key(&self, parts: &[&str]) -> Key {
        key_of(parts, Some(&self.0.options))
    }

    fn keep(&self, tree: &TreeJournal, key: &Key, answer: &impl Serialize) {
        let Run { bytes, bytes_max, .. } = &*self.0;
        if bytes.load(Ordering::Relaxed) >= *bytes_max {
            return self.warn(&format!("no more than {} of them may be on the disk", size_text(*bytes_max)));
        }
        let kept = serde_json::to_vec(answer).map_err(std::io::Error::other).and_then(|answer| tree.put(key, &answer));
        match kept {
            Ok(written) => {
                bytes.fetch_add(written, Ordering::Relaxed);
            }
            Err(error) => self.warn(&error),
        }
    }

    /// Once, however often it happens.
    fn warn(&self, reason: &dyn Display) {
        if !self.0.has_warned.swap(true, Ordering::Relaxed) {
            self.0.notices.warning(refusal(reason));
        }
    }

    fn trees(&self) -> MutexGuard<'_, HashMap<String, Arc<TreeJournal>>> {
        self.0.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree(&self, question_id: &str) -> Arc<TreeJournal> {
        let mut trees = self.trees();
        if let Some(tree) = trees.get(question_id) {
            return Arc::clone(tree);
        }
        let tree = Arc::new(TreeJournal::new(self.0.work.folder().join(file_name(&self.0.options, question_id))));
        trees.insert(question_id.to_owned(), Arc::clone(&tree));
        tree
    }
}

impl Journal for RunJournal {
    fn models(&self, question_id: &str, policy: &Arc<dyn PolicyClient>, valuer: &Valuer) -> (Arc<dyn PolicyClient>, Valuer) {
        let memory = Memory { run: self.clone(), tree: self.tree(question_id) };
        let journaled = |policy: &Arc<dyn PolicyClient>| -> Arc<dyn PolicyClient> {
            match policy.keeps_answers() {
                true => Arc::clone(policy),
                false => Arc::new(JournaledPolicy { policy: Arc::clone(policy), memory: memory.clone() }),
            }
        };
        let valuer = match valuer {
            Valuer::Policy => Valuer::Policy,
            Valuer::Judge(judge) => Valuer::Judge(judge.through(journaled)),
            Valuer::Prm(model) => Valuer::Prm(Arc::new(JournaledPrm { model: Arc::clone(model), memory: memory.clone() })),
        };
        (journaled(policy), valuer)
    }
}

/// What cannot be kept costs time after a kill, and nothing else.
fn refusal(reason: &dyn Display) -> String {
    format!("answers of models are not kept: {reason}; trees that a cancel or a kill interrupts would be searched from their seeds again")
}

fn tell<'a>(trees: impl Iterator<Item = &'a Arc<TreeJournal>>, notices: &Notices) {
    let (mut num_trees, mut num_answers, mut damaged_bytes) = (0, 0, 0);
    for tree in trees {
        num_trees += 1;
        num_answers += tree.num_known();
        damaged_bytes += tree.damaged_bytes();
    }
    if num_answers > 0 {
        notices.notice(format!("trees that go on where they were: {num_trees}, with {num_answers} answers of models that are kept"));
    }
    if damaged_bytes > 0 {
        notices.warning(format!("{damaged_bytes} bytes of the answers that were kept are damaged; what they held is asked for again"));
    }
}

/// The files of these questions, by question. The others are of questions that are done, or of other options, and go; so does one that cannot be read.
fn take_up(folder: &Path, options: &Key, question_ids: Vec<String>) -> IoResult<HashMap<String, Arc<TreeJournal>>> {
    let entries = fs::read_dir(folder)?.collect::<IoResult<Vec<_>>>()?;
    let mut trees = HashMap::new();
    if entries.is_empty() {
        return Ok(trees);
    }
    let mut wanted: HashMap<OsString, String> = question_ids.into_iter().map(|id| (file_name(options, &id).into(), id)).collect();
    for entry in entries {
        let question = wanted.remove(&entry.file_name());
        match question.and_then(|id| Some((id, TreeJournal::open(entry.path()).ok()?))) {
            Some((id, tree)) => drop(trees.insert(id, Arc::new(tree))),
            None => fs::remove_file(entry.path())?,
        }
    }
    Ok(trees)
}

/// No name of a question is too long for that of a file.
fn file_name(options: &Key, question_id: &str) -> String {
    let key = key_of(&["question", question_id], Some(options));
    format!("{}.answers", hex(&key[..16]))
}

fn key_of(parts: &[&str], options: Option<&Key>) -> Key {
    let mut context = Context::new(&SHA256);
    options.into_iter().for_each(|options| context.update(options));
    for part in parts {
        // The length keeps apart what stands one after the other.
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part.as_bytes());
    }
    let mut key = Key::default();
    key.copy_from_slice(context.finish().as_ref());
    key
}
