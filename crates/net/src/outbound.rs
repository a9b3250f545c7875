//! The connections by which data leaves this host for a server that is no haul, as whoever marks and samples them sees them.
//!
//! ```text
//!   a transfer begins -> `enter` gives it the mark of the moment -> `open` shows it to the sampler -> `Entered` drops: it is closed
//! ```
//! Many transfers are over before the sampler looks: so a connection gets its mark when it begins, and its bytes count here.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::Dscp;
use crate::stream::Probe;

/// The mark of a connection to this host before the sampler knows the path.
pub type FirstMark = Box<dyn Fn(IpAddr) -> Option<Dscp> + Send + Sync>;

/// The data connections of one target. The sampler sees none before [`Outbound::begin`].
#[derive(Default)]
pub struct Outbound(Mutex<State>);

#[derive(Default)]
struct State {
    first_mark: Option<FirstMark>,
    /// The ends of the first connection that entered: here and there.
    first_between: Option<(IpAddr, IpAddr)>,
    /// The sampler's mark for new connections, once it has one for the path.
    next_mark: Option<Option<Dscp>>,
    open: BTreeMap<u64, (OutboundConnection, IsSampled)>,
    entered: u64,
    sending: u16,
    most_sending: u16,
    /// Marked bytes of closed connections that the sampler never saw.
    unsampled_marked_bytes: u64,
}

type IsSampled = bool;

/// One such connection.
#[derive(Clone)]
pub struct OutboundConnection {
    /// No other one has this number.
    pub number: u64,
    /// The kernel's counters and options.
    pub probe: Probe,
    /// The host's mark, or its network class's.
    pub own_mark: Option<Dscp>,
    /// The mark that it got here.
    pub mark: Option<Dscp>,
    /// Bytes that it had sent before.
    pub unmarked_bytes: u64,
}

/// Counts a connection, and keeps it open to the sampler.
pub struct Entered {
    outbound: Arc<Outbound>,
    /// `None`: the sampler does not see it.
    number: Option<u64>,
}

impl Outbound {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets connections enter from now on.
    pub fn begin(&self, first_mark: FirstMark) {
        self.lock().first_mark = Some(first_mark);
    }

    /// Enters a connection that begins to send. The sampler sees it, if there is one and they are not too many.
    pub fn enter(self: &Arc<Self>, probe: Probe) -> Entered {
        let mut state = self.lock();
        state.sending = state.sending.saturating_add(1);
        state.most_sending = state.most_sending.max(state.sending);
        let number = state.show(probe);
        Entered { outbound: Arc::clone(self), number }
    }

    /// The most that sent at once.
    pub fn most_sending(&self) -> u16 {
        self.lock().most_sending
    }

    /// The addresses of the first connection: here and there. It may be closed, and no sampler may have seen it.
    pub fn first_between(&self) -> Option<(IpAddr, IpAddr)> {
        self.lock().first_between
    }

    /// Sets the mark with which further connections begin.
    pub fn mark_next(&self, mark: Option<Dscp>) {
        self.lock().next_mark = Some(mark);
    }

    /// The open ones, for the sampler, which counts their bytes from now on.
    pub fn open(&self) -> Vec<OutboundConnection> {
        let mut state = self.lock();
        state.open.values_mut().for_each(|(_, is_sampled)| *is_sampled = true);
        state.open.values().map(|(connection, _)| connection.clone()).collect()
    }

    /// Bytes that went with a mark over connections that the sampler never saw.
    pub fn unsampled_marked_bytes(&self) -> u64 {
        let state = self.lock();
        let unsampled = state.open.values().filter(|(_, is_sampled)| !is_sampled);
        unsampled
            .map(|(connection, _)| connection.marked_bytes())
            .fold(state.unsampled_marked_bytes, u64::saturating_add)
    }
}

