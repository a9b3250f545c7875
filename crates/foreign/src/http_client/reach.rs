//! How servers are reached, and what the kernel tells of the connections.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_net::dial::Cancel;
use haul_net::policy::NEAR_RTT_US;
use haul_net::{Entered, Family, Outbound, Probe, Stream, Wanted, Way};
use haul_store::{ConnectionReading, ConnectionsNow};

use crate::http_client::limits::CONNECT_DEADLINE;
use crate::http_client::url::Origin;

/// How connections leave this host and are tuned, like lanes to a haul.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The version of IP, if the user insists.
    pub family: Option<Family>,
    /// Source address, device and protocol.
    pub way: Way,
    /// Congestion control, window and network classes.
    pub wanted: Wanted,
    /// Connections that send data enter here.
    pub outbound: Option<Arc<Outbound>>,
}

/// A client's connections, as the kernel sees them.
#[derive(Debug)]
pub struct Sockets {
    cancel: Option<Cancel>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<u64, Seen>,
    made: u64,
    /// Bytes of closed connections, and the smallest round-trip time.
    gone: ConnectionsNow,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} open of {}", self.open.len(), self.made)
    }
}

struct Seen {
    probe: Probe,
    last: Reading,
    outbound: Option<Arc<Outbound>>,
    entered: Option<Entered>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    moved_bytes: u64,
    sent_bytes: u64,
    resent_bytes: u64,
    rtt_us: u32,
    rtt_min_us: u32,
}

/// Counts a connection while this lives.
#[derive(Debug)]
pub struct Counted(Arc<Sockets>, u64);

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let Some(mut seen) = state.open.remove(&self.1) else { return };
        let last = seen.read();
        state.gone.add(&last);
    }
}

pub(crate) struct Dialled {
    pub(crate) socket: TcpStream,
    pub(crate) counted: Counted,
    pub(crate) rtt_us: u32,
}

impl Sockets {
    /// Begins without connections.
    pub fn new() -> Arc<Sockets> {
        // Without it dials end by their deadline.
        Arc::new(Sockets { cancel: Cancel::new().ok(), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn dial(self: &Arc<Self>, origin: &Origin, reach: &Reach, silence: Duration) -> io::Result<Dialled> {
        let addresses = haul_net::resolve(&origin.host, origin.port, reach.family)
            .map_err(|error| io::Error::new(ErrorKind::HostUnreachable, error))?;
        let (socket, counted) = self.connect(&addresses, reach, silence)?;
        let rtt_us = counted.rtt_us();
        socket.set_nonblocking(true)?;
        Ok(Dialled { socket, counted, rtt_us })
    }

    /// Connects a blocking socket to the first address that answers.
    ///
    /// # Errors
    /// None answers in time, or the way does not lead there.
    pub fn connect(
        self: &Arc<Self>,
        addresses: &[SocketAddr],
        reach: &Reach,
        silence: Duration,
    ) -> io::Result<(TcpStream, Counted)> {
        let deadline = CONNECT_DEADLINE.min(silence);
        let policies = &reach.wanted.policies;
        let socket = haul_net::dial(addresses, deadline, policies, &reach.way, self.cancel.as_ref());
        let socket = socket.map_err(|error| io::Error::new(ErrorKind::NotConnected, error.to_string()))?;
        reach.wanted.apply(&socket, NEAR_RTT_US);
        let counted = self.count(socket.try_clone()?, reach);
        Ok((socket, counted))
    }

    /// Tunes and counts a connection that the server made.
    ///
    /// # Errors
    /// There is no further descriptor.
    pub fn accepted(self: &Arc<Self>, socket: &TcpStream, reach: &Reach) -> io::Result<Counted> {
        reach.wanted.apply(socket, NEAR_RTT_US);
        Ok(self.count(socket.try_clone()?, reach))
    }

    fn count(self: &Arc<Self>, socket: TcpStream, reach: &Reach) -> Counted {
        let probe = Stream::plain_tcp(socket).probe();
        let mut seen = Seen { probe, last: Reading::default(), outbound: reach.outbound.clone(), entered: None };
        seen.read();
        let mut state = self.lock();
        let number = state.made;
        state.made += 1;
        state.gone.see_rtt(seen.last.rtt_min_us);
        state.open.insert(number, seen);
        Counted(Arc::clone(self), number)
    }

    /// Ends dials, now and later.
    pub fn end(&self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }

    pub(crate) fn open_count(&self) -> usize {
        self.lock().open.len()
    }

    /// Reads all connections.
    pub fn now(&self) -> ConnectionsNow {
        let mut state = self.lock();
        let mut now = state.gone.clone();
        for seen in state.open.values_mut() {
            let reading = seen.read();
            now.add(&reading);
            if let (Some(local), Some(peer)) = (seen.probe.local_addr(), seen.probe.peer_addr()) {
                now.open.push(ConnectionReading { local, peer, rtt_us: reading.rtt_us });
            }
        }
        now.count = u16::try_from(state.open.len()).unwrap_or(u16::MAX);
        state.gone.see_rtt(now.rtt_min_us);
        now
    }
}

impl Counted {
    /// Says that data leaves by this connection from now on: its class is that of the copy.
    pub fn sends(&self) {
        let mut state = self.0.lock();
        let Some(seen) = state.open.get_mut(&self.1).filter(|seen| seen.entered.is_none()) else { return };
        seen.entered = seen.outbound.as_ref().map(|outbound| outbound.enter(seen.probe.clone()));
    }

    /// The round trip of its handshake; 0 if unknown.
    pub fn rtt_us(&self) -> u32 {
        self.0.lock().open.get(&self.1).map_or(0, |seen| seen.last.rtt_us)
    }
}

impl Seen {
    fn read(&mut self) -> Reading {
        if let Some(info) = self.probe.tcp_info() {
            let (received, acked) = (info.bytes_received.unwrap_or(0), info.bytes_acked.unwrap_or(0));
            self.last = Reading {
                moved_bytes: received.saturating_add(acked),
                sent_bytes: info.bytes_sent.unwrap_or(0),
                resent_bytes: info.bytes_retrans.unwrap_or(0),
                // Where this host only receives, the kernel times what arrives.
                rtt_us: info.rcv_rtt_us.filter(|_| received > acked).unwrap_or(info.rtt_us),
                rtt_min_us: info.rtt_min_us.unwrap_or(info.rtt_us),
            };
        }
        self.last
    }
}

trait Sum {
    fn add(&mut self, reading: &Reading);
    fn see_rtt(&mut self, rtt_min_us: u32);
}

impl Sum for ConnectionsNow {
    fn add(&mut self, reading: &Reading) {
        self.moved_bytes = self.moved_bytes.saturating_add(reading.moved_bytes);
        self.sent_bytes = self.sent_bytes.saturating_add(reading.sent_bytes);
        self.resent_bytes = self.resent_bytes.saturating_add(reading.resent_bytes);
        self.see_rtt(reading.rtt_min_us);
    }

    fn see_rtt(&mut self, rtt_min_us: u32) {
        let both = [self.rtt_min_us, rtt_min_us];
        self.rtt_min_us = both.into_iter().filter(|us| *us > 0).min().unwrap_or(0);
    }
}
