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

/// An Ethernet header: destination, source, type. The kernel counts it with every packet.
pub const ETHERNET_HEADER_BYTES: u32 = 14;
/// What a packet takes on the wire beside itself: 14 header, 4 check sum, 8 preamble, 12 gap.
pub const WIRE_OVERHEAD_BYTES: u32 = 38;
/// What netem and htb must add to each packet: 38 on the wire, 14 of them counted already.
pub const NETEM_OVERHEAD_BYTES: u32 = WIRE_OVERHEAD_BYTES - ETHERNET_HEADER_BYTES;
/// How long a packet is held back so that others overtake it: 83 full packets at 1 Gbit/s.
pub const DEFAULT_REORDER_TIME: Duration = Duration::from_millis(1);
/// The sure share of lower effort is this part of what EF and AF leave: 1 %, so that it never starves entirely.
pub const LOWER_EFFORT_PART: u64 = 100;
/// EF waits at most for these: 16 x 1514 bytes are 194 ms at 1 Mbit/s and 2 ms at 100 Mbit/s.
pub const EF_QUEUE_PACKETS: u64 = 16;
/// A class may catch up with a timer that was late by this much: 12.5 kB at 1 Gbit/s.
pub const HTB_BURST_TIME: Duration = Duration::from_micros(100);

/// netem counts packets, not bytes: as many full ones as hold this many bytes on the wire, at least one.
/// 14 MB at an MTU of 1500 are 14,000,000 / 1538, rounded up, 9103.
pub fn netem_packets(bytes: u64, mtu: u32) -> u32 {
    let packets = bytes.div_ceil(u64::from(mtu + WIRE_OVERHEAD_BYTES));
    u32::try_from(packets).unwrap_or(u32::MAX).max(1)
}

/// What a small system and its programs take in a guest kernel.
pub const UML_BASE_BYTES: u64 = 1 << 30;
/// For each byte that queues and links hold: 2 in packets, as the kernel counts them, and one in the buffers of each end.
pub const UML_BYTES_PER_BYTE_HELD: u64 = 4;
/// Below it ordinary commands fail.
pub const MIN_UML_BYTES: u64 = 2 << 30;
/// 100 Gbit/s x 100 ms hold 1.25 GB each way in links and as much in queues: 4 x 5 GB + 1 GiB are 21 GB. More is a mistake.
pub const MAX_UML_BYTES: u64 = 64 << 30;
/// How often boot looks for output of the guest.
pub const UML_POLL: Duration = Duration::from_millis(10);
/// After being asked to end, the keeper of a kernel has this long to kill it and its helpers.
pub const UML_STOP_TIME: Duration = Duration::from_secs(2);
/// The kernel's console that an error quotes.
pub const UML_CONSOLE_LINES: usize = 20;
/// The kernel cuts its command line at 2048 bytes (4096 in newer ones).
pub const MAX_UML_COMMAND_LINE_BYTES: usize = 2047;
/// Bytes copied at a time between the command and its output file.
pub const UML_OUTPUT_BYTES: usize = 64 << 10;
/// How long the guest waits at the end for output that is still on the way.
pub const UML_DRAIN_TIME: Duration = Duration::from_secs(2);
/// Eighths of the guest's memory that TCP may take: before it saves, before it is pressed, and at most. The rest, a quarter, is
/// for programs; [`UML_BASE_BYTES`] and [`UML_BYTES_PER_BYTE_HELD`] see to it that six eighths hold what the links do.
pub const UML_TCP_MEMORY_EIGHTHS: [u64; 3] = [4, 5, 6];
