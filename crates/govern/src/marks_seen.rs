//! Finds the marks that arrive on the lanes of a receiver.

use std::time::{Duration, Instant};

use haul_net::{Probe, Stream};
use haul_wire::limits::MAX_LANES;

/// Each lane costs a system call.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Collects arriving marks.
pub struct MarksSeen {
    handshakes: bool,
    lanes: Vec<(u16, Probe)>,
    bits: u64,
    looked_at: Instant,
}

impl MarksSeen {
    /// Starts without lanes. `handshakes`: first packets count.
    pub fn new(handshakes: bool) -> Self {
        Self { handshakes, lanes: Vec::new(), bits: 0, looked_at: Instant::now() }
    }

    /// Watches a lane.
    pub fn lane_up(&mut self, number: u16, stream: &Stream) {
        let probe = stream.probe();
        probe.keep_arriving_dscp();
        self.lane_down(number);
        if self.lanes.len() < usize::from(MAX_LANES) {
            self.lanes.push((number, probe));
        }
    }

    /// Stops watching a lane.
    pub fn lane_down(&mut self, number: u16) {
        if let Some(at) = self.lanes.iter().position(|(other, _)| *other == number) {
            let (_, probe) = self.lanes.swap_remove(at);
            self.note(&probe);
        }
    }

    /// Looks, when it is time.
    pub fn turn(&mut self) {
        if self.looked_at.elapsed() >= LOOK_EVERY {
            self.look();
        }
    }

    /// A bit for each mark.
    pub fn bits(&mut self) -> u64 {
        self.look();
        self.bits
    }

    fn look(&mut self) {
        self.looked_at = Instant::now();
        for at in 0..self.lanes.len() {
            let probe = self.lanes[at].1.clone();
            self.note(&probe);
        }
    }

    fn note(&mut self, probe: &Probe) {
        if let Some(mark) = probe.arriving_dscp(self.handshakes) {
            self.bits |= 1 << mark.code_point();
        }
    }
}
