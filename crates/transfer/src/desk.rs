//! Where arriving lanes find their session.
//!
//! A lane proves its key in the TLS handshake and then names its session. It is handed over only when that session
//! expects lanes of that key; anybody else is let go without a word.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use haul_net::{PublicKey, Stream, policy};
use haul_wire::lane::{Hello, LANE_HELLO_BYTES, LaneHello};

use crate::channel::SessionEvent;
use crate::session;

/// The sessions of one listener that expect lanes.
#[derive(Default)]
pub struct Desk {
    sessions: Mutex<HashMap<[u8; 16], Expected>>,
    changed: Condvar,
}

struct Expected {
    keys: Vec<PublicKey>,
    events: SyncSender<SessionEvent>,
    congestion_control: Option<String>,
}

/// A lane may overtake the control message that announces its session.
const OVERTAKE: Duration = Duration::from_secs(5);

impl Desk {
    /// Reads what a new connection says it is. The deadline of the handshake still holds.
    pub fn read_hello(stream: &mut Stream) -> io::Result<Hello> {
        let mut bytes = [0; LANE_HELLO_BYTES];
        stream.read_exact(&mut bytes)?;
        Hello::decode(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "neither lane nor control"))
    }

    /// Hands a lane to its session. False: nobody expects it.
    pub fn deliver(&self, stream: Stream, key: &PublicKey, hello: LaneHello) -> bool {
        let sessions = session::lock(&self.sessions);
        let (sessions, _) = self
            .changed
            .wait_timeout_while(sessions, OVERTAKE, |sessions| {
                !sessions.get(&hello.session).is_some_and(|expected| expected.keys.contains(key))
            })
            .unwrap_or_else(PoisonError::into_inner);
        let Some(expected) = sessions.get(&hello.session).filter(|expected| expected.keys.contains(key)) else {
            return false;
        };
        let events = expected.events.clone();
        if let Some(tcp) = stream.tcp() {
            policy::apply(tcp, expected.congestion_control.as_deref());
        }
        drop(sessions);
        stream.set_deadline(None).is_ok() && events.send(SessionEvent::LaneUp(stream, hello.lane)).is_ok()
    }

    pub(crate) fn expect(
        self: &Arc<Self>,
        id: [u8; 16],
        key: PublicKey,
        events: SyncSender<SessionEvent>,
        congestion_control: Option<String>,
    ) -> Expecting {
        let expected = Expected { keys: vec![key], events, congestion_control };
        session::lock(&self.sessions).insert(id, expected);
        self.changed.notify_all();
        Expecting { desk: Arc::clone(self), id }
    }
}

/// While it lives, lanes of the session are let in.
pub(crate) struct Expecting {
    desk: Arc<Desk>,
    id: [u8; 16],
}

impl Expecting {
    /// Lanes with this key are let in, too.
    pub(crate) fn also(&self, key: PublicKey) {
        if let Some(expected) = session::lock(&self.desk.sessions).get_mut(&self.id) {
            expected.keys.push(key);
        }
        self.desk.changed.notify_all();
    }
}

impl Drop for Expecting {
    fn drop(&mut self) {
        session::lock(&self.desk.sessions).remove(&self.id);
    }
}
