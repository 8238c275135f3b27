//! Long statements in the background: `... ASYNC` queues one, a few run at once, and what became of each is kept.
//!
//! A job is a JSON file, `jobs/<number>.json`, written whole and renamed into place when its status changes, and every few seconds with how far it is. A job
//! that was queued or running when the process ended reads `interrupted` when the database is opened next.

mod files;
mod parameters;
mod rows;
mod run;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::common::ScalarValue;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::SessionActivity;
use super::database::Database;
use super::progress::{Notice, Severity};
use super::roles::Roles;
use super::session_user::RoleId;
use crate::error::{Error, Result};
use files::JobFiles;

/// Ended jobs that are remembered; older ones are forgotten when a new one comes.
const ENDED_MAX: usize = 1000;

/// Notices that are kept of a job: each of them is a write.
const NOTICES_MAX: usize = 100;

/// Jobs that run at once unless the server was started with another number: the models and the disk are shared.
pub const MAX_CONCURRENT: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    Queued,
    Running,
    Done,
    Failed,
    /// By CANCEL JOB, or as a session by `pg_cancel_backend`.
    Cancelled,
    /// The process ended.
    Interrupted,
}

impl JobStatus {
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// What is kept of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub job_id: i64,
    /// The statement's kind: `TRAIN`.
    pub kind: String,
    pub statement: String,
    /// The values of `$1 ...` in it, see [`parameters::kept`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// The same, as they are shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown_parameters: Vec<Option<String>>,
    pub user: String,
    /// Whose rights it runs with; the superuser's, if it is from before there were roles.
    #[serde(default)]
    pub role: String,
    /// The number of that role, whatever it is called by now.
    #[serde(default)]
    pub role_oid: Option<u32>,
    /// The settings of the session that asked.
    pub settings: BTreeMap<String, String>,
    pub status: JobStatus,
    pub progress: u64,
    pub total: Option<u64>,
    pub unit: Option<String>,
    /// Milliseconds since 1970, as the other times.
    pub created_at_ms: i64,
    pub started_at_ms: Option<i64>,
    pub finished_at_ms: Option<i64>,
    pub error: Option<String>,
    pub sqlstate: Option<String>,
    /// The command tag, or the rows that the statement gave, as JSON.
    pub result: Option<String>,
    /// What a client would have been told while the statement ran, with `NOTICE: ` or `WARNING: ` before it; progress is not among it.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// A statement to run as a job.
pub struct NewJob {
    pub kind: String,
    pub statement: String,
    /// The values of `$1 ...` in it.
    pub parameters: Vec<ScalarValue>,
    pub user: String,
    pub role: RoleId,
    pub settings: BTreeMap<String, String>,
}

impl Job {
    pub(super) fn role_id(&self, roles: &Roles) -> RoleId {
        RoleId::kept(roles, &self.role, self.role_oid)
    }
}

/// How the run of a job ended.
pub(super) enum Ended {
    Done(String),
    Failed(Error),
    Cancelled,
}

/// The jobs of a database.
#[derive(Debug)]
pub struct Jobs {
    files: JobFiles,
    roles: Roles,
    max_concurrent: usize,
    state: Mutex<State>,
    /// Another number after each change of a status.
    changed: watch::Sender<u64>,
    tasks: TaskTracker,
    /// The process ends: what runs is interrupted, not cancelled.
    is_stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    jobs: BTreeMap<i64, Job>,
    queue: VecDeque<i64>,
    running: BTreeMap<i64, Running>,
    last_id: i64,
}

#[derive(Debug)]
struct Running {
    cancel: CancellationToken,
    /// Of the job's session, once it has one.
    activity: Weak<SessionActivity>,
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

impl Jobs {
    /// # Errors
    /// [`Error::Io`], and [`Error::Damaged`] for a file that is not a job.
    pub fn open(directory: &Path, max_concurrent: usize, roles: Roles) -> Result<Self> {
        let (files, mut jobs) = JobFiles::open(directory)?;
        for job in jobs.values_mut().filter(|job| !job.status.is_ended()) {
            job.status = JobStatus::Interrupted;
            job.finished_at_ms = Some(now_ms());
            files.write(job)?;
        }
        let superuser = roles.superuser();
        for job in jobs.values_mut().filter(|job| job.role.is_empty()) {
            job.role_oid = RoleId::named(&roles, &superuser).oid();
            job.role.clone_from(&superuser);
        }
        let last_id = jobs.keys().next_back().copied().unwrap_or(0);
        let state = Mutex::new(State { jobs, last_id, ..State::default() });
        let (changed, tasks) = (watch::Sender::new(0), TaskTracker::new());
        Ok(Self { files, roles, max_concurrent: max_concurrent.max(1), state, changed, tasks, is_stopping: AtomicBool::new(false) })
    }

