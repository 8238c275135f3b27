//! Checkpoints that nobody takes up any more: of trainings that were stopped, and whose statement was not run again as it was.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::checkpoints::Trainings;
use crate::engine::jobs::{Job, JobStatus};
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::training::Stop;

/// Digits of a SHA-256, which is the name of a run's folder.
const FINGERPRINT_DIGITS: usize = 64;

/// In milliseconds: a run that was interrupted may write its last checkpoint after its job has ended.
const LATE_MS: i64 = 3_600_000;

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub runs: u64,
    pub bytes: u64,
}

/// Removes what was written longer ago than old versions of tables are kept, and tells of it. That VACUUM is FULL does not change the
/// time: whoever asks for it need not be the one who trains.
///
/// # Errors
/// [`Error::Io`].
pub async fn remove_old_checkpoints(session: &Session) -> Result<()> {
    let shared = &session.database().shared;
    let (trainings, jobs, retention) = (Arc::clone(&shared.trainings), shared.jobs.list(), shared.version_retention);
    let removed = tokio::task::spawn_blocking(move || trainings.remove_old(retention, &jobs)).await;
    let removed = removed.map_err(|error| Error::Internal(error.to_string()))??;
    if removed.runs > 0 {
        let freed = removed.bytes as f64 / f64::from(1 << 20);
        session.notices().notice(format!("checkpoints that no training took up: {} removed, {freed:.1} MiB", removed.runs));
    }
    Ok(())
}

impl Trainings {
    /// Removes the folders of runs that were written to longer ago than `older_than`. Those of runs that are at work stay, and those that
    /// one of `jobs` may take up. Blocks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_old(self: &Arc<Self>, older_than: Duration, jobs: &[Job]) -> Result<Removed> {
        let mut removed = Removed::default();
        // With it set, a folder that somebody has is not waited for.
        let stop = Stop::default();
        stop.stop();
        for path in entries(&self.root)? {
            let Some(fingerprint) = path.file_name().and_then(OsStr::to_str).filter(|name| is_fingerprint(name)) else { continue };
            let claim = match self.claim(fingerprint.to_owned(), &stop) {
                Err(Error::Cancelled(_)) => continue,
                claim => claim?,
            };
            // Asked with the claim in hand: its run may have ended meanwhile, and taken it away.
            let Some(written) = last_written(&path)? else { continue };
            if written.elapsed().unwrap_or_default() < older_than || jobs.iter().any(|job| may_take_up(job, written)) {
                continue;
            }
            removed.bytes += num_bytes(&path)?;
            claim.clear()?;
            removed.runs += 1;
        }
        Ok(removed)
    }
}

