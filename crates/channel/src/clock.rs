//! Does the regular work at every turn of a session's loop.

use std::time::{Duration, Instant};

use haul_job::Error;

use crate::channel::{Channel, PING_EVERY};
use crate::failure::Failure;
use crate::lane_silence::LaneSilence;
use crate::reporter::Watch;
use haul_kept::faults::silent;

/// The tick of a session's loop.
pub const TICK: Duration = Duration::from_millis(50);

const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The clock of a session's loop.
pub struct Clock {
    told_at: Instant,
    timeout: Duration,
    lanes: LaneSilence,
    other_silence: Duration,
}

impl Clock {
    /// Makes a clock.
    pub fn new(timeout_ms: u32) -> Self {
        let timeout = Duration::from_millis(u64::from(timeout_ms));
        Self { told_at: Instant::now(), timeout, lanes: LaneSilence::default(), other_silence: Duration::ZERO }
    }

    /// The time limit.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The longest silence of a peer. Less than a few pings would kill a healthy one.
    pub fn silence_limit(&self) -> Duration {
        self.timeout.max(3 * PING_EVERY)
    }

    /// Fails if the peer is silent for too long, or does not listen.
    pub fn check_peer(&self, channel: &Channel) -> Result<(), Error> {
        if channel.outbox().has_overflowed() {
            return Err(Error::broke_the_protocol("it does not listen"));
        }
        let limit = self.silence_limit();
        if channel.silence() > limit { Err(silent(limit)) } else { Ok(()) }
    }

    /// Notes another peer's silence: a copy needs both.
    pub fn note_peer(&mut self, channel: &Channel) {
        self.other_silence = channel.silence();
    }

    /// Reports progress; fails on interruption, silence, and failures of other threads.
    pub fn turn(&mut self, watch: &Watch, channel: &Channel, failure: &Failure) -> Result<(), Error> {
        failure.get()?;
        if watch.interrupted() {
            return Err(watch.interruption());
        }
        self.check_peer(channel)?;
        if self.told_at.elapsed() >= PROGRESS_EVERY {
            self.told_at = Instant::now();
            let words = channel.silence().max(self.other_silence);
            watch.on_silence(self.lanes.with_words(words, self.told_at, || channel.lane_bytes()));
            watch.tell_progress();
        }
        Ok(())
    }
}

/// The longest wait of a daemon for the initiator's task.
pub const START_DEADLINE: Duration = Duration::from_secs(60);
