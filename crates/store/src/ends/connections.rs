//! The connections of an end to its server.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

/// The connections of an end to its server, which a session samples.
pub trait Connections: Debug + Send + Sync {
    /// Reads them all.
    fn now(&self) -> ConnectionsNow;

    /// The bytes to be moved, if known before the first of them.
    fn foreseen_bytes(&self) -> Option<u64> {
        None
    }

    /// The most connections unasked, if unusual.
    fn most(&self) -> Option<u16> {
        None
    }

    /// Whether each connection costs the server a login.
    fn needs_login(&self) -> bool {
        true
    }

    /// Lets so many carry data at once; the server may allow fewer.
    fn allow(&self, count: u16);

    /// Lets data gather for so long before each read, which thins the acknowledgements.
    fn gather_reads(&self, _pause: Duration) {}
}

/// The connections at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionsNow {
    /// The open ones, idle ones included.
    pub count: u16,
    /// The kernel's readings, where known.
    pub open: Vec<ConnectionReading>,
    /// Payload so far, over closed ones, too.
    pub moved_bytes: u64,
    /// Bytes that this host sent again.
    pub resent_bytes: u64,
    /// Segments that this host sent again.
    pub resent_segments: u32,
    /// All bytes that this host sent.
    pub sent_bytes: u64,
    /// The smallest round-trip time; 0: not measured.
    pub rtt_min_us: u32,
    /// The most that the server allowed at once.
    pub server_allows: u16,
    /// The server's refusals.
    pub refusals: u32,
}

/// One connection, as this host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionReading {
    /// Our address.
    pub local: SocketAddr,
    /// The server's address.
    pub peer: SocketAddr,
    /// The round-trip time now; 0: unknown.
    pub rtt_us: u32,
}
