//! Every limit of the lab, with its arithmetic.

use std::time::Duration;

/// Hosts in one lab. Each costs a namespace and a thread; the addresses would allow 250.
pub const MAX_HOSTS: usize = 64;
/// Links and segments in one lab: the second byte of their addresses.
pub const MAX_LINKS: usize = 128;
/// Hosts on one segment: the fourth byte of their addresses.
pub const MAX_HOSTS_PER_SEGMENT: usize = 64;
/// Bytes of a host's name, so that it fits into any message and file name.
pub const MAX_NAME_BYTES: usize = 32;
/// IPv6 needs 1280, IPv4 576; TCP over less is no sensible experiment.
pub const MIN_MTU: u32 = 576;
/// The largest IP packet is 65,535 bytes; with its Ethernet header it must stay below 64 KiB in the device.
pub const MAX_MTU: u32 = 65_521;
/// One way; the Moon is at 1.3 s.
pub const MAX_DELAY: Duration = Duration::from_secs(30);
/// A queue at one end of a link. 1 GiB is 860 ms at 10 Gbit/s.
pub const MAX_QUEUE_BYTES: u64 = 1 << 30;
/// A queue without a given size holds at least what the link carries in this time, as home and campus routers do.
pub const DEFAULT_QUEUE_TIME: Duration = Duration::from_millis(100);
/// Without a rate nothing waits; what is in flight is bounded by this.
pub const UNLIMITED_LINK_QUEUE_BYTES: u64 = 256 << 20;
/// Above this rate segments pass whole unless the topology says otherwise: one packet of 1500 bytes every 12 us is about
/// what one processor reads, queues and writes.
pub const LARGE_SEGMENTS_FROM_BITS_PER_S: u64 = 2_000_000_000;
/// Packets that wait in one queue, however small they are, since each costs memory beside its bytes. 2^20 packets of 1500
/// bytes are 12.9 s at 1 Gbit/s, more than [`MAX_QUEUE_BYTES`] holds.
pub const MAX_WAITING_PACKETS: usize = 1 << 20;
/// Packets on the way in one direction: 3.5 s of 300,000 packets a second, about the most that one processor carries.
pub const MAX_IN_FLIGHT_PACKETS: usize = 1 << 20;
/// Bytes on the way in one direction. 1 GiB is 860 ms one way at 10 Gbit/s and 8.6 s at 1 Gbit/s.
pub const MAX_IN_FLIGHT_BYTES: u64 = 1 << 30;
/// How much of its rate EF may save up and send at once. A TCP flow marked EF needs about a round trip of it to fill its
/// rate; with EF at half of the link, others wait at most 25 ms for such a burst.
pub const EF_BURST_TIME: Duration = Duration::from_millis(50);
/// How long packets chosen for reordering are held back when the topology does not say: 12 packets of 1500 bytes pass at
/// 150 Mbit/s, 81 at 1 Gbit/s.
pub const DEFAULT_REORDER_TIME: Duration = Duration::from_millis(1);
/// A half-duplex Ethernet gives a frame up after so many collisions (IEEE 802.3, attemptLimit).
pub const MAX_ATTEMPTS_ON_SEGMENT: u32 = 16;
/// The range of the random pause stops doubling here: at most 1023 slots, 52 ms at 10 Mbit/s (IEEE 802.3, backoffLimit).
pub const MAX_BACKOFF_DOUBLINGS: u32 = 10;
