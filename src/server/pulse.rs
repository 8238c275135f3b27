//! Sockets are heard while statements are planned.
//!
//! One worker thread of the runtime waits for all sockets. If it then takes up a statement that is long to plan, the others sleep on, and nobody hears of
//! new clients or of requests to cancel. A task from outside wakes one of those, which waits for the sockets next.

use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// How long sockets may wait.
const PAUSE: Duration = Duration::from_millis(20);

/// Wakes a worker of this runtime again and again, until `stop`.
pub(super) fn start(stop: &CancellationToken) {
    let (runtime, stop) = (Handle::current(), stop.clone());
    let beat = move || {
        while !stop.is_cancelled() {
            thread::sleep(PAUSE);
            drop(runtime.spawn(async {}));
        }
    };
    // A server without this thread answers later under load, and answers all the same.
    let _ = thread::Builder::new().name("rolloutdb-pulse".to_owned()).spawn(beat);
}
