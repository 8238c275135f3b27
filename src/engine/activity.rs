//! Who is connected and what they do: the rows of `pg_stat_activity`, and signals from one session to another (`pg_cancel_backend`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::error::DataFusionError;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::privileges::Access;
use super::progress::Record;
use super::session::{CATALOG_NAME, TransactionStatus};
use crate::error::Result;

/// In the place of a statement that the reader may not see, as in PostgreSQL.
const HIDDEN: &str = "<insufficient privilege>";

/// The view of schema `rollout` that lists the sessions.
pub const ACTIVITY_VIEW: &str = "pg_stat_activity";

/// The sessions of a database that others see: those of the server's clients, and of jobs.
#[derive(Debug, Default)]
pub struct Activity {
    sessions: Mutex<BTreeMap<i32, Weak<SessionActivity>>>,
    last_pid: AtomicI32,
}

/// One session, for others.
#[derive(Debug)]
pub struct SessionActivity {
    pid: i32,
    registry: Arc<Activity>,
    backend_start: SystemTime,
    is_listed: AtomicBool,
    current: Mutex<Current>,
    cancel: Notify,
    terminate: CancellationToken,
    /// What its statement counts while it runs.
    progress: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    running: Vec<Weak<Record>>,
    /// The newest, after its statement has ended too.
    last: Option<Arc<Record>>,
}

#[derive(Debug)]
struct Current {
    user: String,
    application_name: String,
    client: Option<SocketAddr>,
    backend_type: &'static str,
    is_active: bool,
    transaction: TransactionStatus,
    xact_start: Option<SystemTime>,
    query_start: Option<SystemTime>,
    state_change: SystemTime,
    query: Arc<str>,
}

impl Current {
    fn state(&self) -> &'static str {
        match (self.is_active, self.transaction) {
            (true, _) => "active",
            (false, TransactionStatus::Idle) => "idle",
            (false, TransactionStatus::InTransaction) => "idle in transaction",
            (false, TransactionStatus::Failed) => "idle in transaction (aborted)",
        }
    }
}

/// How long a session has waited for its client, and whether inside a transaction block.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    pub since: SystemTime,
    pub in_transaction: bool,
}

impl Activity {
    /// A session that nobody sees until it is [`SessionActivity::list`]ed.
    pub(super) fn session(self: &Arc<Self>) -> Arc<SessionActivity> {
        let now = SystemTime::now();
        let current = Current {
            user: String::new(),
            application_name: String::new(),
            client: None,
            backend_type: "client backend",
            is_active: false,
            transaction: TransactionStatus::Idle,
            xact_start: None,
            query_start: None,
            state_change: now,
            query: Arc::from(""),
        };
        Arc::new(SessionActivity {
            pid: self.next_pid(),
            registry: Arc::clone(self),
            backend_start: now,
            is_listed: AtomicBool::new(false),
            current: Mutex::new(current),
            cancel: Notify::new(),
            terminate: CancellationToken::new(),
            progress: Mutex::default(),
        })
    }

    /// From 1 on; after two billion sessions, from 1 again.
    fn next_pid(&self) -> i32 {
        let next = |last: i32| Some(if last == i32::MAX { 1 } else { last + 1 });
        let last = self.last_pid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        if last == i32::MAX { 1 } else { last + 1 }
    }

    /// Stops the statement that the session runs now. False if there is no such session.
    pub fn cancel(&self, pid: i32) -> bool {
        let session = self.find(pid);
        session.inspect(|session| session.cancel.notify_waiters()).is_some()
    }

    /// Ends the session. False if there is none.
    pub fn terminate(&self, pid: i32) -> bool {
        let session = self.find(pid);
        session.inspect(|session| session.terminate.cancel()).is_some()
    }

    /// The user of some sessions has another name, or was dropped: another role that gets the old one is not theirs.
    pub(super) fn user_renamed(&self, user: &str, new_name: &str) {
        for session in self.sessions() {
            let mut current = session.lock();
            if current.user == user {
                new_name.clone_into(&mut current.user);
            }
        }
    }

    fn find(&self, pid: i32) -> Option<Arc<SessionActivity>> {
        self.lock().get(&pid).and_then(Weak::upgrade)
    }

