//! Clients that are lost without a word, because their machine or the network between is gone: the system asks for a sign of life, and closes a
//! connection on which none comes. A statement that computes for such a client is then stopped as for one that has closed its socket
//! (`interrupt.rs`).

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// PostgreSQL's `tcp_keepalives_idle`, `tcp_keepalives_interval` and `tcp_keepalives_count`. Whole seconds, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence after which a client is asked first.
    pub idle: Duration,
    /// Between one question and the next.
    pub interval: Duration,
    /// How many questions may stay unanswered.
    pub count: u32,
}

impl Default for Keepalive {
    /// Two minutes in all.
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), interval: Duration::from_secs(10), count: 6 }
    }
}

impl Keepalive {
    /// A connection that the system does not watch is served all the same.
    pub(super) fn watch(self, stream: &TcpStream) {
        let times = TcpKeepalive::new().with_time(self.idle).with_interval(self.interval).with_retries(self.count);
        let _ = SockRef::from(stream).set_tcp_keepalive(&times);
    }

    /// The settings that tell of it.
    pub(super) fn settings(self) -> [(&'static str, String); 3] {
        [
            ("tcp_keepalives_idle", self.idle.as_secs().to_string()),
            ("tcp_keepalives_interval", self.interval.as_secs().to_string()),
            ("tcp_keepalives_count", self.count.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_system_watches_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let _client = TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("a client");
        let socket = SockRef::from(&stream);
        assert!(!socket.keepalive().expect("a socket has options"));
        let keepalive = Keepalive { idle: Duration::from_secs(30), interval: Duration::from_secs(5), count: 3 };
        keepalive.watch(&stream);
        assert!(socket.keepalive().expect("a socket has options"));
        assert_eq!(socket.tcp_keepalive_time().expect("a socket has options"), keepalive.idle);
        assert_eq!(socket.tcp_keepalive_interval().expect("a socket has options"), keepalive.interval);
        assert_eq!(socket.tcp_keepalive_retries().expect("a socket has options"), keepalive.count);
    }
}