    pub fn max_concurrent(&self) -> usize {
        self.max_concurrent
    }

    /// Queues a statement; returns the job's number, which is kept when this returns.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn start(self: &Arc<Self>, database: &Database, new: NewJob) -> Result<i64> {
        let NewJob { kind, statement, parameters, user, role, settings } = new;
        let shown_parameters = parameters::shown(&parameters, &database.shared.secrets)?;
        let parameters = parameters::kept(&parameters)?;
        let job_id = {
            let mut state = self.lock();
            let job = Job {
                job_id: state.last_id + 1,
                kind,
                statement,
                parameters,
                shown_parameters,
                user,
                role: role.current_name(&self.roles),
                role_oid: role.oid(),
                settings,
                status: JobStatus::Queued,
                progress: 0,
                total: None,
                unit: None,
                created_at_ms: now_ms(),
                started_at_ms: None,
                finished_at_ms: None,
                error: None,
                sqlstate: None,
                result: None,
                notices: vec![],
            };
            self.files.write(&job)?;
            self.forget_oldest(&mut state)?;
            state.last_id += 1;
            state.queue.push_back(job.job_id);
            state.jobs.insert(job.job_id, job);
            state.last_id
        };
        self.tell();
        self.schedule(database);
        Ok(job_id)
    }

    fn forget_oldest(&self, state: &mut State) -> Result<()> {
        let ended: Vec<i64> = state.jobs.values().filter(|job| job.status.is_ended()).map(|job| job.job_id).collect();
        for job_id in ended.iter().take((ended.len() + 1).saturating_sub(ENDED_MAX)) {
            self.files.remove(*job_id)?;
            state.jobs.remove(job_id);
        }
        Ok(())
    }

    /// Starts queued jobs while there is room for them.
    fn schedule(self: &Arc<Self>, database: &Database) {
        let mut state = self.lock();
        while state.running.len() < self.max_concurrent && !self.is_stopping.load(Ordering::Relaxed) {
            let Some(job_id) = state.queue.pop_front() else { return };
            let cancel = CancellationToken::new();
            state.running.insert(job_id, Running { cancel: cancel.clone(), activity: Weak::new() });
            let (jobs, database) = (Arc::clone(self), database.clone());
            self.tasks.spawn(async move {
                run::run(&jobs, &database, job_id, &cancel).await;
                jobs.schedule(&database);
            });
        }
    }

    /// The job that runs from now on, in a session of its own.
    fn begin(&self, job_id: i64, activity: &Arc<SessionActivity>) -> Result<Job> {
        let job = self.change(job_id, |job| {
            job.status = JobStatus::Running;
            job.started_at_ms = Some(now_ms());
        })?;
        if let Some(running) = self.lock().running.get_mut(&job_id) {
            running.activity = Arc::downgrade(activity);
        }
        Ok(job)
    }

    fn finish(&self, job_id: i64, ended: Ended, activity: &SessionActivity) -> Result<()> {
        let stopped = if self.is_stopping.load(Ordering::Relaxed) { JobStatus::Interrupted } else { JobStatus::Cancelled };
        let record = activity.last_progress();
        // First, so that whoever sees the end of the job can resume it.
        self.lock().running.remove(&job_id);
        let changed = self.change(job_id, |job| {
            job.finished_at_ms = Some(now_ms());
            if let Some(record) = record {
                (job.progress, job.total, job.unit) = (record.done(), record.total, Some(record.unit.clone()));
            }
            match ended {
                Ended::Done(result) => {
                    job.status = JobStatus::Done;
                    job.result = Some(result);
                    job.progress = job.total.unwrap_or(job.progress);
                }
                Ended::Failed(error) => {
                    job.status = JobStatus::Failed;
                    job.error = Some(error.client_message());
                    job.sqlstate = Some(error.sqlstate().to_owned());
                }
                Ended::Cancelled => job.status = stopped,
            }
        });
        changed.map(drop)
    }

    /// Keeps what the statement of a job tells its client, as far as there is room for it.
    fn keep_notice(&self, job_id: i64, notice: &Notice) {
        let kind = match notice.severity {
            Severity::Info => return,
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
        };
        if self.lock().jobs.get(&job_id).is_none_or(|job| job.notices.len() >= NOTICES_MAX) {
            return;
        }
        // What cannot be written now is written with the next change of the job.
        let _ = self.change(job_id, |job| job.notices.push(format!("{kind}: {}", notice.message)));
    }

    /// Keeps how far a job is, for the case that the process ends without a word.
    fn keep_progress(&self, job_id: i64, activity: &SessionActivity) {
        let Some(record) = activity.progress().pop() else { return };
        let found = (record.done(), record.total, Some(record.unit.clone()));
        let is_known = |job: &Job| (job.progress, job.total, job.unit.clone()) == found;
        if self.lock().jobs.get(&job_id).is_none_or(is_known) {
            return;
        }
        // What cannot be written now is written with the next change of the job.
        let _ = self.change(job_id, |job| (job.progress, job.total, job.unit) = found.clone());
    }

