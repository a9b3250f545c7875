//! Keeps a control channel: brings it further links, and decides how long a channel without a link is waited for.
//!
//! ```text
//!   the side that dials the lanes    the link is doubtful or lost -> dial another, again and again
//!   the other side                   takes the links that arrive, and waits for one while a lane lives
//! ```
//! A link proves the key of its host, and names the session, as a lane does. The address it comes from says nothing.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use haul_engine::plan::NEAR_RTT_US;
use haul_net::{NetError, Stream, Way, dial};
use haul_wire::lane::Hello;

use crate::reach::crew::Crew;
use crate::reach::dialler::{REDIAL_PAUSE, WAY_TIMEOUT};
use crate::reach::lane_terms::LaneTerms;
use crate::session::channel::{Channel, Health, Loss, Proof};

/// Pause before a link is dialled once more; it begins with [`REDIAL_PAUSE`] and doubles up to this.
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// A channel without a link is waited for so long at most. The session may give its peer up earlier: `--timeout`.
const LONGEST_LOSS: Duration = Duration::from_secs(60);

/// When ssh has ended and no lane lives, the peer's process is gone. Its kernel ends all of its connections in one moment,
/// and their ends may arrive so far apart.
const LANE_GRACE: Duration = Duration::from_millis(200);

/// A peer that lives sees the end of ssh too, and dials at once. So long after it a link is there, with one lost SYN (1 s) on a
/// path of 300 ms. A killed peer's lanes may live on for a while: its kernel sends what their buffers hold.
const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// How often the channel is looked at when nothing happens.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Dials further links of one control channel.
#[derive(Clone)]
pub(crate) struct LinkDialler {
    terms: LaneTerms,
    candidates: Vec<SocketAddr>,
}

impl LinkDialler {
    /// Of a channel whose peer may be reached there.
    pub(crate) fn new(terms: LaneTerms, candidates: Vec<SocketAddr>) -> Self {
        Self { terms, candidates }
    }

    /// The same towards the address where a lane has found the peer.
    pub(crate) fn towards(mut self, peer: Option<IpAddr>) -> Self {
        let is_there = |candidate: &SocketAddr| peer.is_some_and(|peer| candidate.ip().to_canonical() == peer);
        if self.candidates.iter().any(is_there) {
            self.candidates.retain(is_there);
        }
        self
    }

    /// Dials one link by the current routes.
    fn dial(&self) -> Result<Stream, NetError> {
        let crew = &self.terms.crew;
        let mut candidates = self.candidates.clone();
        loop {
            let socket = dial::dial(&candidates, WAY_TIMEOUT, &crew.policies(), &Way::default(), crew.cancel())?;
            let address = socket.peer_addr().ok();
            match greet_link(socket, &self.terms) {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    // Somebody else may answer there.
                    candidates.retain(|candidate| Some(*candidate) != address);
                    if candidates.is_empty() || address.is_none() {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Makes a link of a connection to the peer's port: shakes hands, and names the session. For [`Channel::add_link`], which waits
/// for the peer's first word.
pub(crate) fn greet_link(socket: TcpStream, terms: &LaneTerms) -> Result<Stream, NetError> {
    terms.crew.policies().for_words(&socket, NEAR_RTT_US);
    let _watched = terms.crew.watches(&socket);
    let (mut stream, _) = haul_net::client(socket, &terms.identity, terms.admits(), &terms.ciphers)?;
    let hello = Hello::Link { session: terms.session };
    let said = stream.write_all(&hello.encode()).and_then(|()| stream.flush());
    said.map_err(|cause| NetError::Io { what: "cannot greet", cause })?;
    Ok(stream)
}

/// Keeps a channel until it ends, in a thread of the crew. `dialler` answers who dials from here, once that is known; else links
/// come from the peer.
pub(crate) fn keep(
    channel: &Channel,
    crew: &Crew,
    dialler: impl Fn() -> Option<LinkDialler> + Send + 'static,
) -> io::Result<()> {
    let kept = channel.clone();
    channel.set_attended();
    let of_crew = crew.clone();
    let started = crew.start("control-links".into(), move || {
        // A session that fails before it begins does not close its channel.
        let left = kept.clone();
        let _watched = of_crew.on_end(move || left.give_up());
        Keeper { channel: &kept, pause: REDIAL_PAUSE }.run(&dialler);
    });
    started.inspect_err(|_| channel.give_up())
}

struct Keeper<'a> {
    channel: &'a Channel,
    pause: Duration,
}

impl Keeper<'_> {
    fn run(mut self, dialler: &dyn Fn() -> Option<LinkDialler>) {
        loop {
            let (offered, health) = self.channel.attend(LOOK_EVERY);
            let has_new = !offered.is_empty();
            for stream in offered {
                // If there is no room, the link is closed.
                self.channel.add_link(stream, true);
            }
            match health {
                Health::Over => return,
                _ if has_new => {}
                Health::Good => self.pause = REDIAL_PAUSE,
                Health::Doubtful(_) => match dialler() {
                    Some(dialler) => self.dial(&dialler, None),
                    None => self.channel.pause(LOOK_EVERY),
                },
                Health::Lost(loss) => match dialler() {
                    Some(dialler) => self.dial(&dialler, Some(&loss)),
                    None => self.await_link(&loss),
                },
            }
        }
    }

    /// The peer dials, if it still exists.
    fn await_link(&self, loss: &Loss) {
        let is_too_long = loss.since.elapsed() > if loss.by_peer { RETURN_LIMIT } else { LONGEST_LOSS };
        // Of a peer's process nothing but its end, or its will, ends a direct connection.
        let is_sure = loss.by_peer && loss.is_direct;
        if is_sure || is_too_long || !self.channel.is_dialled() || self.peer_is_gone(loss) {
            return self.channel.give_up();
        }
        self.channel.pause(LANE_GRACE / 4);
    }

    fn peer_is_gone(&self, loss: &Loss) -> bool {
        let begun = Instant::now();
        while loss.by_peer && !self.channel.has_live_lane() {
            if begun.elapsed() >= LANE_GRACE {
                return true;
            }
            self.channel.pause(LANE_GRACE / 10);
            if self.channel.has_news() {
                return false;
            }
        }
        false
    }

    fn dial(&mut self, dialler: &LinkDialler, loss: Option<&Loss>) {
        let is_hopeless = match dialler.dial() {
            Ok(stream) => match self.channel.add_link(stream, false).map(|id| self.channel.proof(id, WAY_TIMEOUT)) {
                Some(Proof::Stands) => return self.pause = REDIAL_PAUSE,
                Some(Proof::Silent) => false,
                // The peer has no such session any more, or no room for another link of it.
                Some(Proof::Refused) | None => true,
            },
            Err(error) => is_refused(&error) || loss.is_some_and(|loss| loss.by_peer && !self.channel.has_live_lane()),
        };
        if let Some(loss) = loss
            && (is_hopeless || loss.since.elapsed() > LONGEST_LOSS)
        {
            return self.channel.give_up();
        }
        self.channel.pause(self.pause);
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }
}

/// Nobody listens at any address of the peer: its process is gone.
fn is_refused(error: &NetError) -> bool {
    match error {
        NetError::Unreachable { attempts } => {
            let is_refused = |cause: &io::Error| cause.kind() == io::ErrorKind::ConnectionRefused;
            !attempts.is_empty() && attempts.iter().all(|attempt| is_refused(&attempt.cause))
        }
        NetError::WrongKey { .. } | NetError::KeyRefused => true,
        _ => false,
    }
}
