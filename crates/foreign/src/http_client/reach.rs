//! How servers are reached, and what the kernel tells of the connections.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
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
    /// How long data gathers before a read.
    gather_us: AtomicU32,
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
    resent_segments: u32,
    rtt_us: u32,
    rtt_min_us: u32,
}

/// Counts a connection while this lives.
pub struct Counted {
    sockets: Arc<Sockets>,
    number: u64,
    gather: Gather,
}

/// Tells the reader of a connection when to wait for more: the kernel acknowledges a reader that takes its time once per read.
#[derive(Clone)]
pub(crate) struct Gather {
    sockets: Arc<Sockets>,
    probe: Probe,
}

impl Gather {
    /// The wait before a read. `None`: something is there already, or nothing shall gather.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let pause = Duration::from_micros(self.sockets.gather_us.load(Ordering::Relaxed).into());
        (!pause.is_zero() && self.probe.has_nothing_unread()).then_some(pause)
    }
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.number)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.sockets.lock();
        let Some(mut seen) = state.open.remove(&self.number) else { return };
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
        Arc::new(Sockets { cancel: Cancel::new().ok(), gather_us: AtomicU32::new(0), state: Mutex::default() })
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

    /// Connects a blocking socket to the first address that answers. It asks, until it [sends](Counted::sends).
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
        reach.wanted.apply_for_requests(&socket, NEAR_RTT_US);
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
        let mut seen =
            Seen { probe: probe.clone(), last: Reading::default(), outbound: reach.outbound.clone(), entered: None };
        seen.read();
        let mut state = self.lock();
        let number = state.made;
        state.made += 1;
        state.gone.see_rtt(seen.last.rtt_min_us);
        state.open.insert(number, seen);
        Counted { sockets: Arc::clone(self), number, gather: Gather { sockets: Arc::clone(self), probe } }
    }

    /// Lets data gather for so long before each read, on all connections, now and later.
    pub fn gather_reads(&self, pause: Duration) {
        self.gather_us.store(u32::try_from(pause.as_micros()).unwrap_or(u32::MAX), Ordering::Relaxed);
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
        self.gather.probe.back_off_as_data();
        let mut state = self.sockets.lock();
        let Some(seen) = state.open.get_mut(&self.number).filter(|seen| seen.entered.is_none()) else { return };
        seen.entered = seen.outbound.as_ref().map(|outbound| outbound.enter(seen.probe.clone()));
    }

    /// Waits before a read, where data shall gather.
    pub fn gather(&self) {
        if let Some(pause) = self.gather.pause() {
            std::thread::park_timeout(pause);
        }
    }

    /// For a reader that waits in a runtime.
    pub(crate) fn gatherer(&self) -> Gather {
        self.gather.clone()
    }

    /// The round trip of its handshake; 0 if unknown.
    pub fn rtt_us(&self) -> u32 {
        self.sockets.lock().open.get(&self.number).map_or(0, |seen| seen.last.rtt_us)
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
                resent_segments: info.total_retrans,
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
        self.resent_segments = self.resent_segments.saturating_add(reading.resent_segments);
        self.see_rtt(reading.rtt_min_us);
    }

    fn see_rtt(&mut self, rtt_min_us: u32) {
        let both = [self.rtt_min_us, rtt_min_us];
        self.rtt_min_us = both.into_iter().filter(|us| *us > 0).min().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn data_gathers_only_where_that_was_asked_for_and_nothing_waits_to_be_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (sockets, reach) = (Sockets::new(), Reach::default());
        let (near, counted) =
            sockets.connect(&[listener.local_addr().unwrap()], &reach, Duration::from_secs(20)).unwrap();
        let mut far = listener.accept().unwrap().0;
        assert_eq!(counted.gather.pause(), None);
        let pause = Duration::from_millis(4);
        sockets.gather_reads(pause);
        assert_eq!(counted.gather.pause(), Some(pause));
        far.write_all(b"x").unwrap();
        near.peek(&mut [0]).unwrap();
        assert_eq!(counted.gather.pause(), None);
    }
}