    /// Those that are listed, by pid.
    pub(super) fn sessions(&self) -> Vec<Arc<SessionActivity>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Weak<SessionActivity>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// PostgreSQL's columns.
    pub fn schema() -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let number = |name: &str| Field::new(name, DataType::Int32, true);
        let time = |name: &str| Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())), true);
        Arc::new(Schema::new(vec![
            number("datid"),
            text("datname"),
            number("pid"),
            number("leader_pid"),
            number("usesysid"),
            text("usename"),
            text("application_name"),
            text("client_addr"),
            text("client_hostname"),
            number("client_port"),
            time("backend_start"),
            time("xact_start"),
            time("query_start"),
            time("state_change"),
            text("wait_event_type"),
            text("wait_event"),
            text("state"),
            Field::new("backend_xid", DataType::Int64, true),
            Field::new("backend_xmin", DataType::Int64, true),
            Field::new("query_id", DataType::Int64, true),
            text("query"),
            text("backend_type"),
        ]))
    }

    /// A row for each session. Of those of others `reader` sees who they are, not what they do and from where; `None` sees that of none.
    pub fn rows(&self, reader: Option<&Access>) -> Result<RecordBatch> {
        let sessions = self.sessions();
        let current: Vec<MutexGuard<'_, Current>> = sessions.iter().map(|session| session.lock()).collect();
        let is_shown = |current: &Current| reader.is_some_and(|reader| reader.sees_statements_of(&current.user));
        let is_shown: Vec<bool> = current.iter().map(|current| is_shown(current)).collect();
        let text = |read: &dyn Fn(&Current) -> Option<String>| -> ArrayRef {
            Arc::new(current.iter().map(|current| read(current)).collect::<StringArray>())
        };
        let shown = || current.iter().zip(&is_shown).map(|(current, is_shown)| is_shown.then_some(&**current));
        let shown_text = |read: &dyn Fn(&Current) -> Option<String>| -> ArrayRef {
            Arc::new(shown().map(|current| current.and_then(read)).collect::<StringArray>())
        };
        let time = |read: &dyn Fn(&Current) -> Option<SystemTime>| -> ArrayRef {
            let times = shown().map(|current| current.and_then(read).map(micros));
            Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("+00:00"))
        };
        let schema = Self::schema();
        let columns = schema.fields().iter().map(|field| -> ArrayRef {
            match field.name().as_str() {
                "datname" => text(&|_| Some(CATALOG_NAME.to_owned())),
                "pid" => Arc::new(Int32Array::from_iter_values(sessions.iter().map(|session| session.pid))),
                "usename" => text(&|current| Some(current.user.clone()).filter(|user| !user.is_empty())),
                "application_name" => text(&|current| Some(current.application_name.clone())),
                "client_addr" => shown_text(&|current| current.client.map(|client| client.ip().to_string())),
                "client_port" => {
                    let port = |current: &Current| current.client.map(|client| i32::from(client.port()));
                    Arc::new(shown().map(|current| current.and_then(port)).collect::<Int32Array>())
                }
                "backend_start" => {
                    let times = sessions.iter().zip(&is_shown).map(|(session, is_shown)| is_shown.then(|| micros(session.backend_start)));
                    Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("+00:00"))
                }
                "xact_start" => time(&|current| current.xact_start.or(current.query_start.filter(|_| current.is_active))),
                "query_start" => time(&|current| current.query_start),
                "state_change" => time(&|current| Some(current.state_change)),
                "state" => shown_text(&|current| Some(current.state().to_owned())),
                "query" => {
                    Arc::new(shown().map(|current| Some(current.map_or(HIDDEN, |current| &*current.query))).collect::<StringArray>())
                }
                "backend_type" => shown_text(&|current| Some(current.backend_type.to_owned())),
                _ => new_null_array(field.data_type(), sessions.len()),
            }
        });
        let columns: Vec<ArrayRef> = columns.collect();
        Ok(RecordBatch::try_new(schema, columns).map_err(DataFusionError::from)?)
    }
}

fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