fn is_fingerprint(name: &str) -> bool {
    name.len() == FINGERPRINT_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether the job may go on at a checkpoint of this time. Only its rows could tell which one is its own, so that all from its time stay.
fn may_take_up(job: &Job, written: SystemTime) -> bool {
    let written_ms = written.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let may_run = job.kind == "TRAIN" && matches!(job.status, JobStatus::Queued | JobStatus::Running | JobStatus::Interrupted);
    may_run && written_ms >= job.created_at_ms && job.finished_at_ms.is_none_or(|finished| written_ms <= finished + LATE_MS)
}

/// Each checkpoint that is put in place changes the time of its folder. `None` if it is gone.
fn last_written(folder: &Path) -> Result<Option<SystemTime>> {
    match fs::metadata(folder).and_then(|metadata| metadata.modified()) {
        Ok(written) => Ok(Some(written)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { path: folder.to_owned(), source }),
    }
}

/// Of all files below a folder.
fn num_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in entries(folder)? {
        let metadata = fs::symlink_metadata(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        bytes += if metadata.is_dir() { num_bytes(&path)? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Paths in a folder; none if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::Io { path: folder.to_owned(), source };
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>().map_err(io),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(io(source)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use futures::TryStreamExt;

    use super::*;
    use crate::engine::{Database, DatabaseOptions, Notice};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn name(digit: char) -> String {
        digit.to_string().repeat(FINGERPRINT_DIGITS)
    }

    /// A checkpoint of five bytes.
    fn make(root: &Path, name: &str, written: SystemTime) {
        let folder = root.join(name);
        fs::create_dir_all(folder.join("step-5")).expect("folders can be made");
        fs::write(folder.join("step-5/state.json"), "state").expect("a file can be written");
        fs::File::open(&folder).and_then(|folder| folder.set_modified(written)).expect("the time of a folder can be set");
    }

    fn names(root: &Path) -> Vec<String> {
        let paths = entries(root).expect("it is readable");
        let mut names: Vec<String> = paths.iter().map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    fn ms(time: SystemTime) -> i64 {
        time.duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
    }

    fn job(kind: &str, status: JobStatus, created: SystemTime, finished: Option<SystemTime>) -> Job {
        Job {
            job_id: 1,
            parameters: None,
            shown_parameters: vec![],
            kind: kind.to_owned(),
            statement: String::new(),
            user: String::new(),
            role: String::new(),
            role_oid: None,
            settings: BTreeMap::new(),
            status,
            progress: 0,
            total: None,
            unit: None,
            created_at_ms: ms(created),
            started_at_ms: None,
            finished_at_ms: finished.map(ms),
            error: None,
            sqlstate: None,
            result: None,
            notices: vec![],
        }
    }

    #[test]
    fn what_is_old_and_nobody_has_is_removed() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let root = data.path().join("training");
        let trainings = Arc::new(Trainings::new(&root));
        assert_eq!(trainings.remove_old(Duration::ZERO, &[]).expect("there is none"), Removed::default());
        let now = SystemTime::now();
        let [old, young, at_work] = ['a', 'b', 'c'].map(name);
        make(&root, &old, now - 8 * DAY);
        make(&root, &young, now - 6 * DAY);
        make(&root, &at_work, now - 8 * DAY);
        make(&root, "notes", now - 8 * DAY);
        let claim = trainings.claim(at_work.clone(), &Stop::default()).expect("nobody else is at work");
        assert_eq!(trainings.remove_old(7 * DAY, &[]).expect("it is removed"), Removed { runs: 1, bytes: 5 });
        assert_eq!(names(&root), [young.as_str(), at_work.as_str(), "notes"]);
        drop(claim);
        assert_eq!(trainings.remove_old(7 * DAY, &[]).expect("it is removed"), Removed { runs: 1, bytes: 5 });
        assert_eq!(names(&root), [young.as_str(), "notes"]);
        trainings.claim(old, &Stop::default()).expect("no claim is left");
    }

    #[test]
    fn what_a_job_may_take_up_stays() {
        let now = SystemTime::now();
        let (before, written, after) = (now - 9 * DAY, now - 8 * DAY, now - 7 * DAY);
        let stays = |status, created, finished| may_take_up(&job("TRAIN", status, created, finished), written);
        assert!(stays(JobStatus::Queued, before, None));
        assert!(stays(JobStatus::Running, before, None));
        assert!(stays(JobStatus::Interrupted, before, Some(after)));
        assert!(stays(JobStatus::Interrupted, before, Some(written - Duration::from_secs(60))), "the last checkpoint comes late");
        assert!(!stays(JobStatus::Interrupted, before, Some(before)));
        assert!(!stays(JobStatus::Running, after, None));
        for status in [JobStatus::Done, JobStatus::Failed, JobStatus::Cancelled] {
            assert!(!stays(status, before, Some(after)), "{status:?}");
        }
        assert!(!may_take_up(&job("CREATE INDEX", JobStatus::Running, before, None), written));

        let data = tempfile::tempdir().expect("a temporary directory");
        let trainings = Arc::new(Trainings::new(data.path()));
        make(data.path(), &name('a'), written);
        let jobs = [job("TRAIN", JobStatus::Interrupted, before, Some(after))];
        assert_eq!(trainings.remove_old(DAY, &jobs).expect("nothing is removed"), Removed::default());
        assert_eq!(names(data.path()), [name('a')]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn vacuum_removes_them_and_says_so() -> Result<()> {
        for (version_retention, stays) in [(None, true), (Some(Duration::ZERO), false)] {
            let data = tempfile::tempdir().expect("a temporary directory");
            let options = DatabaseOptions { version_retention, ..DatabaseOptions::default() };
            let session = Database::open_with(data.path(), options).await?.session();
            let notices = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&notices);
            session.set_notice_sink(Arc::new(move |notice: Notice| kept.lock().expect("no panic").push(notice.message)));
            let root = data.path().join("training");
            make(&root, &name('a'), SystemTime::now());
            session.sql("VACUUM FULL").await?.try_collect::<Vec<_>>().await?;
            assert_eq!(names(&root).len(), usize::from(stays));
            let told = notices.lock().expect("no panic").iter().any(|notice: &String| notice.contains("took up: 1 removed"));
            assert_eq!(told, !stays);
        }
        Ok(())
    }
}
