//! Hands arriving lanes, and further links of control channels, to their session.
//!
//! A lane proves its key in the TLS handshake, then names its session. Unless that session expects the key, the lane is closed
//! without a word.
//!
//! Initiators choose session numbers, and a far host learns its peer's. So a taken number is refused, and only an entry's
//! ticket removes it.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::plan::NEAR_RTT_US;
use haul_job::{Error, Fault};
use haul_net::limits::HANDSHAKE_DEADLINE;
use haul_net::{PublicKey, Stream, Wanted};
use haul_wire::lane::{Hello, LANE_HELLO_BYTES, LaneHello};

use haul_channel::channel::{Channel, EventSender, LaneEvent, SessionEvent};
use haul_channel::clock::TICK;
use haul_kept::sync::lock;

/// The sessions of one listener that expect lanes.
pub struct LaneRendezvous {
    sessions: Mutex<Announced>,
    changed: Condvar,
    /// Counts initiators that may announce a session.
    awaited: AtomicUsize,
    overtake: Duration,
    hand_over: Duration,
}

impl Default for LaneRendezvous {
    fn default() -> LaneRendezvous {
        let (sessions, changed, awaited) = Default::default();
        LaneRendezvous { sessions, changed, awaited, overtake: OVERTAKE, hand_over: HAND_OVER }
    }
}

#[derive(Default)]
struct Announced {
    by_number: HashMap<[u8; 16], Expected>,
    tickets: u64,
}

struct Expected {
    ticket: u64,
    keys: Vec<PublicKey>,
    events: EventSender,
    wanted: Wanted,
    clear: bool,
    /// Only the host with this key may bring links.
    channel: Option<(PublicKey, Channel)>,
    brought: Vec<PublicKey>,
}

/// Lanes come from the initiator, and from hosts that it names.
const MAX_KEYS: usize = 8;

/// The time of a handshake: a waiting lane fills the door as a stranger does.
const HAND_OVER: Duration = HANDSHAKE_DEADLINE;

/// A lane may overtake its session's announcement.
const OVERTAKE: Duration = Duration::from_secs(5);

