//! Threads that serve the sockets, one for each processor; a connection stays on one of them.
//!
//! What arrives for a connection then wakes one thread, which reads, answers and waits again. Threads that share their work wake each other for every
//! message, and a statement that reads one row costs less than such a wake-up.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread;

use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::auth::admission::Incoming;

/// Brief statements are planned and computed here: see [`super::workers`].
const STACK_BYTES: usize = 16 << 20;

/// The threads. They end with this value, and what runs on them is dropped.
pub(super) struct SocketThreads(Vec<SocketThread>);

struct SocketThread {
    runtime: Handle,
    /// Each of its connections has one.
    place: Arc<()>,
    _until: DropGuard,
}

impl SocketThreads {
    /// # Errors
    /// Of the operating system, which has no more threads or file descriptors.
    pub(super) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        (0..count).map(|_| SocketThread::start()).collect::<io::Result<_>>().map(Self)
    }

    /// Serves a client that has just connected, on the thread that has the fewest.
    pub(super) fn serve<S>(&self, connections: &TaskTracker, incoming: Incoming, serve: impl FnOnce(Incoming) -> S + Send + 'static)
    where
        S: Future<Output = ()> + Send,
    {
        let Some(thread) = self.0.iter().min_by_key(|thread| Arc::strong_count(&thread.place)) else { return };
        // A socket that cannot be taken along is broken: there is nobody to tell.
        let Ok(incoming) = Detached::new(incoming) else { return };
        let place = Arc::clone(&thread.place);
        let served = async move {
            let _place = place;
            if let Ok(incoming) = incoming.attach() {
                serve(incoming).await;
            }
        };
        connections.spawn_on(served, &thread.runtime);
    }
}

impl SocketThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let until = stop.clone().drop_guard();
        thread::Builder::new().name("sockets".to_owned()).stack_size(STACK_BYTES).spawn(move || {
            runtime.block_on(stop.cancelled());
            // Not to wait for a file that is being read.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, place: Arc::new(()), _until: until })
    }
}

/// A socket on its way from one thread's events to those of another.
enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Detached {
    fn new(incoming: Incoming) -> io::Result<Self> {
        match incoming {
            Incoming::Tcp(stream) => stream.into_std().map(Self::Tcp),
            Incoming::Unix(stream) => stream.into_std().map(Self::Unix),
        }
    }

    /// Among the events of the thread that calls this.
    fn attach(self) -> io::Result<Incoming> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Incoming::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Incoming::Unix),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Answers each byte, and tells on which thread.
    async fn echo(incoming: Incoming, threads: Arc<Mutex<Vec<thread::ThreadId>>>) {
        let Incoming::Tcp(mut stream) = incoming else { panic!("a TCP socket") };
        while let Ok(byte) = stream.read_u8().await {
            threads.lock().expect("no thread panics").push(thread::current().id());
            stream.write_u8(byte).await.expect("the client reads");
        }
    }

    #[tokio::test]
    async fn a_connection_stays_on_a_thread_and_connections_are_spread() {
        let (threads, connections) = (SocketThreads::start().expect("threads"), TaskTracker::new());
        let count = threads.0.len();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let mut clients = Vec::new();
        for _ in 0..count {
            let client = TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
            let served_by = Arc::new(Mutex::new(Vec::new()));
            let (stream, told) = (listener.accept().await.expect("a client").0, Arc::clone(&served_by));
            threads.serve(&connections, Incoming::Tcp(stream), |incoming| echo(incoming, told));
            clients.push((client, served_by));
        }
        let mut used = Vec::new();
        for (client, served_by) in &mut clients {
            for byte in 0..3 {
                client.write_u8(byte).await.expect("it is served");
                assert_eq!(client.read_u8().await.expect("it is served"), byte);
            }
            let mut served_by = served_by.lock().expect("no thread panics").clone();
            served_by.dedup();
            assert_eq!(served_by.len(), 1, "one thread serves all of a connection");
            used.push(served_by[0]);
        }
        assert!(used.iter().enumerate().all(|(index, thread)| !used[..index].contains(thread)), "each has one connection: {used:?}");
        drop(threads);
        let (client, _) = &mut clients[0];
        let end = timeout(Duration::from_secs(10), client.read_u8()).await.expect("the thread has ended");
        assert!(end.is_err(), "its connections are closed");
    }
}
