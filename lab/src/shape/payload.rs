//! What passes on a link, and the time there.

use std::time::Duration;

use crate::limits;

/// Nanoseconds since the start; enough for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A packet of the lab. Duplicates and further hearers get clones.
pub trait Payload: Clone {
    /// IP bytes, of all packets of a large segment.
    fn ip_bytes(&self) -> u32;
    /// 1, or the packets that a large segment stands for.
    fn packets(&self) -> u32;
    /// The six bits that tell DiffServ's classes.
    fn dscp(&self) -> u8;
    /// Changes a bit: `nth` modulo the number of bits.
    fn flip_bit(&mut self, nth: u64);

    /// Wire bytes; short packets are not padded to Ethernet's 46.
    fn wire_bytes(&self) -> u64 {
        u64::from(self.ip_bytes()) + u64::from(self.packets()) * u64::from(limits::WIRE_OVERHEAD_BYTES)
    }
}

impl Nanos {
    /// The lab's start.
    pub const ZERO: Nanos = Nanos(0);

    /// A later time, or the end of time.
    pub fn after(self, time: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time since an earlier moment, or zero.
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