impl LaneRendezvous {
    /// Reads a new connection's hello, within the handshake's deadline.
    pub fn read_hello(stream: &mut Stream) -> io::Result<Hello> {
        let mut bytes = [0; LANE_HELLO_BYTES];
        stream.read_exact(&mut bytes)?;
        Hello::decode(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "neither lane nor control"))
    }

    /// Whether a session expects this key. Waits while one may be announced, unless the lane is to leave.
    pub fn expects_key(&self, key: &PublicKey, is_to_leave: &dyn Fn() -> bool) -> bool {
        let expects = |sessions: &Announced| sessions.by_number.values().any(|expected| expected.keys.contains(key));
        let begun = Instant::now();
        let mut sessions = lock(&self.sessions);
        while self.awaited.load(Ordering::Relaxed) > 0
            && !expects(&sessions)
            && begun.elapsed() < self.overtake
            && !is_to_leave()
        {
            (sessions, _) = self.changed.wait_timeout(sessions, TICK).unwrap_or_else(PoisonError::into_inner);
        }
        expects(&sessions)
    }

    /// Hands a lane over. Returns false if not in time, or if the door needs its place.
    pub fn deliver(&self, stream: Stream, key: &PublicKey, hello: LaneHello) -> bool {
        let begun = Instant::now();
        let mut sessions = lock(&self.sessions);
        while sessions.of(&hello, key).is_none() && begun.elapsed() < self.overtake && !stream.is_shut_down() {
            (sessions, _) = self.changed.wait_timeout(sessions, TICK).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(expected) = sessions.of(&hello, key) else {
            return false;
        };
        // The session may lose its channel at once, and then asks whether the peer can dial.
        expected.has_brought(*key);
        let (events, clear) = (expected.events.clone(), expected.clear);
        let mut applied = stream.tune(&expected.wanted, NEAR_RTT_US);
        drop(sessions);
        applied.retain(|applied| hello.lane == 0 && applied.falls_short);
        if !applied.is_empty() {
            let _ = events.try_send(SessionEvent::Lane(LaneEvent::FallsShort(applied)));
        }
        let stream = match clear {
            true => stream.into_clear(),
            false => Ok(stream),
        };
        let Ok(stream) = stream else { return false };
        if stream.set_deadline(None).is_err() {
            return false;
        }
        events.send_within(SessionEvent::Lane(LaneEvent::Up(stream, hello.lane)), self.hand_over).is_ok()
    }

    /// Hands a link over. Returns false if none takes this key. Links come long after the announcement, so it does not wait.
    pub fn deliver_link(&self, stream: Stream, key: &PublicKey, session: [u8; 16]) -> bool {
        let sessions = lock(&self.sessions);
        let channel = sessions.by_number.get(&session).and_then(|expected| expected.channel_of(key)).cloned();
        drop(sessions);
        let Some(channel) = channel else { return false };
        stream.tune_for_words(NEAR_RTT_US);
        stream.set_deadline(None).is_ok() && channel.offer(stream)
    }

    /// Announces an initiator, while the answer lives.
    pub fn await_session(self: &Arc<Self>) -> Awaited {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        Awaited(Arc::clone(self))
    }

    /// Lets lanes in, until the answer is dropped.
    ///
    /// # Errors
    /// Another session has this number, and keeps it.
    pub fn expect(
        self: &Arc<Self>,
        id: [u8; 16],
        key: PublicKey,
        events: EventSender,
        wanted: Wanted,
        clear: bool,
    ) -> Result<Expecting, Error> {
        let mut sessions = lock(&self.sessions);
        if sessions.by_number.contains_key(&id) {
            return Err(Error::new(Fault::Protocol, "the number of this session is that of another one")
                .try_this("run the same command again, which takes another number"));
        }
        sessions.tickets += 1;
        let ticket = sessions.tickets;
        sessions.by_number.insert(
            id,
            Expected { ticket, keys: vec![key], events, wanted, clear, channel: None, brought: Vec::new() },
        );
        drop(sessions);
        self.changed.notify_all();
        Ok(Expecting { rendezvous: Arc::clone(self), id, ticket })
    }
}

impl Expected {
    fn channel_of(&self, key: &PublicKey) -> Option<&Channel> {
        self.channel.as_ref().filter(|(of, _)| of == key).map(|(_, channel)| channel)
    }

    fn has_brought(&mut self, key: PublicKey) {
        if !self.brought.contains(&key) {
            self.brought.push(key);
        }
        if let Some(channel) = self.channel_of(&key) {
            channel.set_dialled();
        }
    }
}

impl Announced {
    fn of(&mut self, hello: &LaneHello, key: &PublicKey) -> Option<&mut Expected> {
        self.by_number.get_mut(&hello.session).filter(|expected| expected.keys.contains(key))
    }

    fn entry(&mut self, id: [u8; 16], ticket: u64) -> Option<&mut Expected> {
        self.by_number.get_mut(&id).filter(|expected| expected.ticket == ticket)
    }
}

/// Counts an initiator that may name a session.
pub struct Awaited(Arc<LaneRendezvous>);

