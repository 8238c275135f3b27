//! Where a connection comes from, and which user of the operating system is at its other end.

use std::net::{IpAddr, SocketAddr};

use crate::engine::operating_system_user;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin {
    /// By the Unix socket; the other end's user, if the system says so.
    Local {
        user_id: Option<u32>,
    },
    Host {
        peer: SocketAddr,
        local: SocketAddr,
        is_secure: bool,
    },
}

impl Origin {
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Self::Local { .. } => true,
            Self::Host { peer, .. } => peer.ip().to_canonical().is_loopback(),
        }
    }

    /// `None` for a Unix socket.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Local { .. } => None,
            Self::Host { peer, .. } => Some(peer.ip().to_canonical()),
        }
    }

    /// Whether another user of this machine than the one who started the server is at the other end, as far as the system tells; root is no other.
    pub(super) fn is_of_another_user(&self) -> bool {
        let user_id = match self {
            Self::Local { user_id } => *user_id,
            Self::Host { peer, local, .. } => owner_of_connection(*peer, *local),
        };
        user_id.is_some_and(|user_id| is_another(user_id, operating_system_user()))
    }
}

/// Root may do as the starter anyway.
fn is_another(user_id: u32, starter: u32) -> bool {
    user_id != 0 && user_id != starter
}

/// Linux lists every connection of the machine with the user whose socket it is; `None` elsewhere, or where the list is not to be read.
fn owner_of_connection(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|path| owner_in(&std::fs::read_to_string(path).ok()?, peer, local))
}

/// Seen from the other end: its own address comes first.
fn owner_in(list: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    list.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = is_address(fields.get(1)?, peer) && is_address(fields.get(2)?, local);
        if is_it { fields.get(7)?.parse().ok() } else { None }
    })
}

/// `0100007F:1539`: the address as words of the machine's byte order, and the port.
fn is_address(field: &str, address: SocketAddr) -> bool {
    let parsed = || {
        let (words, port) = field.split_once(':')?;
        let words: Option<Vec<[u8; 4]>> =
            (0..words.len() / 8).map(|n| u32::from_str_radix(words.get(n * 8..n * 8 + 8)?, 16).ok().map(u32::to_ne_bytes)).collect();
        let bytes = words?.concat();
        let address = match bytes.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
            _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        };
        Some((address.to_canonical(), u16::from_str_radix(port, 16).ok()?))
    };
    parsed() == Some((address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn another_user_is_neither_who_started_the_server_nor_root() {
        for (user_id, starter, expected) in [(1000, 1000, false), (0, 1000, false), (1001, 1000, true), (1000, 0, true), (0, 0, false)] {
            assert_eq!(is_another(user_id, starter), expected, "{user_id} at the server of {starter}");
        }
        let other = operating_system_user() + 1;
        assert!(Origin::Local { user_id: Some(other) }.is_of_another_user());
        assert!(!Origin::Local { user_id: None }.is_of_another_user(), "the system does not tell");
    }

    #[test]
    fn the_owner_of_a_connection_is_found() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                    0: 0100007F:1539 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n\
                    1: 0100007F:D88B 0100007F:1539 01 00000000:00000000 00:00000000 00000000   101        0 2 1 0 100 0 0 10 0\n";
        if cfg!(target_endian = "little") {
            let (peer, local) = ("127.0.0.1:55435".parse().expect("an address"), "127.0.0.1:5433".parse().expect("an address"));
            assert_eq!((owner_in(list, peer, local), owner_in(list, local, peer)), (Some(101), None));
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (peer, local) = (client.local_addr().expect("it is connected"), client.peer_addr().expect("it is connected"));
        assert!(!Origin::Host { peer, local, is_secure: false }.is_of_another_user());
    }
}