    /// Changes what is kept of a job, here and in its file.
    fn change(&self, job_id: i64, change: impl FnOnce(&mut Job)) -> Result<Job> {
        let mut state = self.lock();
        let job = state.jobs.get_mut(&job_id).ok_or_else(|| unknown(job_id))?;
        change(job);
        let job = job.clone();
        let written = self.files.write(&job);
        drop(state);
        self.tell();
        written.map(|()| job)
    }

    fn tell(&self) {
        self.changed.send_modify(|number| *number += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it is now, with the progress of one that runs and the name that its role has now.
    ///
    /// # Errors
    /// [`Error::UnknownObject`].
    pub fn get(&self, job_id: i64) -> Result<Job> {
        self.list().into_iter().find(|job| job.job_id == job_id).ok_or_else(|| unknown(job_id))
    }

    /// All that are remembered, by number.
    pub fn list(&self) -> Vec<Job> {
        let state = self.lock();
        let with_progress = |job: &Job| {
            let mut job = job.clone();
            job.role = job.role_id(&self.roles).current_name(&self.roles);
            let activity = state.running.get(&job.job_id).and_then(|running| running.activity.upgrade());
            if let Some(record) = activity.and_then(|activity| activity.progress().pop()) {
                (job.progress, job.total, job.unit) = (record.done(), record.total, Some(record.unit.clone()));
            }
            job
        };
        state.jobs.values().map(with_progress).collect()
    }

    /// Waits for the end of a job.
    ///
    /// # Errors
    /// [`Error::UnknownObject`].
    pub async fn wait(&self, job_id: i64) -> Result<Job> {
        let mut changes = self.changed.subscribe();
        loop {
            let job = self.get(job_id)?;
            if job.status.is_ended() {
                return Ok(job);
            }
            // The sender is ours: it is there as long as we are.
            let _ = changes.changed().await;
        }
    }

    /// Stops a job, and waits until it has stopped.
    ///
    /// # Errors
    /// [`Error::UnknownObject`]; [`Error::NotReady`] if it has ended already.
    pub async fn cancel(&self, job_id: i64) -> Result<()> {
        let found = self.get(job_id)?;
        if found.status.is_ended() {
            return Err(Error::NotReady(format!("job {job_id} is {} already", found.status.name())));
        }
        let was_queued = {
            let mut state = self.lock();
            if let Some(running) = state.running.get(&job_id) {
                running.cancel.cancel();
            }
            let before = state.queue.len();
            state.queue.retain(|queued| *queued != job_id);
            state.queue.len() < before
        };
        if was_queued {
            self.change(job_id, |job| {
                job.status = JobStatus::Cancelled;
                job.finished_at_ms = Some(now_ms());
            })?;
        }
        self.wait(job_id).await.map(drop)
    }

    /// Queues a job that was stopped or has failed once more.
    ///
    /// # Errors
    /// [`Error::UnknownObject`]; [`Error::NotReady`] if it is at work or done.
    pub fn resume(self: &Arc<Self>, database: &Database, job_id: i64) -> Result<()> {
        {
            let mut state = self.lock();
            let job = state.jobs.get_mut(&job_id).ok_or_else(|| unknown(job_id))?;
            if !job.status.is_ended() || job.status == JobStatus::Done {
                let status = job.status.name();
                return Err(Error::NotReady(format!("job {job_id} is {status}; one that was stopped or has failed can be resumed")));
            }
            let (started_at_ms, finished_at_ms, error, sqlstate, result, notices) = (None, None, None, None, None, vec![]);
            let queued = Job { status: JobStatus::Queued, started_at_ms, finished_at_ms, error, sqlstate, result, notices, ..job.clone() };
            self.files.write(&queued)?;
            *job = queued;
            state.queue.push_back(job_id);
        }
        self.tell();
        self.schedule(database);
        Ok(())
    }

    /// Stops what runs and what waits, before the process ends: they read `interrupted`.
    pub async fn interrupt(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let queued: Vec<i64> = {
            let mut state = self.lock();
            state.running.values().for_each(|running| running.cancel.cancel());
            state.queue.drain(..).collect()
        };
        for job_id in queued {
            // One whose file cannot be written reads so when the database is opened next.
            let _ = self.change(job_id, |job| {
                job.status = JobStatus::Interrupted;
                job.finished_at_ms = Some(now_ms());
            });
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
        self.is_stopping.store(false, Ordering::Relaxed);
    }
}

fn unknown(job_id: i64) -> Error {
    Error::UnknownObject { kind: "job", name: job_id.to_string(), known: vec![] }
}

#[cfg(test)]
mod tests;
