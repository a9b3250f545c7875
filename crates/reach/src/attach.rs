//! Keeps a control channel: brings further links, and decides how long a channel without a link is waited for.
//!
//! ```text
//!   the side that dials the lanes    the link is doubtful or lost -> dial another, again and again
//!   the other side                   takes the links that arrive, and waits for one while a lane lives
//! ```
//! A link proves its host's key and names the session. Its address proves nothing.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use haul_engine::plan::NEAR_RTT_US;
use haul_net::{NetError, Stream, Way, dial};
use haul_wire::lane::Hello;

use crate::dial_threads::DialThreads;
use crate::dialler::{REDIAL_PAUSE, WAY_TIMEOUT};
use crate::lane_terms::LaneTerms;
use haul_channel::channel::{Channel, Health, Loss, Proof};

/// The pause between dials doubles from [`REDIAL_PAUSE`] up to this.
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// The longest wait for a link, unless `--timeout` ends the session earlier.
const LONGEST_LOSS: Duration = Duration::from_secs(60);

/// The most time between ssh's end and that of other connections of a dead peer, as we see them.
const LANE_GRACE: Duration = Duration::from_millis(200);

/// A living peer sees the end of ssh too, and dials at once: its link comes even with one lost SYN (1 s) on a path of 300 ms.
/// Lanes prove nothing: a killed peer's kernel still sends what they hold.
const RETURN_LIMIT: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Dials links of a control channel.
#[derive(Clone)]
pub struct LinkDialler {
    terms: LaneTerms,
    candidates: Vec<SocketAddr>,
}

impl LinkDialler {
    /// Makes a dialler.
    pub fn new(terms: LaneTerms, candidates: Vec<SocketAddr>) -> Self {
        Self { terms, candidates }
    }

    /// Keeps only the candidate where a lane has found the peer.
    pub fn towards(mut self, peer: Option<IpAddr>) -> Self {
        let is_there = |candidate: &SocketAddr| peer.is_some_and(|peer| candidate.ip().to_canonical() == peer);
        if self.candidates.iter().any(is_there) {
            self.candidates.retain(is_there);
        }
        self
    }

    fn dial(&self) -> Result<Stream, NetError> {
        let dial_threads = &self.terms.dial_threads;
        let mut candidates = self.candidates.clone();
        loop {
            let socket =
                dial::dial(&candidates, WAY_TIMEOUT, &dial_threads.policies(), &Way::default(), dial_threads.cancel())?;
            let address = socket.peer_addr().ok();
            match greet_link(socket, &self.terms) {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    candidates.retain(|candidate| Some(*candidate) != address);
                    if candidates.is_empty() || address.is_none() {
                        return Err(error);
                    }
                }
            }
        }
    }
}

pub(crate) fn greet_link(socket: TcpStream, terms: &LaneTerms) -> Result<Stream, NetError> {
    terms.dial_threads.policies().for_words(&socket, NEAR_RTT_US);
    let _watched = terms.dial_threads.watches(&socket);
    let (mut stream, _) = haul_net::client(socket, &terms.identity, terms.admits(), &terms.ciphers)?;
    let hello = Hello::Link { session: terms.session };
    let said = stream.write_all(&hello.encode()).and_then(|()| stream.flush());
    said.map_err(|cause| NetError::Io { what: "cannot greet", cause })?;
    Ok(stream)
}

/// Keeps a channel until it ends, in a dial thread. `dialler` waits until this side is known to dial.
pub fn keep(
    channel: &Channel,
    dial_threads: &DialThreads,
    dialler: impl Fn() -> Option<LinkDialler> + Send + 'static,
) -> io::Result<()> {
    let kept = channel.clone();
    channel.set_attended();
    let of_crew = dial_threads.clone();
    let started = dial_threads.start("control-links".into(), move || {
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

    fn await_link(&self, loss: &Loss) {
        let is_too_long = loss.since.elapsed() > if loss.by_peer { RETURN_LIMIT } else { LONGEST_LOSS };
        // A direct connection ends only by the peer's process or will.
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
