//! What statements did with models and what took long, over restarts: `rollout.task_history`.
//!
//! A statement is kept if it called a model, if it is a task by its kind (GENERATE ROLLOUTS, TRAIN, CREATE INDEX, REINDEX, COPY), or if it took a
//! second. It counts in memory while it runs ([`Task`]); when it ends, its entry is put where readers find it and where a thread of the history takes
//! it from, so that no statement waits for the disk or fails with it. What has run for a second is written before its end too, and reads
//! `interrupted` if the process dies.
//!
//! What is read in parts, as a cursor, runs while its rows are waited for; what passes between is its client's time.
//!
//! Brief statements have a place of their own: an agent's thousand searches in a second do not drive out the training of an hour ago.

mod entry;
mod file;
mod rows;
mod task;
mod writer;

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rolloutdb_sql::Statement;

use super::roles::Roles;
use super::session_user::RoleId;
use crate::error::{Error, Result};
use entry::{Entry, Status};
use file::HistoryFile;
pub use task::{CurrentTask, Task, calls_of};

/// The newest entries of tasks, and as many of brief statements that called models: 10 000 together.
const KEPT_MAX: usize = 5_000;
/// A statement that takes so long is kept whatever it does.
const LONG: Duration = Duration::from_secs(1);
/// At the end of the process: how long the disk may take.
const FLUSH_MAX: Duration = Duration::from_secs(10);

/// The history of a database. Dropped, it has written what it has.
#[derive(Debug)]
pub struct TaskHistory {
    kept: Arc<Kept>,
    writer: Option<JoinHandle<()>>,
}

/// What tasks, readers and the writing thread share.
#[derive(Debug)]
struct Kept {
    roles: Roles,
    entries: Mutex<Entries>,
    /// There is something to write, or all is written.
    changed: Condvar,
    /// Where each session says what it runs.
    sessions: Mutex<Vec<Weak<CurrentTask>>>,
    /// What sessions may be at beside it: open cursors and portals.
    in_parts: Mutex<Vec<Weak<Task>>>,
    /// The process ends: what is stopped now is interrupted, not cancelled.
    is_ending: AtomicBool,
}

#[derive(Debug, Default)]
struct Entries {
    tasks: VecDeque<Arc<Entry>>,
    brief: VecDeque<Arc<Entry>>,
    unwritten: Vec<Arc<Entry>>,
    is_writing: bool,
    is_closed: bool,
    last_id: i64,
}

impl TaskHistory {
    /// The history in this file, which is made with the first entry.
    ///
    /// # Errors
    /// [`Error::Io`]. What is no entry in it is passed over.
    pub fn open(path: &Path, roles: Roles) -> Result<Self> {
        let (file, found) = HistoryFile::open(path)?;
        let mut entries = Entries { last_id: found.last().map_or(0, |entry| entry.task_id), ..Entries::default() };
        found.into_iter().for_each(|entry| entries.keep(&Arc::new(entry.without_its_process())));
        let kept = Arc::new(Kept {
            roles,
            entries: Mutex::new(entries),
            changed: Condvar::new(),
            sessions: Mutex::default(),
            in_parts: Mutex::default(),
            is_ending: AtomicBool::new(false),
        });
        let of_writer = Arc::clone(&kept);
        let writer = std::thread::Builder::new().name("task history".to_owned()).spawn(move || writer::run(&of_writer, file));
        let writer = writer.map_err(|error| Error::Internal(format!("no thread for the history: {error}")))?;
        Ok(Self { kept, writer: Some(writer) })
    }

    /// Where a new session says what it runs.
    pub fn session(&self) -> Arc<CurrentTask> {
        let current = Arc::default();
        self.kept.sessions().push(Arc::downgrade(&current));
        current
    }

    /// A statement begins. `text`: as others may see it.
    pub fn begin(&self, statement: &Statement, text: Arc<str>, role: RoleId) -> Arc<Task> {
        Arc::new(Task::new(&self.kept, statement, text, role))
    }

