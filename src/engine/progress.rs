//! Notices to the client, and the progress of long statements: one record each, which its client hears of and others see in `pg_stat_progress_*`.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;

use super::activity::SessionActivity;
use super::apply::CalledRows;
use crate::agent::SearchCounters;

/// The least time between two progress notices of one statement.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);

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
    /// Below this they are not sent, see [`Self::set_least`].
    least: Arc<AtomicU8>,
    /// Of the session; plans that hold notices do not keep it.
    activity: Weak<SessionActivity>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

impl Notices {
    pub(super) fn of_session(activity: &Arc<SessionActivity>) -> Self {
        Self { activity: Arc::downgrade(activity), ..Self::default() }
    }

    /// What `client_min_messages` says: `warning` leaves out notices and progress, `error` all.
    pub(super) fn set_least(&self, level: &str) {
        let least = match level {
            "error" => 2,
            "warning" => 1,
            _ => 0,
        };
        self.least.store(least, Ordering::Relaxed);
    }

    pub(super) fn pid(&self) -> Option<i32> {
        self.activity.upgrade().map(|activity| activity.pid())
    }

    pub(super) fn set_sink(&self, sink: NoticeSink) {
        *self.sink.write().unwrap_or_else(PoisonError::into_inner) = Some(sink);
    }

    pub fn send(&self, severity: Severity, message: impl Into<String>) {
        let code = if severity == Severity::Warning { "01000" } else { "00000" };
        self.send_with(severity, code, message.into());
    }

