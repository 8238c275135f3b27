//! The thread that writes the history.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entry::{Entry, Status};
use super::file::HistoryFile;
use super::{KEPT_MAX, Kept};
use crate::error::Result;

/// How often it looks for statements that have run for long.
const TICK: Duration = Duration::from_secs(1);

/// Writes what comes until the history is closed. What cannot be written, as on a full disk, is tried again a second later; until then it is in memory.
pub(super) fn run(kept: &Kept, mut file: HistoryFile) {
    let mut last_look = Instant::now();
    let mut late: Vec<Arc<Entry>> = Vec::new();
    loop {
        let (entries, is_closed) = kept.next(TICK);
        late.extend(entries);
        if last_look.elapsed() >= TICK {
            last_look = Instant::now();
            late.extend(due(kept));
        }
        if write(kept, &mut file, &late).is_ok() {
            late.clear();
        }
        let excess = late.len().saturating_sub(2 * KEPT_MAX);
        late.drain(..excess);
        kept.written();
        if is_closed {
            return;
        }
    }
}

/// Statements that have run for a while: a kill must not make them unheard of.
fn due(kept: &Kept) -> Vec<Arc<Entry>> {
    let running = kept.running();
    running.iter().filter(|task| task.is_due()).map(|task| Arc::new(task.entry(Status::Running, None))).collect()
}

fn write(kept: &Kept, file: &mut HistoryFile, entries: &[Arc<Entry>]) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    file.append(entries)?;
    if !file.is_full() {
        return Ok(());
    }
    let running = kept.running();
    let mut all: Vec<Arc<Entry>> = {
        let entries = kept.entries();
        entries.tasks.iter().chain(&entries.brief).cloned().collect()
    };
    all.extend(running.iter().map(|task| Arc::new(task.entry(Status::Running, None))));
    // The file is right as it is, and only long: the next entry tries again.
    let _ = file.replace(&all);
    Ok(())
}