impl SessionActivity {
    /// What `pg_backend_pid()` says, and the server to its client.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn user(&self) -> String {
        self.lock().user.clone()
    }

    /// The session is one that others see and signal from now on.
    pub fn list(self: &Arc<Self>, user: &str, client: Option<SocketAddr>, backend_type: &'static str) {
        {
            let mut current = self.lock();
            current.user = user.to_owned();
            current.client = client;
            current.backend_type = backend_type;
        }
        self.is_listed.store(true, Ordering::Relaxed);
        self.registry.lock().insert(self.pid, Arc::downgrade(self));
    }

    pub(super) fn registry(&self) -> &Arc<Activity> {
        &self.registry
    }

    pub(super) fn set_application_name(&self, name: &str) {
        self.lock().application_name = name.to_owned();
    }

    /// The session works on a message of its client.
    pub fn begin(&self) {
        let mut current = self.lock();
        if !current.is_active {
            current.is_active = true;
            current.state_change = SystemTime::now();
        }
    }

    /// A statement starts; `text` is what `shown_text` gave.
    pub fn begin_statement(&self, text: impl Into<Arc<str>>) {
        let mut current = self.lock();
        let now = SystemTime::now();
        current.is_active = true;
        current.state_change = now;
        current.query_start = Some(now);
        current.query = text.into();
    }

    /// The session waits for its client.
    pub fn rest(&self, transaction: TransactionStatus) {
        let mut current = self.lock();
        current.is_active = false;
        current.state_change = SystemTime::now();
        let was_idle = current.transaction == TransactionStatus::Idle;
        current.transaction = transaction;
        if transaction == TransactionStatus::Idle {
            current.xact_start = None;
        } else if was_idle {
            current.xact_start = current.query_start;
        }
    }

    /// `None` while it is at work.
    pub fn idle(&self) -> Option<Idle> {
        let current = self.lock();
        (!current.is_active).then(|| Idle { since: current.state_change, in_transaction: current.transaction != TransactionStatus::Idle })
    }

    /// Waits until somebody stops the statement that runs now. A signal that came before is void: it meant another statement.
    pub async fn cancelled(&self) {
        self.cancel.notified().await;
    }

    /// Waits until somebody ends the session.
    pub async fn terminated(&self) {
        self.terminate.cancelled().await;
    }

    pub fn is_terminated(&self) -> bool {
        self.terminate.is_cancelled()
    }

    pub(super) fn add_progress(&self, record: &Arc<Record>) {
        let mut counts = self.counts();
        counts.last = Some(Arc::clone(record));
        counts.running.push(Arc::downgrade(record));
    }

    /// What counts in `record` has ended.
    pub(super) fn end_progress(&self, record: &Arc<Record>) {
        self.counts().running.retain(|running| !std::ptr::eq(running.as_ptr(), Arc::as_ptr(record)));
    }

    /// What its last statement counted, or counts.
    pub(super) fn last_progress(&self) -> Option<Arc<Record>> {
        self.counts().last.clone()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its statement counts now.
    pub(super) fn progress(&self) -> Vec<Arc<Record>> {
        self.counts().running.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionActivity {
    fn drop(&mut self) {
        if self.is_listed.load(Ordering::Relaxed) {
            self.registry.lock().remove(&self.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_listed_until_they_end() {
        let activity = Arc::new(Activity::default());
        let (first, second) = (activity.session(), activity.session());
        assert_ne!(first.pid(), second.pid());
        assert_eq!(activity.rows(None).expect("rows").num_rows(), 0);
        first.list("ann", None, "client backend");
        second.list("bob", None, "client backend");
        assert_eq!(activity.rows(None).expect("rows").num_rows(), 2);
        activity.user_renamed("ann", "bea");
        assert_eq!((first.user(), second.user()), ("bea".to_owned(), "bob".to_owned()));
        let pid = first.pid();
        drop(first);
        assert_eq!(activity.rows(None).expect("rows").num_rows(), 1);
        assert!(!activity.cancel(pid));
        assert!(activity.terminate(second.pid()));
        assert!(second.is_terminated());
    }

    #[test]
    fn the_state_says_what_the_client_waits_for() {
        let activity = Arc::new(Activity::default());
        let session = activity.session();
        let state = |session: &SessionActivity| session.lock().state();
        session.begin_statement("BEGIN");
        assert_eq!(state(&session), "active");
        session.rest(TransactionStatus::InTransaction);
        assert_eq!(state(&session), "idle in transaction");
        session.begin_statement("SELECT missing");
        session.rest(TransactionStatus::Failed);
        assert_eq!(state(&session), "idle in transaction (aborted)");
        session.begin_statement("ROLLBACK");
        session.rest(TransactionStatus::Idle);
        assert_eq!((state(&session), session.lock().xact_start), ("idle", None));
    }
}
