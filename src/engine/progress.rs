//! Notices to the client, and the progress of long statements as notices.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;

/// The least time between two progress notices of one statement.
const INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Info,
    Notice,
    Warning,
}

/// A message to the person at the client while a statement runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub severity: Severity,
    /// SQLSTATE: `00000`, or what a warning is about.
    pub code: &'static str,
    pub message: String,
}

pub(super) type NoticeSink = Arc<dyn Fn(Notice) + Send + Sync>;

/// Where a session's notices go; nowhere until a client sets a sink.
#[derive(Clone, Default)]
pub struct Notices {
    sink: Arc<RwLock<Option<NoticeSink>>>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

impl Notices {
    pub(super) fn set_sink(&self, sink: NoticeSink) {
        *self.sink.write().unwrap_or_else(PoisonError::into_inner) = Some(sink);
    }

    pub fn send(&self, severity: Severity, message: impl Into<String>) {
        let code = if severity == Severity::Warning { "01000" } else { "00000" };
        self.send_with(severity, code, message.into());
    }

    fn send_with(&self, severity: Severity, code: &'static str, message: String) {
        let sink = self.sink.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sink) = sink {
            sink(Notice { severity, code, message });
        }
    }

    pub fn notice(&self, message: impl Into<String>) {
        self.send(Severity::Notice, message);
    }

    pub fn warning(&self, message: impl Into<String>) {
        self.send(Severity::Warning, message);
    }

    /// A warning with an SQLSTATE of its own.
    pub fn warning_with(&self, code: &'static str, message: impl Into<String>) {
        self.send_with(Severity::Warning, code, message.into());
    }
}

/// Progress of one statement: `what: done of total unit, rate/s, time left`, every two seconds at most.
#[derive(Debug)]
pub struct Progress {
    notices: Notices,
    what: String,
    unit: String,
    total: Option<u64>,
    started: Instant,
    last: Mutex<Instant>,
}

impl Progress {
    pub fn new(notices: &Notices, what: impl Into<String>, unit: impl Into<String>, total: Option<u64>) -> Self {
        let now = Instant::now();
        Self { notices: notices.clone(), what: what.into(), unit: unit.into(), total, started: now, last: Mutex::new(now) }
    }

    /// Tells how much is done in all; `detail` is appended (`loss 0.42`).
    pub fn update(&self, done: u64, detail: &str) {
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() < INTERVAL {
                return;
            }
            *last = Instant::now();
        }
        self.notices.send(Severity::Info, self.line(done, detail));
    }

    /// Passes the stream on and counts its rows.
    pub fn watch(self, stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = stream.schema();
        let mut done = 0;
        let watched = stream.inspect_ok(move |batch| {
            done += batch.num_rows() as u64;
            self.update(done, "");
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, watched))
    }

    fn line(&self, done: u64, detail: &str) -> String {
        let elapsed = self.started.elapsed().as_secs_f64();
        let rate = done as f64 / elapsed.max(1e-9);
        let mut line = match self.total {
            Some(total) => format!("{}: {done} of {total} {}, {rate:.1}/s", self.what, self.unit),
            None => format!("{}: {done} {}, {rate:.1}/s", self.what, self.unit),
        };
        if let Some(total) = self.total
            && done > 0
        {
            line += &format!(", {} left", duration_text((total.saturating_sub(done)) as f64 / rate));
        }
        if !detail.is_empty() {
            line += &format!(", {detail}");
        }
        line
    }
}

/// `75` seconds as `1m15s`.
pub fn duration_text(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}
