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
/// Classes of DiffServ: each has so much of the direction's queue.
pub const DIFFSERV_QUEUES: u64 = 4;
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
/// Packets that may wait in a TUN device for the emulator. At 1 Gbit/s with 1500 bytes it is 240 ms: whoever falls behind
/// further is short of processor time, and says so.
pub const DEVICE_QUEUE_PACKETS: u32 = 20_000;
/// One read of a device: the largest packet and its headers.
pub const DEVICE_READ_BYTES: usize = 68 * 1024;
/// Packets taken from one device before what is due is handed out again: 64 x 12 us at 1 Gbit/s is 0.8 ms of link time,
/// read in a tenth of that.
pub const FRAMES_AT_ONCE: usize = 64;
/// Buffers kept for use again: those of 100 ms at 1 Gbit/s.
pub const SPARE_BUFFERS: usize = 8192;
/// A packet handed out more than this after it was due was late. The issue of the lab asks for delays within 0.2 ms; single
/// packets may miss that by a time slice of another process (4 ms at HZ=250), so what counts is how many do.
pub const LATE: Duration = Duration::from_millis(1);
/// What carries packets comes before the tools that are measured, where that may be. setpriority(2); only root may.
pub const MOST_URGENT: i32 = -20;
/// Share of late packets above which a measurement is invalid.
pub const MOST_LATE_SHARE: f64 = 0.01;
/// Ports of the lab's own traffic, one for each entry; above those of common servers, below those that kernels give out.
pub const FIRST_TRAFFIC_PORT: u16 = 29_000;
/// Entries of traffic in one lab: each has a port above [`FIRST_TRAFFIC_PORT`], and a thread or two.
pub const MAX_TRAFFIC: usize = 64;
/// TCP connections of one entry of traffic: a thread each.
pub const MAX_TRAFFIC_FLOWS: u16 = 256;
/// Datagrams that are sent before the time, and whether all is over, is looked at again: some 2 ms.
pub const DATAGRAMS_AT_ONCE: usize = 1000;
/// Traffic that is so much late has lost what it did not send, and the lab says so. A busy machine takes some time slices of 4 ms.
pub const MOST_TRAFFIC_BEHIND: Duration = Duration::from_millis(200);
/// Payload of a datagram when the topology does not say.
pub const DEFAULT_TRAFFIC_PAYLOAD_BYTES: u64 = 1000;
/// Payload of a datagram, at most: one packet of 1500 bytes.
pub const MAX_TRAFFIC_PAYLOAD_BYTES: usize = 1472;
/// Delays kept of one stream of probes: 16 bytes each.
pub const MAX_PROBES_KEPT: usize = 4_000_000;
/// How long the kernel may take to look at a new IPv6 address; usually below a millisecond.
pub const ADDRESS_LIMIT: Duration = Duration::from_secs(5);

/// An Ethernet header: destination, source, type. The kernel counts it with every packet.
pub const ETHERNET_HEADER_BYTES: u32 = 14;
/// What a packet takes on the wire beside itself: 14 header, 4 check sum, 8 preamble, 12 gap.
pub const WIRE_OVERHEAD_BYTES: u32 = 38;
/// What netem and htb must add to each packet: 38 on the wire, 14 of them counted already.
pub const NETEM_OVERHEAD_BYTES: u32 = WIRE_OVERHEAD_BYTES - ETHERNET_HEADER_BYTES;
/// The sure share of lower effort is this part of what EF and AF leave: 1 %, so that it never starves entirely.
pub const LOWER_EFFORT_PART: u64 = 100;
/// EF waits at most for these: 16 x 1514 bytes are 194 ms at 1 Mbit/s and 2 ms at 100 Mbit/s.
pub const EF_QUEUE_PACKETS: u64 = 16;
/// A class may catch up with a timer that was late by this much: 12.5 kB at 1 Gbit/s.
pub const HTB_BURST_TIME: Duration = Duration::from_micros(100);

/// A packet is delayed by so many standard deviations more or less than the mean, at most; of 30,000 one would be by more.
pub const SPREADS_MOST: u32 = 4;

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

/// Readings of one copy: a second each for a day. 24 bytes each.
pub const MAX_INTERVALS: usize = 86_400;
/// From one reading to the next; below it the reading itself would be seen.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(20);

/// Points of one experiment: more than 1000 labs, each with several tools and repetitions, take days.
pub const MAX_POINTS: usize = 1000;
/// Tools in one experiment; a legend of more is unreadable.
pub const MAX_TOOLS: usize = 32;
/// Samples of one tool at one point.
pub const MAX_REPEAT: u32 = 100;
/// How long one sample may take.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Files of a data set, all in one directory; the list for a tool is then about 10 MB.
pub const MAX_FILES: u32 = 100_000;
/// Bytes of a data set; each sample needs as much again for the copy.
pub const MAX_DATA_BYTES: u64 = 1 << 40;
/// Of memory that data of an experiment leaves to programs, when it lies there.
pub const LEAST_MEMORY_LEFT_BYTES: u64 = 512 << 20;
/// A server that does not listen after this long has failed. The slowest known one takes 2 s.
pub const SERVER_START_MAX: Duration = Duration::from_secs(20);
/// How often a server's ports are looked at while it starts: 20 s / 20 ms = 1000 looks.
pub const SERVER_LOOK_EVERY: Duration = Duration::from_millis(20);
/// A command that prepares a server or a point: making keys, setting a sysctl.
pub const SETUP_MAX: Duration = Duration::from_secs(30);
/// How often a running tool is interrupted by the question whether the user has had enough.
pub const CANCEL_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Passes over all processes that stop the descendants of a server before they are killed. Each pass finds those that were
/// made during the one before; a stopped process makes none.
pub const FREEZE_PASSES: usize = 8;
/// Bytes of a tool's output that are kept with a failed sample.
pub const OUTPUT_TAIL_BYTES: u64 = 2000;
/// Bytes of a tool's output that a rate is looked for in: iperf3 writes about 1 kB for each stream and second.
pub const OUTPUT_PARSED_BYTES: u64 = 64 << 20;
/// Bytes read at a time when files are compared and made.
pub const COMPARE_BLOCK_BYTES: usize = 1 << 20;
/// Directories of results with the same date and host.
pub const MAX_RUNS_PER_DAY: u32 = 1000;
/// Eighths of the guest's memory that TCP may take: before it saves, before it is pressed, and at most. The rest, a quarter, is
/// for programs; [`UML_BASE_BYTES`] and [`UML_BYTES_PER_BYTE_HELD`] see to it that six eighths hold what the links do.
pub const UML_TCP_MEMORY_EIGHTHS: [u64; 3] = [4, 5, 6];
/// Probes of one stream in a guest kernel, which takes up to 100 us of real time for each packet: 3 s.
pub const MAX_PROBES_IN_GUEST: u64 = 30_000;
/// The same where the clock stands still meanwhile, so that only patience counts: a flood of twice 1 Gbit/s fills the 28.5 MB of
/// 228 ms with 37,000 packets and then shows a full queue.
pub const MAX_PROBES_IN_VIRTUAL_TIME: u64 = 60_000;
/// Labs of one grid of calibrations: three engines with 64 are an hour in real time.
pub const MAX_CELLS: usize = 64;
/// Times that a lab is measured until it is what was asked for.
pub const MAX_CALIBRATIONS: u32 = 10;
