//! Counters of the packets of one direction, or of one segment.

use std::time::Duration;

/// Counts since the start. A large segment counts once, because it shares one fate: `offered + duplicated` =
/// `delivered` + [`Counters::vanished`] + packets still inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came in.
    pub offered: u64,
    /// Packets that came out; on a segment, once for each hearer.
    pub delivered: u64,
    /// Lost by chance, alone or in bursts.
    pub lost: u64,
    /// Lost because the link was down.
    pub lost_down: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// EF packets above the rate of EF.
    pub policed: u64,
    /// Lost because more packets were in flight than the lab holds: the run is invalid.
    pub overflowed: u64,
    /// Arrivals beyond the first: duplicates on a link, further hearers of a broadcast on a segment.
    pub duplicated: u64,
    /// Packets with one bit changed.
    pub corrupted: u64,
    /// Packets overtaken by at least one packet behind them.
    pub reordered: u64,
    /// Bytes that passed the transmitter with their framing, as the rate counts them.
    pub wire_bytes_sent: u64,
    /// IP bytes that came out.
    pub ip_bytes_delivered: u64,
    /// Times at which two or more stations of a segment began at once.
    pub collisions: u64,
    /// Packets that their sender gave up after too many collisions.
    pub gave_up: u64,
    /// The most wire bytes that ever waited; on a segment, at one station.
    pub waiting_bytes_max: u64,
    /// The longest wait of a packet until its transmission began.
    pub waiting_time_max: Duration,
}

impl Counters {
    /// Packets that went in and will not come out, for any reason.
    pub fn vanished(&self) -> u64 {
        self.lost + self.lost_down + self.dropped + self.policed + self.overflowed + self.gave_up
    }
}
