//! Counters of a direction's or segment's packets.

use std::time::Duration;

/// Counts since the start. A large segment counts once: `offered + duplicated` = `delivered` + [`Counters::vanished`] +
/// packets inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came in.
    pub offered: u64,
    /// Packets that came out; on a segment, once for each hearer.
    pub delivered: u64,
    /// Lost by chance, alone or in bursts.
    pub lost: u64,
    /// Lost while the link was down.
    pub lost_down: u64,
    /// Dropped at a full queue.
    pub dropped: u64,
    /// EF packets above EF's rate.
    pub policed: u64,
    /// Lost because the lab holds no more in flight: the run is invalid.
    pub overflowed: u64,
    /// Duplicates on a link, further hearers of a broadcast on a segment.
    pub duplicated: u64,
    /// Packets with one bit changed.
    pub corrupted: u64,
    /// Packets overtaken by one behind them.
    pub reordered: u64,
    /// Bytes sent with framing, as the rate counts.
    pub wire_bytes_sent: u64,
    /// IP bytes that came out.
    pub ip_bytes_delivered: u64,
    /// Times at which several stations began at once.
    pub collisions: u64,
    /// Packets given up after too many collisions.
    pub gave_up: u64,
    /// The most wire bytes waiting; on a segment, at one station.
    pub waiting_bytes_max: u64,
    /// The longest wait until transmission.
    pub waiting_time_max: Duration,
}

impl Counters {
    /// Packets that will not come out, for any reason.
    pub fn vanished(&self) -> u64 {
        self.lost + self.lost_down + self.dropped + self.policed + self.overflowed + self.gave_up
    }
}