    /// What is stopped from now on reads `interrupted`.
    pub fn announce_end(&self) {
        self.kept.is_ending.store(true, Ordering::Relaxed);
    }

    /// Waits until what has ended is written. Blocks the thread.
    pub fn flush(&self) {
        self.kept.flush();
    }

    /// Those that are kept and those that run, by number, with the names that their roles have now.
    fn list(&self) -> Vec<Entry> {
        // Those that run first: one that ends in between is found twice rather than not at all.
        let running: Vec<Entry> = self.kept.running().iter().map(|task| task.entry(Status::Running, None)).collect();
        let mut list: Vec<Entry> = {
            let entries = self.kept.entries();
            entries.tasks.iter().chain(&entries.brief).map(|entry| Entry::clone(entry)).collect()
        };
        let ended: HashSet<i64> = list.iter().map(|entry| entry.task_id).collect();
        list.extend(running.into_iter().filter(|entry| !ended.contains(&entry.task_id)));
        list.sort_by_key(|entry| entry.task_id);
        list.iter_mut().for_each(|entry| entry.name_role(&self.kept.roles));
        list
    }
}

impl Drop for TaskHistory {
    fn drop(&mut self) {
        self.kept.entries().is_closed = true;
        self.kept.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            // It has panicked at worst, and the history ends where it was.
            let _ = writer.join();
        }
    }
}

impl Kept {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Weak<CurrentTask>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_parts(&self) -> MutexGuard<'_, Vec<Weak<Task>>> {
        self.in_parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> i64 {
        let mut entries = self.entries();
        entries.last_id += 1;
        entries.last_id
    }

    /// The entry of a statement that has ended.
    fn add(&self, entry: Entry) {
        let entry = Arc::new(entry);
        {
            let mut entries = self.entries();
            entries.keep(&entry);
            if entries.unwritten.len() < 2 * KEPT_MAX {
                entries.unwritten.push(Arc::clone(&entry));
            }
        }
        // Brief ones wait for the writer to look by itself: waking it takes as long as some of them.
        if !entry.is_brief() {
            self.changed.notify_all();
        }
    }

    /// The statements that have not ended and will be kept, each once.
    fn running(&self) -> Vec<Arc<Task>> {
        let mut running: Vec<Arc<Task>> = {
            let mut sessions = self.sessions();
            sessions.retain(|session| session.strong_count() > 0);
            sessions.iter().filter_map(|session| session.upgrade()?.get()).collect()
        };
        let in_parts: Vec<Arc<Task>> = {
            let mut in_parts = self.in_parts();
            in_parts.retain(|task| task.strong_count() > 0);
            in_parts.iter().filter_map(Weak::upgrade).collect()
        };
        for task in in_parts {
            // The newest of a session is both.
            if !running.iter().any(|other| Arc::ptr_eq(other, &task)) {
                running.push(task);
            }
        }
        running.retain(|task| task.is_running() && task.is_kept());
        running
    }

    /// Waits for entries to write, no longer than `patience`; whether they are the last.
    fn next(&self, patience: Duration) -> (Vec<Arc<Entry>>, bool) {
        let mut entries = self.entries();
        if entries.unwritten.is_empty() && !entries.is_closed {
            entries = self.changed.wait_timeout(entries, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        entries.is_writing = true;
        (std::mem::take(&mut entries.unwritten), entries.is_closed)
    }

    /// What [`Self::next`] gave is written, or cannot be for now.
    fn written(&self) {
        self.entries().is_writing = false;
        self.changed.notify_all();
    }

    fn flush(&self) {
        let started = Instant::now();
        self.changed.notify_all();
        let mut entries = self.entries();
        while (!entries.unwritten.is_empty() || entries.is_writing) && started.elapsed() < FLUSH_MAX {
            entries = self.changed.wait_timeout(entries, LONG).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Entries {
    fn keep(&mut self, entry: &Arc<Entry>) {
        let kept = if entry.is_brief() { &mut self.brief } else { &mut self.tasks };
        kept.push_back(Arc::clone(entry));
        if kept.len() > KEPT_MAX {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