impl State {
    fn show(&mut self, probe: Probe) -> Option<u64> {
        let (local, peer) = (probe.local_addr()?.ip().to_canonical(), probe.peer_addr()?.ip().to_canonical());
        self.first_between.get_or_insert((local, peer));
        if self.open.len() >= usize::from(OPEN_MAX) {
            return None;
        }
        let first_mark = self.first_mark.as_ref()?;
        let wanted = self.next_mark.unwrap_or_else(|| first_mark(peer));
        let own_mark = probe.dscp();
        let unmarked_bytes = probe.tcp_info().and_then(|info| info.bytes_sent).unwrap_or(0);
        // The sampler asks again for a mark that is refused, and tells.
        let mark = wanted.filter(|mark| probe.set_dscp(*mark).iter().all(|applied| !applied.refused));
        let number = self.entered;
        self.entered += 1;
        self.open.insert(number, (OutboundConnection { number, probe, own_mark, mark, unmarked_bytes }, false));
        Some(number)
    }
}

impl OutboundConnection {
    fn marked_bytes(&self) -> u64 {
        let is_marked = self.mark.is_some_and(|mark| mark.code_point() != 0);
        let sent_bytes = self.probe.tcp_info().and_then(|info| info.bytes_sent).filter(|_| is_marked);
        sent_bytes.map_or(0, |sent| sent.saturating_sub(self.unmarked_bytes))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = self.outbound.lock();
        state.sending -= 1;
        let shown = self.number.and_then(|number| state.open.remove(&number));
        let Some((connection, is_sampled)) = shown else { return };
        if !is_sampled {
            let marked_bytes = connection.marked_bytes();
            state.unsampled_marked_bytes = state.unsampled_marked_bytes.saturating_add(marked_bytes);
        }
        // The sampler's own descriptor would keep it open, and the server wait for its end.
        connection.probe.shut_down();
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} outbound connections", self.lock().open.len())
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outbound connection {:?}", self.number)
    }
}

/// As many as one path has lanes: each is sampled as a lane.
pub const OPEN_MAX: u16 = 256;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::Stream;

    const EXPEDITED: u8 = 46;

    fn connected() -> (TcpStream, Probe, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let probe = Stream::plain_tcp(near.try_clone().unwrap()).probe();
        (near, probe, listener.accept().unwrap().0)
    }

    fn code_point(probe: &Probe) -> Option<u8> {
        probe.dscp().map(Dscp::code_point)
    }

    #[test]
    fn a_connection_begins_with_the_mark_of_the_moment() {
        let outbound = Arc::new(Outbound::default());
        let (_near, probe, _far) = connected();
        let unseen = outbound.enter(probe.clone());
        assert!(outbound.open().is_empty(), "nobody samples");
        drop(unseen);
        outbound.begin(Box::new(|peer| Dscp::new(EXPEDITED).filter(|_| peer.is_loopback())));
        let _entered = outbound.enter(probe.clone());
        assert_eq!(code_point(&probe), Some(EXPEDITED));
        outbound.mark_next(None);
        let (_near, later, _far) = connected();
        let _later = outbound.enter(later.clone());
        assert_eq!(code_point(&later), Some(0));
        let marks: Vec<Option<u8>> =
            outbound.open().iter().map(|connection| connection.mark.map(Dscp::code_point)).collect();
        assert_eq!(marks, [Some(EXPEDITED), None]);
        assert_eq!(outbound.most_sending(), 2);
    }

    #[test]
    fn the_ends_of_the_first_connection_are_known_when_it_is_over() {
        let outbound = Arc::new(Outbound::default());
        outbound.begin(Box::new(|_| None));
        assert_eq!(outbound.first_between(), None);
        let (_near, probe, _far) = connected();
        drop(outbound.enter(probe));
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(outbound.first_between(), Some((here, here)));
    }

    #[test]
    fn what_nobody_sampled_counts_with_its_mark_and_the_server_sees_the_end_at_once() {
        let outbound = Arc::new(Outbound::default());
        outbound.begin(Box::new(|_| Dscp::new(EXPEDITED)));
        let (mut near, probe, mut far) = connected();
        near.write_all(&[0; 10]).unwrap();
        let entered = outbound.enter(probe);
        near.write_all(&[0; 1_000]).unwrap();
        assert_eq!(outbound.unsampled_marked_bytes(), 1_000);
        drop(entered);
        assert_eq!(outbound.unsampled_marked_bytes(), 1_000);
        let mut arrived = Vec::new();
        far.read_to_end(&mut arrived).unwrap();
        assert_eq!(arrived.len(), 1_010);
        assert!(outbound.open().is_empty());
    }
}
