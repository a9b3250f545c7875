//! Thins the acknowledgements of a receiver's lanes where its own words are lost on the way back.

use std::time::{Duration, Instant};

use haul_channel::channel::Channel;
use haul_channel::convert;
use haul_engine::thin_acks;
use haul_job::Subject;
use haul_net::{Probe, Stream};
use haul_wire::control::{Control, Notice};
use haul_wire::limits::MAX_LANES;

/// Each look costs a system call.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The lanes of one receiver, and how long data gathers on them.
pub struct ThinAcks {
    engine: thin_acks::ThinAcks,
    lanes: Vec<(u16, Probe)>,
    pause: Duration,
    started: Instant,
    looked_at: Instant,
}

impl ThinAcks {
    /// Starts without lanes.
    pub fn new() -> Self {
        let now = Instant::now();
        let engine = thin_acks::ThinAcks::default();
        Self { engine, lanes: Vec::new(), pause: Duration::ZERO, started: now, looked_at: now }
    }

    /// Takes a lane in, which may have carried another job.
    pub fn lane_up(&mut self, number: u16, stream: &Stream) {
        let probe = stream.probe();
        probe.gather_reads(self.pause);
        self.lane_down(number);
        if self.lanes.len() < usize::from(MAX_LANES) {
            self.lanes.push((number, probe));
        }
    }

    /// Forgets a lane.
    pub fn lane_down(&mut self, number: u16) {
        self.lanes.retain(|(other, _)| *other != number);
    }

    /// Looks, when it is time, and tells the sender of another pause. Returns what to tell the user.
    pub fn turn(&mut self, channel: &Channel) -> Option<Notice> {
        if self.looked_at.elapsed() < LOOK_EVERY {
            return None;
        }
        self.looked_at = Instant::now();
        let now_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let pause_us = self.engine.on_look(now_us, channel.words_sent()?, || channel.lane_bytes())?;
        self.pause = Duration::from_micros(pause_us.into());
        self.lanes.iter().for_each(|(_, probe)| probe.gather_reads(self.pause));
        // The sender's round trips grow by it.
        channel.outbox().send(Control::Gathers { us: pause_us });
        let choice = format!("each {} ms", pause_us / 1000);
        Some(convert::chose(
            Subject::Acknowledgements,
            choice,
            "the way back is so full that the target's words are lost",
        ))
    }
}

impl Default for ThinAcks {
    fn default() -> Self {
        Self::new()
    }
}
