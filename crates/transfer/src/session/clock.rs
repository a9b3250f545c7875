//! What the loop of a session does at every turn besides its events.

use std::time::{Duration, Instant};

use haul_job::Error;

use crate::faults::silent;
use crate::session::channel::{Channel, PING_EVERY};
use crate::session::failure::Failure;
use crate::session::reporter::Watch;

/// How often a session looks at its clock.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// How often the running totals are told.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// What the loop of a session does at every turn besides its events.
pub(crate) struct Clock {
    told_at: Instant,
    timeout: Duration,
}

impl Clock {
    pub(crate) fn new(timeout_ms: u32) -> Self {
        Self { told_at: Instant::now(), timeout: Duration::from_millis(u64::from(timeout_ms)) }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long a peer may be silent: with a shorter limit than a few pings, a healthy one would be taken for dead.
    pub(crate) fn silence_limit(&self) -> Duration {
        self.timeout.max(3 * PING_EVERY)
    }

    /// The peer has to be heard now and then, and to listen.
    pub(crate) fn check_peer(&self, channel: &Channel) -> Result<(), Error> {
        if channel.outbox().has_overflowed() {
            return Err(Error::broke_the_protocol("it does not listen"));
        }
        let limit = self.silence_limit();
        if channel.silence() > limit { Err(silent(limit)) } else { Ok(()) }
    }

    /// Tells progress; finds interruption, silence and failures of other threads.
    pub(crate) fn turn(&mut self, watch: &Watch, channel: &Channel, failure: &Failure) -> Result<(), Error> {
        failure.get()?;
        if watch.interrupted() {
            return Err(watch.interruption());
        }
        self.check_peer(channel)?;
        if self.told_at.elapsed() >= PROGRESS_EVERY {
            self.told_at = Instant::now();
            watch.tell_progress();
        }
        Ok(())
    }
}

/// An initiator of a daemon says what it wants within this time, and that of an agent is heard.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(60);
