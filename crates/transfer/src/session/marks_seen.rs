//! Which marks arrive on the lanes of a receiver.

use std::time::{Duration, Instant};

use haul_net::{Probe, Stream};
use haul_wire::limits::MAX_LANES;

/// Between two looks: a system call for each lane.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks at the lanes now and then.
pub(crate) struct MarksSeen {
    /// The marks of handshakes are of use.
    handshakes: bool,
    lanes: Vec<(u16, Probe)>,
    /// A bit for each mark.
    bits: u64,
    looked_at: Instant,
}

impl MarksSeen {
    /// `handshakes`: whoever connected the lanes has marked them from the first packet on.
    pub(crate) fn new(handshakes: bool) -> Self {
        Self { handshakes, lanes: Vec::new(), bits: 0, looked_at: Instant::now() }
    }

    pub(crate) fn lane_up(&mut self, number: u16, stream: &Stream) {
        let probe = stream.probe();
        probe.keep_arriving_dscp();
        self.lane_down(number);
        if self.lanes.len() < usize::from(MAX_LANES) {
            self.lanes.push((number, probe));
        }
    }

    pub(crate) fn lane_down(&mut self, number: u16) {
        if let Some(at) = self.lanes.iter().position(|(other, _)| *other == number) {
            let (_, probe) = self.lanes.swap_remove(at);
            self.note(&probe);
        }
    }

    /// At any turn of the loop.
    pub(crate) fn turn(&mut self) {
        if self.looked_at.elapsed() >= LOOK_EVERY {
            self.look();
        }
    }

    /// A bit for each mark that was seen until now.
    pub(crate) fn bits(&mut self) -> u64 {
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
