//! The connections of an end to its server: how many there are, and what they have brought.

use std::fmt::Debug;
use std::net::SocketAddr;

/// Connections of an end to its server. A session samples them while it runs, and says how many carry data.
pub trait Connections: Debug + Send + Sync {
    /// Reads them all.
    fn now(&self) -> ConnectionsNow;

    /// The bytes that there are to be moved, where that is known before the first of them.
    fn foreseen_bytes(&self) -> Option<u64> {
        None
    }

    /// Most connections that are made unasked, where it is another number than to most servers.
    fn most(&self) -> Option<u16> {
        None
    }

    /// Lets so many carry data at once, from now on. The server may allow fewer.
    fn allow(&self, count: u16);
}

/// The connections of an end at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionsNow {
    /// How many are open, also those that rest.
    pub count: u16,
    /// Readings of the kernel, where they are connections of this process.
    pub open: Vec<ConnectionReading>,
    /// Payload that has come or gone over all connections so far, also over those that are closed.
    pub moved_bytes: u64,
    /// Bytes that this host sent again, and all that it sent.
    pub resent_bytes: u64,
    /// See above.
    pub sent_bytes: u64,
    /// The smallest round-trip time of any connection so far; 0 while none was measured.
    pub rtt_min_us: u32,
    /// As many may carry data at once as the server has allowed so far.
    pub server_allows: u16,
    /// How often the server refused one.
    pub refusals: u32,
}

/// One connection, as the kernel of this host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionReading {
    /// The address of this host.
    pub local: SocketAddr,
    /// The address of the server.
    pub peer: SocketAddr,
    /// The round-trip time now; 0 while unknown.
    pub rtt_us: u32,
}
