//! Training runs on a thread of its own with a deep stack.
//!
//! candle walks the autograd graph by recursion, and drops it by recursion too: a graph of a few thousand operations
//! overflows the 2 MB of an ordinary worker thread. One thread for the whole run, because a new one per step
//! would throw the allocator's per-thread memory away each time.

use std::sync::mpsc;
use std::thread;

use crate::error::{Error, Result};

const STACK_BYTES: usize = 256 << 20;

/// Runs `work` on a thread with a deep stack and hands what it reports to `observer`, which runs on the calling thread.
///
/// `work` waits at each report until the observer is done with it; an observer that returns an error ends the work there.
///
/// # Errors
/// The observer's, or the work's own. [`Error::OutOfMemory`] if no thread can be started.
pub(crate) fn with_deep_stack<M: Send, T: Send>(
    work: impl FnOnce(&mut dyn FnMut(M) -> Result<()>) -> Result<T> + Send,
    observer: &mut dyn FnMut(M) -> Result<()>,
) -> Result<T> {
    let (report, reports) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    thread::scope(|scope| {
        let deep = thread::Builder::new().name("training".into()).stack_size(STACK_BYTES);
        let worker = deep.spawn_scoped(scope, move || {
            work(&mut |message| {
                let stopped = |_| Error::Cancelled("training");
                report.send(message).map_err(|_| Error::Cancelled("training"))?;
                may_go_on.recv().map_err(stopped)
            })
        });
        let worker = worker.map_err(|error| Error::OutOfMemory(format!("cannot start the training thread: {error}")))?;
        let observed = reports.iter().try_for_each(|message| {
            observer(message)?;
            // A worker that has ended meanwhile needs no answer.
            let _ = go_on.send(());
            Ok(())
        });
        // A worker that waits for an answer stops here.
        drop(go_on);
        let result = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        observed.and(result)
    })
}