    fn send_with(&self, severity: Severity, code: &'static str, message: String) {
        if u8::from(severity == Severity::Warning) < self.least.load(Ordering::Relaxed) {
            return;
        }
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

/// What a statement works on, as the views of progress show it.
#[derive(Debug, Clone, Default)]
pub enum Work {
    /// No view of its own.
    #[default]
    Statement,
    /// `command`: `COPY FROM` or `COPY TO`; `source`: `FILE` or `PIPE`; no table for a query. No position where the bytes are read by others.
    Copy {
        command: &'static str,
        source: &'static str,
        table: Option<(String, String)>,
        bytes_total: Option<u64>,
        position: Option<Arc<CopyPosition>>,
    },
    /// A query that calls models; no view of its own.
    Query(Arc<CalledRows>),
    Rollout {
        table: (String, String),
        agent: String,
        /// At most.
        simulations_per_question: u64,
        counters: Arc<SearchCounters>,
    },
    Train {
        model: String,
        method: String,
        phase: &'static str,
    },
    /// A column that a model fills.
    Embed {
        table: (String, String),
        column: String,
    },
    /// Files of a model that come from a hub.
    Download {
        model: String,
        source: String,
    },
}

/// How far a COPY is in the bytes that it reads or writes.
#[derive(Debug, Default)]
pub struct CopyPosition {
    bytes: AtomicU64,
    rows: AtomicU64,
}

impl CopyPosition {
    /// `bytes` in all have been read or written by now, and with them `rows` more than before.
    pub fn reach(&self, bytes: u64, rows: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The bytes of so many rows, which may be fewer than those that were read: a model may be at work on the others.
    fn bytes_of(&self, rows: u64) -> f64 {
        let read = self.rows.load(Ordering::Relaxed).max(1);
        self.bytes() as f64 * (rows as f64 / read as f64).min(1.0)
    }
}

/// The unit of work that is shown in MB and GB.
pub const BYTES: &str = "bytes";

/// How far a statement is.
#[derive(Debug)]
pub struct Record {
    pub work: Work,
    pub unit: String,
    pub total: Option<u64>,
    started: Instant,
    /// What an earlier run has done of the total.
    before: u64,
    done: AtomicU64,
    detail: Mutex<String>,
}

impl Record {
    /// Of nothing done yet; in the views, until it is taken from them.
    fn listed(notices: &Notices, work: Work, unit: String, (before, total): (u64, Option<u64>), started: Instant) -> Arc<Self> {
        let done = AtomicU64::new(before);
        let record = Arc::new(Self { work, unit, total, started, before, done, detail: Mutex::default() });
        if let Some(activity) = notices.activity.upgrade() {
            activity.add_progress(&record);
        }
        record
    }

    /// With what an earlier run has done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn done_now(&self) -> u64 {
        self.done().saturating_sub(self.before)
    }

    pub fn detail(&self) -> String {
        self.detail.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Units in a second, on average.
    pub fn rate(&self) -> f64 {
        self.done_now() as f64 / self.seconds().max(1e-9)
    }

    /// `None` while nothing is done, or if the end is not known.
    pub fn seconds_left(&self) -> Option<f64> {
        let (done, total) = self.share()?;
        (done > 0.0).then(|| (total - done).max(0.0) * self.seconds() / done)
    }

    /// How much this run has done of how much, in what tells it best: before the first question of a search is done its simulations, of a file its bytes.
    fn share(&self) -> Option<(f64, f64)> {
        match &self.work {
            Work::Rollout { simulations_per_question, counters, .. } if self.done_now() == 0 => {
                let left = self.total?.saturating_sub(self.before);
                Some((counters.counts().simulations as f64, left as f64 * *simulations_per_question as f64))
            }
            Work::Copy { bytes_total: Some(bytes), position: Some(position), .. } if self.total.is_none() && *bytes > 0 => {
                Some((position.bytes_of(self.done()), *bytes as f64))
            }
            Work::Query(called) => Some((called.done() as f64, called.total()? as f64)),
            _ => Some((self.done_now() as f64, self.total?.saturating_sub(self.before) as f64)),
        }
    }

    /// What else is counted, for the line that the client reads; empty for most work.
    fn counted(&self) -> String {
        match &self.work {
            Work::Rollout { counters, .. } => self.searched(counters),
            Work::Copy { bytes_total: Some(bytes), position: Some(position), .. } if *bytes > 0 => {
                format!(", {} of {}", size_text(position.bytes()), size_text(*bytes))
            }
            Work::Query(called) if !called.is_call_per_row() => match called.total() {
                Some(total) => format!(", {} of {total} rows", called.done()),
                None => format!(", {} rows", called.done()),
            },
            _ => String::new(),
        }
    }

    fn searched(&self, counters: &SearchCounters) -> String {
        let (counts, seconds) = (counters.counts(), self.seconds().max(1e-9));
        let (simulations, tokens) = (counts.simulations as f64 / seconds, counts.generated_tokens as f64 / seconds);
        let cached = counts.cache_hit_rate().map(|rate| format!(", {:.0}% of prompt tokens cached", rate * 100.0)).unwrap_or_default();
        let unread = match counts.unread_verdicts {
            0 => String::new(),
            unread => format!(", {unread} of {} verdicts unread", counts.verdicts),
        };
        format!(", {simulations:.1} simulations/s, {tokens:.0} tokens/s{cached}{unread}")
    }
}

/// Progress of one statement: `what: done of total unit, rate/s, time left`, every two seconds at most.
#[derive(Debug)]
pub struct Progress {
    notices: Notices,
    what: String,
    record: Arc<Record>,
    /// The same in other views.
    others: Vec<Arc<Record>>,
    last: Mutex<Instant>,
}

impl Progress {
    pub fn new(notices: &Notices, what: impl Into<String>, unit: impl Into<String>, total: Option<u64>) -> Self {
        Self::of(notices, Work::Statement, what, unit, total)
    }

    /// As [`Self::of`], of work of which `before` was done by an earlier run; what [`Self::update`] tells comes on top of it.
    pub fn going_on(notices: &Notices, work: Work, what: impl Into<String>, unit: impl Into<String>, before: u64, total: u64) -> Self {
        let started = Instant::now();
        let record = Record::listed(notices, work, unit.into(), (before, Some(total)), started);
        Self { notices: notices.clone(), what: what.into(), record, others: Vec::new(), last: Mutex::new(started) }
    }

    /// As [`Self::new`]; others see it in the view that is for such work.
    pub fn of(notices: &Notices, work: Work, what: impl Into<String>, unit: impl Into<String>, total: Option<u64>) -> Self {
        let started = Instant::now();
        let record = Record::listed(notices, work, unit.into(), (0, total), started);
        Self { notices: notices.clone(), what: what.into(), record, others: Vec::new(), last: Mutex::new(started) }
    }

    /// Others see the same in the view that is for this work too.
    #[must_use]
    pub fn also(mut self, work: Work) -> Self {
        let known = &self.record;
        self.others.push(Record::listed(&self.notices, work, known.unit.clone(), (known.before, known.total), known.started));
        self
    }

    /// Tells how much this run has done; `detail` is appended (`loss 0.42`).
    pub fn update(&self, done: u64, detail: &str) {
        for record in self.others.iter().chain([&self.record]) {
            record.done.store(record.before + done, Ordering::Relaxed);
        }
        {
            let mut known = self.record.detail.lock().unwrap_or_else(PoisonError::into_inner);
            if *known != detail {
                detail.clone_into(&mut known);
            }
        }
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() < INTERVAL {
                return;
            }
            *last = Instant::now();
        }
        self.notices.send(Severity::Info, self.line(detail));
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

    fn line(&self, detail: &str) -> String {
        let record = &self.record;
        let (done, rate) = (record.done(), record.rate());
        let mut line = match (record.unit.as_str(), record.total) {
            (BYTES, Some(total)) => format!("{}: {} of {}, {}/s", self.what, size_text(done), size_text(total), size_text(rate as u64)),
            (BYTES, None) => format!("{}: {}, {}/s", self.what, size_text(done), size_text(rate as u64)),
            (unit, Some(total)) => format!("{}: {done} of {total} {unit}, {rate:.1}/s", self.what),
            (unit, None) => format!("{}: {done} {unit}, {rate:.1}/s", self.what),
        };
        if let Some(seconds) = record.seconds_left() {
            line += &format!(", {} left", duration_text(seconds));
        }
        if !detail.is_empty() {
            line += &format!(", {detail}");
        }
        line + &record.counted()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(activity) = self.notices.activity.upgrade() {
            self.others.iter().chain([&self.record]).for_each(|record| activity.end_progress(record));
        }
    }
}

/// `1500000` bytes as `1.5 MB`.
pub fn size_text(bytes: u64) -> String {
    let units = [(1_000_000_000_u64, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match units.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", bytes as f64 / size as f64),
        None => format!("{bytes} bytes"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_units_that_fit() {
        for (bytes, text) in [(999, "999 bytes"), (1_500, "1.5 kB"), (988_097_824, "988.1 MB"), (15_231_233_024, "15.2 GB")] {
            assert_eq!(size_text(bytes), text);
        }
        let progress = Progress::new(&Notices::default(), "CREATE MODEL m", BYTES, Some(2_000_000));
        progress.update(500_000, "");
        let line = progress.line("");
        assert!(line.starts_with("CREATE MODEL m: 500.0 kB of 2.0 MB, ") && line.contains("/s, ") && line.ends_with(" left"), "{line}");
    }

    #[test]
    fn a_copy_is_as_far_as_its_rows_are_in_its_bytes() {
        let position = Arc::<CopyPosition>::default();
        let bytes_total = Some(4_000);
        let work = Work::Copy { command: "COPY FROM", source: "FILE", table: None, bytes_total, position: Some(Arc::clone(&position)) };
        let progress = Progress::of(&Notices::default(), work, "COPY t", "rows", None);
        assert_eq!(progress.record.seconds_left(), None, "nothing is done");
        // Half of the file is read, and a model is at work on half of that.
        position.reach(2_000, 100);
        progress.update(50, "");
        let before = progress.record.seconds();
        let left = progress.record.seconds_left().expect("some of it is done");
        assert!((3.0 * before..=3.0 * progress.record.seconds()).contains(&left), "{left}");
        let line = progress.line("");
        assert!(line.starts_with("COPY t: 50 rows, ") && line.ends_with(" left, 2.0 kB of 4.0 kB"), "{line}");
    }
}
