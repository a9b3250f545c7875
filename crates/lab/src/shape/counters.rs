//! What happened to the packets of one direction, or of one segment.

use std::time::Duration;

/// Counts since the start. A large segment counts once, as it shares one fate.
///
/// Every packet is somewhere: `offered + duplicated` = `delivered` + [`Counters::vanished`] + those still inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came in.
    pub offered: u64,
    /// Packets that came out; on a segment, once for each that heard one.
    pub delivered: u64,
    /// Lost by chance, alone or in bursts.
    pub lost: u64,
    /// Lost because the link was down.
    pub lost_down: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// EF above its rate.
    pub policed: u64,
    /// Lost because more was on the way than the lab holds: the path is too fat, and the run says nothing.
    pub overflowed: u64,
    /// Arrivals beyond the first: duplicates on a link, the further hearers of a broadcast on a segment.
    pub duplicated: u64,
    /// Packets with one bit changed.
    pub corrupted: u64,
    /// Packets that at least one behind them has overtaken.
    pub reordered: u64,
    /// Bytes that passed the transmitter, framing included: those of the rate.
    pub wire_bytes_sent: u64,
    /// IP bytes that came out.
    pub ip_bytes_delivered: u64,
    /// Two or more on a segment began at once.
    pub collisions: u64,
    /// Packets that collided so often that their sender gave up.
    pub gave_up: u64,
    /// Most wire bytes that ever waited at once; on a segment, at one station.
    pub waiting_bytes_max: u64,
    /// Longest time that a packet waited until its transmission began.
    pub waiting_time_max: Duration,
}

impl Counters {
    /// Packets that went in and will not come out, for whatever reason.
    pub fn vanished(&self) -> u64 {
        self.lost + self.lost_down + self.dropped + self.policed + self.overflowed + self.gave_up
    }
}
