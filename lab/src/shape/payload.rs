//! What passes on a link, and the time there.

use std::time::Duration;

use crate::limits;

/// Nanoseconds since the lab's start; enough for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A packet of the lab. A clone arrives when a packet is duplicated, or heard by several.
pub trait Payload: Clone {
    /// Bytes of the IP packet, or of all packets that a large segment stands for.
    fn ip_bytes(&self) -> u32;
    /// 1, or the number of packets on the wire that a large segment stands for.
    fn packets(&self) -> u32;
    /// The six bits by which DiffServ tells classes apart.
    fn dscp(&self) -> u8;
    /// Changes one bit; `nth` is any number, taken modulo the number of bits.
    fn flip_bit(&mut self, nth: u64);

    /// Bytes on the wire. Short packets are not padded to the 46 bytes of Ethernet.
    fn wire_bytes(&self) -> u64 {
        u64::from(self.ip_bytes()) + u64::from(self.packets()) * u64::from(limits::WIRE_OVERHEAD_BYTES)
    }
}

impl Nanos {
    /// The lab's start.
    pub const ZERO: Nanos = Nanos(0);

    /// A later time; the end of time if it is out of range.
    pub fn after(self, time: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time since an earlier moment; zero if it is not earlier.
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