impl Drop for Awaited {
    fn drop(&mut self) {
        // The lock keeps others from missing this between a look and a wait.
        let _sessions = lock(&self.0.sessions);
        self.0.awaited.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

/// Lets lanes of a session in.
pub struct Expecting {
    rendezvous: Arc<LaneRendezvous>,
    id: [u8; 16],
    ticket: u64,
}

impl Expecting {
    /// Admits this key, too. Returns false at [`MAX_KEYS`].
    pub fn also(&self, key: PublicKey) -> bool {
        if let Some(expected) = lock(&self.rendezvous.sessions).entry(self.id, self.ticket) {
            if expected.keys.len() >= MAX_KEYS {
                return false;
            }
            expected.keys.push(key);
        }
        self.rendezvous.changed.notify_all();
        true
    }

    /// Lets this host bring links.
    pub fn takes_links(&self, key: PublicKey, channel: &Channel) {
        if let Some(expected) = lock(&self.rendezvous.sessions).entry(self.id, self.ticket) {
            expected.channel = Some((key, channel.clone()));
            if expected.brought.contains(&key) {
                channel.set_dialled();
            }
        }
    }
}

impl Drop for Expecting {
    fn drop(&mut self) {
        let mut sessions = lock(&self.rendezvous.sessions);
        if sessions.entry(self.id, self.ticket).is_some() {
            sessions.by_number.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use haul_wire::control::Control;

    use super::*;
    use haul_channel::channel::Events;

    const PATIENCE: Duration = Duration::from_secs(60);

    const KEY: PublicKey = PublicKey([1; 32]);

    fn stays() -> bool {
        false
    }

    #[test]
    fn a_key_that_nobody_can_announce_is_refused_at_once() {
        let rendezvous = Arc::new(LaneRendezvous::default());
        let start = Instant::now();
        assert!(!rendezvous.expects_key(&KEY, &stays));
        assert!(start.elapsed() < OVERTAKE);
    }

    #[test]
    fn a_key_is_expected_as_long_as_its_session_lives() {
        let rendezvous = Arc::new(LaneRendezvous::default());
        let events = Events::new().sender();
        let expecting = rendezvous.expect([0; 16], KEY, events, Wanted::default(), false);
        assert!(rendezvous.expects_key(&KEY, &stays));
        drop(expecting);
        assert!(!rendezvous.expects_key(&KEY, &stays));
    }

    fn delivers_behind(waiting: impl Fn() -> SessionEvent) -> bool {
        let rendezvous =
            Arc::new(LaneRendezvous { hand_over: Duration::from_millis(300), ..LaneRendezvous::default() });
        let events = Events::new();
        let _expecting = rendezvous.expect([0; 16], KEY, events.sender(), Wanted::default(), false);
        while events.sender().try_send(waiting()).is_ok() {}
        let (lane, _peer) = Stream::plain_pair().unwrap();
        let (says, delivered) = mpsc::channel();
        std::thread::spawn(move || says.send(rendezvous.deliver(lane, &KEY, LaneHello { session: [0; 16], lane: 0 })));
        delivered.recv_timeout(PATIENCE).expect("it is waited for without end")
    }

    #[test]
    fn a_session_that_takes_no_more_lanes_does_not_hold_up_the_door() {
        assert!(!delivers_behind(|| SessionEvent::Wake));
    }

    #[test]
    fn a_session_that_is_full_of_items_gets_its_lanes() {
        assert!(delivers_behind(|| SessionEvent::Control(Control::EndOfManifest)));
    }

    #[test]
    fn a_key_whose_place_at_the_door_is_for_another_waits_for_no_announcement() {
        let rendezvous = Arc::new(LaneRendezvous { overtake: 10 * PATIENCE, ..LaneRendezvous::default() });
        let _awaited = rendezvous.await_session();
        let (says, answered) = mpsc::channel();
        std::thread::spawn(move || says.send(rendezvous.expects_key(&KEY, &|| true)));
        assert_eq!(answered.recv_timeout(PATIENCE), Ok(false));
    }

    #[test]
    fn a_lane_with_the_number_of_another_session_or_of_one_that_has_ended_is_let_go() {
        let rendezvous = Arc::new(LaneRendezvous { overtake: Duration::from_millis(200), ..LaneRendezvous::default() });
        let (events_a, events_b) = (Events::new(), Events::new());
        let (key_a, key_b) = (PublicKey([0xa; 32]), PublicKey([0xb; 32]));
        let session_a = rendezvous.expect([0xa; 16], key_a, events_a.sender(), Wanted::default(), false);
        let _session_b = rendezvous.expect([0xb; 16], key_b, events_b.sender(), Wanted::default(), false);
        let delivers = |key: &PublicKey, session| {
            let (lane, _peer) = Stream::plain_pair().unwrap();
            rendezvous.deliver(lane, key, LaneHello { session, lane: 0 })
        };
        let came = |events: &Events| matches!(events.next(Duration::ZERO), Some(SessionEvent::Lane(LaneEvent::Up(..))));
        assert!(!delivers(&key_a, [0xb; 16]) && !delivers(&key_b, [0xa; 16]), "the number of the other");
        assert!(!delivers(&key_a, [0xc; 16]), "a number of nobody");
        assert!(!came(&events_a) && !came(&events_b));
        assert!(delivers(&key_a, [0xa; 16]) && delivers(&key_b, [0xb; 16]));
        assert!(came(&events_a) && came(&events_b));
        drop(session_a);
        assert!(!delivers(&key_a, [0xa; 16]), "it has ended");
        assert!(!came(&events_a));
    }

    #[test]
    fn a_number_that_is_taken_is_refused_and_the_session_that_has_it_goes_on() {
        let rendezvous = Arc::new(LaneRendezvous { overtake: Duration::from_millis(200), ..LaneRendezvous::default() });
        let (events_a, events_b) = (Events::new(), Events::new());
        let (key_a, key_b) = (PublicKey([0xa; 32]), PublicKey([0xb; 32]));
        let first = rendezvous.expect([1; 16], key_a, events_a.sender(), Wanted::default(), false).unwrap();
        let refused = rendezvous.expect([1; 16], key_b, events_b.sender(), Wanted::default(), false).err().unwrap();
        assert_eq!(refused.fault, Fault::Protocol, "{refused:?}");
        let delivers = |key: &PublicKey| {
            let (lane, _peer) = Stream::plain_pair().unwrap();
            rendezvous.deliver(lane, key, LaneHello { session: [1; 16], lane: 0 })
        };
        assert!(delivers(&key_a) && !delivers(&key_b));
        assert!(matches!(events_a.next(Duration::ZERO), Some(SessionEvent::Lane(LaneEvent::Up(..)))));
        assert!(events_b.next(Duration::ZERO).is_none());
        drop(first);
        let _second = rendezvous.expect([1; 16], key_b, events_b.sender(), Wanted::default(), false).unwrap();
        assert!(delivers(&key_b), "it is free again");
    }

    #[test]
    fn a_link_is_for_the_session_that_it_names_and_for_the_key_of_its_initiator() {
        let rendezvous = Arc::new(LaneRendezvous::default());
        let (key, other_host, stranger) = (KEY, PublicKey([2; 32]), PublicKey([3; 32]));
        let events = Events::new();
        let open = |events: &Events| {
            let (near, far) = Stream::plain_pair().unwrap();
            let channel = Channel::open(near, events.sender(), PATIENCE).unwrap();
            channel.set_attended();
            (channel, far)
        };
        let (channel, _far) = open(&events);
        let (events_b, key_b) = (Events::new(), PublicKey([0xb; 32]));
        let (channel_b, _far_b) = open(&events_b);
        let expecting = rendezvous.expect([1; 16], key, events.sender(), Wanted::default(), false).unwrap();
        let expecting_b = rendezvous.expect([2; 16], key_b, events_b.sender(), Wanted::default(), false).unwrap();
        let delivers = |key: &PublicKey, session| {
            let (link, _peer) = Stream::plain_pair().unwrap();
            rendezvous.deliver_link(link, key, session)
        };
        assert!(!delivers(&key, [1; 16]), "nothing was said of links");
        expecting.takes_links(key, &channel);
        expecting_b.takes_links(key_b, &channel_b);
        assert!(expecting.also(other_host));
        for (who, session) in
            [(stranger, [1; 16]), (other_host, [1; 16]), (key, [2; 16]), (key_b, [1; 16]), (key, [3; 16])]
        {
            assert!(!delivers(&who, session), "{who:?} {session:?}");
        }
        assert!(channel.attend(Duration::ZERO).0.is_empty() && channel_b.attend(Duration::ZERO).0.is_empty());
        assert!(delivers(&key, [1; 16]));
        let mut links = channel.attend(PATIENCE).0;
        assert!(channel.add_link(links.pop().unwrap(), true).is_some() && links.is_empty());
        while delivers(&key, [1; 16]) {}
        assert!(channel.attend(PATIENCE).0.len() < 10);
        drop(expecting);
        assert!(!delivers(&key, [1; 16]), "the session has ended");
        [channel, channel_b].iter().for_each(|channel| channel.close(Duration::ZERO));
    }

    #[test]
    fn a_peer_that_brought_a_lane_can_bring_a_link() {
        let rendezvous = Arc::new(LaneRendezvous::default());
        let events = Events::new();
        let (near, _far) = Stream::plain_pair().unwrap();
        let channel = Channel::open(near, events.sender(), PATIENCE).unwrap();
        let expecting = rendezvous.expect([1; 16], KEY, events.sender(), Wanted::default(), false).unwrap();
        expecting.takes_links(KEY, &channel);
        assert!(expecting.also(PublicKey([2; 32])));
        let delivers = |key: &PublicKey| {
            let (lane, _peer) = Stream::plain_pair().unwrap();
            rendezvous.deliver(lane, key, LaneHello { session: [1; 16], lane: 0 })
        };
        assert!(delivers(&PublicKey([2; 32])) && !channel.is_dialled(), "that was another host");
        assert!(delivers(&KEY) && channel.is_dialled());
        channel.close(Duration::ZERO);
    }

    #[test]
    fn a_ticket_takes_away_its_own_entry_and_no_later_one_of_the_same_number() {
        let rendezvous = Arc::new(LaneRendezvous::default());
        let (old_key, new_key) = (PublicKey([0xa; 32]), PublicKey([0xb; 32]));
        let expect = |key| rendezvous.expect([1; 16], key, Events::new().sender(), Wanted::default(), false).unwrap();
        let old = expect(old_key);
        lock(&rendezvous.sessions).by_number.clear();
        let _new = expect(new_key);
        assert!(old.also(PublicKey([0xc; 32])));
        drop(old);
        assert!(rendezvous.expects_key(&new_key, &stays));
        assert!(
            !rendezvous.expects_key(&PublicKey([0xc; 32]), &stays),
            "it admitted a key to a session of somebody else"
        );
    }

    #[test]
    fn a_lane_that_is_here_before_its_channel_is_told_counts() {
        let rendezvous = Arc::new(LaneRendezvous::default());
        let events = Events::new();
        let (near, _far) = Stream::plain_pair().unwrap();
        let channel = Channel::open(near, events.sender(), PATIENCE).unwrap();
        let expecting = rendezvous.expect([1; 16], KEY, events.sender(), Wanted::default(), false).unwrap();
        let (lane, _peer) = Stream::plain_pair().unwrap();
        assert!(rendezvous.deliver(lane, &KEY, LaneHello { session: [1; 16], lane: 0 }));
        assert!(!channel.is_dialled(), "nobody has said whose channel it is");
        assert!(channel.has_live_lane(), "it waits for the session, and lives");
        expecting.takes_links(KEY, &channel);
        assert!(channel.is_dialled());
    }

    #[test]
    fn a_lane_that_overtakes_its_announcement_waits_for_it() {
        let rendezvous = Arc::new(LaneRendezvous::default());
        let awaited = rendezvous.await_session();
        let early = Arc::clone(&rendezvous);
        let lane = std::thread::spawn(move || early.expects_key(&KEY, &stays));
        let events = Events::new().sender();
        let _expecting = rendezvous.expect([0; 16], KEY, events, Wanted::default(), false);
        drop(awaited);
        assert!(lane.join().unwrap());
    }
}
