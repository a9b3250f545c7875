//! Connections over several paths: Multipath TCP (RFC 8684), as the kernel does it.
//!
//! ```text
//! Way { protocol: Mptcp } -> dial -> an MPTCP socket, or TCP where this kernel has none
//!                                    -> in use, or fallen back: the peer or the network has none
//! ```
//! Listeners take both.

#[cfg(test)]
#[path = "../tests/unit/mptcp_scenarios.rs"]
mod scenarios;
mod totals;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use haul_sys::tcp_info::{self, TcpInfo};
use haul_sys::{mptcp, outgoing};
use socket2::{Domain, Protocol, Socket, Type};

use self::totals::Totals;
pub use self::totals::WayTotals;

/// One path of a connection. Counters run from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subflow {
    /// Address of this end.
    pub local: SocketAddr,
    /// Address of the other end.
    pub remote: SocketAddr,
    /// The smoothed round-trip time.
    pub rtt_us: u32,
    /// Smallest round-trip time.
    pub rtt_min_us: Option<u32>,
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent, with repeats.
    pub sent_bytes: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// The last delivery's rate. It varies much; better take [`Subflow::acked_bytes`] twice.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Time-outs in a row: the path is silent.
    pub timeouts: u8,
}

impl Subflow {
    fn of(subflow: &mptcp::Subflow) -> Subflow {
        let mptcp::Subflow { local, remote, info } = subflow;
        Subflow {
            local: *local,
            remote: *remote,
            rtt_us: info.rtt_us,
            rtt_min_us: info.rtt_min_us,
            acked_bytes: info.bytes_acked.unwrap_or_default(),
            received_bytes: info.bytes_received.unwrap_or_default(),
            sent_bytes: info.bytes_sent.unwrap_or_default(),
            resent_bytes: info.bytes_retrans.unwrap_or_default(),
            delivery_rate_bytes_per_s: info.delivery_rate_bytes_per_s,
            timeouts: info.timeouts,
        }
    }
}

/// Why TCP came in place of MPTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The host made a TCP socket.
    Here,
    /// The other end, or something on the way.
    There,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fallback::Here => "plain TCP: this kernel has no MPTCP, or net.mptcp.enabled is 0",
            Fallback::There => "plain TCP: the other host has no MPTCP, or something on the way removes it",
        })
    }
}

/// Why a dialled connection does not use MPTCP, if so.
pub fn fallback(socket: &TcpStream) -> Option<Fallback> {
    match is_in_use(socket) {
        None => Some(Fallback::Here),
        Some(false) => Some(Fallback::There),
        Some(true) => None,
    }
}

/// Whether an MPTCP socket has not fallen back to TCP; `None`: a TCP socket.
pub fn is_in_use(socket: &TcpStream) -> Option<bool> {
    is_socket(socket).then(|| mptcp::is_in_use(socket).unwrap_or(false))
}

/// The paths of an MPTCP connection.
pub fn subflows(socket: &TcpStream) -> Vec<Subflow> {
    match is_in_use(socket) {
        Some(true) => mptcp::subflows(socket).unwrap_or_default().iter().map(Subflow::of).collect(),
        Some(false) | None => Vec::new(),
    }
}

pub(crate) fn is_socket(socket: impl AsFd) -> bool {
    outgoing::protocol(socket).is_ok_and(|protocol| protocol == mptcp::PROTOCOL)
}

/// An MPTCP socket, or TCP if the kernel or its operator lacks MPTCP.
pub(crate) fn socket_or_tcp(domain: Domain, kind: Type) -> io::Result<Socket> {
    Socket::new(domain, kind, Some(Protocol::from(mptcp::PROTOCOL)))
        .or_else(|_| Socket::new(domain, kind, Some(Protocol::TCP)))
}

/// Reads an MPTCP connection as if it were one path.
#[derive(Debug, Default)]
pub(crate) struct AsOnePath(Mutex<Totals>);

impl AsOnePath {
    pub(crate) fn tcp_info(&self, socket: &TcpStream) -> Option<TcpInfo> {
        if is_in_use(socket) != Some(true) {
            return tcp_info::tcp_info(socket).ok();
        }
        // The lock keeps readings in order.
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let subflows = mptcp::subflows(socket).ok()?;
        totals.read(&subflows, mptcp::unsent_bytes(socket).unwrap_or_default())
    }

    pub(crate) fn ways(&self) -> Vec<WayTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ways().to_vec()
    }
}
